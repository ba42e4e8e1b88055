package enforce_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// An owner sees in shadow that version 1 would block whole addresses, makes version 2 of it, which blocks (ip, device)
// only, and promotes that. Episodes that opened under version 1 run on, and must not block the address.
func TestEpisodesOfAnOlderVersionBlockNobodyElse(t *testing.T) {
	t.Parallel()
	ip := []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}
	both := []traffic.KeyField{ip[0], {Field: traffic.FieldDevice}}
	limits := map[int]int{1: 5, 2: 5, 3: 5, 4: 5}
	keys := map[int][]traffic.KeyField{1: ip, 2: both, 3: both, 4: both}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.Rules.Edit = func(v *rules.Version) {
			b := *v.Block
			b.Key = keys[v.Number]
			v.Key, v.Limit, v.Block = both, limits[v.Number], &b
		}
		promoted := func(version int) {
			m := s.Rules.States[blocktest.FloodRule]
			m.Promoted = version
			s.Rules.States[blocktest.FloodRule] = m
			s.ModesChanged()
		}
		update := func(id string, version int, who traffic.Subject) string {
			return fmt.Sprint(s.Decide(s.Hit(func(h *detectors.Hit) {
				h.ID, h.RuleVersion, h.Phase, h.BlockSubject = id, version, detectors.PhaseUpdate, who
			})))
		}
		promoted(2)
		const address = traffic.Subject("ip=192.0.2.1%2F32")
		if got := update("aa", 1, address); got != "[withheld old_version]" {
			t.Errorf("an episode of the wider version: %s", got)
		}
		if b, _, err := s.Store.Get(t.Context(), address, blocktest.FloodRule); b != nil || err != nil {
			t.Errorf("the address is blocked: %+v, %v", b, err)
		}
		if got := update("aa", 1, address); got != "[]" {
			t.Errorf("its next update: %s, want it told once", got)
		}
		if got := update("bb", 2, blocktest.Viewer); got != "[written]" {
			t.Errorf("an episode of the promoted version: %s", got)
		}
		promoted(3) // says the same about blocks
		if got := update("cc", 2, "ip=192.0.2.9%2F32&device=x"); got != "[written]" {
			t.Errorf("an episode of an older version that blocks no more than the promoted one: %s", got)
		}
		limits[4] = 50
		promoted(4)
		if got := update("dd", 3, "ip=192.0.2.10%2F32&device=x"); got != "[withheld old_version]" {
			t.Errorf("an episode that was over a lower limit: %s", got)
		}
	})
}
