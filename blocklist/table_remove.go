package blocklist

import (
	"maps"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// release keeps a tombstone and removes the block that it covers.
func (t *table) release(subject traffic.Subject, w *who, tomb Tombstone) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := held{subject: subject, rule: tomb.Rule}
	if known, ok := t.tombstones[key]; ok && known.Released > tomb.Released {
		return
	}
	t.tombstones[key] = tomb
	t.remove(t.hasher.subject(w, w.shape()), func(e *entry, b *heldBlock) bool {
		return e.subject == subject && b.rule == tomb.Rule && tomb.Covers(b.hit, b.since)
	})
}

// remove drops the blocks at hash that drop names, and what is then empty. mu is held.
func (t *table) remove(hash uint64, drop func(e *entry, b *heldBlock) bool) {
	sh := t.shard(hash)
	var gone []shape
	sh.mu.Lock()
	var kept *entry
	for e := sh.entries[hash]; e != nil; {
		next := e.next
		if e.keep(t, drop); len(e.blocks) == 0 {
			gone = append(gone, e.shape)
		} else {
			e.next, kept = kept, e
		}
		e = next
	}
	if kept == nil {
		delete(sh.entries, hash)
	} else {
		sh.entries[hash] = kept
	}
	sh.mu.Unlock()
	for _, s := range gone {
		if t.inUse[s]--; t.inUse[s] == 0 {
			delete(t.inUse, s)
			t.publishShapes()
		}
	}
}

func (e *entry) keep(t *table, drop func(e *entry, b *heldBlock) bool) {
	blocks := e.blocks[:0]
	for i := range e.blocks {
		if drop(e, &e.blocks[i]) {
			t.blocks.Add(-1)
		} else {
			blocks = append(blocks, e.blocks[i])
		}
	}
	clear(e.blocks[len(blocks):])
	e.blocks = blocks
}

// sweep drops what has expired in one shard, and with the first one the tombstones that have.
func (t *table) sweep(i int, now traffic.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	over := func(_ *entry, b *heldBlock) bool { return b.until <= now }
	for _, hash := range t.shards[i].expired(now) {
		t.remove(hash, over)
	}
	if i == 0 {
		maps.DeleteFunc(t.tombstones, func(_ held, tomb Tombstone) bool { return tomb.Until <= now })
	}
}

// expired finds the hashes with something to drop, while readers go on.
func (sh *shard) expired(now traffic.Time) []uint64 {
	var out []uint64
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	for hash, e := range sh.entries {
		for ; e != nil; e = e.next {
			for i := range e.blocks {
				if e.blocks[i].until <= now {
					out = append(out, hash)
				}
			}
		}
	}
	return out
}

// inherit takes over what must outlive a reload: modes, which only rise, and tombstones. Redis may have lost both.
func (t *table) inherit(old *table, now traffic.Time) {
	newest := slices.Collect(maps.Values(*t.modes.Load()))
	t.setModes(slices.Collect(maps.Values(*old.modes.Load()))...)
	t.setModes(newest...) // again: within a generation what was loaded is the newer text
	old.mu.Lock()
	defer old.mu.Unlock()
	for key, tomb := range old.tombstones {
		if w, err := parseWho(key.subject); err == nil && tomb.Until > now {
			t.release(key.subject, &w, tomb)
		}
	}
}

// inheritBlocks takes over the blocks that old holds: what Redis has forgotten is still true.
func (t *table) inheritBlocks(old *table, now traffic.Time) {
	for i := range old.shards {
		sh := &old.shards[i]
		sh.mu.RLock()
		for _, e := range sh.entries {
			for ; e != nil; e = e.next {
				t.inheritEntry(e, now)
			}
		}
		sh.mu.RUnlock()
	}
}

func (t *table) inheritEntry(e *entry, now traffic.Time) {
	w, err := parseWho(e.subject)
	if err != nil {
		return // nothing that is no subject was put into a table
	}
	for i := range e.blocks {
		if b := e.blocks[i].block(); b.Until > now {
			t.put(e.subject, &w, &b)
		}
	}
}
