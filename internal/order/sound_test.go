package order

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/oracle"
)

// Whatever comes in whatever order, and whatever has to be forgotten for want of memory: who is flagged was truly over, not
// more than a window away from the times of the hit.
func TestFlaggedIsTrulyOver(t *testing.T) {
	eachWay(t, anyWay, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{tight: true})
			o.judgeSoundness(t, o.play(t))
		})
	})
}

// The same while the limit is edited up and down: an event is judged by its own limit.
func TestFlaggedIsTrulyOverWhileRulesAreEdited(t *testing.T) {
	eachWay(t, anyWay, func(t *testing.T, w way) {
		rapid.Check(t, func(t *rapid.T) {
			o := drawWorld(t, w, how{edited: true, tight: true})
			o.judgeSoundness(t, o.play(t))
		})
	})
}

func (o *world) judgeSoundness(t *rapid.T, s *story) {
	for key := range s.hits {
		truths := o.truths(s.all[key])
		for i := range s.hits[key] {
			h := &s.hits[key][i]
			if !anyOver(truths, s.all[key], int64(h.First-o.window), int64(h.Last+o.window)) {
				t.Fatalf("%s hit %d..%d of %d events: key %d was not over then\n%s", h.Phase, h.First-origin, h.Last-origin, h.Count, key, o)
			}
		}
	}
}

// truths are what a flagged key must truly have been over, one of them. Only logs know in which order of time the events of
// a window are: elsewhere an event that is judged by a limit of its own may be so by all that its window holds.
func (o *world) truths(steps []oracle.Step) []*oracle.Truth {
	if !o.way.logged() && len(o.limits) > 1 {
		steps = leastLimits(steps, 2*int64(o.window))
	}
	return o.way.truths(o.window, o.capacity, steps)
}

// leastLimits gives each step the least limit of those that are not further away than near.
func leastLimits(steps []oracle.Step, near int64) []oracle.Step {
	var out []oracle.Step
	for _, s := range steps {
		for _, o := range steps {
			if o.Time >= s.Time-near && o.Time <= s.Time+near {
				s.Limit = min(s.Limit, o.Limit)
			}
		}
		out = append(out, s)
	}
	return out
}

// anyOver reports whether a key was truly over at one of its events in a span of time.
func anyOver(truths []*oracle.Truth, steps []oracle.Step, from, to int64) bool {
	for _, truth := range truths {
		for _, s := range steps {
			if s.Time >= from && s.Time <= to && truth.Over(s.Time) {
				return true
			}
		}
	}
	return false
}
