package enforce_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
)

// A block that comes too late to be written has no latency. It is counted for each episode once, from a series that was there before:
// a rate over a backlog that is worked off between two scrapes sees all of it.
func TestBlocksThatComeTooLateAreCounted(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	const decisions = "weir_enforce_decisions_total"
	if err := s.RefreshModes(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantLate := func(when string, maxLag, expired float64) {
		t.Helper()
		for reason, want := range map[string]float64{"max_lag": maxLag, "expired": expired} {
			if got := s.Metric(decisions, "withheld", "block", reason, blocktest.FloodRule); got != want {
				t.Errorf("%s: %v withheld for %s, want %v", when, got, reason, want)
			}
		}
		wantAllDecisions(t, s, when)
		if n, _ := s.Histogram("weir_event_to_block_seconds"); n != 0 {
			t.Errorf("%s: %d blocks have a latency", when, n)
		}
	}
	wantLate("at first", 0, 0)
	old := func(id string, phase detectors.Phase, age time.Duration) detectors.Hit {
		return s.Hit(func(h *detectors.Hit) {
			h.ID, h.Phase = id, phase
			h.First, h.Last = h.First.Add(-age), h.Last.Add(-age)
		})
	}
	for range 2 {
		s.Decide(old("a", detectors.PhaseOpen, 2*time.Minute), old("b", detectors.PhaseOpen, 2*time.Minute))
		s.Decide(old("a", detectors.PhaseClosed, 2*time.Minute))
		wantLate("two episodes of a backlog, read twice", 2, 0)
	}
	s.Rules.Block[blocktest.FloodRule].TTL = 10 * time.Second
	s.Restart()
	s.Decide(old("c", detectors.PhaseOpen, 30*time.Second))
	wantLate("one whose block would be over", 0, 1)
}
