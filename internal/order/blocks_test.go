package order

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// blocks is a story of two to seven bursts about the limit in 5 s, through several source partitions, which are read in
// blocks as after an outage. events are the visits as the oracle has them.
type blocks struct {
	limit, sources int
	visits         []visit
	events         []oracle.Event
}

func drawBlocks(seed uint64) *blocks {
	r := rand.New(rand.NewPCG(seed, 7))
	b := &blocks{limit: []int{1, 5, 20, 40}[r.IntN(4)], sources: 2 + r.IntN(3)}
	queues, at := make([][]visit, b.sources), noon
	for range 2 + r.IntN(6) {
		n, every := b.limit+r.IntN(60), 4*second/traffic.Time(b.limit+1+r.IntN(b.limit+5))
		for range n {
			at += 1 + traffic.Time(r.Int64N(int64(2*every)))
			s := r.IntN(b.sources)
			queues[s] = append(queues[s], visit{source: s, at: at})
		}
		at += traffic.Time(r.Int64N(int64(12 * second)))
	}
	next := make([]int64, b.sources)
	for most := 1 + r.IntN(80); slices.ContainsFunc(queues, func(q []visit) bool { return len(q) > 0 }); {
		for _, s := range r.Perm(b.sources) {
			n := min(len(queues[s]), 1+r.IntN(most))
			for _, v := range queues[s][:n] {
				b.visits = append(b.visits, v)
				b.events = append(b.events, oracle.Event{Time: int64(v.at), Source: s, Offset: next[s], Limit: b.limit})
				next[s]++
			}
			queues[s] = queues[s][n:]
		}
	}
	return b
}

// However a backlog is read, each hit lies in an episode of the sorted log, and has its times and its count or says
// at_least. An episode is missed, or seen in parts, only beside a hit that says so.
func TestBlocksOfABacklogHideNothingUnsaid(t *testing.T) {
	const stories = 1500
	missed, split := 0, 0
	for seed := range uint64(stories) {
		b := drawBlocks(seed)
		d := way{algorithm: rules.AlgorithmSlidingLog, count: rules.CountEvents}.document(b.limit, 5*second, 5*second)
		hits := tell(t, d, b.sources, b.visits)
		for i, n := range b.judge(t, seed, hits) {
			if n != 1 && !anyBound(hits) {
				t.Errorf("seed %d: episode %d has %d hits, and none of the source says at_least", seed, i, n)
			}
			missed += max(0, 1-n)
			split += max(0, n-1)
		}
	}
	if missed == 0 || split == 0 {
		t.Errorf("%d episodes were missed and %d seen in parts: the stories prove nothing", missed, split)
	}
}

// judge holds the hits of a story against the episodes of its sorted log, and returns how many hits each of these has.
func (b *blocks) judge(t *testing.T, seed uint64, hits []detectors.Hit) []int {
	t.Helper()
	want := oracle.Sliding(b.events, int64(5*second), int64(24*hour))
	found := make([]int, len(want))
	for i := range hits {
		h := &hits[i]
		first, last := int64(h.First), int64(h.Last)
		at := slices.IndexFunc(want, func(e oracle.Episode) bool { return e.First <= first && last <= e.Last })
		if at < 0 {
			t.Errorf("seed %d: the hit %s lies in no episode", seed, sprint(first, last, h.Count))
			continue
		}
		found[at]++
		e := want[at]
		same := first == e.First && last == e.Last && h.Count == e.Count
		if !same && (h.Count > e.Count || !atLeast(h)) {
			t.Errorf("seed %d: the hit %s (at_least %v) is of the episode %s", seed, sprint(first, last, h.Count),
				atLeast(h),
				sprint(e.First, e.Last, e.Count))
		}
	}
	return found
}

// anyBound reports whether one of the hits says that its figures are bounds.
func anyBound(hits []detectors.Hit) bool {
	return slices.ContainsFunc(hits, func(h detectors.Hit) bool { return atLeast(&h) })
}
