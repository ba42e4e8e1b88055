package detectors

import (
	"cmp"
	"math"
	"slices"
)

// Eviction says what a key was that was forgotten for the budget's sake.
type Eviction int

// What is evicted: a key is of the last of these that it is.
const (
	EvictedSingle   Eviction = iota // had one event
	EvictedFew                      // had up to half its limit
	EvictedReturned                 // had been evicted before, and come back
	EvictedNear                     // had more than half its limit
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
	case EvictedReturned:
		return "returned"
	case EvictedNear:
		return "near"
	}
	return "offender"
}

// candidate is a key that may be evicted.
type candidate struct {
	lineage  *lineage
	key      Fingerprint
	what     Eviction
	returned bool  // was evicted before
	rank     int   // those of the least go first,
	events   int64 // then those that came least often, what went with an earlier eviction included,
	lot      uint64
}

// A quarter of a sample goes at a time. The sample is all keys within a stretch of fingerprints, of all lineages: since
// fingerprints are hashes, it has of each lineage as many as are due to its size. There are four for each lineage at least,
// so that a thousand empty ones cost an eviction no more than a look at one.
const evictSample = 128

// draw takes the next sample. A key that is dead anyway is forgotten.
func (p *Partition) draw() {
	p.sample = p.sample[:0]
	step := uint64(math.MaxUint64)
	if want := max(evictSample, 4*len(p.ordered)); want < p.ledger.keys {
		step = math.MaxUint64 / uint64(p.ledger.keys) * uint64(want)
	}
	part := stretch{from: Fingerprint{Hi: p.evict}, to: math.MaxUint64, most: math.MaxInt}
	if step-1 < math.MaxUint64-p.evict {
		part.to = p.evict + step - 1
	}
	p.evict = part.to + 1 // from the least again after the greatest
	for _, l := range p.ordered {
		if l.cells.n > 0 {
			l.cells.walk(part, func(s *slot, past uint8) bool { return p.consider(l, s, past) }, func(s *slot) { l.forget(&s.cell) })
		}
	}
}

// consider takes a key into the sample, unless it is dead.
func (p *Partition) consider(l *lineage, s *slot, past uint8) (dead bool) {
	c, k := l.open(s)
	if k == nil && p.isDead(l, s) {
		return true
	}
	count, _ := l.algorithm.gauge(c)
	v := candidate{lineage: l, key: s.key(), what: EvictedFew, returned: past > 0, events: max(count, 1) + int64(past)}
	v.lot = mix(v.key.Lo ^ l.salt + uint64(p.events)*0x9e3779b97f4a7c15)
	switch {
	case k != nil:
		v.what = EvictedOffender
	case 2*count > l.limit:
		v.what = EvictedNear
	case past > 0:
		v.what = EvictedReturned
	case count <= 1:
		v.what = EvictedSingle
	}
	p.sample = append(p.sample, v)
	return false
}

// mix makes a number of which every bit depends on all bits of x: the end of splitmix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// makeRoom evicts until the budget is kept.
func (p *Partition) makeRoom(out []Hit) []Hit {
	for p.ledger.bytes > p.room && p.ledger.keys > 0 {
		p.draw()
		for _, victim := range p.victims() {
			out = p.expel(victim, out)
		}
	}
	return out
}

// victims are those of the sample that go: the quarter of which the least is known, and of equals those on which the lot
// falls, which is drawn anew for every sample.
//
// By lot, because in a flood of new keys the longest silent are all whose next event is further away than the budget
// reaches, so that nobody who is slow would ever be seen. By events, because a flood makes keys of few events at will, but
// keys of many only with as many events. And two classes are spared, each while at most half of the sample is of it, so that
// neither can be made to fill the budget:
//   - returned keys: whatever a flood does, its keys are many only because they do not come back, and who is slow is just
//     who comes back;
//   - keys near their limit: a rule of a low limit has no keys of many events, and a flood of another rule may have them.
//
// Offenders go only when they hold more than three quarters of the budget, or when there is nothing else: an attacker with
// many identities must neither push out the others that were caught, nor, with identities that are caught, leave no room for
// others to be seen.
func (p *Partition) victims() []candidate {
	crowded := p.ledger.kept > p.room/4*3
	returned, near := 0, 0
	for i := range p.sample {
		if p.sample[i].returned {
			returned++
		}
		if p.sample[i].what == EvictedNear {
			near++
		}
	}
	half := len(p.sample) / 2
	for i := range p.sample {
		v := &p.sample[i]
		switch {
		case v.what == EvictedOffender && crowded:
			v.rank = -1
		case v.what == EvictedOffender:
			v.rank = 2
		case v.returned && returned <= half, v.what == EvictedNear && near <= half:
			v.rank = 1
		}
	}
	slices.SortFunc(p.sample, candidate.compare)
	most := (len(p.sample) + 3) / 4
	for i := 1; i < most && !crowded; i++ {
		if p.sample[i].what == EvictedOffender {
			most = i
		}
	}
	return p.sample[:most]
}

// compare orders candidates, those that go first first. No two are equal: keys of a lineage differ, and so do the lineages of
// equal keys.
func (v candidate) compare(w candidate) int {
	switch {
	case v.rank != w.rank:
		return cmp.Compare(v.rank, w.rank)
	case v.events != w.events:
		return cmp.Compare(v.events, w.events)
	case v.lot != w.lot:
		return cmp.Compare(v.lot, w.lot)
	case v.key != w.key:
		return v.key.compare(w.key)
	}
	return cmp.Compare(v.lineage.id, w.lineage.id)
}

// expel forgets a key but for its ghost. Its episodes are closed: what they lead to holds, only what would have followed is
// lost.
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
	c, _ := l.open(s)
	_, newest := l.algorithm.gauge(c)
	l.evicted = max(l.evicted, newest)
	p.ledger.gone.put(v.key.Hi, l.tag(v.key), v.events)
	l.forget(&s.cell)
	l.cells.drop(v.key)
	p.counts.Evicted[v.what]++
	return out
}
