package detectors_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// answers says which oracle judges which algorithm and count, and whether counts above the limit are told exactly.
func answers(d *rules.Document, steps []oracle.Step, exact bool) []oracle.Answer {
	w := d.Window.Microseconds()
	capacity := int64(d.Limit)
	if d.Burst > 0 {
		capacity = int64(d.Burst)
	}
	distinct := d.Count.Distinct != nil
	switch d.Algorithm {
	case rules.AlgorithmFixed:
		if distinct {
			return oracle.FixedDistinct(steps, w)
		}
		return oracle.Fixed(steps, w)
	case rules.AlgorithmFirstSeen:
		if distinct {
			return oracle.FirstSeenDistinct(steps, w)
		}
		return oracle.FirstSeen(steps, w)
	case rules.AlgorithmTokenBucket, rules.AlgorithmLeakyBucket:
		if distinct {
			return oracle.BucketDistinct(steps, capacity, w)
		}
		return oracle.Bucket(steps, capacity, w)
	}
	switch {
	case distinct && exact:
		return oracle.LogDistinct(steps, w)
	case distinct:
		return oracle.RotatingDistinct(steps, w)
	}
	return oracle.SlidingCounter(steps, w)
}

// Step by step and in order, every algorithm but the sliding log says what a plain and slow one says.
func TestCountersAgainstOracles(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := rapid.SampledFrom(rules.Algorithms()).Draw(rt, "algorithm")
		kind := rapid.SampledFrom(a.Counts()).Draw(rt, "count")
		d := rules.Document{
			ID: "r", Algorithm: a, Limit: rapid.IntRange(0, 6).Draw(rt, "limit"),
			Window: time.Duration(rapid.Int64Range(1, 40).Draw(rt, "window")) * time.Microsecond,
		}
		exact := true
		switch kind {
		case rules.CountDistinct:
			d.Count.Distinct = &traffic.KeyField{Field: traffic.FieldDevice}
		case rules.CountSum:
			d.Count.Sum = "attrs.cost"
		}
		if a == rules.AlgorithmSlidingLog || a == rules.AlgorithmSliding && kind != rules.CountDistinct {
			a, d.Algorithm = rules.AlgorithmSlidingCounter, rules.AlgorithmSlidingCounter // sliding logs have their own tests
		}
		c := detectors.NewCounter(d)
		if a == rules.AlgorithmSliding && rapid.Bool().Draw(rt, "above") {
			exact = false
			d.Limit = detectors.SlidingExact + 1
			c = detectors.NewCounter(d)
			d.Limit = rapid.IntRange(0, 6).Draw(rt, "limit after")
			c.SetLimit(d.Limit, 0)
		}
		if (a == rules.AlgorithmTokenBucket || a == rules.AlgorithmLeakyBucket) && d.Limit > 0 {
			d.Burst = rapid.IntRange(0, 8).Draw(rt, "burst")
			c.SetLimit(d.Limit, d.Burst)
		}
		var steps []oracle.Step
		now := rapid.Int64Range(-100, 100).Draw(rt, "start")
		for i := range rapid.IntRange(1, 80).Draw(rt, "steps") {
			now += rapid.SampledFrom([]int64{0, 0, 1, 2, 5, 20, 90}).Draw(rt, "gap")
			s := oracle.Step{
				Time: now, Units: 1, Limit: int64(d.Limit),
				Value: fmt.Sprint(rapid.IntRange(0, 9).Draw(rt, "value")),
			}
			if kind == rules.CountSum {
				s.Units = rapid.Int64Range(1, 4).Draw(rt, "units")
			}
			steps = append(steps, s)
			got := c.Add(traffic.Time(s.Time), s.Units, s.Value)
			want := answers(&d, steps, exact)[i]
			if saturates := a == rules.AlgorithmSliding && exact && want.Over; got.Over != want.Over || got.Count != want.Count && !saturates {
				rt.Fatalf("%s %s, limit %d burst %d window %v, step %d at %d: got %+v, want %+v\n%v",
					d.Algorithm, d.Count, d.Limit, d.Burst, d.Window, i, s.Time, got, want, steps)
			}
		}
	})
}

// A sum in a sliding log, against the definition: what lies in (t-window, t] of events in order of time.
func TestWeightedLogAgainstDefinition(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rules.Document{
			ID: "r", Algorithm: rules.AlgorithmSlidingLog, Count: rules.Count{Sum: "attrs.cost"},
			Limit: rapid.IntRange(0, 9).Draw(rt, "limit"), Window: time.Duration(rapid.IntRange(1, 30).Draw(rt, "window")) * time.Microsecond,
		}
		c := detectors.NewCounter(d)
		type weighed struct{ time, units int64 }
		var all []weighed
		now := int64(0)
		for range rapid.IntRange(1, 60).Draw(rt, "events") {
			now += rapid.SampledFrom([]int64{0, 1, 3, 11}).Draw(rt, "gap")
			units := rapid.Int64Range(1, 5).Draw(rt, "units")
			all = append(all, weighed{now, units})
			sum := int64(0)
			for _, e := range all {
				if e.time > now-d.Window.Microseconds() {
					sum += e.units
				}
			}
			if got := c.Add(traffic.Time(now), units, ""); got.Over != (sum > int64(d.Limit)) || !got.Over && got.Count != sum {
				rt.Fatalf("at %d: got %+v, want %d of %d", now, got, sum, d.Limit)
			}
		}
	})
}

func TestCounterAsks(t *testing.T) {
	for _, a := range rules.Algorithms() {
		c := detectors.NewCounter(rules.Document{ID: "r", Algorithm: a, Limit: 3, Window: time.Minute})
		for i, want := range []int64{3, 2, 1, 0} {
			at := origin - origin%(60*second) + traffic.Time(i)
			if got := c.Add(at, 0, ""); got.Over || got.Remaining != want || got.Count != int64(i) {
				t.Errorf("%s after %d events: %+v", a, i, got)
			}
			if got := c.Add(at, 1, ""); got.Over != (i == 3) {
				t.Errorf("%s, event %d: %+v", a, i+1, got)
			}
		}
	}
}
