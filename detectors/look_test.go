package detectors_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Looking at a key of every rule between any two records, at each key in its turn, changes nothing: the same hits, the same state. A
// snapshot under way is what it would have been.
func TestLookChangesNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := drawMany(t, rt, rapid.SampledFrom([]int64{0, 4 << 10}).Draw(rt, "budget"))
		looked, plain := detectors.NewPartition(m.cfg), detectors.NewPartition(m.cfg)
		m.learn(looked)
		m.learn(plain)
		r := &rules.Routing{Number: 1, Rules: m.rules}
		at := rapid.IntRange(0, len(m.log)-1).Draw(rt, "snapshot at")
		var e [2]*detectors.SnapshotEncoder
		var hits [2][]detectors.Hit
		for i, l := range m.log {
			for side, p := range []*detectors.Partition{looked, plain} {
				if i == at {
					e[side] = p.BeginSnapshot()
				}
				var err error
				if hits[side], err = p.Fold(l.appended, &l.keyed, hits[side]); err != nil {
					rt.Fatal(err)
				}
			}
			subject := subjectOf(fmt.Sprintf("192.0.2.%d", i%3))
			for v := range m.rules {
				if _, err := detectors.LookAt(looked, r, m.rules[v].ID, subject); err != nil {
					rt.Fatal(err)
				}
			}
		}
		var raw [2][]byte
		for side := range e {
			for !e[side].Next(1 << 20) {
				continue
			}
			raw[side] = e[side].Take(nil)
		}
		if !slices.Equal(raw[0], raw[1]) || !slices.Equal(looked.Snapshot(nil), plain.Snapshot(nil)) {
			rt.Fatal("looking has changed the state")
		}
		if !slices.Equal(encode(t, hits[0]), encode(t, hits[1])) {
			rt.Fatal("looking has changed the hits")
		}
	})
}

// What is shown is what a person counts: the events within the window that ends with the newest one, of limits that nobody is over.
func TestLookCounts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		window := time.Duration(rapid.IntRange(2, 30).Draw(rt, "window")) * time.Second
		algorithm := rapid.SampledFrom([]rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmSlidingLog, rules.AlgorithmFixed}).Draw(rt, "algorithm")
		v := rule(100, window, time.Minute)
		v.Algorithm, v.Near, v.Candidate = algorithm, 60, &rules.Candidate{Limit: 90}
		pending := v
		pending.Pending, pending.Number, pending.Lineage, pending.Limit, pending.Near, pending.Candidate = true, 2, 2, 80, 0, nil
		b := newBench(t, 1)
		r := &rules.Routing{Number: 1, Rules: []rules.Version{v, pending}}
		b.p.Learn(detectors.NewPlan(r))
		var times []traffic.Time
		now := origin
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			now += traffic.Time(rapid.SampledFrom([]int{0, 1, 2, 9}).Draw(rt, "gap")) * second / 2
			at := now - traffic.Time(rapid.SampledFrom([]int{0, 0, 3}).Draw(rt, "delay"))*second
			k := b.event(0, at, rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2"}).Draw(rt, "ip"), 1)
			k.Rules = []int{0, 1}
			b.must(k)
			if k.Identity.IP.String() == "192.0.2.1" {
				times = append(times, at)
			}
		}
		newest := b.top[0]
		want := int64(0)
		for _, at := range times {
			within := at > newest-traffic.Time(window.Microseconds()) && at <= newest
			if algorithm == rules.AlgorithmFixed {
				within = int64(at)/window.Microseconds() == int64(newest)/window.Microseconds()
			}
			if within {
				want++
			}
		}
		got, err := detectors.LookAt(b.p, r, "burst", subjectOf("192.0.2.1"))
		if err != nil || got.AsOf != newest || len(got.Windows) != 4 {
			rt.Fatalf("%+v, %v", got, err)
		}
		for i, w := range got.Windows {
			if w.Of != []string{"limit", "near", "candidate", "pending"}[i] || w.Limit != []int64{100, 59, 90, 80}[i] || w.Version != []int{1, 1, 1, 2}[i] {
				rt.Errorf("%+v", w)
			}
			if w.Count > want || w.Held && w.Count != want || w.AtLeast {
				rt.Errorf("%s: %+v, want %d", algorithm, w, want)
			}
			if algorithm == rules.AlgorithmFixed && (w.To-w.From != traffic.Time(window.Microseconds()) || newest < w.From || newest >= w.To) || algorithm != rules.AlgorithmFixed && (w.To != newest || w.From != newest-traffic.Time(window.Microseconds())) {
				rt.Errorf("%s: from %s to %s", algorithm, w.From, w.To)
			}
		}
	})
}

// A key that is over has its episode shown; one that never came, or is reset, says so; and a reset that the partition has not come to is
// told.
func TestLookAtEpisodesAndResets(t *testing.T) {
	v := rule(2, 10*time.Second, time.Second)
	v.Tiers = []rules.Tier{{When: "event.status == 401", Limit: 1}}
	v.Raised = &rules.Raise{Limit: 5, Until: origin + 2*second}
	b := newBench(t, 1)
	r := &rules.Routing{Number: 1, Rules: []rules.Version{v}}
	b.p.Learn(detectors.NewPlan(r))
	look := func(r *rules.Routing, ip string) detectors.LookWindow {
		t.Helper()
		got, err := detectors.LookAt(b.p, r, "burst", subjectOf(ip))
		if err != nil || len(got.Windows) != 1 {
			t.Fatalf("%+v, %v", got, err)
		}
		return got.Windows[0]
	}
	if got, err := detectors.LookAt(b.p, r, "burst", subjectOf("192.0.2.1")); err != nil || got.AsOf != 0 || got.Watermark != 0 || got.Windows[0].Held {
		t.Errorf("before the first event: %+v, %v", got, err)
	}
	b.must(b.event(0, origin, "192.0.2.1", 1))
	if w := look(r, "192.0.2.1"); w.Limit != 5 || len(w.Tiers) != 1 || w.Tiers[0].Limit != 5 {
		t.Errorf("while the limit is raised: %+v", w)
	}
	for range 3 {
		b.must(b.event(0, origin+3*second, "192.0.2.1", 1))
	}
	w := look(r, "192.0.2.1")
	if !w.Held || w.Count < 3 || w.Limit != 2 || w.Tiers[0] != (detectors.LookTier{When: "event.status == 401", Limit: 1}) || len(w.Episodes) != 1 ||
		len(w.Episodes[0].Hits) != 1 || w.Episodes[0].Hits[0] != b.hits[0].ID || w.Episodes[0].Count != 2 {
		t.Errorf("over: %+v, hits %+v", w, b.hits)
	}
	if w := look(r, "192.0.2.2"); w.Held || w.Count != 0 {
		t.Errorf("who never came: %+v", w)
	}
	next := &rules.Routing{Number: 2, Rules: r.Rules, Resets: []rules.Reset{{Rule: "burst", Key: v.Key, Subject: subjectOf("192.0.2.1"), Since: 2}}}
	b.p.Learn(detectors.NewPlan(next))
	if got, err := detectors.LookAt(b.p, next, "burst", subjectOf("192.0.2.1")); err != nil || got.Reset != 2 || !got.Windows[0].Held {
		t.Errorf("before the reset: %+v, %v", got, err)
	}
	b.must(b.event(0, origin+3*second, "192.0.2.2", 2))
	if got, err := detectors.LookAt(b.p, next, "burst", subjectOf("192.0.2.1")); err != nil || got.Reset != 0 || got.Windows[0].Held {
		t.Errorf("after the reset: %+v, %v", got, err)
	}
	for rule, subject := range map[string]traffic.Subject{"other": subjectOf("192.0.2.1"), "burst": "device=tv"} {
		if _, err := detectors.LookAt(b.p, r, rule, subject); !errors.Is(err, detectors.ErrLook) {
			t.Errorf("%s %s: %v", rule, subject, err)
		}
	}
}
