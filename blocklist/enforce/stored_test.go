package enforce_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const (
	longSubject = traffic.Subject("ip=192.0.2.1%2F32&device=" + blocktest.LongDevice)
	// printf %s "$device" | sha256sum, as docs/blocks.md has it
	longDigest = "sha256:c7f32d937515fa94dc55b199d97c50c86da3778f1a669ffbf4a20333451ffbe4"
)

var longIdentity = traffic.Identity{IP: blocktest.ViewerIdentity.IP, Device: blocktest.LongDevice}

func held1(t *testing.T, s *blocktest.Stage, r *replica.Replica, id traffic.Identity, want bool, what string) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if _, held := r.Find(id, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); held != want {
			return fmt.Errorf("%s: held is %v", what, held)
		}
		return nil
	})
}

// A long value is in Redis as its digest; it holds its client and nobody who claims the digest; and its release may name
// either.
func TestLongValuesAreStoredAsDigests(t *testing.T) {
	stored := longSubject.Stored()
	if want := traffic.Subject("ip=192.0.2.1%2F32&device=" + longDigest); stored != want {
		t.Fatalf("got %s, want %s", stored, want)
	}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		modes, _ := s.Rules.Modes(t.Context())
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), modes); err != nil {
			t.Fatal(err)
		}
		r := newReplica(t, s)
		for i, named := range []traffic.Subject{longSubject, stored} {
			since := s.Clock.Now()
			hit := s.Hit(func(h *detectors.Hit) {
				h.ID, h.BlockSubject, h.Subject, h.First, h.Last = fmt.Sprintf("l%d", i), longSubject, longSubject, since, since
			})
			if got := fmt.Sprint(s.Decide(hit)); got != "[written]" {
				t.Fatalf("decisions: %s", got)
			}
			if n, err := s.Client.Exists(t.Context(), s.Namespace+":v1:block:{"+string(stored)+"}:"+blocktest.FloodRule).Result(); n != 1 || err != nil {
				t.Errorf("the key by digest: %d, %v", n, err)
			}
			if n, err := s.Client.Exists(t.Context(), s.Namespace+":v1:block:{"+string(longSubject)+"}:"+blocktest.FloodRule).Result(); n != 0 || err != nil {
				t.Errorf("the key with the value whole: %d, %v", n, err)
			}
			held1(t, s, r, longIdentity, true, "the client")
			claims := longIdentity
			claims.Device = strings.TrimPrefix(string(stored), "ip=192.0.2.1%2F32&device=")
			held1(t, s, r, claims, false, "a client that claims the digest")
			listed, err := s.Store.List(t.Context(), s.Clock.Now(), blocklist.Filter{Subject: longSubject})
			if err != nil || len(listed.Items) != 1 || listed.Items[0].Subject != stored || listed.Unreadable > 0 {
				t.Errorf("listing: %+v, %v", listed, err)
			}
			request, err := blocklist.NewRelease(named, blocktest.FloodRule, "ops", "false alarm", s.Clock.Now())
			if err != nil {
				t.Fatal(err)
			}
			if request.Partition(64) != hit.Partition(64) {
				t.Errorf("the release of %s is not behind the hits of its block", named)
			}
			s.Decide(request)
			if tomb, err := s.Store.WaitReleased(t.Context(), &request); err != nil || !tomb.Stood() {
				t.Errorf("released by %s: %+v, %v", named, tomb, err)
			}
			held1(t, s, r, longIdentity, false, "the released client")
		}
	})
}

// Two builds side by side: what an older weir has written, with values whole, holds and is released as ever.
func TestBlocksOfAnOlderWeirWithLongValues(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		modes, _ := s.Rules.Modes(t.Context())
		if err := s.Store.PublishModes(t.Context(), s.Clock.Now(), modes); err != nil {
			t.Fatal(err)
		}
		now := s.Clock.Now()
		block := blocklist.NewBlock(blocktest.FloodRule, 1, "old", now.Add(-time.Second), now.Add(blocktest.TTL))
		elder := blocklist.Name{Subject: longSubject, Rule: blocktest.FloodRule}
		write := func() {
			t.Helper()
			err := s.Client.Set(t.Context(), s.Keys.Block(elder.Subject, elder.Rule), blocktest.JSONText(&block), blocktest.TTL).Err()
			if err == nil {
				err = s.Writer.AddShapes(t.Context(), []blocklist.Name{elder})
			}
			if err == nil {
				err = s.Writer.Tell(t.Context(), "3", s.Clock.Now(), []blocklist.Delta{blocklist.BlockDelta(elder, &block)})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		write()
		loaded := newReplica(t, s)
		held1(t, s, loaded, longIdentity, true, "loaded")
		if b, _, err := s.Store.Get(t.Context(), longSubject, blocktest.FloodRule); b == nil || err != nil {
			t.Errorf("what stands: %v, %v", b, err)
		}
		request, err := blocklist.NewRelease(longSubject, blocktest.FloodRule, "ops", "false alarm", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.Decide(request)
		if tomb, err := s.Store.WaitReleased(t.Context(), &request); err != nil || tomb.Hit != "old" || tomb.StoodUntil != block.Until {
			t.Errorf("what the release found: %+v, %v", tomb, err)
		}
		held1(t, s, loaded, longIdentity, false, "released")
		if b, _, err := s.Store.Get(t.Context(), longSubject, blocktest.FloodRule); b != nil || err != nil {
			t.Errorf("stands after the release: %+v, %v", b, err)
		}
		// The older ENFORCE, which has not seen the release, writes once more; its gates and ours have both been told.
		write()
		held1(t, s, loaded, longIdentity, false, "written late")
		entries, err := s.Client.XRange(t.Context(), s.Keys.Stream("3"), "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		told := 0
		for _, e := range entries {
			if e.Values["op"] == "release" && e.Values["identity"] == string(longSubject) {
				told++
			}
		}
		if told != 1 {
			t.Errorf("gates of the older weir were told of %d releases", told)
		}
	})
}

// A release by an older weir lasts for days. Its tombstone is where it put it, and counts.
func TestReleaseOfAnOlderWeirHolds(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		hit := s.Hit(func(h *detectors.Hit) { h.BlockSubject = longSubject })
		tomb := blocklist.NewTombstone(blocktest.FloodRule, "ops", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
		if err := s.Client.Set(t.Context(), s.Keys.Tombstone(longSubject, blocktest.FloodRule), blocktest.JSONText(&tomb), time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(s.Decide(hit)); got != "[withheld released]" {
			t.Errorf("an episode of before: %s", got)
		}
		next := s.Hit(func(h *detectors.Hit) {
			h.ID, h.BlockSubject, h.First = "n1", longSubject, tomb.Released.Add(time.Millisecond)
			h.Last = h.First
		})
		if got := fmt.Sprint(s.Decide(next)); got != "[written]" {
			t.Errorf("an episode that opens after it: %s", got)
		}
	})
}
