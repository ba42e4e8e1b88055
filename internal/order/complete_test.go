package order

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// Where order makes no difference, who is flagged are those that the sorted log has over, of the events that were not late:
// no one more and no one less.
func TestEveryOrderFlagsTheSame(t *testing.T) {
	eachWay(t, way.orderFree, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{})
			s := o.play(t)
			d := w.definition(o.window, o.capacity)
			for key := range s.hits {
				want := d.Episodes(d.Judge(s.onTime[key]), int64(24*hour))
				if got := s.hits[key]; (len(got) > 0) != (len(want) > 0) {
					t.Fatalf("key %d: %d hits, by the sorted log %d episodes %+v\n%s", key, len(got), len(want), want, o)
				}
			}
		})
	})
}

// `sliding` above its log flags, in every order, whoever is over by a window that is shorter by one slice.
func TestSlicesFlagInEveryOrder(t *testing.T) {
	eachWay(t, func(w way) bool { return w.above && !w.distinct() }, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{})
			o.judgeShorter(t, o.play(t), int64(o.window))
		})
	})
}

// judgeShorter holds that every time at which the shorter window is over lies in a hit, or by so much beside one. Out of order,
// a key that is over already may have forgotten what lies two windows before that, and is not flagged there a second time.
func (o *world) judgeShorter(t *rapid.T, s *story, beside int64) {
	for key := range s.hits {
		for _, j := range o.way.shorter(o.window).Judge(s.onTime[key]) {
			if j.Over && !covered(s.hits[key], j.Time, beside) && !(beside > 0 && o.forgotten(s.hits[key], j.Time)) {
				t.Fatalf("key %d: over at %d even by a window that is shorter by one slice, which holds %d, but no hit is near\n%s",
					key, j.Time-int64(origin), j.Answer.Count, o)
			}
		}
	}
}

// forgotten reports whether a key was over two windows of slices after a time.
func (o *world) forgotten(hits []detectors.Hit, at int64) bool {
	twoWindows := 2*int64(o.window) - int64(o.window)/64 // less one slice: both ends lie somewhere in theirs
	return slices.ContainsFunc(hits, func(h detectors.Hit) bool { return int64(h.Last)-at > twoWindows })
}

// In order, every way counts what its definition says: episode by episode.
func TestInOrderIsTheDefinition(t *testing.T) {
	eachWay(t, func(w way) bool { return !w.above }, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{inOrder: true})
			s := o.play(t)
			for key := range s.hits {
				o.compareEpisodes(t, s, key)
			}
		})
	})
}

// In order, `sliding` above its log is over no later than a window that is shorter by one slice.
func TestInOrderSlicesAreTheDefinition(t *testing.T) {
	eachWay(t, func(w way) bool { return w.above && !w.distinct() }, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{inOrder: true})
			s := o.play(t)
			o.judgeSoundness(t, s)
			o.judgeShorter(t, s, 0)
		})
	})
}

// In order, `sliding` above its log sees the values that came within one window of the clock, less a slice.
func TestInOrderManyValuesAreSeen(t *testing.T) {
	eachWay(t, func(w way) bool { return w.above && w.distinct() }, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{inOrder: true})
			s := o.play(t)
			o.judgeSoundness(t, s)
			d := w.definition(o.window, 0)
			d.Algorithm = "fixed"
			for key := range s.hits {
				for _, j := range d.Judge(s.onTime[key]) {
					within := j.Time%int64(o.window) < w.shorter(o.window).Window
					if j.Over && within && !covered(s.hits[key], j.Time, 0) {
						t.Fatalf("key %d: %d values within a window of the clock at %d, but no hit\n%s", key, j.Answer.Count, j.Time-int64(origin), o)
					}
				}
			}
		})
	})
}

// covered reports whether one of the hits, widened by so much at both ends, has the time in it.
func covered(hits []detectors.Hit, at, by int64) bool {
	for i := range hits {
		if int64(hits[i].First)-by <= at && at <= int64(hits[i].Last)+by {
			return true
		}
	}
	return false
}

// An episode that goes on for days is cut after each: in order, by every way.
func TestInOrderLongEpisodesAreCut(t *testing.T) {
	eachWay(t, func(w way) bool { return !w.above }, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := &world{way: w, limits: []int{rapid.IntRange(0, 2).Draw(t, "limit")}, window: hour, skew: []traffic.Time{0}}
			gaps := rapid.SliceOfN(rapid.SampledFrom([]traffic.Time{0, 10 * minute, 15 * minute, 20 * minute, hour - 1}), 1, 20).Draw(t, "gaps")
			for i, at := 0, origin; at < origin+60*hour; i++ {
				o.events = append(o.events, event{at: at, arrival: at, units: 1, version: 1, value: fmt.Sprint("v", i)})
				at += max(gaps[i%len(gaps)], 5*minute)
			}
			o.compareEpisodes(t, o.play(t), 0)
		})
	})
}
