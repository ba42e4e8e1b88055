package detectors_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// raises are the ways in which the limit of a key that is over comes to be greater than before.
func raises() map[string]func(v *rules.Version, limit int) {
	return map[string]func(v *rules.Version, limit int){
		"set-limit": func(v *rules.Version, limit int) {
			v.Raised = &rules.Raise{Limit: limit, Until: origin + 1000*second}
		},
		"edit": func(v *rules.Version, limit int) { v.Number, v.Limit = 2, limit },
	}
}

// raised is a bench on which one address comes under a first limit and, from one event on, under a second one.
type raised struct {
	*bench
	of     []oracle.Event
	limits [2]int
}

func newRaised(t testing.TB, algorithm rules.Algorithm, how func(*rules.Version, int), limits [2]int) *raised {
	low := rule(limits[0], 5*time.Second, 5*time.Second)
	low.Algorithm = algorithm
	high := low
	how(&high, limits[1])
	return &raised{bench: newBench(t, 1, low, high), limits: limits}
}

func (r *raised) send(at traffic.Time, version int64) {
	k := r.event(0, at, "192.0.2.1", version)
	r.of = append(r.of, oracle.Event{Time: int64(at), Offset: k.Offset, Limit: r.limits[version-1]})
	r.must(k)
}

// counted is what closed hits count, whether one of them says that there may be more, and what there was.
func (r *raised) counted() (got, want int64, atLeast bool) {
	r.end()
	for i := range r.hits {
		if h := &r.hits[i]; h.Kind == detectors.KindHit && h.Phase == detectors.PhaseClosed {
			got, atLeast = got+h.Count, atLeast || h.AtLeast
		}
	}
	for _, e := range oracle.Sliding(r.of, (5 * time.Second).Microseconds(), (24 * time.Hour).Microseconds()) {
		want += e.Count
	}
	return got, want, atLeast
}

// Of a source that is over only so many events are kept as its limit needs. Where the limit rises above that, events
// that are over are not seen to be: the hit says so, and it does not say so where nothing was dropped.
func TestRaisedLimitSaysWhatItMayMiss(t *testing.T) {
	for _, algorithm := range []rules.Algorithm{"", rules.AlgorithmSlidingLog} {
		for name, how := range raises() {
			missed := 0
			for after := 40; after <= 100; after++ {
				r := newRaised(t, algorithm, how, [2]int{32, 60})
				for i := range after + 12 {
					version := int64(1)
					if i >= after {
						version = 2
					}
					r.send(origin+50_000*traffic.Time(i), version)
				}
				got, want, atLeast := r.counted()
				if got > want || got < want && !atLeast {
					t.Errorf("%q, %s after event %d: %d events, at least: %t, want %d",
						algorithm, name, after, got, atLeast, want)
				}
				if kept := after <= 66; kept && (got != want || atLeast) {
					t.Errorf("%q, %s after event %d: %d events, at least: %t, though none was dropped; want %d",
						algorithm, name, after, got, atLeast, want)
				}
				if got < want {
					missed++
				}
			}
			if missed == 0 {
				t.Errorf("%q, %s: no event was ever missed: the test shows nothing", algorithm, name)
			}
		}
	}
}

func TestRaisedLimitsRapid(t *testing.T) {
	all := raises()
	rapid.Check(t, func(rt *rapid.T) {
		low := rapid.IntRange(1, 60).Draw(rt, "limit")
		r := newRaised(t, rapid.SampledFrom([]rules.Algorithm{"", rules.AlgorithmSlidingLog}).Draw(rt, "algorithm"),
			all[rapid.SampledFrom([]string{"set-limit", "edit"}).Draw(rt, "how")],
			[2]int{low, low + rapid.IntRange(1, 200).Draw(rt, "more")})
		n, at := rapid.IntRange(1, 400).Draw(rt, "events"), origin
		after, late := rapid.IntRange(0, n).Draw(rt, "raised after"), rapid.IntRange(0, 5).Draw(rt, "late")
		gaps := rapid.SliceOfN(rapid.SampledFrom([]int{0, 10_000, 40_000, 150_000, 900_000}), n, n).Draw(rt, "gaps")
		for i, gap := range gaps {
			version := int64(1)
			if i >= after {
				version = 2
			}
			at += traffic.Time(gap)
			behind := traffic.Time(0)
			if late > 0 && i%7 < late {
				behind = traffic.Time(late) * 100_000
			}
			r.send(max(origin, at-behind), version)
		}
		if got, want, atLeast := r.counted(); got > want || got < want && !atLeast {
			rt.Errorf("%d events, at least: %t, want %d", got, atLeast, want)
		}
	})
}
