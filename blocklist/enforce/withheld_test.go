package enforce_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// private is a subject that is never blocked.
const private = traffic.Subject("ip=10.1.2.3%2F32")

// While Redis is full an episode is told of once, and asks anew with each update: only attempts show that it is still full.
func TestAttemptsThatAreWithheldAreCounted(t *testing.T) {
	s := blocktest.NewStage(t, testbed.OwnRedis(t).Server())
	attempts := func(reason string) float64 { return s.Metric("weir_enforce_withheld_total", reason) }
	if n := s.Series("weir_enforce_withheld_total"); n != 13 {
		t.Errorf("%d series before anything was withheld; one for each reason begins at 0", n)
	}
	s.Decide(s.Hit())
	room := blocktest.Full(t, s)
	const sources = 8
	flood := func(phase detectors.Phase) []detectors.Hit {
		var hits []detectors.Hit
		for i := range sources {
			hits = append(hits, s.Hit(func(h *detectors.Hit) {
				h.ID, h.Phase, h.BlockSubject = fmt.Sprintf("w%d", i), phase, traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32&device=tv-1", 100+i))
			}))
		}
		return hits
	}
	told := 0
	for round := range 5 {
		phase := detectors.PhaseOpen
		if round > 0 {
			phase = detectors.PhaseUpdate
		}
		told += len(s.Decide(flood(phase)...))
		s.Clock.Add(time.Second)
		if got, want := attempts(blocklist.ReasonFull), float64(sources*(round+1)); got != want {
			t.Fatalf("after %d rounds of %d sources: %v attempts, want %v", round+1, sources, got, want)
		}
	}
	if told != sources {
		t.Errorf("%d decisions, want one of each source", told)
	}
	room()
	if got := len(s.Decide(flood(detectors.PhaseUpdate)...)); got != sources {
		t.Errorf("with room: %d decisions", got)
	}
	if got := attempts(blocklist.ReasonFull); got != 5*sources {
		t.Errorf("with room: %v attempts withheld, want none more", got)
	}
	// What is withheld before Redis is asked counts as well.
	never := s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = "n1", private })
	s.Decide(never)
	s.Decide(never)
	if got := attempts(blocklist.ReasonNeverBlock); got != 2 {
		t.Errorf("%v attempts against an address that is never blocked, want 2", got)
	}
}

// A batch that fails is applied again, and counts once.
func TestAttemptsOfABatchThatFailsAreCountedOnce(t *testing.T) {
	s := blocktest.NewStage(t, oneServer(t))
	batch := s.Messages(s.Hit(func(h *detectors.Hit) { h.BlockSubject = private }))
	s.Log.Fail = errors.New("away")
	fails(t, s, batch)
	s.ApplyMessages(batch)
	if got := s.Metric("weir_enforce_withheld_total", blocklist.ReasonNeverBlock); got != 1 {
		t.Errorf("%v attempts, want 1", got)
	}
}
