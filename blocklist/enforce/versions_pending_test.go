package enforce_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// A hit that names a version which the rule store calls pending blocks nobody, of whatever kind it is; once the version is promoted it does.
func TestAPendingVersionBlocksNobody(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.States[blocktest.FloodRule] = rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1, Promoted: 1, Newest: 1}
		pending := true
		s.Rules.Edit = func(v *rules.Version) { v.Pending = pending && v.Number == 2 }
		trial := s.Hit(func(h *detectors.Hit) { h.RuleVersion = 2 })
		if got := fmt.Sprint(s.Decide(trial)); got != "[withheld no_block_spec]" {
			t.Errorf("pending: %s", got)
		}
		if b, _ := s.Stands(); b != nil {
			t.Errorf("a pending version has written %+v", b)
		}
		pending = false
		trial.Phase = detectors.PhaseUpdate
		if got := fmt.Sprint(s.Decide(trial)); got != "[written]" {
			t.Errorf("promoted: %s", got)
		}
	})
}
