package detectors

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ledger counts what the keys of all lineages of a partition take. Bytes are a function of what is held, not of how the
// allocator holds it, so that what is evicted is a function of the log.
type ledger struct {
	bytes int64
	kept  int64 // of them, with the keys that have episodes
	keys  int
	arena arena
	gone  ghosts
}

// keyBytes is what a key takes in a table: 43 bytes at the worst point of its growth (BenchmarkBytesPerKey), up to 45.5
// after a restore.
const keyBytes = 46

// lineage is what all windows of one lineage of a rule share. What a lineage counts, and how, is settled when it gets its
// first key and holds until it has none left; then it may start anew.
type lineage struct {
	rule   string
	number int
	id     string // rule/number
	salt   uint64 // of the tags of its keys: rules of equal keys share fingerprints
	ledger *ledger

	uncounted [NumUncounted]int64 // events left out that TakeUncounted has not told of; no part of the state

	// Of a lineage that has keys.
	kind      kind
	window    traffic.Time
	lateness  traffic.Time // greatest of the versions that fed it: its keys live that much longer
	limit     int64        // of the version that fed it last
	greatest  int64        // greatest limit of the versions that fed it
	evicted   traffic.Time // newest event of the keys that were evicted: a key that is new may be one of them
	burst     int64
	form      keyForm
	algorithm algorithm
	cells     table
	kept      []*kept // keys with episodes, by the index in their cell
	free      []uint32
}

func newLineage(rule string, number int, l *ledger) *lineage {
	id := fmt.Sprintf("%s/%d", rule, number)
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never an error
	return &lineage{rule: rule, number: number, id: id, salt: h.Sum64(), ledger: l}
}

// tag is what is remembered of a key once it is evicted.
func (l *lineage) tag(key Fingerprint) uint16 { return uint16(mix(key.Lo ^ l.salt)) }

// start settles what an empty lineage counts.
func (l *lineage) start(v *rules.Version) {
	l.begin(kindOf(v), traffic.Time(v.Window.Microseconds()), keyBinary)
}

func (l *lineage) begin(k kind, window traffic.Time, form keyForm) {
	l.kind, l.window, l.form, l.lateness, l.greatest, l.evicted = k, window, form, 0, 0, traffic.BeforeTime
	l.kept, l.free = nil, nil
	l.algorithm = newAlgorithm(l)
}

// feed notes the version under which the next event comes.
func (l *lineage) feed(b *binding) {
	if l.cells.n == 0 {
		l.start(b.version)
	}
	l.lateness = max(l.lateness, b.lateness)
	l.limit, l.burst = b.limit, b.burst
	l.greatest = max(l.greatest, b.limit)
}

// cellOf is the cell of a key, a new one if need be, and the key's episodes if it has any. at is as for put.
func (l *lineage) cellOf(key Fingerprint, at int32) (*cell, *kept) {
	s, fresh := l.cells.put(key, at)
	if fresh != nil {
		l.ledger.keys++
		l.ledger.bytes += keyBytes
		*fresh = l.ledger.gone.take(key.Hi, l.tag(key))
	}
	if s.b&cellKept == 0 {
		return &s.cell, nil
	}
	k := l.kept[s.b&cellIndex]
	return &k.cell, k
}

// keep makes room for the episodes of a key that has none yet.
func (l *lineage) keep(key Fingerprint, c *cell) *kept {
	k := &kept{key: key, lineage: l, cell: *c, heap: -1, trimmed: place{entry: entry{time: traffic.BeforeTime}}}
	index := uint32(len(l.kept))
	if n := len(l.free); n > 0 {
		index, l.free = l.free[n-1], l.free[:n-1]
		l.kept[index] = k
	} else {
		l.kept = append(l.kept, k)
	}
	*c = cell{b: cellUsed | cellKept | uint64(index)}
	return k
}

// letGo makes a key without episodes a plain one again.
func (l *lineage) letGo(k *kept) {
	s := l.cells.get(k.key)
	index := uint32(s.b & cellIndex)
	s.cell = k.cell
	l.kept[index] = nil
	l.free = append(l.free, index)
}

// open is the cell in a slot, wherever it lies.
func (l *lineage) open(s *slot) (*cell, *kept) {
	if s.b&cellKept == 0 {
		return &s.cell, nil
	}
	k := l.kept[s.b&cellIndex]
	return &k.cell, k
}

// forget releases what a key without episodes holds beside its slot, which is removed by the caller. Once no key is left,
// nothing is remembered of those that were evicted.
func (l *lineage) forget(c *cell) {
	l.algorithm.release(c)
	l.ledger.keys--
	l.ledger.bytes -= keyBytes
	if l.ledger.keys == 0 {
		l.ledger.gone.clear()
	}
}

// dead is the instant whose past is of no use to the lineage any more: no event on time lies before it.
func (l *lineage) dead(watermark traffic.Time) traffic.Time {
	if watermark == traffic.BeforeTime || watermark == traffic.EndOfTime {
		return watermark
	}
	return earlier(watermark, l.lateness)
}

// binding ties a rule of a routing version to its lineage.
type binding struct {
	version  *rules.Version
	lineage  *lineage
	limit    int64
	burst    int64 // capacity of a bucket
	lateness traffic.Time
	cooldown traffic.Time
	wide     bool // the block's key has fields that the rule's key has not
	tells    bool // hits of KindUncounted may be written
	group    int  // the first rule of the version that has the same key: they share fingerprints
}

// bind makes the bindings of a routing version.
func (p *Partition) bind(r *rules.Routing) []binding {
	out := make([]binding, len(r.Rules))
	for i := range r.Rules {
		v := &r.Rules[i]
		out[i] = newBinding(v, p.lineage(v.ID, v.Lineage))
		out[i].tells, out[i].group = tellsUncounted(r), i
		for j := range i {
			if sameKey(v.Key, r.Rules[j].Key) {
				out[i].group = j
				break
			}
		}
	}
	return out
}

func newBinding(v *rules.Version, l *lineage) binding {
	return binding{
		version: v, lineage: l, limit: int64(v.Limit), burst: capacity(v),
		lateness: traffic.Time(v.Lateness.Microseconds()), cooldown: traffic.Time(v.UpdateEvery().Microseconds()),
		wide: v.Block != nil && widens(v.Block.Key, v.Key),
	}
}

// lineage finds a lineage, or makes it.
func (p *Partition) lineage(rule string, number int) *lineage {
	l := newLineage(rule, number, &p.ledger)
	if known, ok := p.lineages[l.id]; ok {
		return known
	}
	p.lineages[l.id] = l
	at, _ := slices.BinarySearchFunc(p.ordered, l.id, func(x *lineage, id string) int { return cmp.Compare(x.id, id) })
	p.ordered = slices.Insert(p.ordered, at, l)
	return l
}

// prune forgets lineages that hold nothing and that no routing version names any more.
func (p *Partition) prune() {
	named := map[*lineage]bool{}
	for _, bindings := range p.routings {
		for i := range bindings {
			named[bindings[i].lineage] = true
		}
	}
	for key := range p.uncounted.sums {
		named[key.lineage] = true
	}
	p.ordered = slices.DeleteFunc(p.ordered, func(l *lineage) bool {
		if named[l] || l.cells.n > 0 || l.uncounted != [NumUncounted]int64{} {
			return false
		}
		delete(p.lineages, l.id)
		return true
	})
}

// widens reports whether the block's key tells sources apart that the rule's key does not.
func widens(block, key []traffic.KeyField) bool {
	for _, b := range block {
		found := false
		for _, k := range key {
			found = found || k.Field == b.Field
		}
		if !found {
			return true
		}
	}
	return false
}

// sameKey reports whether two keys have the same fields, in whatever order.
func sameKey(a, b []traffic.KeyField) bool {
	if len(a) != len(b) {
		return false
	}
	for _, x := range a {
		found := false
		for _, y := range b {
			found = found || x == y
		}
		if !found {
			return false
		}
	}
	return true
}
