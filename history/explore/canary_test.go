package explore_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A rule in canary is found by its mode, and its blocks are among those in force until it falls back.
func TestCanariesBlock(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	set := func(mode rules.Mode) int64 {
		t.Helper()
		done, err := s.Rules.SetMode(t.Context(), rulestore.ModeChange{Rule: "flood", Mode: mode, By: "ann", Reason: "a test", Override: "a test has no evidence"})
		if err != nil {
			t.Fatal(err)
		}
		return done.Generation
	}
	generation := set(rules.ModeCanary)
	flood, login := hit(1, "flood", 1, 1, noon, time.Second), hit(2, "login", 1, 1, noon, time.Second)
	s.record(t, "live", flood, login)
	s.decide(t, blocklist.Decision{
		Format: blocklist.DecisionFormat, ID: "d1", Action: blocklist.ActionWritten, Rule: "flood", Subject: flood.BlockSubject, Hit: flood.ID, Generation: generation,
		Since: noon, Until: traffic.At(time.Now().Add(time.Hour)), At: noon,
	})
	found, err := s.Hits(t.Context(), explore.Filter{Mode: rules.ModeCanary}, explore.Page{})
	if err != nil || len(found.Hits) != 1 || found.Hits[0].ID != flood.ID {
		t.Errorf("of rules in canary: %+v, %v", found.Hits, err)
	}
	if n := s.Number(t, "SELECT count(*) FROM weir.blocks_v WHERE rule = 'flood'"); n != 1 {
		t.Errorf("%d blocks of the canary are in force, want 1", n)
	}
	set(rules.ModeShadow)
	if n := s.Number(t, "SELECT count(*) FROM weir.blocks_v WHERE rule = 'flood'"); n != 0 {
		t.Errorf("%d blocks are in force after the canary fell back", n)
	}
}
