package detectors

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/traffic"
)

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

// walk visits up to most keys from the cursor on, over all lineages by their ids and then from the first again, each at
// most once. What visit says is to be forgotten is.
func (p *Partition) walk(at *sweep, most int, visit func(l *lineage, s *slot) (forget bool)) {
	for most = min(most, p.ledger.keys); most > 0 && p.ledger.keys > 0; {
		i, found := slices.BinarySearchFunc(p.ordered, at.lineage, func(l *lineage, id string) int { return cmp.Compare(l.id, id) })
		if i == len(p.ordered) {
			*at = sweep{}
			continue
		}
		l := p.ordered[i]
		if !found {
			*at = sweep{lineage: l.id}
		}
		next, n, done := l.cells.walk(at.from, most, func(s *slot) bool { return visit(l, s) }, func(s *slot) { l.forget(&s.cell) })
		most -= n
		at.from = next
		if done {
			*at = sweep{lineage: l.id + "\x00"} // the least id after it
		}
	}
}

// sweepDead looks at the next keys and forgets the dead ones.
func (p *Partition) sweepDead() {
	p.walk(&p.sweep, sweepKeys, p.isDead)
}

// sweepAll forgets every dead key.
func (p *Partition) sweepAll() {
	p.sweep = sweep{}
	p.walk(&p.sweep, p.ledger.keys, p.isDead)
}

// isDead reports whether a key is to be forgotten: it has no episode, and nothing that it holds matters any more. What a
// key that lives holds in a page by and by left by others is moved to a fuller one.
func (p *Partition) isDead(l *lineage, s *slot) bool {
	c, k := l.open(s)
	if k == nil && l.algorithm.dead(c, l.dead(p.watermark)) {
		return true
	}
	if log, ok := l.algorithm.(*slidingLog); ok {
		log.gather(c)
	}
	return false
}

// Eviction says what a key was that was forgotten for the budget's sake.
type Eviction int

// What is evicted, those that go first first.
const (
	EvictedSingle   Eviction = iota // had one event
	EvictedFew                      // had up to half its limit
	EvictedNear                     // had more
	EvictedOffender                 // had an episode, which is closed
	NumEvictions
)

// String is the name of the reason in metrics.
func (e Eviction) String() string {
	switch e {
	case EvictedSingle:
		return "single"
	case EvictedFew:
		return "few"
	case EvictedNear:
		return "near"
	}
	return "offender"
}

// candidate is a key that may be evicted.
type candidate struct {
	lineage *lineage
	key     Fingerprint
	what    Eviction
	newest  traffic.Time
	lot     uint64 // of keys of one event
}

// Of evictSample neighbouring keys a quarter goes at a time: those with the least behind them. Neighbours are a fair
// sample, since fingerprints are hashes. Of keys of one event those go on which the lot falls, of others the longest
// silent.
//
// In a flood of new keys the longest silent would be every key whose second event is further away than the budget
// reaches, and nobody who is slow would ever be seen. By lot, of the keys that came n budgets ago e^-n are still there,
// and who sends many events needs to stay but once.
const evictSample = 128

// makeRoom evicts until the budget is kept. Offenders go only when they hold more than three quarters of it, or when
// there is nothing else: an attacker with many identities must neither push out the others that were caught, nor, with
// identities that are caught, leave no room for others to be seen.
func (p *Partition) makeRoom(out []Hit) []Hit {
	for p.ledger.bytes > p.cfg.Budget && p.ledger.keys > 0 {
		p.sample = p.sample[:0]
		p.walk(&p.evict, evictSample, p.consider)
		crowded := p.ledger.kept > p.cfg.Budget/4*3
		slices.SortFunc(p.sample, func(a, b candidate) int {
			if crowded && (a.what == EvictedOffender) != (b.what == EvictedOffender) {
				return cmp.Compare(b.what, a.what)
			}
			return cmp.Or(cmp.Compare(a.what, b.what), cmp.Compare(a.lot, b.lot), cmp.Compare(a.newest, b.newest), a.key.compare(b.key), cmp.Compare(a.lineage.id, b.lineage.id))
		})
		for i, victim := range p.sample[:(len(p.sample)+3)/4] {
			if i > 0 && !crowded && victim.what == EvictedOffender {
				break
			}
			out = p.expel(victim, out)
		}
	}
	return out
}

// consider takes a key into the sample, unless it is dead anyway, and so forgotten.
func (p *Partition) consider(l *lineage, s *slot) bool {
	c, k := l.open(s)
	if k == nil && p.isDead(l, s) {
		return true
	}
	count, newest := l.algorithm.gauge(c)
	v := candidate{lineage: l, key: s.key(), newest: newest, what: EvictedFew}
	switch {
	case k != nil:
		v.what, v.newest = EvictedOffender, k.episodes[len(k.episodes)-1].last.time
	case count <= 1:
		v.what, v.lot = EvictedSingle, lot(v.key, p.events)
	case 2*count > l.limit:
		v.what = EvictedNear
	}
	p.sample = append(p.sample, v)
	return false
}

// lot is a key's draw at the so many-th event: a function of the log, as all that decides what is held. It mixes as
// splitmix64 does (Steele, Lea and Flood, 2014).
func lot(key Fingerprint, event int64) uint64 {
	x := key.Lo + uint64(event)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// expel forgets a key. Its episodes are closed: what they lead to holds, only what would have followed is lost.
func (p *Partition) expel(v candidate, out []Hit) []Hit {
	l := v.lineage
	s := l.cells.get(v.key)
	if _, k := l.open(s); k != nil {
		res := p.outcome.empty()
		for _, ep := range k.episodes {
			res.end(ep, PhaseClosed, false)
		}
		k.episodes = nil
		p.settle(k)
		out = p.report(res, 0, out)
	}
	l.forget(&s.cell)
	l.cells.drop(v.key)
	p.counts.Evicted[v.what]++
	return out
}
