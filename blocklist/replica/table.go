package replica

import (
	"maps"
	"sync"
	"sync/atomic"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// table is the blocklist in memory. Readers take no lock until the filter says that a block is likely; changes are made
// one at a time, under mu. They may come in any order and more than once: what is held is only raised.
type table struct {
	hasher hasher
	shards [tableShards]shard
	filter atomic.Pointer[filter]
	shapes atomic.Pointer[[]blocklist.Shape]
	modes  atomic.Pointer[map[string]rules.ModeState]

	mu         sync.Mutex
	mark       uint32                  // what is told of now is seen in; see renew
	inUse      map[blocklist.Shape]int // subjects of each shape
	tombstones map[blocklist.Name]blocklist.Tombstone
	ruleNames  map[string]string // one copy of each rule's id
	byRule     map[string]int    // blocks that are held
	blocks     atomic.Int64
}

// tableShards divides the subjects, so that a sweep holds up few readers and those only shortly.
const tableShards = 256

type shard struct {
	mu      sync.RWMutex
	entries map[uint64]*entry
	most    int // entries since the map was made
}

// entry is one blocked subject. Different subjects of the same hash are linked.
type entry struct {
	subject traffic.Subject
	shape   blocklist.Shape
	blocks  []heldBlock
	next    *entry
}

// heldBlock is a Block in less memory.
type heldBlock struct {
	rule, hit    string
	generation   int64
	since, until traffic.Time
	seen         uint32 // the table's mark when a key or a delta last told of it
}

func (h *heldBlock) block() blocklist.Block {
	return blocklist.NewBlock(h.rule, h.generation, h.hit, h.since, h.until)
}

func newTable() *table {
	t := &table{
		hasher: newHasher(), inUse: map[blocklist.Shape]int{}, tombstones: map[blocklist.Name]blocklist.Tombstone{}, ruleNames: map[string]string{},
		byRule: map[string]int{},
	}
	for i := range t.shards {
		t.shards[i].entries = map[uint64]*entry{}
	}
	t.filter.Store(newFilter(0))
	t.shapes.Store(&[]blocklist.Shape{})
	t.modes.Store(&map[string]rules.ModeState{})
	return t
}

func (t *table) shard(hash uint64) *shard { return &t.shards[hash>>24%tableShards] }

// find returns the block that lasts longest of those that hold the request, and no memory is allocated for it.
func (t *table) find(id *traffic.Identity, request *rules.Target, now traffic.Time) (blocklist.Block, bool) {
	filter := t.filter.Load()
	var best heldBlock
	var values sums
	shapes := *t.shapes.Load()
	for i := range shapes {
		s := &shapes[i]
		hash, ok := t.hasher.identity(id, s, &values)
		if !ok || !filter.has(hash) {
			continue
		}
		t.longest(&best, hash, id, s, request, now)
	}
	if best.until == 0 {
		return blocklist.Block{}, false
	}
	return best.block(), true
}

// longest puts into best what lasts longer and holds the request.
func (t *table) longest(best *heldBlock, hash uint64, id *traffic.Identity, s *blocklist.Shape, request *rules.Target, now traffic.Time) {
	modes := *t.modes.Load()
	sh := t.shard(hash)
	sh.mu.RLock()
	defer sh.mu.RUnlock()
	for e := sh.entries[hash]; e != nil; e = e.next {
		if e.shape != *s || !sameSubject(e.subject, id, s) {
			continue
		}
		for i := range e.blocks {
			b := &e.blocks[i]
			if b.until <= now || b.until <= best.until {
				continue
			}
			// A rule without a known mode blocks nobody, nor does a block from before the rule's last promotion.
			mode, ok := modes[b.rule]
			if ok && mode.Mode.Blocks() && b.generation >= mode.Generation && mode.Match.Reaches(request) {
				*best = *b
			}
		}
	}
}

// setModes raises the modes of rules by their generation; within a generation the newest text counts.
func (t *table) setModes(modes ...rules.ModeState) {
	t.mu.Lock()
	defer t.mu.Unlock()
	next := maps.Clone(*t.modes.Load())
	for _, m := range modes {
		if old, ok := next[m.Rule]; !ok || old.Generation <= m.Generation || !old.Given() || !m.Given() {
			next[m.Rule] = m
		}
	}
	t.modes.Store(&next)
}

// renew begins a mark: forget can tell what has been put since from what has not.
func (t *table) renew() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mark++
	return t.mark
}

// put adds or raises a block, unless a tombstone covers it or what is held is newer or lasts as long.
func (t *table) put(subject traffic.Subject, p *blocklist.ParsedSubject, b *blocklist.Block) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if tomb, ok := t.tombstones[blocklist.Name{Subject: subject, Rule: b.Rule}]; ok && tomb.Covers(b.Hit, b.Since) {
		return
	}
	s := p.Shape()
	hash := t.hasher.subject(p, s)
	next := heldBlock{rule: t.ruleName(b.Rule), hit: b.Hit, generation: b.Generation, since: b.Since, until: b.Until, seen: t.mark}
	sh := t.shard(hash)
	sh.mu.Lock()
	e := sh.entries[hash]
	for e != nil && e.subject != subject {
		e = e.next
	}
	fresh := e == nil
	if fresh {
		e = &entry{subject: subject, shape: s, next: sh.entries[hash]}
		sh.entries[hash] = e
		sh.most = max(sh.most, len(sh.entries))
	}
	if e.raise(next) {
		t.count(next.rule, 1)
	}
	sh.mu.Unlock()
	if fresh {
		t.admit(s, hash)
	}
}

// count notes that more blocks of a rule are held, or fewer. mu is held.
func (t *table) count(rule string, more int) {
	t.blocks.Add(int64(more))
	if t.byRule[rule] += more; t.byRule[rule] == 0 {
		delete(t.byRule, rule)
	}
}

// counts are the blocks held of each rule that has any, or that blocks.
func (t *table) counts() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := maps.Clone(t.byRule)
	for _, rule := range t.blocking() {
		all[rule] += 0
	}
	return all
}

// blocking are the rules whose mode is known and lets their blocks hold.
func (t *table) blocking() (list []string) {
	for rule, m := range *t.modes.Load() {
		if m.Mode.Blocks() {
			list = append(list, rule)
		}
	}
	return list
}

func (t *table) ruleName(rule string) string {
	if known, ok := t.ruleNames[rule]; ok {
		return known
	}
	t.ruleNames[rule] = rule
	return rule
}

// raise puts b into e unless what e holds for b's rule is of a newer generation, or of the same and lasts as long. It
// reports whether e holds one block more.
func (e *entry) raise(b heldBlock) bool {
	for i := range e.blocks {
		old := &e.blocks[i]
		if old.rule != b.rule {
			continue
		}
		if old.generation < b.generation || old.generation == b.generation && old.until < b.until {
			*old = b
		}
		old.seen = b.seen
		return false
	}
	e.blocks = append(e.blocks, b)
	return true
}

// admit makes a new subject visible to readers. It stands in its shard already; mu is held.
func (t *table) admit(s blocklist.Shape, hash uint64) {
	t.inUse[s]++
	if t.inUse[s] == 1 {
		t.publishShapes()
	}
	f := t.filter.Load()
	if f.added >= f.capacity {
		t.rebuildFilter()
		return
	}
	f.add(hash)
}

func (t *table) publishShapes() {
	list := make([]blocklist.Shape, 0, len(t.inUse))
	for s := range t.inUse {
		list = append(list, s)
	}
	t.shapes.Store(&list)
}

// rebuildFilter makes a filter of what is held now, with room to double. Readers use the old one meanwhile. mu is held.
func (t *table) rebuildFilter() {
	subjects := 0
	for _, n := range t.inUse {
		subjects += n
	}
	f := newFilter(2 * subjects)
	for i := range t.shards {
		sh := &t.shards[i]
		sh.mu.RLock()
		for hash := range sh.entries {
			f.add(hash)
		}
		sh.mu.RUnlock()
	}
	t.filter.Store(f)
}

// release keeps a tombstone and removes the block that it covers.
func (t *table) release(subject traffic.Subject, p *blocklist.ParsedSubject, tomb blocklist.Tombstone) {
	t.mu.Lock()
	defer t.mu.Unlock()
	key := blocklist.Name{Subject: subject, Rule: tomb.Rule}
	if known, ok := t.tombstones[key]; ok && known.Released > tomb.Released {
		return
	}
	t.tombstones[key] = tomb
	t.remove(t.hasher.subject(p, p.Shape()), func(e *entry, b *heldBlock) bool {
		return e.subject == subject && b.rule == tomb.Rule && tomb.Covers(b.hit, b.since)
	})
}

// remove drops the blocks at hash that drop names, and what is then empty. mu is held.
func (t *table) remove(hash uint64, drop func(e *entry, b *heldBlock) bool) {
	sh := t.shard(hash)
	var gone []blocklist.Shape
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
			t.count(e.blocks[i].rule, -1)
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
		maps.DeleteFunc(t.tombstones, func(_ blocklist.Name, tomb blocklist.Tombstone) bool { return tomb.Until <= now })
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
