package detectors_test

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// tie is an event of one source in a log of whole seconds.
type tie struct {
	at    traffic.Time
	tier  int
	units int64
}

// tiedRule is a rule with limits[0] for its own and the others for its tiers.
func tiedRule(window time.Duration, limits []int, sum bool) rules.Version {
	v := rule(limits[0], window, time.Hour)
	v.Algorithm = rules.AlgorithmSlidingLog
	if sum {
		v.Count.Sum = "bytes"
	}
	for _, limit := range limits[1:] {
		v.Tiers = append(v.Tiers, rules.Tier{When: "true", Limit: limit})
	}
	return v
}

func (b *bench) tie(e tie) {
	k := b.event(0, e.at, "192.0.2.1", 1)
	k.Tiers, k.Units = []int{e.tier}, []int64{e.units}
	b.must(k)
}

// trulyOver reports whether an event meets more than its own limit in (t-window, t], whoever of its instant came first.
func trulyOver(events []tie, window traffic.Time, limits []int) bool {
	return slices.ContainsFunc(events, func(e tie) bool {
		sum := int64(0)
		for _, x := range events {
			if x.at > e.at-window && x.at <= e.at {
				sum += x.units
			}
		}
		return sum > int64(limits[e.tier])
	})
}

// Logs have whole seconds, so events of several limits share an instant. Who is over depends on no order of arrival then
// either: an event meets all of its instant. That holds in all forms of a log, of sums, and across a restart.
func TestTiesOfSeveralLimits(t *testing.T) {
	over := map[bool]int{}
	rapid.Check(t, func(rt *rapid.T) {
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "log"), 1))
		sum := rapid.Bool().Draw(rt, "sum")
		limits := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 3, 4, 6, 9, 40, 300}), 1, 4).Draw(rt, "limits")
		window := time.Duration(rapid.IntRange(1, 5).Draw(rt, "window")) * time.Second
		events := make([]tie, 1+rnd.IntN([]int{5, 12, 150}[rnd.IntN(3)]))
		for i := range events {
			events[i] = tie{at: origin + traffic.Time(rnd.IntN(2+len(events)/2))*second, tier: rnd.IntN(len(limits)), units: 1}
			if sum {
				events[i].units = 1 + rnd.Int64N(3)
			}
		}
		want := trulyOver(events, traffic.Time(window.Microseconds()), limits)
		over[want]++
		inOrder := func(a, b tie) int { return int(a.at - b.at) }
		for _, order := range []string{"any", "of time"} {
			rnd.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
			if order == "of time" {
				slices.SortStableFunc(events, inOrder)
			}
			b := newBench(t, 1, tiedRule(window, limits, sum))
			for i, e := range events {
				if b.tie(e); i == len(events)/2 {
					b.restart(rt, tiedRule(window, limits, sum))
				}
			}
			b.end()
			if got := len(ofKind(b.hits, detectors.KindHit)) > 0; got != want {
				rt.Fatalf("limits %v, window %v, %v in the order %s: over %v, want %v", limits, window, events, order, got, want)
			}
		}
	})
	if over[true] == 0 || over[false] == 0 {
		t.Errorf("the logs prove nothing: over %v", over)
	}
}

// restart goes on with what a snapshot holds.
func (b *bench) restart(rt *rapid.T, v rules.Version) {
	raw := b.p.Snapshot(nil)
	p, err := detectors.Restore(b.cfg, raw)
	if err != nil {
		rt.Fatal(err)
	}
	if !bytes.Equal(p.Snapshot(nil), raw) {
		rt.Fatal("a restored state encodes differently")
	}
	b.p = p
	b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{v}}))
}

// The lowest limit of an instant is judged last, whichever of its events came first.
func TestLowerTierOfTheSameSecond(t *testing.T) {
	for name, tiers := range map[string][]int{"own first": {0, 1}, "tier first": {1, 0}} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1, tiedRule(10*time.Second, []int{3, 1}, false))
			for _, tier := range tiers {
				b.tie(tie{origin, tier, 1})
			}
			b.end()
			hits := ofKind(b.hits, detectors.KindHit)
			if len(hits) == 0 || hits[0].Limit != 1 || hits[0].Count != 1 || hits[0].Peak != 2 {
				t.Errorf("got %+v, want one event over the limit 1, in a window of 2", hits)
			}
		})
	}
}

// tiedBench has ties of several limits in logs of both forms, as edits of a limit leave them, of records that older builds know.
func tiedBench(t testing.TB) *bench {
	var versions []rules.Version
	for _, limit := range []int{20, 9, 300} {
		versions = append(versions, tiedRule(10*time.Second, []int{limit}, false))
	}
	b := newBench(t, 1, versions...)
	for i, version := range []int64{1, 2, 2, 1, 2, 3, 1, 3, 2} {
		at := origin + traffic.Time(i/4)*second
		for _, ip := range []string{"192.0.2.1", "192.0.2.2"} {
			if ip == "192.0.2.1" && version == 3 {
				continue
			}
			k := b.event(0, at, ip, version)
			k.Format = 4
			if b.must(k); len(b.hits) > 0 {
				t.Fatalf("a hit: %+v", b.hits[0])
			}
		}
	}
	return b
}

// Builds that put the least limit of an instant first wrote snapshot-3-ties.bin: it is read, and what is written for them is the same.
func TestSnapshotHasTiesAsOlderBuildsDo(t *testing.T) {
	raw, b := readFile(t, "snapshot-3-ties.bin"), tiedBench(t)
	if !bytes.Equal(b.p.Snapshot(nil), raw) {
		t.Error("the same state encodes differently")
	}
	p, err := detectors.Restore(b.cfg, raw)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.Snapshot(nil), raw) {
		t.Error("a restored state encodes differently")
	}
}
