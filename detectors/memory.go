package detectors

import (
	"cmp"
	"math"
	"slices"
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
		part := stretch{from: at.from, to: math.MaxUint64, most: most}
		next, n, done := l.cells.walk(part, func(s *slot, _ uint8) bool { return visit(l, s) }, func(s *slot) { l.forget(&s.cell) })
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
