package detectors

import (
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

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

	ruleHash uint64

	counts lineageCounts // for metrics; no part of the state
	above  *lineage      // the next rung of a ladder; nil: there is none

	openings openings // of warnings

	trial *ruleTrial // of the block of the rule that these windows are of; nil: there is none yet
	rung  *rung      // these windows are a trial's; nil: they are a rule's

	// Of a lineage that has keys.
	kind      kind
	named     uint64 // the last look at which versions name it that found one
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

func lineageID(rule string, number int, r role) string {
	return rule + "/" + strconv.Itoa(number) + r.suffix()
}

func newLineageOf(rule string, number int, r role, l *ledger) *lineage {
	id := lineageID(rule, number, r)
	return &lineage{rule: rule, number: number, role: r, id: id, salt: hashText(id), ruleHash: hashText(rule), ledger: l}
}

// hashText is FNV-1a of a rule's or a lineage's id.
func hashText(id string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(id)) // never an error
	return h.Sum64()
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

// Plan is a routing version as partitions count by it. It is worked out once and does not change: any number of partitions may
// learn it, in any goroutines.
type Plan struct {
	routing *rules.Routing
	rules   []planned
}

// Routing is the version that the plan was made of. It must not be changed.
func (p *Plan) Routing() *rules.Routing { return p.routing }

// planned is what a rule of a routing version says of its windows of one role.
type planned struct {
	version  *rules.Version
	role     role
	id       string // of the lineage
	kind     Kind   // of its hits
	limit    int64  // of its events, where limits is nil; else of those of no tier
	limits   *limits
	steady   int64 // the greatest limit that is not for a time
	most     int64 // the greatest limit
	burst    int64 // capacity of a bucket
	fills    bool  // the capacity is the limit
	lateness traffic.Time
	cooldown traffic.Time
	wide     bool // the block's key has fields that the rule's key has not
	tells    bool // hits of KindUncounted may be written
	// approaches says that samples of what came before the limit may be kept, and told of.
	approaches bool
	measured   bool      // events count for more or less than one each, so that fingerprinter.measure is to be asked
	group      int       // the first rule of the version that has the same key: they share fingerprints
	beside     []planned // of the windows beside the rule's own
	tries      *tryout   // how the block is tried beside these windows; nil: it is not

	// Of a rule that counts by more than identities.
	key     []traffic.KeyField // the rule's key in one order for all rules of the group; nil for a key of identities
	counted []traffic.KeyField // the fields that are counted by distinct values; nil for none, and for one of an identity
	extra   []rules.ExtraUse
}

// NewPlan works out how partitions count by r.
func NewPlan(r *rules.Routing) *Plan {
	out := &Plan{routing: r, rules: make([]planned, len(r.Rules))}
	extras := r.Extras()
	groups := map[string]int{} // the first rule with a key
	for i := range r.Rules {
		v, x := &r.Rules[i], &out.rules[i]
		*x = plan(v, roleMain)
		x.beside = planBeside(v)
		if r.RecordFormat >= rules.EvidenceRecordFormat {
			x.tries, x.approaches = newTryout(x), true
			for j := range x.beside {
				x.beside[j].tries, x.beside[j].approaches = newTryout(&x.beside[j]), true
			}
		}
		x.tells, x.group, x.extra = tellsUncounted(r), i, extras.ByRule[i]
		key := groupKey(v.Key, extras.ByRule[i])
		if first, found := groups[key]; found {
			x.group = first
		} else {
			groups[key] = i
		}
		for j := range x.beside {
			x.beside[j].extra, x.beside[j].group = x.extra, x.group
		}
	}
	return out
}

// plan works out a rule's windows of a role.
func plan(v *rules.Version, r role) planned {
	b := planned{
		version: v, role: r, id: lineageID(v.ID, v.Lineage, r), kind: KindHit, limit: limitFor(v, r, v.Limit), limits: newLimits(v, r),
		lateness: traffic.Time(v.Lateness.Microseconds()), cooldown: traffic.Time(v.UpdateEvery().Microseconds()),
		wide:  v.BlocksTuples(),
		fills: v.Burst == 0 || v.Burst == v.Limit, measured: v.Count.Kind() != rules.CountEvents,
	}
	if v.Pending {
		b.kind = KindCandidate
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

// binding ties a rule of a routing version to its lineage in a partition.
type binding struct {
	*planned
	lineage *lineage
	above   *binding // the next rung of a ladder; nil: there is none
	beside  []binding
}

// newBindings ties the rules of a routing version to their lineages, which lineageOf finds or makes.
func newBindings(from []planned, lineageOf func(x *planned) *lineage) []binding {
	out := make([]binding, len(from))
	for i := range from {
		x := &from[i]
		out[i] = binding{planned: x, lineage: lineageOf(x)}
		if len(x.beside) > 0 {
			out[i].beside = newBindings(x.beside, lineageOf)
		}
	}
	return out
}

// newBinding ties a rule to the windows of its limit.
func newBinding(v *rules.Version, l *lineage) binding {
	x := plan(v, roleMain)
	return binding{planned: &x, lineage: l}
}

// groupKey is the same text for keys of the same fields, in whatever order, whose values beside the identity are found in the
// same place: {id} is another field in another path.
func groupKey(key []traffic.KeyField, uses []rules.ExtraUse) string {
	fields := make([]string, len(key))
	for i, k := range key {
		b := strconv.AppendQuote([]byte{byte(k.Field), k.V4, k.V6}, k.Name)
		for one := range k.Alternatives() {
			at := slices.IndexFunc(uses, func(u rules.ExtraUse) bool { return u.Field == one })
			if at >= 0 {
				at = uses[at].Index
			}
			b = strconv.AppendInt(append(b, ' '), int64(at), 10)
		}
		fields[i] = string(append(b, '\n'))
	}
	slices.Sort(fields)
	return strings.Join(fields, "")
}
