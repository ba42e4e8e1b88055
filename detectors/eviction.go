package detectors

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// Eviction is the class of a key that was forgotten because the budget was spent.
type Eviction int

// The classes. A key that fits several is of the last of them.
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
	returned bool   // was evicted before
	rank     int    // the least rank goes first,
	events   int64  // then the fewest events, those before an earlier eviction included,
	random   uint64 // then the least random number
}

// evictSample is how many keys a sample has, about; a quarter of them is evicted. The sample is all keys of all lineages within
// a range of fingerprints: since fingerprints are hashes, each lineage has a share of it that is due to its size. It has at
// least four keys for each lineage, so that a thousand empty lineages cost an eviction no more than a look at one.
const evictSample = 128

// evictor chooses which keys go when the budget is spent.
type evictor struct {
	bounded bool   // there is a budget
	room    int64  // what the budget has for keys, in bytes
	from    uint64 // upper words of fingerprints from here on are looked at next; part of the state
	sample  []candidate
}

// full reports whether keys must go.
func (s *keyspace) full() bool {
	return s.evictor.bounded && s.ledger.bytes+s.tried.bytes > s.evictor.room && s.ledger.keys > 0
}

// victims draws a sample and returns the keys of it that go: none when it had dead keys only, which are forgotten at once.
// The list is valid until the next call. events is the number of events that the partition has folded.
func (s *keyspace) victims(watermark traffic.Time, events int64) []candidate {
	s.draw(watermark, events)
	return s.evictor.choose(s.ledger.offenders > s.evictor.room/4*3)
}

// draw takes the next sample. A key that is dead anyway is forgotten.
func (s *keyspace) draw(watermark traffic.Time, events int64) {
	e := &s.evictor
	e.sample = e.sample[:0]
	step := uint64(math.MaxUint64)
	if want := max(evictSample, 4*len(s.ordered)); want < s.ledger.keys {
		step = math.MaxUint64 / uint64(s.ledger.keys) * uint64(want)
	}
	part := keyRange{from: Fingerprint{Hi: e.from}, to: math.MaxUint64, limit: math.MaxInt}
	if step-1 < math.MaxUint64-e.from {
		part.to = e.from + step - 1
	}
	e.from = part.to + 1 // from the least again after the greatest
	for _, l := range s.ordered {
		if l.cells.n == 0 {
			continue
		}
		dead := l.dead(watermark)
		l.cells.walk(part, func(x *slot, past uint8) bool {
			if x.b&cellOffender == 0 && l.isDead(x, dead) {
				return true
			}
			e.consider(l, x, past, events)
			return false
		}, func(x *slot) { l.forget(&x.cell) })
	}
}

// consider takes a key into the sample. past are the events that it had before an earlier eviction.
func (e *evictor) consider(l *lineage, x *slot, past uint8, events int64) {
	c, k := l.contents(x)
	count, _ := l.algorithm.gauge(c)
	v := candidate{lineage: l, key: x.key(), what: EvictedFew, returned: past > 0, events: max(count, 1) + int64(past)}
	v.random = mix(v.key.Lo ^ l.salt + uint64(events)*0x9e3779b97f4a7c15)
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
	e.sample = append(e.sample, v)
}

// mix is a number of which every bit depends on all bits of x: the end of splitmix64 (Steele, Lea and Flood, 2014).
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// choose returns the keys of the sample that are evicted: the quarter with the fewest events, equals at random. The random
// order is a hash of key and events so far: drawn anew for every sample, and yet a function of the log.
//
// At random, because in a flood of new keys the longest silent are all whose next event is further away than the budget
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
func (e *evictor) choose(crowded bool) []candidate {
	returned, near := 0, 0
	for i := range e.sample {
		if e.sample[i].returned {
			returned++
		}
		if e.sample[i].what == EvictedNear {
			near++
		}
	}
	half := len(e.sample) / 2
	for i := range e.sample {
		v := &e.sample[i]
		switch {
		case v.what == EvictedOffender && crowded:
			v.rank = -1
		case v.what == EvictedOffender:
			v.rank = 2
		case v.returned && returned <= half, v.what == EvictedNear && near <= half:
			v.rank = 1
		}
	}
	slices.SortFunc(e.sample, candidate.compare)
	most := (len(e.sample) + 3) / 4
	for i := 1; i < most && !crowded; i++ {
		if e.sample[i].what == EvictedOffender {
			most = i
		}
	}
	return e.sample[:most]
}

// compare orders candidates, the first to go first. No two are equal: keys of a lineage differ, and so do the lineages of
// equal keys.
func (v candidate) compare(w candidate) int {
	switch {
	case v.rank != w.rank:
		return cmp.Compare(v.rank, w.rank)
	case v.events != w.events:
		return cmp.Compare(v.events, w.events)
	case v.random != w.random:
		return cmp.Compare(v.random, w.random)
	case v.key != w.key:
		return v.key.compare(w.key)
	}
	return cmp.Compare(v.lineage.id, w.lineage.id)
}
