package detectors_test

import (
	"net/netip"
	"slices"
	"sort"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func identityOf(address string) traffic.Identity {
	return traffic.Identity{IP: netip.MustParseAddr(address)}
}

// windows is an oracle of windows.
type windows func([]oracle.Step) []oracle.Answer

// roomyBurst is a bucket that has room for all, so that its level is not cut off where it would be over.
const roomyBurst = 1 << 20

func roomyBucket(steps []oracle.Step) []oracle.Answer {
	b := oracle.HandBucket{Limit: toldLimit, Burst: roomyBurst, Window: int64(toldWindow)}
	var out []oracle.Answer
	for _, s := range steps {
		_, free := b.Add(s.Time, s.Units, nil)
		out = append(out, oracle.Answer{Count: roomyBurst - free})
	}
	return out
}

// teller judges one rule of the story over all its interleavings.
type teller struct {
	version   rules.Version
	threshold int64             // a source is over when its fullest window holds more
	sorted    [toldKeys][]int64 // each key's times, in order
	peaks     [toldKeys]int64   // the fullest window of each key by the oracle, of the events sorted by time
	windows   windows
	bound     func(k *keyOrder) int64

	same    bool // order makes no difference
	judged  int
	moved   int // (interleaving, source) pairs whose verdict is not the oracle's
	worst   int64
	allowed int64 // where worst was seen
}

// keyOrder is what an interleaving has made of one key's events.
type keyOrder struct {
	sorted, arrivals []int64
	late             []int64 // times of the events that came after a newer one, in order
	behind           int64   // the most that one of them was behind the newest
}

func orderOf(sorted []int64, arrivals []traffic.Time) keyOrder {
	k := keyOrder{sorted: sorted}
	newest := int64(traffic.BeforeTime)
	for _, at := range arrivals {
		k.arrivals = append(k.arrivals, int64(at))
		if int64(at) < newest {
			k.late, k.behind = append(k.late, int64(at)), max(k.behind, newest-int64(at))
		}
		newest = max(newest, int64(at))
	}
	slices.Sort(k.late)
	return k
}

// timesWithin counts the times of [from, to).
func timesWithin(times []int64, from, to int64) int64 {
	at := func(x int64) int { return sort.Search(len(times), func(i int) bool { return times[i] >= x }) }
	return int64(at(to) - at(from))
}

// most is how many of the times the fullest span of a length holds.
func most(times []int64, length int64) int64 {
	n := int64(0)
	for _, from := range times {
		n = max(n, timesWithin(times, from, from+length))
	}
	return n
}

// everyTeller is one for each algorithm, with the bound that its doc comment states. Of a key's late events only those
// can matter whose time is near the window.
//
//   - fixed, sliding-log, sliding: none.
//   - first-seen: the windows that it makes are each off by at most the late events (judgeFirstSeen). Which windows are
//     made depends on order, so of the fullest one only this can be said: it holds at least half of what the fullest span
//     does, whatever the order, but for the late events.
//   - sliding-counter: the late events.
//   - buckets: what flows in the time that the latest of the late events was behind.
func everyTeller(story []told) []*teller {
	const window, limit = int64(toldWindow), int64(toldLimit)
	none := func(*keyOrder) int64 { return 0 }
	spans := func(k *keyOrder) int64 { return most(k.sorted, window)/2 + most(k.late, window) }
	late := func(k *keyOrder) int64 { return most(k.late, 2*window+k.behind) }
	flows := func(k *keyOrder) int64 { return (limit*k.behind + window - 1) / window }
	with := func(f func([]oracle.Step, int64) []oracle.Answer) windows {
		return func(steps []oracle.Step) []oracle.Answer { return f(steps, window) }
	}
	var out []*teller
	for _, c := range []struct {
		algorithm rules.Algorithm
		same      bool
		threshold int64
		oracle    windows
		bound     func(*keyOrder) int64
	}{
		{rules.AlgorithmFixed, true, limit, with(oracle.Fixed), none},
		{rules.AlgorithmSlidingLog, true, limit, nil, none},
		{rules.AlgorithmSliding, true, limit, nil, none},
		{rules.AlgorithmFirstSeen, false, limit, with(oracle.FirstSeen), spans},
		{rules.AlgorithmSlidingCounter, false, limit, with(oracle.SlidingCounter), late},
		{rules.AlgorithmTokenBucket, false, toldBurst, roomyBucket, flows},
		{rules.AlgorithmLeakyBucket, false, toldBurst, roomyBucket, flows},
	} {
		w := &teller{version: toldRule(c.algorithm), threshold: c.threshold, windows: c.oracle, bound: c.bound, same: c.same}
		for _, e := range story {
			w.sorted[e.key] = append(w.sorted[e.key], int64(e.at))
		}
		for key, times := range w.sorted {
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

func (w *teller) judge(t *testing.T, seed uint64, in *interleaving, got map[string]bool) {
	t.Helper()
	for key := range toldKeys {
		over := got[w.version.ID+" ip="+toldAddress(key)+"%2F32"]
		w.judged++
		if over != (w.peaks[key] > w.threshold) {
			w.moved++
			if w.same {
				t.Errorf("seed %d: %s of source %d: over is %v, the oracle says %v", seed, w.version.ID, key, over, !over)
			}
		}
		if w.same {
			continue
		}
		k := orderOf(w.sorted[key], in.arrivals[key])
		peak := w.inOrderOfArrival(t, seed, key, &k)
		if over != (peak > w.threshold) {
			t.Errorf("seed %d: %s of source %d: over is %v, but its fullest window holds %d", seed, w.version.ID, key, over, peak)
		}
		off, bound := max(peak-w.peaks[key], w.peaks[key]-peak), w.bound(&k)
		if off > bound {
			t.Errorf("seed %d: %s of source %d: the fullest window holds %d, by the oracle %d: off by %d, allowed: %d (%d late events)",
				seed, w.version.ID, key, peak, w.peaks[key], off, bound, len(k.late))
		}
		if off > w.worst {
			w.worst, w.allowed = off, bound
		}
	}
}

// inOrderOfArrival gives the fullest window of a key that is fed event by event. The oracle, fed in the same order, counts
// the same.
func (w *teller) inOrderOfArrival(t *testing.T, seed uint64, key int, k *keyOrder) int64 {
	t.Helper()
	d := w.version.Document
	if d.Burst > 0 {
		d.Burst = roomyBurst
	}
	c := detectors.NewCounter(d)
	var counts []int64
	for _, at := range k.arrivals {
		counts = append(counts, c.Add(traffic.Time(at), 1, "").Count)
	}
	if want := oracleCounts(w.windows, k.arrivals); !slices.Equal(counts, want) {
		t.Errorf("seed %d: %s of source %d, in order of arrival: got counts %v, the oracle has %v", seed, w.version.ID, key, counts, want)
	}
	if w.version.Algorithm == rules.AlgorithmFirstSeen {
		w.judgeFirstSeen(t, seed, key, k, counts)
	}
	return slices.Max(counts)
}

// judgeFirstSeen holds each window that was made against the events of its time.
func (w *teller) judgeFirstSeen(t *testing.T, seed uint64, key int, k *keyOrder, counts []int64) {
	t.Helper()
	for i, n := range counts {
		if i+1 < len(counts) && counts[i+1] > 1 {
			continue // not the window's last
		}
		start := k.arrivals[i+1-int(n)]
		end := start + int64(toldWindow)
		// What is too much is of before, what is missing came when the next window was open.
		want, before, after := timesWithin(k.sorted, start, end), timesWithin(k.late, start-k.behind, start), timesWithin(k.late, start, end)
		if n > want+before || n < want-after {
			t.Errorf("seed %d: %s of source %d: a window holds %d, its time %d, and %d late events are of its time, %d of just before",
				seed, w.version.ID, key, n, want, after, before)
		}
	}
}

// conclude prints how far off the rule was, and sees to it that the story had something to tell.
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
	if w.same {
		t.Logf("%s: %d of %d sources over, the same in every interleaving", w.version.ID, over, toldKeys)
		return
	}
	t.Logf("%s: %d of %d sources over when sorted by time; another verdict for %d of %d; fullest window off by at most %d, where %d were allowed",
		w.version.ID, over, toldKeys, w.moved, w.judged, w.worst, w.allowed)
}
