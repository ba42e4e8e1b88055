package detectors_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Where the block's key tells apart what the rule's key does not, each tuple that is over has a hit of its own, up to
// MaxTuples; one for the rule's own key stands for all others.
func TestOneHitPerBlockTuple(t *testing.T) {
	v := rule(0, 10*time.Second, time.Second)
	v.Block.Key = append(v.Block.Key, traffic.KeyField{Field: traffic.FieldDevice})
	b := newBench(t, 1, v)
	send := func(device string, at traffic.Time) {
		k := b.event(0, at, "192.0.2.1", 1)
		k.Identity.Device = device
		b.must(k)
	}
	for round := range 2 {
		for i := range detectors.MaxTuples + 5 {
			send(fmt.Sprintf("d%d", i), origin+traffic.Time(i+round)*second/100)
		}
	}
	send("", origin+2*second)
	b.end()
	open, closed, ids := map[traffic.Subject]int{}, map[traffic.Subject]detectors.Hit{}, map[string]bool{}
	for _, h := range b.hits {
		switch h.Phase {
		case detectors.PhaseOpen:
			open[h.BlockSubject]++
			ids[h.ID] = true
		case detectors.PhaseClosed:
			closed[h.BlockSubject] = h
		}
	}
	if len(open) != detectors.MaxTuples+1 || len(ids) != len(open) || len(closed) != len(open) {
		t.Fatalf("%d tuples, %d ids, %d closings, want %d", len(open), len(ids), len(closed), detectors.MaxTuples+1)
	}
	wide := closed["ip=192.0.2.1%2F32"]
	if open["ip=192.0.2.1%2F32&device=d3"] != 1 || wide.ID == "" || wide.Count != 2*(detectors.MaxTuples+5)+1 {
		t.Errorf("the wide one: %+v", wide)
	}
	if first := closed["ip=192.0.2.1%2F32&device=d0"]; first.Last != origin+second/100 || wide.Last != origin+2*second {
		t.Errorf("last over event of d0 %v, of the rest %v", first.Last, wide.Last)
	}
}

func TestCooldownOfTheRule(t *testing.T) {
	v := rule(0, 10*time.Second, time.Minute)
	v.Cooldown = 10 * time.Second
	b := newBench(t, 1, v)
	for s := traffic.Time(0); s <= 60; s++ {
		b.must(b.event(0, origin+s*second, "192.0.2.1", 1))
	}
	updates := 0
	for i := range b.hits {
		if b.hits[i].Phase == detectors.PhaseUpdate {
			updates++
		}
	}
	if updates != 6 {
		t.Errorf("%d updates in a minute, want 6", updates)
	}
}

// Which sources are over does not depend on the order of events within the lateness: for fixed as for the sliding log.
// The order of arrival is shuffled within a bound; the sorted log is the oracle.
func TestOrderMakesNoDifference(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		limit := rapid.IntRange(0, 4).Draw(rt, "limit")
		window := time.Duration(rapid.IntRange(1, 20).Draw(rt, "window")) * time.Second
		var versions []rules.Version
		for _, a := range []rules.Algorithm{rules.AlgorithmFixed, rules.AlgorithmSliding, rules.AlgorithmSlidingLog} {
			for _, count := range []rules.Count{{}, {Sum: "attrs.cost"}} {
				v := rule(limit, window, 30*time.Second)
				v.ID = fmt.Sprintf("%s-%s", a, count.Kind())
				v.Algorithm, v.Count = a, count
				versions = append(versions, v)
			}
		}
		type sent struct {
			at    traffic.Time
			ip    string
			units int64
		}
		var events []sent
		now := origin
		for range rapid.IntRange(1, 80).Draw(rt, "events") {
			now += traffic.Time(rapid.SampledFrom([]int{0, 1, 1, 3, 15}).Draw(rt, "gap")) * second
			events = append(events, sent{now, fmt.Sprintf("192.0.2.%d", rapid.IntRange(1, 2).Draw(rt, "ip")), rapid.Int64Range(1, 3).Draw(rt, "units")})
		}
		over := func(events []sent) []string {
			m := newMany(t, 1, 0, versions)
			for _, e := range events {
				m.send(0, e.at, e.ip, "d", e.units)
			}
			if m.p.Counts().Late > 0 {
				rt.Fatal("an event within the lateness came too late")
			}
			var out []string
			for _, h := range m.hits {
				if name := h.Rule + " " + string(h.Subject); h.Phase == detectors.PhaseOpen && !slices.Contains(out, name) {
					out = append(out, name)
				}
			}
			slices.Sort(out)
			return out
		}
		want := over(events)
		shuffled := slices.Clone(events)
		for i := range shuffled {
			j := i + rapid.IntRange(0, 4).Draw(rt, "swap")
			if j < len(shuffled) && within(shuffled[i:j+1], func(e sent) traffic.Time { return e.at }) {
				shuffled[i], shuffled[j] = shuffled[j], shuffled[i]
			}
		}
		newest := traffic.BeforeTime
		for _, e := range shuffled {
			newest = max(newest, e.at)
			if e.at < newest-30*second {
				return // too late in this order
			}
		}
		if got := over(shuffled); !slices.Equal(got, want) {
			rt.Fatalf("in another order %q, sorted %q", got, want)
		}
	})
}

// within reports whether all times lie within five seconds.
func within[E any](events []E, at func(E) traffic.Time) bool {
	lo, hi := traffic.EndOfTime, traffic.BeforeTime
	for _, e := range events {
		lo, hi = min(lo, at(e)), max(hi, at(e))
	}
	return hi-lo <= 5*second
}
