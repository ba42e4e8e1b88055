package replica

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// BenchmarkHitToGate is the time from a hit given to ENFORCE until a replica in the same process holds its block.
func BenchmarkHitToGate(b *testing.B) {
	s := blocktest.NewStage(b, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(b)})
	s.PublishModes()
	r := newReplica(b, s)
	n := 0
	for b.Loop() {
		n++
		device := fmt.Sprint("d", n)
		batch := s.Messages(s.Hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject = fmt.Sprintf("%032x", n), traffic.Subject("device="+device)
		}))
		s.ApplyMessages(batch)
		for end := time.Now().Add(5 * time.Second); ; runtime.Gosched() {
			if _, held := r.Find(traffic.Identity{Device: device}, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held {
				break
			}
			if time.Now().After(end) {
				b.Fatalf("block %d has not arrived", n)
			}
		}
	}
	if n := r.allReloads(); n != 0 {
		b.Errorf("%v reloads", n)
	}
}
