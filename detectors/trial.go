package detectors

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/rules"
)

// GoodKept is how long a source stays known to be good after its newest event that says so, by the time of events.
const GoodKept = 30 * 24 * time.Hour

// Trial is what a rule's block would have done to the requests of one minute, had the rule alone blocked. Its figures add up
// over minutes, keyed partitions and records.
type Trial struct {
	Of          Kind  `json:"of"`                     // KindHit for the live version, KindCandidate for a pending one
	Reached     int64 `json:"reached"`                // requests that the block may refuse: those that the rule counts and those that it does not
	Refused     int64 `json:"refused,omitempty"`      // of those, refused under the rule's own limit
	RefusedGood int64 `json:"refused_good,omitempty"` // of those, of subjects that are known to be good
	// Limits are those of LimitLadder, ascending from the rule's own, and RefusedAt what would have been refused under each. Both
	// are empty where no other limit has an exact answer, or where nothing was refused.
	Limits    []int   `json:"limits,omitempty"`
	RefusedAt []int64 `json:"refused_at,omitempty"`
}

// checkTrial refuses statistics that do not say what they are of, and figures that no minute can have.
func (h *Hit) checkTrial() error {
	t := h.Trial
	switch {
	case t == nil && h.Kind == KindStatistics:
		return fmt.Errorf("kind %s without a trial", h.Kind)
	case t == nil:
		return nil
	case t.Of != KindHit && t.Of != KindCandidate:
		return fmt.Errorf("trial of %.40q, allowed: %s, %s", t.Of, KindHit, KindCandidate)
	case len(t.Limits) != len(t.RefusedAt):
		return fmt.Errorf("trial of %d limits with %d figures", len(t.Limits), len(t.RefusedAt))
	case t.Reached < 0 || t.Refused < 0 || t.RefusedGood < 0 || slices.ContainsFunc(t.RefusedAt, func(n int64) bool { return n < 0 }):
		return fmt.Errorf("trial with a figure below 0")
	}
	for i := 1; i < len(t.Limits); i++ {
		if t.Limits[i] <= t.Limits[i-1] {
			return fmt.Errorf("limits of a trial are not ascending: %d after %d", t.Limits[i], t.Limits[i-1])
		}
	}
	return nil
}

// LimitLadder are the limits under which a rule's block is tried beside its own, from that one upward: about a third more with each
// step, to a thousand times the limit, or rules.MaxLimit. All code that shows or asks for other limits names these, for which there are
// exact figures.
func LimitLadder(limit int) []int {
	const steps, decades = 8, 3 // eight steps for each power of ten
	out := []int{limit}
	for i, high := 1, 1; i <= steps*decades; i++ {
		if i%steps == 0 {
			high *= 10
		}
		at := max(limit, 1) * high * mantissa(i%steps) / 100
		if at > out[len(out)-1] && at <= rules.MaxLimit {
			out = append(out, at)
		}
	}
	return out
}

// mantissa is 100 times 10 to the power of i/8, rounded: whole numbers give the same ladder on every machine.
func mantissa(i int) int { return [...]int{100, 133, 178, 237, 316, 422, 562, 750}[i] }
