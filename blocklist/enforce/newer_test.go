package enforce_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// A hit that a newer build wrote may be an offence, or forgive one. It is left for a process of that build: what lies
// before it has its effect, what lies behind it waits.
func TestHitOfANewerBuildIsLeftForItsReader(t *testing.T) {
	t.Parallel()
	for name, value := range map[string]string{
		"format":                `{"v":%d,"kind":"hit","id":"00000000000000000000000000000001","rule":"guest-token-flood","phase":"open"}`,
		"format, other members": `{"v":%d,"kind":"hit","id":7,"limit":"three"}`,
		"kind":                  `{"v":%d,"kind":"weather","id":"00000000000000000000000000000001"}`,
	} {
		t.Run(name, func(t *testing.T) {
			s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
			format := detectors.HitFormat + 1
			if name == "kind" {
				format = detectors.HitFormat
			}
			behind := s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = "b", "device=other" })
			batch := s.Messages(s.Hit(), s.Hit(), s.Hit(), behind)
			batch[1].Value, batch[2].Value = []byte("damaged"), fmt.Appendf(nil, value, format)
			for range 3 {
				err := s.Apply(t.Context(), batch)
				var newer *detectors.UnknownFormatError
				if !errors.As(err, &newer) || !strings.Contains(err.Error(), "weir.hits partition 3 offset 3") {
					t.Fatalf("Apply: %v: its offset would be committed", err)
				}
			}
			if b, _ := s.Stands(); b == nil {
				t.Error("the hit before it does not block")
			}
			if got := s.Log.Take(); got[0] != "written" || len(s.Dead.Letters) > 0 {
				t.Errorf("decisions: %v, dead letters: %+v", got, s.Dead.Letters)
			}
			if b, _, err := s.Store.Get(t.Context(), "device=other", blocktest.FloodRule); b != nil || err != nil {
				t.Errorf("the hit behind it blocks already: %+v, %v", b, err)
			}
			s.ApplyMessages([]traffic.Message{batch[0], batch[1], batch[3]})
			if b, _, err := s.Store.Get(t.Context(), "device=other", blocktest.FloodRule); b == nil || err != nil || len(s.Dead.Letters) != 1 {
				t.Errorf("without it: %+v, %v, dead letters: %+v", b, err, s.Dead.Letters)
			}
		})
	}
}
