package blocklist

import (
	"maps"

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
	t.drop(i, func(b *heldBlock) bool { return b.until <= now })
	if i == 0 {
		t.mu.Lock()
		defer t.mu.Unlock()
		maps.DeleteFunc(t.tombstones, func(_ held, tomb Tombstone) bool { return tomb.Until <= now })
	}
}

// forget drops the blocks that nothing has told of since mark began. Modes and tombstones stay: Redis may have lost them,
// and they are only raised.
func (t *table) forget(mark uint32) {
	for i := range t.shards {
		t.drop(i, func(b *heldBlock) bool { return b.seen < mark })
	}
}

// drop drops the blocks of a shard of which over is true.
func (t *table) drop(i int, over func(b *heldBlock) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, hash := range t.shards[i].having(over) {
		t.remove(hash, func(_ *entry, b *heldBlock) bool { return over(b) })
	}
	t.shards[i].shrink()
}

// having finds the hashes with something to drop, while readers go on.
func (sh *shard) having(over func(b *heldBlock) bool) []uint64 {
	var out []uint64
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	for hash, e := range sh.entries {
		for ; e != nil; e = e.next {
			for i := range e.blocks {
				if over(&e.blocks[i]) {
					out = append(out, hash)
				}
			}
		}
	}
	return out
}

// shrinkFrom is how many entries make a map large enough to be worth making anew.
const shrinkFrom = 64

// shrink gives back memory after a flood: a Go map keeps the room that it has once needed.
func (sh *shard) shrink() {
	sh.mu.Lock()
	defer sh.mu.Unlock()
	if sh.most < shrinkFrom || len(sh.entries) > sh.most/4 {
		return
	}
	entries := make(map[uint64]*entry, len(sh.entries))
	maps.Copy(entries, sh.entries)
	sh.entries, sh.most = entries, len(entries)
}
