package detectors_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
)

// A late event makes the windows that it lies in be judged again, the one of the episode's last over event among them:
// that one is counted once all the same.
func TestLateEventsAreCountedOnce(t *testing.T) {
	b := newBench(t, 1, rule(2, time.Minute, time.Minute))
	for _, second := range []int{0, 1, 2, 10, 5, 9, 8, 7, 6} {
		b.must(b.event(0, origin.Add(time.Duration(second)*time.Second), "192.0.2.1", 1))
	}
	b.end()
	last := b.hits[len(b.hits)-1]
	// Over are the events from second 2 on: 2, 5, 6, 7, 8, 9, 10.
	if last.Phase != detectors.PhaseClosed || last.Count != 7 || last.First != origin.Add(2*time.Second) || last.Last != origin.Add(10*time.Second) {
		t.Errorf("%s: %d events from %s to %s, want 7 from second 2 to 10", last.Phase, last.Count, last.First, last.Last)
	}
}

// However far events of one run are shuffled within the lateness, it is one episode that never counts more than there were
// over the limit, and misses at its edges at most as many as the shuffling moved across them; if any, it says so.
func TestShuffledEventsAreCountedOnce(t *testing.T) {
	for _, algorithm := range []rules.Algorithm{rules.AlgorithmSlidingLog, rules.AlgorithmSliding, rules.AlgorithmFixed} {
		for _, far := range []int{0, 1, 5, 30} {
			v := rule(20, 5*time.Minute, time.Minute)
			v.Algorithm = algorithm
			b := newBench(t, 1, v)
			rng := rand.New(rand.NewPCG(uint64(far), 1))
			order := make([]int, 200)
			for i := range order {
				order[i] = i
			}
			for i := range order {
				j := min(i+rng.IntN(far+1), len(order)-1)
				order[i], order[j] = order[j], order[i]
			}
			for _, second := range order {
				b.must(b.event(0, origin.Add(time.Duration(second)*time.Second), "192.0.2.1", 1))
			}
			b.end()
			last := b.hits[len(b.hits)-1]
			late := last.First.Sub(origin.Add(20 * time.Second))
			if last.Phase != detectors.PhaseClosed || last.Count > 180 || last.Count < 180-2*int64(far) || last.Count < 180-b.p.Counts().Late && !last.AtLeast || late.Abs() > time.Duration(far)*2*time.Second {
				t.Errorf("%s, shuffled by %d: %s with %d events from %s, want 180 from second 20", algorithm, far, last.Phase, last.Count, last.First)
			}
			if opened := countPhase(b.hits, detectors.PhaseOpen); opened != 1 {
				t.Errorf("%s, shuffled by %d: %d episodes", algorithm, far, opened)
			}
		}
	}
}

func countPhase(hits []detectors.Hit, phase detectors.Phase) (n int) {
	for i := range hits {
		if hits[i].Phase == phase {
			n++
		}
	}
	return n
}

// Logs with a resolution of a second have hundreds of events of one time, more than are kept of a source that is over. Their
// number is told all the same.
func TestEventsOfOneTimeAreCountedThoughTheyAreTrimmed(t *testing.T) {
	for _, limit := range []int{2, 300} { // in words, and beside the key
		b := newBench(t, 1, rule(limit, time.Minute, time.Minute))
		for second := range 3 {
			for range 1000 {
				b.must(b.event(0, origin.Add(time.Duration(second)*time.Second), "192.0.2.1", 1))
			}
		}
		b.must(b.event(0, origin.Add(time.Second), "192.0.2.1", 1)) // late, among those that are kept no more
		b.end()
		last := b.hits[len(b.hits)-1]
		if want := int64(3001 - limit); last.Count != want || last.AtLeast {
			t.Errorf("limit %d: %d events over the limit, at least: %v, want %d", limit, last.Count, last.AtLeast, want)
		}
	}
}
