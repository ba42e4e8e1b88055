package blocklist

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.publishModes()
		r := newReplica(t, s)
		eventuallyHeld(t, r, s.clock, false)

		open := s.hit()
		s.apply(open)
		eventuallyHeld(t, r, s.clock, true)
		if b, _ := r.Find(viewerIdentity, "POST", "/", s.clock.now()); b.Hit != open.ID || b.Until != open.Last.Add(ttl) || b.Rule != floodRule || b.Scope != "match" {
			t.Errorf("found %+v", b)
		}
		if _, held := r.Find(traffic.Identity{IP: viewerIdentity.IP, Device: "tv-8"}, "POST", "/", s.clock.now()); held {
			t.Error("another device behind the same address is held")
		}
		if _, held := r.Find(viewerIdentity, "POST", "/", open.Last.Add(ttl)); held {
			t.Error("held at the moment when the block ends")
		}

		s.publish(floodRule, rules.ModeShadow)
		eventuallyHeld(t, r, s.clock, false)
		s.publish(floodRule, rules.ModeBlock)
		s.apply(s.hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = "b", "device=marker" }))
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(traffic.Identity{Device: "marker"}, "POST", "/", s.clock.now()); !held {
				return errors.New("the block after the promotion has not arrived")
			}
			return nil
		})
		eventuallyHeld(t, r, s.clock, false) // its block is of the generation before
		s.apply(s.hit())
		eventuallyHeld(t, r, s.clock, true)
		s.apply(s.release())
		eventuallyHeld(t, r, s.clock, false)
		if n := r.allReloads(); n != 0 {
			t.Errorf("%v reloads, want none: every change came as a delta", n)
		}
	})
}

func TestReplicaLoadsWhatStands(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		mode := s.rules.modes[floodRule]
		mode.Match = rules.Match{Methods: []string{"POST"}, Path: "/v1/guest-tokens"}
		s.rules.modes[floodRule] = mode
		s.publishModes()
		open := s.hit()
		released := s.hit(func(h *detectors.Hit) { h.ID, h.BlockSubject, h.Subject = "e", "device=free", "device=free" })
		s.apply(open, released)
		request, err := NewRelease("device=free", floodRule, "ops", "", s.clock.now())
		if err != nil {
			t.Fatal(err)
		}
		s.apply(request)
		r := newReplica(t, s)
		for _, tt := range []struct {
			name, method, path string
			id                 traffic.Identity
			want               bool
		}{
			{"the request that the rule watches", "POST", "/v1/guest-tokens?x=1", viewerIdentity, true},
			{"another method", "GET", "/v1/guest-tokens", viewerIdentity, false},
			{"another path", "POST", "/v1/films", viewerIdentity, false},
			{"a released device", "POST", "/v1/guest-tokens", traffic.Identity{Device: "free"}, false},
			{"nobody", "POST", "/v1/guest-tokens", traffic.Identity{}, false},
		} {
			if _, held := r.Find(tt.id, tt.method, tt.path, s.clock.now()); held != tt.want {
				t.Errorf("%s: held is %v, want %v", tt.name, held, tt.want)
			}
		}

		// A frozen Enforcer that wakes up may still tell of a block that has been released since.
		late := NewBlock(floodRule, 1, released.ID, released.First, released.Last.Add(ttl))
		marker := late
		marker.Hit = "f"
		err = s.writer.appendDeltas(t.Context(), "5", s.clock.now(), []delta{
			blockDelta(held{"device=free", floodRule}, &late),
			{op: "later", held: held{"device=free", floodRule}, value: "a newer weir says something"},
			blockDelta(held{"device=marker", floodRule}, &marker),
		})
		if err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(traffic.Identity{Device: "marker"}, "POST", "/v1/guest-tokens", s.clock.now()); !held {
				return errors.New("the marker has not arrived")
			}
			return nil
		})
		if _, held := r.Find(traffic.Identity{Device: "free"}, "POST", "/v1/guest-tokens", s.clock.now()); held {
			t.Error("the released device is held again")
		}
	})
}

func TestReplicaNoticesGaps(t *testing.T) {
	const name = "3"
	tests := []struct {
		name, reason string
		lose         func(ctx context.Context, s *stage, last string, n uint64) error
	}{
		{"a number is missing", reloadGap, func(ctx context.Context, s *stage, last string, n uint64) error {
			if err := s.client.Set(ctx, last, fmt.Sprintf("%d-7", n+5), 0).Err(); err != nil {
				return err
			}
			return s.writer.appendDeltas(ctx, name, 0, []delta{{op: "later"}})
		}},
		{"a stretch was lost and written anew", reloadGap, func(ctx context.Context, s *stage, last string, n uint64) error {
			if err := s.client.Set(ctx, last, fmt.Sprintf("%d-8", n), 0).Err(); err != nil {
				return err
			}
			return s.writer.appendDeltas(ctx, name, 0, []delta{{op: "later"}})
		}},
		{"the stream went back", reloadBackward, func(ctx context.Context, s *stage, last string, n uint64) error {
			return s.client.Set(ctx, last, fmt.Sprintf("%d-1", n-1), 0).Err()
		}},
		{"entries are gone", reloadMissing, func(ctx context.Context, s *stage, last string, n uint64) error {
			return s.client.Set(ctx, last, fmt.Sprintf("%d-1", n+50), 0).Err()
		}},
		{"everything is gone", reloadBackward, func(ctx context.Context, s *stage, last string, _ uint64) error {
			return s.client.Del(ctx, last, s.keys.Stream(name)).Err()
		}},
		{"everything is gone and written anew", reloadGap, func(ctx context.Context, s *stage, last string, n uint64) error {
			if err := s.client.Del(ctx, last, s.keys.Stream(name)).Err(); err != nil {
				return err
			}
			return s.writer.appendDeltas(ctx, name, traffic.Time(n+1_000_000), []delta{{op: "later"}})
		}},
		{"the stream asks for it", reloadAsked, func(ctx context.Context, s *stage, _ string, n uint64) error {
			return s.writer.appendDeltas(ctx, streamReconcile, traffic.Time(n), []delta{reloadDelta()})
		}},
	}
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		for _, tt := range tests {
			t.Run(tt.name, func(t *testing.T) {
				t.Parallel()
				s := newStage(t, server)
				s.publishModes()
				s.apply(s.hit(func(h *detectors.Hit) { h.BlockSubject = "device=first" }))
				last := s.keys.Last(name)
				id, err := s.client.Get(t.Context(), last).Result()
				if err != nil {
					t.Fatal(err)
				}
				r := newReplica(t, s)
				b := NewBlock(floodRule, 1, "1", s.clock.now(), s.clock.now().Add(time.Hour))
				// A block that no delta tells of.
				if _, err := s.writer.raiseAll(t.Context(), []raise{{held: held{viewer, floodRule}, block: b}}); err != nil {
					t.Fatal(err)
				}
				if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); held {
					t.Fatal("the block is known before anything told of it")
				}
				if err := tt.lose(t.Context(), s, last, number(id)); err != nil {
					t.Fatal(err)
				}
				eventuallyHeld(t, r, s.clock, true)
				if reloads(r, tt.reason) == 0 {
					t.Errorf("no reload for %s", tt.reason)
				}
			})
		}
	})
}

func TestReplicaReloadsWhenItIsTime(t *testing.T) {
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	r, err := NewReplica(ReplicaOptions{
		Store: s.store, Reload: time.Millisecond, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if n := reloads(r, reloadDue); n < 2 {
			return fmt.Errorf("%v reloads", n)
		}
		return nil
	})
}

func TestNeverBlockHoldsAtRead(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		s.publishModes()
		// Written by an Enforcer that did not know the list.
		s.apply(s.hit(), s.hit(func(h *detectors.Hit) { h.BlockSubject = "device=tv-7" }))
		r, err := NewReplica(ReplicaOptions{
			Store: s.store, NeverBlock: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}, Clock: s.clock.now, Logger: quiet(),
			Registerer: prometheus.NewRegistry(),
		})
		if err != nil {
			t.Fatal(err)
		}
		run(t, r.Run)
		elsewhere := traffic.Identity{IP: netip.MustParseAddr("203.0.113.9"), Device: "tv-7"}
		testbed.Eventually(t, 10*time.Second, func() error {
			if _, held := r.Find(elsewhere, "POST", "/", s.clock.now()); !held {
				return errors.New("the device's block has not arrived")
			}
			return nil
		})
		if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); held {
			t.Error("an address of the never-block list is refused")
		}
		if r.Len() != 1 || testutil.ToFloat64(r.metrics.rejected.WithLabelValues("never_block")) == 0 || testutil.ToFloat64(r.metrics.spared) != 1 {
			t.Errorf("%d blocks held; want one, one rejected and one request spared", r.Len())
		}
	})
}

func newReplica(t testing.TB, s *stage) *Replica {
	t.Helper()
	r, err := NewReplica(ReplicaOptions{Store: s.store, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, r)
	return r
}

// A stream that nobody writes to goes as a whole: that is no reason to load, and its next entry is taken.
func TestAStreamThatHasExpiredIsFollowedOn(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		ctx, client, key := t.Context(), s.client, s.keys.Stream("0")
		s.publishModes()
		gone := NewBlock(floodRule, 1, "0", s.clock.now(), s.clock.now().Add(time.Hour))
		if err := s.writer.appendDeltas(ctx, "0", s.clock.now(), []delta{blockDelta(held{"device=gone", floodRule}, &gone)}); err != nil {
			t.Fatal(err)
		}
		r := newReplica(t, s)
		if err := client.Del(ctx, key).Err(); err != nil { // as when it expires
			t.Fatal(err)
		}
		if err := awaitProbe(s, r, 1); err != nil {
			t.Fatal(err)
		}
		block := NewBlock(floodRule, 1, "1", s.clock.now(), s.clock.now().Add(time.Hour))
		if err := s.writer.appendDeltas(ctx, "0", s.clock.now(), []delta{blockDelta(held{viewer, floodRule}, &block)}); err != nil {
			t.Fatal(err)
		}
		eventuallyHeld(t, r, s.clock, true)
		if n := r.allReloads(); n != 0 {
			t.Errorf("%v loads because a silent stream went, want none", n)
		}
	})
}
