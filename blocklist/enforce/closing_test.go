package enforce_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A closing hit brings the last over events' expiry to a block that stands, unless they are older than max_lag, beside what a closing
// hit is late by nature: a window and the lateness, and of one tuple among several up to a cooldown more, since others may have gone on.
func TestHowOldTheEvidenceOfAClosingHitMayBe(t *testing.T) {
	address := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}
	device := traffic.KeyField{Field: traffic.FieldDevice}
	const (
		window, lateness, maxLag, cooldown = time.Minute, time.Minute, time.Minute, 30 * time.Second
		most                               = window + lateness + maxLag
	)
	server := oneServer(t)
	for _, tt := range []struct {
		name string
		key  []traffic.KeyField
		age  time.Duration
		want string
	}{
		{"the rule's own key", []traffic.KeyField{address, device}, most - 5*time.Second, "[extended]"},
		{"the rule's own key, older", []traffic.KeyField{address, device}, most + 5*time.Second, "[]"},
		{"one tuple of several", []traffic.KeyField{address}, most - 5*time.Second, "[extended]"},
		{"one tuple of several, told by the end of the others", []traffic.KeyField{address}, most + cooldown - 5*time.Second, "[extended]"},
		{"one tuple of several, older", []traffic.KeyField{address}, most + cooldown + 5*time.Second, "[]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := blocktest.NewStage(t, server)
			s.Rules.Block[blocktest.FloodRule].Key = []traffic.KeyField{address, device}
			s.Rules.Edit = func(v *rules.Version) {
				v.Key, v.Window, v.Lateness, v.MaxLag, v.Cooldown = tt.key, window, lateness, maxLag, cooldown
			}
			open := s.Hit()
			if got := fmt.Sprint(s.Decide(open)); got != "[written]" {
				t.Fatalf("it opens: %s", got)
			}
			closed := open
			closed.Phase, closed.Last = detectors.PhaseClosed, open.Last.Add(25*time.Second)
			s.Clock.Add(tt.age + 24*time.Second) // the opening hit is a second behind its evidence
			if got := fmt.Sprint(s.Decide(closed)); got != tt.want {
				t.Errorf("it closes %s after its last over event: %s, want %s", tt.age, got, tt.want)
			}
			until := open.Last
			if tt.want != "[]" {
				until = closed.Last
			}
			if b, _ := s.Stands(); b == nil || b.Until != until.Add(blocktest.TTL) {
				t.Errorf("block %+v, want until %s", b, until.Add(blocktest.TTL))
			}
		})
	}
}
