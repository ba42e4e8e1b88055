package enforce_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// backlogSubject is one of many sources.
func backlogSubject(n int) traffic.Subject {
	return traffic.Subject(fmt.Sprintf("ip=203.0.113.%d%%2F32", n))
}

// backlogHit is a record of source n's episode, whose over events lie so long ago. DETECT has seen it just now.
func backlogHit(s *blocktest.Stage, n int, phase detectors.Phase, first, last time.Duration) detectors.Hit {
	return s.Hit(func(h *detectors.Hit) {
		now := s.Clock.Now()
		h.ID, h.Subject, h.BlockSubject, h.Phase = fmt.Sprintf("%032x", n), backlogSubject(n), backlogSubject(n), phase
		h.First, h.Last, h.Seen = now.Add(-first), now.Add(-last), now
	})
}

// TestABacklogBlocksNobodyButWhoIsOverNow: while an outage is caught up, hits of all ages come mixed. Whoever was over then
// is not blocked; whoever is over now is, with the very record that says so.
func TestABacklogBlocksNobodyButWhoIsOverNow(t *testing.T) {
	const over, fine = 90, 91
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Clock.Stop() // evidence grows no older
		r := newReplica(t, s)
		holds := func(n int) bool {
			b, _, err := s.Store.Get(t.Context(), backlogSubject(n), blocktest.FloodRule)
			if err != nil {
				t.Fatal(err)
			}
			return b != nil
		}
		var hits []detectors.Hit
		for n := range 20 {
			hits = append(hits, backlogHit(s, n, detectors.PhaseOpen, 6*time.Minute, 6*time.Minute))
			if n == 10 {
				hits = append(hits, backlogHit(s, fine, detectors.PhaseOpen, time.Second, time.Second))
			}
		}
		hits = append(hits, backlogHit(s, over, detectors.PhaseOpen, 6*time.Minute, 6*time.Minute))
		got := s.Decide(hits...)
		if want := 21; len(got) != want+1 || slices.Index(got, "written") < 0 {
			t.Errorf("decisions: %v, want %d withheld and one written", got, want)
		}
		for _, d := range got {
			if d != "written" && d != "withheld max_lag" {
				t.Errorf("decision %q", d)
			}
		}
		if !holds(fine) {
			t.Error("a source that is over now is not blocked while the rest is caught up")
		}

		// The episodes go on in the backlog; nothing is said twice. One of them reaches the present.
		steps := []struct {
			ago  time.Duration
			want string
		}{{5 * time.Minute, "[]"}, {2 * time.Minute, "[]"}, {61 * time.Second, "[]"}, {50 * time.Second, "[written]"}, {time.Second, "[extended]"}}
		for _, step := range steps {
			if got := fmt.Sprint(s.Decide(backlogHit(s, over, detectors.PhaseUpdate, 6*time.Minute, step.ago))); got != step.want {
				t.Errorf("over %v ago: %s, want %s", step.ago, got, step.want)
			}
		}
		if got := s.Decide(backlogHit(s, over, detectors.PhaseUpdate, 6*time.Minute, 3*time.Minute)); len(got) != 0 || !holds(over) {
			t.Errorf("an older record again: %v, blocked: %v", got, holds(over))
		}
		for n := range 20 {
			if got := s.Decide(backlogHit(s, n, detectors.PhaseClosed, 6*time.Minute, 5*time.Minute)); len(got) != 0 || holds(n) {
				t.Errorf("source %d, over five minutes ago: %v, blocked: %v", n, got, holds(n))
			}
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			if r.Len() != 2 {
				return fmt.Errorf("a gate holds %d blocks, want 2", r.Len())
			}
			return nil
		})
	})
}
