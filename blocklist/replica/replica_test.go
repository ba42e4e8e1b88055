package replica

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func reloads(r *Replica, reason string) float64 {
	return testutil.ToFloat64(r.metrics.reloads.WithLabelValues(reason))
}

func (r *Replica) allReloads() float64 {
	sum := 0.0
	for _, reason := range []string{reloadGap, reloadBackward, reloadMissing, reloadAsked, reloadDue} {
		sum += reloads(r, reason)
	}
	return sum
}

func TestReplicaFollows(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.PublishModes()
		r := newReplica(t, s)
		blocktest.EventuallyHeld(t, r, s.Clock, false)

		open := s.Hit()
		s.Decide(open)
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		if b, _ := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); b.Hit != open.ID || b.Until != open.Last.Add(blocktest.TTL) || b.Rule != blocktest.FloodRule || b.Scope != "match" {
			t.Errorf("found %+v", b)
		}
		if _, held := r.Find(traffic.Identity{IP: blocktest.ViewerIdentity.IP, Device: "tv-8"}, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held {
			t.Error("another device behind the same address is held")
		}
		if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, open.Last.Add(blocktest.TTL)); held {
			t.Error("held at the moment when the block ends")
		}

		s.Publish(blocktest.FloodRule, rules.ModeShadow)
		blocktest.EventuallyHeld(t, r, s.Clock, false)
		s.Publish(blocktest.FloodRule, rules.ModeBlock)
		s.Decide(s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = "b", "device=marker" }))
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(traffic.Identity{Device: "marker"}, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); !held {
				return errors.New("the block after the promotion has not arrived")
			}
			return nil
		})
		blocktest.EventuallyHeld(t, r, s.Clock, false) // its block is of the generation before
		s.Decide(s.Hit())
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		s.Decide(s.Release())
		blocktest.EventuallyHeld(t, r, s.Clock, false)
		if n := r.allReloads(); n != 0 {
			t.Errorf("%v reloads, want none: every change came as a delta", n)
		}
	})
}

func TestReplicaLoadsWhatStands(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		mode := s.Rules.States[blocktest.FloodRule]
		mode.Match = rules.Held{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
		s.Rules.States[blocktest.FloodRule] = mode
		s.PublishModes()
		open := s.Hit()
		released := s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject, h.Subject = "e", "device=free", "device=free" })
		s.Decide(open, released)
		request, err := blocklist.NewRelease("device=free", blocktest.FloodRule, "ops", "", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		s.Decide(request)
		r := newReplica(t, s)
		for _, tt := range []struct {
			name, method, path string
			id                 traffic.Identity
			want               bool
		}{
			{"the request that the rule watches", "POST", "/v1/guest-tokens?x=1", blocktest.ViewerIdentity, true},
			{"another method", "GET", "/v1/guest-tokens", blocktest.ViewerIdentity, false},
			{"another path", "POST", "/v1/films", blocktest.ViewerIdentity, false},
			{"a released device", "POST", "/v1/guest-tokens", traffic.Identity{Device: "free"}, false},
			{"nobody", "POST", "/v1/guest-tokens", traffic.Identity{}, false},
		} {
			if _, held := r.Find(tt.id, rules.Target{Method: tt.method, Path: tt.path}, s.Clock.Now()); held != tt.want {
				t.Errorf("%s: held is %v, want %v", tt.name, held, tt.want)
			}
		}

		// A frozen Enforcer that wakes up may still tell of a block that has been released since.
		late := blocklist.NewBlock(blocktest.FloodRule, 1, released.ID, released.First, released.Last.Add(blocktest.TTL))
		marker := late
		marker.Hit = "f"
		err = s.Writer.Tell(t.Context(), "5", s.Clock.Now(), []blocklist.Delta{
			blocklist.BlockDelta(blocklist.Name{Subject: "device=free", Rule: blocktest.FloodRule}, &late),
			{Op: "later", Name: blocklist.Name{Subject: "device=free", Rule: blocktest.FloodRule}, Value: "a newer weir says something"},
			blocklist.BlockDelta(blocklist.Name{Subject: "device=marker", Rule: blocktest.FloodRule}, &marker),
		})
		if err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(traffic.Identity{Device: "marker"}, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); !held {
				return errors.New("the marker has not arrived")
			}
			return nil
		})
		if _, held := r.Find(traffic.Identity{Device: "free"}, rules.Target{Method: "POST", Path: "/v1/guest-tokens"}, s.Clock.Now()); held {
			t.Error("the released device is held again")
		}
	})
}

func TestReplicaNoticesGaps(t *testing.T) {
	const name = "3"
	tests := []struct {
		name, reason string
		lose         func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error
	}{
		{"a number is missing", reloadGap, func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error {
			if err := s.Client.Set(ctx, last, fmt.Sprintf("%d-7", n+5), 0).Err(); err != nil {
				return err
			}
			return s.Writer.Tell(ctx, name, 0, []blocklist.Delta{{Op: "later"}})
		}},
		{"a stretch was lost and written anew", reloadGap, func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error {
			if err := s.Client.Set(ctx, last, fmt.Sprintf("%d-8", n), 0).Err(); err != nil {
				return err
			}
			return s.Writer.Tell(ctx, name, 0, []blocklist.Delta{{Op: "later"}})
		}},
		{"the stream went back", reloadBackward, func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error {
			return s.Client.Set(ctx, last, fmt.Sprintf("%d-1", n-1), 0).Err()
		}},
		{"entries are gone", reloadMissing, func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error {
			return s.Client.Set(ctx, last, fmt.Sprintf("%d-1", n+50), 0).Err()
		}},
		{"everything is gone", reloadBackward, func(ctx context.Context, s *blocktest.Stage, last string, _ uint64) error {
			return s.Client.Del(ctx, last, s.Keys.Stream(name)).Err()
		}},
		{"everything is gone and written anew", reloadGap, func(ctx context.Context, s *blocktest.Stage, last string, n uint64) error {
			if err := s.Client.Del(ctx, last, s.Keys.Stream(name)).Err(); err != nil {
				return err
			}
			return s.Writer.Tell(ctx, name, traffic.Time(n+1_000_000), []blocklist.Delta{{Op: "later"}})
		}},
		{"the stream asks for it", reloadAsked, func(ctx context.Context, s *blocktest.Stage, _ string, n uint64) error {
			return s.Writer.Tell(ctx, blocklist.StreamReconcile, traffic.Time(n), []blocklist.Delta{blocklist.ReloadDelta()})
		}},
	}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				s := blocktest.NewStage(t, server)
				probes := &scanGate{command: "smembers"} // by which a probe begins
				s.Client.AddHook(probes)
				s.PublishModes()
				s.Decide(s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device=first" }))
				last := s.Keys.Last(name)
				id, err := s.Client.Get(t.Context(), last).Result()
				if err != nil {
					t.Fatal(err)
				}
				r := newReplica(t, s)
				b := blocklist.NewBlock(blocktest.FloodRule, 1, "1", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
				// A block that no delta tells of.
				if _, err := s.Writer.Raise(t.Context(), []blocklist.Raise{{Name: blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, Block: b}}); err != nil {
					t.Fatal(err)
				}
				if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held {
					t.Fatal("the block is known before anything told of it")
				}
				// What happens between two looks is one thing to who looks, though it takes two commands.
				open := probes.close()
				eventually(t, "about to look", func() bool { return probes.waiting.Load() > 0 })
				err = tt.lose(t.Context(), s, last, number(id))
				open()
				if err != nil {
					t.Fatal(err)
				}
				blocktest.EventuallyHeld(t, r, s.Clock, true)
				if reloads(r, tt.reason) == 0 {
					t.Errorf("no reload for %s", tt.reason)
				}
			})
		}
	})
}

func TestReplicaReloadsWhenItIsTime(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	r, err := New(Options{
		Store: s.Store, Reload: time.Millisecond, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if n := reloads(r, reloadDue); n < 2 {
			return fmt.Errorf("%v reloads", n)
		}
		return nil
	})
}

func TestNeverBlockHoldsAtRead(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		s.PublishModes()
		// Written by an Enforcer that did not know the list.
		s.Decide(s.Hit(), s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device=tv-7" }))
		r, err := New(Options{
			Store: s.Store, NeverBlock: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Clock: s.Clock.Now, Logger: blocktest.Quiet(),
			Registerer: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		blocktest.Run(t, r.Run)
		elsewhere := traffic.Identity{IP: netip.MustParseAddr("203.0.113.9"), Device: "tv-7"}
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(elsewhere, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); !held {
				return errors.New("the device's block has not arrived")
			}
			// It may come after the other one.
			if testutil.ToFloat64(r.metrics.rejected.WithLabelValues("never_block")) == 0 {
				return errors.New("the address' block has not been rejected")
			}
			return nil
		})
		if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held {
			t.Error("an address of the never-block list is refused")
		}
		if r.Len() != 1 || testutil.ToFloat64(r.metrics.spared) != 1 {
			t.Errorf("%d blocks held; want one, and one request spared", r.Len())
		}
	})
}

func newReplica(t testing.TB, s *blocktest.Stage) *Replica {
	t.Helper()
	r, err := New(Options{Store: s.Store, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Follow(t, r)
	return r
}

// A stream that nobody writes to goes as a whole: that is no reason to load, and its next entry is taken.
func TestAStreamThatHasExpiredIsFollowedOn(t *testing.T) {
	t.Parallel()
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		ctx, client, key := t.Context(), s.Client, s.Keys.Stream("0")
		s.PublishModes()
		gone := blocklist.NewBlock(blocktest.FloodRule, 1, "0", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
		if err := s.Writer.Tell(ctx, "0", s.Clock.Now(), []blocklist.Delta{blocklist.BlockDelta(blocklist.Name{Subject: "device=gone", Rule: blocktest.FloodRule}, &gone)}); err != nil {
			t.Fatal(err)
		}
		r := newReplica(t, s)
		if err := client.Del(ctx, key).Err(); err != nil { // as when it expires
			t.Fatal(err)
		}
		if err := awaitProbe(s, r, 1); err != nil {
			t.Fatal(err)
		}
		block := blocklist.NewBlock(blocktest.FloodRule, 1, "1", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
		if err := s.Writer.Tell(ctx, "0", s.Clock.Now(), []blocklist.Delta{blocklist.BlockDelta(blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, &block)}); err != nil {
			t.Fatal(err)
		}
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		if n := r.allReloads(); n != 0 {
			t.Errorf("%v loads because a silent stream went, want none", n)
		}
	})
}

func TestOptionsThatMakeNoReplica(t *testing.T) {
	for name, change := range map[string]func(o *Options){
		"Store":      func(o *Options) { o.Store = nil },
		"Clock":      func(o *Options) { o.Clock = nil },
		"Logger":     func(o *Options) { o.Logger = nil },
		"Registerer": func(o *Options) { o.Registerer = nil },
		"Reload":     func(o *Options) { o.Reload = -time.Second }, // it would load without end
	} {
		o := Options{
			Store: &blocklist.Store{}, Clock: func() traffic.Time { return 0 }, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
		}
		change(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), name+" is ") {
			t.Errorf("%s: got %v, want an error that names it", name, err)
		}
	}
}
