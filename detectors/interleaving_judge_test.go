package detectors_test

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func identityOf(address string) traffic.Identity {
	return traffic.Identity{IP: netip.MustParseAddr(address)}
}

// windows is an oracle of windows.
type windows func([]oracle.Step) []oracle.Answer

// bucket is a bucket of the story's: what it counts is by how much its fullest instant was too full.
func bucket(steps []oracle.Step) []oracle.Answer {
	out := oracle.Bucket(steps, toldBurst, int64(toldWindow))
	for i := range out {
		out[i].Count = 0
		if out[i].Over {
			out[i].Count = toldBurst + 1
		}
	}
	return out
}

// teller judges one rule of the story over all its interleavings.
type teller struct {
	version   rules.Version
	threshold int64           // a source is over when its fullest window holds more
	peaks     [toldKeys]int64 // the fullest window of each key by the oracle, of the events sorted by time
	found     float64         // of the sources that are over, the share that is found at least, over all interleavings

	over, missed int // (interleaving, source) pairs
}

// everyTeller is one for each algorithm, with what its doc comment promises: whatever the order, nobody is over who is not
// over in order of time. Everybody else is found by those of which order is no matter; the others leave out what comes
// too late for what they keep.
func everyTeller(story []told) []*teller {
	const window, limit = int64(toldWindow), int64(toldLimit)
	with := func(f func([]oracle.Step, int64) []oracle.Answer) windows {
		return func(steps []oracle.Step) []oracle.Answer { return f(steps, window) }
	}
	var out []*teller
	for _, c := range []struct {
		algorithm rules.Algorithm
		threshold int64
		oracle    windows
		found     float64
	}{
		{rules.AlgorithmFixed, limit, with(oracle.Fixed), 1},
		{rules.AlgorithmSlidingLog, limit, nil, 1},
		{rules.AlgorithmSliding, limit, nil, 1},
		{rules.AlgorithmFirstSeen, limit, with(oracle.FirstSeen), 0.1},
		{rules.AlgorithmSlidingCounter, limit, with(oracle.SlidingCounter), 0.8},
		{rules.AlgorithmTokenBucket, toldBurst, bucket, 0.3},
		{rules.AlgorithmLeakyBucket, toldBurst, bucket, 0.3},
	} {
		w := &teller{version: toldRule(c.algorithm), threshold: c.threshold, found: c.found}
		var sorted [toldKeys][]int64
		for _, e := range story {
			sorted[e.key] = append(sorted[e.key], int64(e.at))
		}
		for key, times := range sorted {
			w.peaks[key] = oraclePeak(c.oracle, times)
		}
		out = append(out, w)
	}
	return out
}

// oraclePeak is the fullest window by the oracle. Of the sliding log, which gives episodes, it is only whether it is over.
func oraclePeak(f windows, times []int64) int64 {
	if f != nil {
		return slices.Max(oracleCounts(f, times))
	}
	var events []oracle.Event
	for i, at := range times {
		events = append(events, oracle.Event{Time: at, Offset: int64(i), Limit: toldLimit})
	}
	if len(oracle.Sliding(events, int64(toldWindow), 1<<62)) > 0 {
		return toldLimit + 1
	}
	return toldLimit
}

func oracleCounts(f windows, times []int64) []int64 {
	var steps []oracle.Step
	for _, at := range times {
		steps = append(steps, oracle.Step{Time: at, Units: 1, Limit: toldLimit})
	}
	var out []int64
	for _, a := range f(steps) {
		out = append(out, a.Count)
	}
	return out
}

func (w *teller) judge(t *testing.T, seed uint64, got map[string]bool) {
	t.Helper()
	for key := range toldKeys {
		flagged, truly := got[w.version.ID+" ip="+toldAddress(key)+"%2F32"], w.peaks[key] > w.threshold
		switch {
		case flagged && !truly:
			t.Errorf("seed %d: %s has source %d over, which is not by the oracle", seed, w.version.ID, key)
		case truly && !flagged:
			w.missed++
			if w.found == 1 {
				t.Errorf("seed %d: %s misses source %d", seed, w.version.ID, key)
			}
		}
		if truly {
			w.over++
		}
	}
}

// conclude prints what the rule missed, and sees to it that the story had something to tell.
func (w *teller) conclude(t *testing.T) {
	t.Helper()
	over := 0
	for _, peak := range w.peaks {
		if peak > w.threshold {
			over++
		}
	}
	if over < toldKeys/10 || over > toldKeys*9/10 {
		t.Errorf("%s: %d of %d sources are over: the story proves nothing", w.version.ID, over, toldKeys)
	}
	found := 1 - float64(w.missed)/float64(w.over)
	if found < w.found {
		t.Errorf("%s: %.3f of the sources that are over are found, want %.2f", w.version.ID, found, w.found)
	}
	t.Logf("%s: %d of %d sources over, none else in any interleaving; %.1f %% of them found", w.version.ID, over, toldKeys, 100*found)
}
