package enforce_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// The rule store takes questions and does not answer, and an episode of a version that nobody has learned goes on: its hit is
// withheld, what lies beside it in the partition acts, a release within a second. When the store answers again, the next
// update decides anew.
func TestARuleStoreThatHangsStopsNothing(t *testing.T) {
	for name, away := range map[string]func(s *blocktest.Stage, away bool){
		"hangs": func(s *blocktest.Stage, away bool) { s.Rules.Freeze(away) },
		"refuses": func(s *blocktest.Stage, away bool) {
			if away {
				s.Rules.Answer(errors.New("connection refused"))
			} else {
				s.Rules.Answer(nil)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
				s := blocktest.NewStage(t, server)
				s.Rules.States[blocktest.FloodRule] = rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Promoted: 30, Newest: 30}
				on := func(id string, version int, device string, phase detectors.Phase) detectors.Hit {
					return s.Hit(func(h *detectors.Hit) {
						h.ID, h.RuleVersion, h.Phase = id, version, phase
						h.BlockSubject = traffic.Subject("ip=192.0.2.1%2F32&device=" + device)
					})
				}
				s.Decide(s.Hit(func(h *detectors.Hit) { h.RuleVersion = 30 }))
				away(s, true)
				for range 2 { // also at once after the first, and when the modes are due
					batch := s.Messages(on("a1", 1, "tv-1", detectors.PhaseUpdate), on("a2", 2, "tv-2", detectors.PhaseOpen), s.Release(), on("a3", 30, "tv-3", detectors.PhaseOpen),
						on("a4", 31, "tv-4", detectors.PhaseOpen))
					testbed.Promptly(t, "a batch with a release", func() { s.ApplyMessages(batch) })
					if b, tomb := s.Stands(); b != nil || tomb == nil {
						t.Errorf("the released client's block: %+v, tombstone: %+v", b, tomb)
					}
					s.Clock.Add(modesAge + time.Second)
				}
				want := "[withheld unknown_version withheld unknown_version withheld unknown_version released written released extended]"
				if got := fmt.Sprint(s.Log.Take()); got != want {
					t.Errorf("decisions:\n%s, want\n%s", got, want)
				}
				away(s, false)
				s.Clock.Add(modesAge + 2*time.Second)
				if got := fmt.Sprint(s.Decide(on("a1", 1, "tv-1", detectors.PhaseUpdate), on("a4", 31, "tv-4", detectors.PhaseUpdate))); got != "[written written]" {
					t.Errorf("when it answers again: %s", got)
				}
			})
		})
	}
}

// Versions from before the promotion, of which episodes may still run, are learned with the modes: they need no rule store.
func TestElderVersionsAreLearnedAhead(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	ip := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}
	s.Rules.Edit = func(v *rules.Version) {
		v.Key, v.Limit = ip, 10
		if v.Number == 5 {
			v.Limit = 3 // would block more
		}
	}
	s.Rules.States[blocktest.FloodRule] = rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Promoted: 10, Newest: 12}
	s.Decide(s.Release())
	s.Rules.Freeze(true)
	for version, want := range map[int]string{12: "[written]", 10: "[written]", 6: "[written]", 5: "[withheld old_version]", 1: "[written]"} {
		hit := s.Hit(func(h *detectors.Hit) {
			h.ID, h.RuleVersion, h.BlockSubject = fmt.Sprintf("v%d", version), version, traffic.Subject(fmt.Sprintf("ip=192.0.2.%d%%2F32", version))
		})
		if got := fmt.Sprint(s.Decide(hit)); got != want {
			t.Errorf("version %d: %s, want %s", version, got, want)
		}
	}
}

// A process that ends while it asks has decided nothing.
func TestEndingWhileAskingDecidesNothing(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.Decide(s.Hit())
	s.Rules.Freeze(true)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.Apply(ctx, s.Messages(s.Hit(func(h *detectors.Hit) { h.RuleVersion, h.ID = 99, "e1" })))
	if got := s.Log.Take(); err == nil || len(got) > 0 {
		t.Errorf("%v, decisions %v", err, got)
	}
}
