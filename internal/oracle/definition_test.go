package oracle

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawSteps(t *rapid.T, limits int) []Step {
	var steps []Step
	limit := rapid.Int64Range(0, 4).Draw(t, "limit")
	for range rapid.IntRange(0, 50).Draw(t, "steps") {
		s := Step{Time: rapid.Int64Range(-40, 160).Draw(t, "time"), Units: rapid.Int64Range(1, 3).Draw(t, "units"), Limit: limit}
		s.Value = fmt.Sprint(rapid.IntRange(0, 7).Draw(t, "value"))
		if limits > 1 {
			s.Limit += rapid.Int64Range(0, 3).Draw(t, "raised by")
		}
		steps = append(steps, s)
	}
	return steps
}

// weigh counts the steps that in accepts: their units, or their values but those of without.
func weigh(distinct bool, steps, without []Step, in func(int64) bool) int64 {
	sum, values := int64(0), map[string]bool{}
	for _, s := range steps {
		if in(s.Time) && !(distinct && slices.ContainsFunc(without, func(o Step) bool { return o.Value == s.Value })) {
			sum += s.Units
			values[s.Value] = true
		}
	}
	if distinct {
		return int64(len(values))
	}
	return sum
}

// inFull is the count of the last of the steps, each window counted anew.
func (d Definition) inFull(steps []Step) int64 {
	at := steps[len(steps)-1].Time
	count := func(without []Step, in func(int64) bool) int64 { return weigh(d.Distinct, steps, without, in) }
	start := floor(at, d.Window) * d.Window
	switch d.Algorithm {
	case "fixed":
		return count(nil, func(t int64) bool { return t >= start })
	case "first-seen":
		open := steps[0].Time
		for _, s := range steps {
			if s.Time-open >= d.Window {
				open = s.Time
			}
		}
		return count(nil, func(t int64) bool { return t >= open })
	case "sliding-counter":
		var now []Step
		for _, s := range steps {
			if s.Time >= start {
				now = append(now, s)
			}
		}
		before := count(now, func(t int64) bool { return t >= start-d.Window && t < start })
		return count(nil, func(t int64) bool { return t >= start }) + before*(start+d.Window-at)/d.Window
	}
	return count(nil, func(t int64) bool { return t > at-d.Window })
}

func TestDefinitionsInFull(t *testing.T) {
	for _, algorithm := range []string{"fixed", "first-seen", "sliding-counter", "sliding-log", "sliding"} {
		for _, distinct := range []bool{false, true} {
			t.Run(fmt.Sprint(algorithm, " ", distinct), func(t *testing.T) {
				rapid.Check(t, func(t *rapid.T) {
					d := Definition{Algorithm: algorithm, Distinct: distinct, Window: rapid.Int64Range(1, 60).Draw(t, "window")}
					steps := drawSteps(t, 2)
					sorted := Sorted(steps)
					for i, j := range d.Judge(steps) {
						if want := d.inFull(sorted[:i+1]); j.Answer.Count != want || j.Over != (want > sorted[i].Limit) {
							t.Fatalf("%d of %v: got %+v, want %d", i, sorted, j, want)
						}
					}
				})
			})
		}
	}
}

// A bucket in whole numbers says what one in fractions does.
func TestBucketsInFractions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Definition{Algorithm: "leaky-bucket", Window: rapid.Int64Range(1, 60).Draw(t, "window"), Capacity: rapid.Int64Range(1, 5).Draw(t, "capacity")}
		d.Distinct = rapid.Bool().Draw(t, "distinct")
		steps := drawSteps(t, 1)
		want := Bucket(Sorted(steps), d.Capacity, d.Window)
		if d.Distinct {
			want = BucketDistinct(Sorted(steps), d.Capacity, d.Window)
		}
		for i, j := range d.Judge(steps) {
			if j.Answer != want[i] {
				t.Fatalf("%d of %v: got %+v, want %+v", i, Sorted(steps), j, want[i])
			}
		}
	})
}

// The episodes of the true window are those of Sliding.
func TestDefinitionEpisodes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Definition{Algorithm: "sliding-log", Window: rapid.Int64Range(1, 60).Draw(t, "window")}
		longest := rapid.Int64Range(1, 300).Draw(t, "longest")
		steps := drawSteps(t, 2)
		var events []Event
		for i := range steps {
			steps[i].Units = 1
			events = append(events, Event{Time: steps[i].Time, Offset: int64(i), Limit: int(steps[i].Limit)})
		}
		var got []Episode
		for _, e := range d.Episodes(d.Judge(steps), longest) {
			if got = append(got, e.Episode); e.Peak < 1 {
				t.Fatalf("an episode without a peak: %+v", e)
			}
		}
		if want := Sliding(events, d.Window, longest); !slices.Equal(got, want) {
			t.Fatalf("got %v, want %v", got, want)
		}
	})
}

// What is truly over by some events is so by more of them, and what a definition finds over is truly over, at its time.
func TestTruthOnlyGrows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := Definition{
			Algorithm: rapid.SampledFrom([]string{"fixed", "first-seen", "sliding-counter", "sliding-log", "token-bucket"}).Draw(t, "algorithm"),
			Distinct:  rapid.Bool().Draw(t, "distinct"), Window: rapid.Int64Range(1, 60).Draw(t, "window"),
		}
		steps := drawSteps(t, 1)
		part := slices.Clone(steps)[:rapid.IntRange(0, len(steps)).Draw(t, "left in")]
		all, some := NewTruth(d, steps), NewTruth(d, part)
		var times []int64
		for _, step := range Sorted(steps) {
			if n := len(times); all.Over(step.Time) && (n == 0 || times[n-1] != step.Time) {
				times = append(times, step.Time)
			}
		}
		if got := all.OverTimes(); !slices.Equal(got, times) {
			t.Fatalf("over at %v, one by one at %v, of %v", got, times, steps)
		}
		for _, j := range d.Judge(part) {
			switch {
			case j.Over && !some.Over(j.Time):
				t.Fatalf("at %d of %v: over by the definition, and not truly", j.Time, part)
			case some.Over(j.Time) && !all.Over(j.Time):
				t.Fatalf("at %d of %v: truly over, but not by all of %v", j.Time, part, steps)
			}
		}
	})
}

// Between events, the truth is what a window that ends there holds.
func TestTruthBetweenEvents(t *testing.T) {
	steps := []Step{{Time: 10, Units: 1, Value: "a", Limit: 1}, {Time: 11, Units: 1, Value: "b", Limit: 1}}
	for _, distinct := range []bool{false, true} {
		truth := NewTruth(Definition{Algorithm: "sliding-log", Distinct: distinct, Window: 5}, steps)
		for at, want := range map[int64]bool{9: false, 10: false, 11: true, 14: true, 15: false, 40: false} {
			if got := truth.Over(at); got != want {
				t.Errorf("distinct %v, at %d: got %v", distinct, at, got)
			}
		}
		if truth.Held(10, 11) != 2 || truth.Held(11, 40) != 1 || truth.Held(12, 40) != 0 {
			t.Error("Held counts wrongly")
		}
	}
}
