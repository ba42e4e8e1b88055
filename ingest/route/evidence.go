package route

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/dchest/siphash"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// evidence is what a version tells of blocks and of known sources, beside what its rules count.
type evidence struct {
	good *condition.Condition // known_good; nil: there is none
	// apart are the rules whose block's scope the index asks for by itself, ascending; it knows them behind the version's rules.
	apart  []int
	places []goodPlace
}

// blockScope says how it is found out whether a rule's block takes a request.
type blockScope uint8

const (
	scopeNone  blockScope = iota // the rule has no block
	scopeMatch                   // the rule's match takes it, whatever its condition says
	scopeApart                   // see evidence.apart
)

// goodPlace is a dimension by which rules with a block are spread. Who is known to be good is told to the partition of each.
type goodPlace struct {
	dimension int                  // into the version's
	keys      [][]traffic.KeyField // of the blocks, each once
	more      []traffic.KeyField   // the fields of keys beside the dimension's own, each once
}

// compileEvidence makes a version's evidence ready, with the index that finds its rules. Under an older record format there is none.
func (v *routingVersion) compileEvidence(before *routingVersion, r *rules.Routing) error {
	if r.RecordFormat < rules.EvidenceRecordFormat {
		v.index = r.Index()
		return nil
	}
	e := &evidence{}
	asked := r.Rules
	for i := range r.Rules {
		d, rule := &r.Rules[i].Document, &v.rules[i]
		if d.Block == nil || rule.dimension == ruleDimension {
			continue
		}
		rule.block, rule.scope = d.Block.Key, scopeMatch
		if len(d.Match.Statuses) > 0 || d.Block.Match != nil {
			rule.scope = scopeApart
			e.apart = append(e.apart, i)
			asked = append(slices.Clip(asked), rules.Version{Document: rules.Document{Match: d.Reach()}})
		}
		e.place(rule, v.dimensions[rule.dimension].field)
	}
	v.index, v.evidence = rules.NewIndex(asked), e
	return v.compileGood(before, r.KnownGood)
}

// place adds the block key of a rule to those of its dimension, whose field is given.
func (e *evidence) place(rule *routedRule, field traffic.KeyField) {
	at := slices.IndexFunc(e.places, func(p goodPlace) bool { return p.dimension == rule.dimension })
	if at < 0 {
		at = len(e.places)
		e.places = append(e.places, goodPlace{dimension: rule.dimension})
	}
	p := &e.places[at]
	if !slices.ContainsFunc(p.keys, func(k []traffic.KeyField) bool { return slices.Equal(k, rule.block) }) {
		p.keys = append(p.keys, rule.block)
	}
	for _, k := range rule.block {
		if k != field && !slices.Contains(p.more, k) {
			p.more = append(p.more, k)
		}
	}
}

// compileGood compiles known_good. One that does not compile makes the version unfit: without it sources would be shown as strangers.
func (v *routingVersion) compileGood(before *routingVersion, expr string) error {
	if expr == "" {
		return nil
	}
	if before != nil && before.evidence != nil && before.evidence.good != nil && before.evidence.good.Source() == expr {
		v.evidence.good = before.evidence.good
		return nil
	}
	language, err := condition.New()
	if err != nil {
		return err
	}
	if v.evidence.good, err = language.CompileStrict(expr); err != nil {
		return fmt.Errorf("known_good: %w", err)
	}
	return nil
}

// judgeGood is what a known_good says of an event.
func judgeGood(good *condition.Condition, e *condition.Event) detectors.Good {
	if good == nil {
		return detectors.NotJudged
	}
	switch holds, fault := good.Holds(e); {
	case fault != condition.Fine:
		return detectors.NotJudged
	case holds:
		return detectors.KnownGood
	}
	return detectors.NotGood
}

// splitApart takes out of r.matched the scopes of blocks that stand apart.
func (r *eventRouter) splitApart(v *routingVersion) {
	r.apart = r.apart[:0]
	at := len(r.matched)
	for at > 0 && r.matched[at-1] >= len(v.rules) {
		at--
	}
	for _, i := range r.matched[at:] {
		r.apart = append(r.apart, v.evidence.apart[i-len(v.rules)])
	}
	r.matched = r.matched[:at]
}

// tell finds out what blocks reach, and whether the source is known to be good, once it is known who counts the event.
func (r *eventRouter) tell(v *routingVersion) {
	out := &r.out
	out.good = judgeGood(v.evidence.good, &r.event)
	if len(v.evidence.places) == 0 {
		return // no rule has a block
	}
	r.reached = r.reached[:0]
	apart := r.apart
	for i := range out.watched {
		w := &out.watched[i]
		rule := &v.rules[w.rule]
		for len(apart) > 0 && apart[0] < w.rule {
			r.reach(v, apart[0])
			apart = apart[1:]
		}
		takes := rule.scope == scopeMatch
		if len(apart) > 0 && apart[0] == w.rule {
			takes, apart = true, apart[1:]
		}
		switch {
		case takes && !w.counts():
			r.reach(v, w.rule)
		case !takes && rule.scope == scopeApart && w.counts():
			t := r.target(r.targetOf(v, rule))
			t.beyond = append(t.beyond, w.rule)
		}
	}
	for _, i := range apart {
		r.reach(v, i)
	}
	for _, t := range out.turned {
		if v.rules[t.rule].scope == scopeMatch {
			r.reach(v, t.rule)
		}
	}
	for i := range r.reached {
		r.route(v, r.reached[i])
	}
	if out.good == detectors.KnownGood {
		for i := range v.evidence.places {
			r.hint(v, &v.evidence.places[i])
		}
	}
}

// reach notes that the block of a rule takes the event's request, if it can hold the event's source at all: its windows must be those
// of a partition, and the block's fields must be there, or all of the rule's, for which a block may stand that holds for all of them.
func (r *eventRouter) reach(v *routingVersion, i int) {
	rule := &v.rules[i]
	r.extra.uses = rule.extra
	if !r.has(rule.key[0]) || !r.hasAll(rule.block) && !r.hasAll(rule.key) {
		return
	}
	at, found := slices.BinarySearch(r.reached, i)
	if !found {
		r.reached = slices.Insert(r.reached, at, i)
	}
}

func (r *eventRouter) hasAll(key []traffic.KeyField) bool {
	for _, k := range key {
		if !r.has(k) {
			return false
		}
	}
	return true
}

// route sends a reached rule to the partition of its windows.
func (r *eventRouter) route(v *routingVersion, i int) {
	rule := &v.rules[i]
	t := r.target(r.targetOf(v, rule))
	t.reached = append(t.reached, i)
	if len(rule.extra) > 0 {
		r.extra.uses = rule.extra
		t.extra = r.extra.appendTo(t.extra, rule.extra)
	}
}

// hint sends a source that is known to be good to the partition of a place, unless a record goes there anyway or the like is remembered.
func (r *eventRouter) hint(v *routingVersion, p *goodPlace) {
	d := &v.dimensions[p.dimension]
	r.extra.uses = d.uses
	if !r.has(d.field) || !slices.ContainsFunc(p.keys, r.hasAll) {
		return
	}
	partition := r.dimensionAt(v, p.dimension)
	if slices.ContainsFunc(r.out.targets, func(t eventTarget) bool { return t.partition == partition }) {
		return
	}
	key := r.hintKey(p)
	if r.hints == nil || !r.hints.has(key) {
		r.target(partition).hint = key
	}
}

const day = traffic.Time(24 * time.Hour / time.Microsecond)

// hintKey is the same number for events of one UTC day that have the same values of the fields of a place.
func (r *eventRouter) hintKey(p *goodPlace) uint64 {
	t := r.targets
	key := r.hashes[p.dimension]
	if len(p.more) > 0 {
		t.scratch = binary.LittleEndian.AppendUint64(t.scratch[:0], key)
		for _, k := range p.more {
			t.scratch, _ = r.out.identity.AppendValue(t.scratch, k)
			t.scratch = append(t.scratch, 0)
		}
		key = siphash.Hash(t.k0, t.k1, t.scratch)
	}
	today := r.out.time / day
	if r.out.time < 0 {
		today--
	}
	key = siphash.Hash(t.k0, t.k1, binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(t.scratch[:0], key), uint64(today)))
	return max(key, 1)
}

// hintMemory remembers the hints that Kafka has acknowledged, in bounded memory: sets of four, of which the oldest goes. What is forgotten
// is told again. It is the router's, and used by one session at a time.
type hintMemory struct {
	sets [][4]uint64 // by the lowest bits of the key; the newest first; 0: none. nil before the first
}

// hintSets is how many sets a memory has: 8 MiB in all, a million hints.
const hintSets = 1 << 18

func (m *hintMemory) has(key uint64) bool {
	if m.sets == nil {
		return false
	}
	set := &m.sets[key%hintSets]
	return set[0] == key || set[1] == key || set[2] == key || set[3] == key
}

func (m *hintMemory) add(key uint64) {
	if m.sets == nil {
		m.sets = make([][4]uint64, hintSets)
	}
	set := &m.sets[key%hintSets]
	*set = [4]uint64{key, set[0], set[1], set[2]}
}

// hints are what a chunk's events have to say of good sources once: what the memory does not have, nor an earlier event of the chunk.
type hints struct {
	memory *hintMemory
	fresh  map[uint64]bool // of the chunk that is being built
}

func (h *hints) has(key uint64) bool { return h.memory.has(key) || h.fresh[key] }
