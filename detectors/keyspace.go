package detectors

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// keyspace holds the keys of all lineages of a partition: their memory, the walk that forgets dead ones, and the choice of
// keys that go when the budget is spent.
type keyspace struct {
	lineages map[string]*lineage
	ordered  []*lineage // by id
	looks    uint64     // at which lineages versions name
	ledger   ledger
	tried    ledger // of the keys under trial, in windows of their own
	timers   timers // of the keys with episodes
	sweep    sweep
	evictor  evictor

	approaches approaches
}

// sweep is a place on a walk over all keys, by lineage and fingerprint. It is part of the state.
type sweep struct {
	lineage string
	from    Fingerprint
}

// Keys without episodes die silently: a sweep comes by. Four keys are looked at for each event, so at most a third as
// many dead keys as living ones are held, whatever comes.
const (
	sweepEvery = 256
	sweepKeys  = 4 * sweepEvery
)

func newKeyspace(budget int64) keyspace {
	s := keyspace{lineages: map[string]*lineage{}, ledger: ledger{gone: newGhosts(budget)}, approaches: newApproaches(budget)}
	s.evictor.bounded, s.evictor.room = budget > 0, budget-s.ledger.gone.reserved()
	return s
}

// lineage finds a lineage, or makes it.
func (s *keyspace) lineage(rule string, number int, r role) *lineage {
	return s.lineageOf(&planned{version: &rules.Version{Document: rules.Document{ID: rule}, Lineage: number}, role: r, id: lineageID(rule, number, r)})
}

// lineageOf finds or makes that of a rule's windows.
func (s *keyspace) lineageOf(x *planned) *lineage {
	if known, ok := s.lineages[x.id]; ok {
		return known
	}
	l := newLineageOf(x.version.ID, x.version.Lineage, x.role, &s.ledger)
	s.lineages[l.id] = l
	at, _ := slices.BinarySearchFunc(s.ordered, l.id, func(x *lineage, id string) int { return cmp.Compare(x.id, id) })
	s.ordered = slices.Insert(s.ordered, at, l)
	return l
}

// prune forgets lineages that hold nothing, have nothing left to tell, and were not named at the last look.
func (s *keyspace) prune(watermark traffic.Time) {
	s.ordered = slices.DeleteFunc(s.ordered, func(l *lineage) bool {
		if l.named == s.looks || l.cells.n > 0 || l.openings.matter(watermark) || l.trial != nil || l.counts.told != (RuleEvents{}) {
			return false
		}
		delete(s.lineages, l.id)
		return true
	})
}

// sweepSome looks at the next keys and forgets the dead ones.
func (s *keyspace) sweepSome(watermark traffic.Time) {
	s.forget(&s.sweep, sweepKeys, watermark)
}

// sweepAll forgets every dead key.
func (s *keyspace) sweepAll(watermark traffic.Time) {
	s.sweep = sweep{}
	s.forget(&s.sweep, s.ledger.keys, watermark)
}

// forget looks at no more than limit keys from the cursor on, over all lineages by their ids and then from the first again, at
// each once at most, and forgets the dead ones.
func (s *keyspace) forget(at *sweep, limit int, watermark traffic.Time) {
	for limit = min(limit, s.ledger.keys); limit > 0 && s.ledger.keys > 0; {
		i, found := slices.BinarySearchFunc(s.ordered, at.lineage, func(l *lineage, id string) int { return cmp.Compare(l.id, id) })
		if i == len(s.ordered) {
			*at = sweep{}
			continue
		}
		l := s.ordered[i]
		if !found {
			*at = sweep{lineage: l.id}
		}
		part := keyRange{from: at.from, to: math.MaxUint64, limit: limit}
		dead := l.dead(watermark)
		next, n, done := l.cells.walk(part, func(x *slot, _ uint8) bool { return l.isDead(x, dead) }, func(x *slot) { l.forget(&x.cell) })
		limit -= n
		at.from = next
		if done {
			*at = sweep{lineage: l.id + "\x00"} // the least id after it
		}
	}
}

// update brings ledger and timer up to date with a key's episodes.
func (s *keyspace) update(o *offender) {
	if len(o.episodes) == 0 {
		s.charge(o, 0)
		if o.heap >= 0 {
			s.timers.remove(o)
		}
		if o.lineage.rung == nil { // what a trial holds stays with the trial
			o.lineage.removeOffender(o)
		}
		return
	}
	s.charge(o, o.bytes())
	s.timers.set(o, o.next())
}

func (s *keyspace) charge(o *offender, cost int64) {
	o.lineage.ledger.bytes += cost - o.cost
	o.lineage.ledger.offenders += cost - o.cost
	o.cost = cost
}

// bytes is the memory of the keys, and of the ghosts once there are any.
func (s *keyspace) bytes() int64 {
	if s.ledger.gone.n == 0 {
		return s.ledger.bytes + s.tried.bytes
	}
	return s.ledger.bytes + s.tried.bytes + s.ledger.gone.reserved()
}
