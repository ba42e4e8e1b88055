package detectors

import (
	"fmt"
	"hash/fnv"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ledger counts the memory that the keys of all lineages of a partition take. Bytes are a function of the state, not of how
// the allocator holds it, so that eviction is a function of the log.
type ledger struct {
	bytes     int64
	offenders int64 // of them, with the keys that have episodes
	keys      int
	arena     arena
	gone      ghosts
}

// prefetch touches slots, and then the blocks that they refer to, so that they are in cache. The sum has no meaning; it
// only keeps the compiler from removing the loads.
func (l *ledger) prefetch(slots []*slot) (sum uint64) {
	for _, s := range slots {
		sum += s.b
	}
	for _, s := range slots {
		if s.b&(cellOffender|cellOverflow|cellBlock) == cellBlock {
			sum += l.arena.prefetch(uint32(s.b&cellIndex), uint32(s.b>>32&0xffff))
		}
	}
	return sum
}

// keyBytes is what a key takes in a table: 43 bytes at the worst point of its growth (BenchmarkBytesPerKey), up to 45.5
// after a restore.
const keyBytes = 46

// lineage is the state that all windows of one lineage of a rule share. Algorithm and count are fixed when it gets its first
// key and hold until it has none left; then they may change.
type lineage struct {
	rule   string
	number int
	role   role
	id     string // rule/number, and what its role adds
	salt   uint64 // of the tags of its keys: rules of equal keys share fingerprints
	ledger *ledger

	counts lineageCounts // for metrics; no part of the state
	above  *lineage      // the next rung of a ladder; nil: there is none

	minute   traffic.Time // of append time, in which the openings of warnings are counted
	openings int

	// Of a lineage that has keys.
	kind      kind
	window    traffic.Time
	lateness  traffic.Time // greatest lateness of the versions that fed it: its keys live that much longer
	limit     int64        // of the version that fed it last
	greatest  int64        // greatest limit of the versions that fed it
	evicted   traffic.Time // newest event of all evicted keys: a key that seems new may be one of them
	burst     int64
	form      keyForm
	algorithm algorithm
	ranges    rangeCounter // the algorithm, if it can count between two events; else nil
	compacter compacter    // the algorithm, if it has blocks to compact; else nil
	cells     table
	offenders []*offender // keys with episodes, by the index in their cell
	free      []uint32
}

func newLineage(rule string, number int, l *ledger) *lineage {
	return newLineageOf(rule, number, roleMain, l)
}

func newLineageOf(rule string, number int, r role, l *ledger) *lineage {
	id := fmt.Sprintf("%s/%d%s", rule, number, r.suffix())
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never an error
	return &lineage{rule: rule, number: number, role: r, id: id, salt: h.Sum64(), ledger: l}
}

// tag is the part of a key that is remembered once the key is evicted.
func (l *lineage) tag(key Fingerprint) uint16 { return uint16(mix(key.Lo ^ l.salt)) }

// start sets what an empty lineage counts, and how. limit is the greatest of its events, but for a time.
func (l *lineage) start(v *rules.Version, limit int64) {
	l.begin(kindOf(v, limit), traffic.Time(v.Window.Microseconds()), keyBinary)
}

func (l *lineage) begin(k kind, window traffic.Time, form keyForm) {
	l.kind, l.window, l.form, l.lateness, l.greatest, l.evicted = k, window, form, 0, 0, traffic.BeforeTime
	l.offenders, l.free = nil, nil
	l.algorithm = newAlgorithm(l)
	l.ranges, _ = l.algorithm.(rangeCounter)
	l.compacter, _ = l.algorithm.(compacter)
}

// feed notes the version under which the next event comes.
func (l *lineage) feed(b *binding) {
	if l.cells.n == 0 {
		l.start(b.version, b.steady)
	}
	l.lateness = max(l.lateness, b.lateness)
	l.limit, l.burst = b.limit, b.burst
	l.greatest = max(l.greatest, b.most)
}

// cellOf is the cell of a key, which is added if need be, and its episodes if it has any. guess is as in table.put.
func (l *lineage) cellOf(key Fingerprint, guess int32) (*cell, *offender) {
	s, fresh := l.cells.put(key, guess)
	if fresh != nil {
		l.ledger.keys++
		l.ledger.bytes += keyBytes
		*fresh = l.ledger.gone.take(key.Hi, l.tag(key))
	}
	if s.b&cellOffender == 0 {
		return &s.cell, nil
	}
	k := l.offenders[s.b&cellIndex]
	return &k.cell, k
}

// addOffender gives a key without episodes a place for them. The cell moves there.
func (l *lineage) addOffender(key Fingerprint, c *cell) *offender {
	k := &offender{key: key, lineage: l, cell: *c, heap: -1, trimmed: place{entry: entry{time: traffic.BeforeTime}}}
	index := uint32(len(l.offenders))
	if n := len(l.free); n > 0 {
		index, l.free = l.free[n-1], l.free[:n-1]
		l.offenders[index] = k
	} else {
		l.offenders = append(l.offenders, k)
	}
	*c = cell{b: cellUsed | cellOffender | uint64(index)}
	return k
}

// removeOffender makes a key that has no episodes any more a plain one again: its cell moves back into the slot.
func (l *lineage) removeOffender(k *offender) {
	s := l.cells.get(k.key)
	index := uint32(s.b & cellIndex)
	s.cell = k.cell
	l.offenders[index] = nil
	l.free = append(l.free, index)
}

// contents is the cell of a slot, wherever it lies, and the key's episodes if it has any.
func (l *lineage) contents(s *slot) (*cell, *offender) {
	if s.b&cellOffender == 0 {
		return &s.cell, nil
	}
	k := l.offenders[s.b&cellIndex]
	return &k.cell, k
}

// offenderOf is the episodes of a key, nil if it has none. What a snapshot under way needs of the key is written before.
func (l *lineage) offenderOf(key Fingerprint) *offender {
	_, k := l.contents(l.cells.get(key))
	return k
}

// forget releases the state of a key without episodes; the caller removes its slot. Once the partition has no key left, the
// evicted keys are forgotten too.
func (l *lineage) forget(c *cell) {
	l.algorithm.release(c)
	l.ledger.keys--
	l.ledger.bytes -= keyBytes
	if l.ledger.keys == 0 {
		l.ledger.gone.clear()
	}
}

// evict forgets the key of a cell and remembers only that so many events went with it. The key has no episodes.
func (l *lineage) evict(key Fingerprint, events int64) {
	s := l.cells.get(key)
	_, newest := l.algorithm.gauge(&s.cell)
	l.evicted = max(l.evicted, newest)
	l.ledger.gone.put(key.Hi, l.tag(key), events)
	l.forget(&s.cell)
	l.cells.drop(key)
}

// isDead reports whether the key in a slot is to be forgotten: it has no episodes, and no event from dead on can meet anything
// that it holds. A live key is compacted on the way.
func (l *lineage) isDead(s *slot, dead traffic.Time) bool {
	c, k := l.contents(s)
	if k == nil && l.algorithm.dead(c, dead) {
		return true
	}
	if l.compacter != nil && l.ledger.arena.sparse() {
		l.compacter.compact(c)
	}
	return false
}

// dead is the instant before which no event on time can lie, by the greatest lateness of the lineage.
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
	kind     Kind  // of its hits
	limit    int64 // of its events, where limits is nil; else of those of no tier
	limits   *limits
	steady   int64 // the greatest limit that is not for a time
	most     int64 // the greatest limit
	burst    int64 // capacity of a bucket
	fills    bool  // the capacity is the limit
	lateness traffic.Time
	cooldown traffic.Time
	wide     bool     // the block's key has fields that the rule's key has not
	tells    bool     // hits of KindUncounted may be written
	measured bool     // events count for more or less than one each, so that fingerprinter.measure is to be asked
	above    *binding // the next rung of a ladder; nil: there is none
	group    int      // the first rule of the version that has the same key: they share fingerprints
	beside   []binding

	// Of a rule that counts by more than identities.
	key     []traffic.KeyField // the rule's key in one order for all rules of the group; nil for a key of identities
	counted []traffic.KeyField // the fields that are counted by distinct values; nil for none, and for one of an identity
	extra   []rules.ExtraUse
}

// newBindings ties the rules of a routing version to their lineages, which lineageOf finds or makes.
func newBindings(r *rules.Routing, lineageOf func(rule string, number int, r role) *lineage) []binding {
	out := make([]binding, len(r.Rules))
	extras := r.Extras()
	for i := range r.Rules {
		v := &r.Rules[i]
		out[i] = newBinding(v, lineageOf(v.ID, v.Lineage, roleMain))
		out[i].tells, out[i].group, out[i].extra = tellsUncounted(r), i, extras.ByRule[i]
		out[i].beside = besideOf(v, lineageOf)
		for j := range out[i].beside {
			out[i].beside[j].extra = extras.ByRule[i]
		}
		for j := range i {
			if sameKey(v.Key, r.Rules[j].Key) && sameUses(v.Key, extras.ByRule[i], extras.ByRule[j]) {
				out[i].group = j
				break
			}
		}
		for j := range out[i].beside {
			out[i].beside[j].group = out[i].group
		}
	}
	return out
}

// newBinding ties a rule to the windows of its limit.
func newBinding(v *rules.Version, l *lineage) binding {
	b := bind(v, l, roleMain)
	if v.Pending {
		b.kind = KindCandidate
	}
	return b
}

// bind ties a rule to its windows of a role.
func bind(v *rules.Version, l *lineage, r role) binding {
	b := binding{
		version: v, lineage: l, kind: KindHit, limit: limitFor(v, r, v.Limit), limits: newLimits(v, r),
		lateness: traffic.Time(v.Lateness.Microseconds()), cooldown: traffic.Time(v.UpdateEvery().Microseconds()),
		wide:  v.Block != nil && widens(v.Block.Key, v.Key),
		fills: v.Burst == 0 || v.Burst == v.Limit, measured: v.Count.Kind() != rules.CountEvents,
	}
	if r == roleCandidate {
		b.limit = int64(v.Candidate.Limit)
	}
	b.burst, b.steady, b.most = int64(v.Burst), b.limit, b.limit
	if b.fills {
		b.burst = b.limit
	}
	if b.limits != nil {
		b.steady = b.limits.steady()
		b.most = max(b.steady, b.limits.raised)
	}
	if !traffic.IdentityKey(v.Key) {
		b.key = slices.SortedFunc(slices.Values(v.Key), traffic.KeyField.Compare)
	}
	switch c := &v.Count; {
	case len(c.Tuple) > 0:
		b.counted = slices.SortedFunc(slices.Values(c.Tuple), traffic.KeyField.Compare)
	case c.Distinct != nil && !c.Distinct.OfIdentity():
		b.counted = []traffic.KeyField{*c.Distinct}
	}
	return b
}

// sameUses reports whether two rules find the fields of a key beside the identity in the same place: {id} is another one in
// another path.
func sameUses(key []traffic.KeyField, a, b []rules.ExtraUse) bool {
	for _, k := range key {
		for one := range k.Alternatives() {
			named := func(u rules.ExtraUse) bool { return u.Field == one }
			i, j := slices.IndexFunc(a, named), slices.IndexFunc(b, named)
			if (i < 0) != (j < 0) || i >= 0 && a[i].Index != b[j].Index {
				return false
			}
		}
	}
	return true
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
