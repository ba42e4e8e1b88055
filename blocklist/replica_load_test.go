package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// scanGate holds SCANs back while it is shut, as a million blocks would.
type scanGate struct {
	shut    atomic.Pointer[chan struct{}]
	waiting atomic.Int64
}

var _ redis.Hook = (*scanGate)(nil)

func (g *scanGate) DialHook(next redis.DialHook) redis.DialHook { return next }

func (g *scanGate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (g *scanGate) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if shut := g.shut.Load(); shut != nil && cmd.Name() == "scan" {
			g.waiting.Add(1)
			select {
			case <-*shut:
			case <-ctx.Done():
			}
		}
		return next(ctx, cmd)
	}
}

// close makes SCANs wait until the returned function is called.
func (g *scanGate) close() (open func()) {
	shut := make(chan struct{})
	g.waiting.Store(0)
	g.shut.Store(&shut)
	return func() {
		g.shut.Store(nil)
		close(shut)
	}
}

func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	testbed.Eventually(t, 10*time.Second, func() error {
		if !is() {
			return errors.New("not " + what)
		}
		return nil
	})
}

// Whatever a load is for, blocks, releases, demotions and promotions act while it reads as they do at any other time, and
// what it has read in the end is no step back behind them.
func TestReplicaFollowsWhileItLoads(t *testing.T) {
	const stream = "3"
	skip := func(s *stage, by int) { // entries of the stream that nobody will see
		last := s.keys.Last(stream)
		id, err := s.client.Get(s.t.Context(), last).Result()
		if err != nil {
			s.t.Fatal(err)
		}
		if err := s.client.Set(s.t.Context(), last, fmt.Sprintf("%d-7", int(number(id))+by), 0).Err(); err != nil {
			s.t.Fatal(err)
		}
	}
	tests := []struct {
		reason string
		cause  func(s *stage)
	}{
		{"start", nil},
		{reloadDue, func(*stage) {}},
		{reloadGap, func(s *stage) {
			skip(s, 5)
			if err := s.writer.appendDeltas(s.t.Context(), stream, 0, []delta{{op: "later"}}); err != nil {
				s.t.Fatal(err)
			}
		}},
		{reloadBackward, func(s *stage) {
			if err := s.client.Del(s.t.Context(), s.keys.Stream(stream)).Err(); err != nil {
				s.t.Fatal(err)
			}
			skip(s, -1)
		}},
		{reloadMissing, func(s *stage) { skip(s, 50) }},
		{reloadAsked, func(s *stage) {
			if err := s.writer.appendDeltas(s.t.Context(), streamReconcile, s.clock.now(), []delta{reloadDelta()}); err != nil {
				s.t.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
			gate := &scanGate{}
			s.client.AddHook(gate)
			s.publishModes()
			s.apply(s.hit(func(h *detectors.Hit) { h.BlockSubject = "device=first" }))
			every := time.Hour
			if tt.reason == reloadDue {
				every = 100 * time.Millisecond
			}
			var open func()
			if tt.cause == nil {
				open = gate.close()
			}
			r, err := NewReplica(ReplicaOptions{
				Store: s.store, Reload: every, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry(),
			})
			if err != nil {
				t.Fatal(err)
			}
			run(t, r.Run)
			if tt.cause != nil {
				eventually(t, "loaded", r.Ready)
				open = gate.close()
				tt.cause(s)
			}
			eventually(t, "loading", func() bool { return gate.waiting.Load() > 0 })
			mark, _ := r.loads.owed()

			hit := func(id string) detectors.Hit {
				return s.hit(func(h *detectors.Hit) { // of an episode that opens now, after any release
					h.ID, h.First = strings.Repeat(id, 32), s.clock.now()
					h.Last, h.Seen = h.First, h.First
				})
			}
			s.apply(hit("1"))
			eventuallyHeld(t, r, s.clock, true)
			s.apply(s.release())
			eventuallyHeld(t, r, s.clock, false)
			s.apply(hit("2"))
			eventuallyHeld(t, r, s.clock, true)
			s.publish(floodRule, rules.ModeShadow)
			eventuallyHeld(t, r, s.clock, false)
			s.publish(floodRule, rules.ModeBlock)
			s.apply(hit("3"))
			eventuallyHeld(t, r, s.clock, true)
			if now, _ := r.loads.owed(); tt.cause != nil && tt.reason != reloadDue && reloads(r, tt.reason) != 1 || now != mark {
				t.Errorf("%v loads for %s, mark %d became %d; want one, still under way", reloads(r, tt.reason), tt.reason, mark, now)
			}

			open()
			eventually(t, "loaded anew", func() bool { return !r.loads.owes() })
			eventuallyHeld(t, r, s.clock, true)
			s.apply(s.release())
			eventuallyHeld(t, r, s.clock, false)
			if r.Missing() != 0 {
				t.Errorf("%d slots missing after the load", r.Missing())
			}
		})
	}
}

// A gate that missed a release learns of it from the first keys that it reads, before the load has come to the blocks.
func TestMissedReleaseActsBeforeBlocksAreRead(t *testing.T) {
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	gate := &scanGate{}
	s.publishModes()
	s.apply(s.hit())
	r := newReplica(t, s)
	eventuallyHeld(t, r, s.clock, true)
	tomb := NewTombstone(floodRule, "", s.clock.now(), s.clock.now().Add(time.Hour))
	if _, err := s.writer.releaseAll(t.Context(), []release{{held: held{viewer, floodRule}, tombstone: tomb}}); err != nil {
		t.Fatal(err)
	}
	s.client.AddHook(blockScans{gate})
	open := gate.close()
	defer open()
	if err := s.writer.appendDeltas(t.Context(), streamReconcile, s.clock.now(), []delta{reloadDelta()}); err != nil {
		t.Fatal(err)
	}
	eventuallyHeld(t, r, s.clock, false)
	if !r.loads.owes() {
		t.Error("the load has ended")
	}
}

// blockScans lets SCANs for tombstones pass its gate.
type blockScans struct{ *scanGate }

func (g blockScans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	held := g.scanGate.ProcessHook(next)
	return func(ctx context.Context, cmd redis.Cmder) error {
		for _, word := range cmd.Args() {
			if text, ok := word.(string); ok && strings.Contains(text, ":tombstone:") {
				return next(ctx, cmd)
			}
		}
		return held(ctx, cmd)
	}
}

// A load that has read everything drops what Redis does not hold; one that may have missed something drops nothing.
func TestLoadDropsWhatItIsSureOf(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		rec := reconcilerOf(t, s)
		if err := rec.Check(t.Context()); err != nil { // puts the marker
			t.Fatal(err)
		}
		s.apply(s.hit())
		r := newReplica(t, s)
		eventuallyHeld(t, r, s.clock, true)
		ask := func() {
			t.Helper()
			if err := s.writer.appendDeltas(t.Context(), streamReconcile, s.clock.now(), []delta{reloadDelta()}); err != nil {
				t.Fatal(err)
			}
		}
		load := func() {
			t.Helper()
			mark, _ := r.loads.owed()
			ask()
			eventually(t, "loaded", func() bool {
				now, unread := r.loads.owed()
				return now > mark && unread.size() == 0
			})
		}
		epoch := s.keys.Epoch()
		marker, err := s.client.Get(t.Context(), epoch).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{s.keys.Block(viewer, floodRule), epoch} { // of two slots
			if err := s.client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		load() // without the marker Redis is not to be believed
		for range 3 {
			if err := awaitProbe(s, r, 1); err != nil {
				t.Fatal(err)
			}
		}
		eventuallyHeld(t, r, s.clock, true)
		if err := s.client.Set(t.Context(), epoch, marker, 0).Err(); err != nil {
			t.Fatal(err)
		}
		load()
		eventuallyHeld(t, r, s.clock, false)
	})
}

// awaitProbe waits until r has compared the newest numbers once more: it then knows a stream that nothing told of.
func awaitProbe(s *stage, r *Replica, n int) error {
	name := fmt.Sprint("probe-", n)
	err := s.client.SAdd(s.t.Context(), s.keys.Streams(), name).Err()
	if err != nil {
		return err
	}
	b := NewBlock(floodRule, s.rules.modes[floodRule].Generation, "1", s.clock.now(), s.clock.now().Add(time.Hour))
	subject := traffic.Subject("device=" + name)
	if err := s.writer.appendDeltas(s.t.Context(), name, s.clock.now(), []delta{blockDelta(held{subject, floodRule}, &b)}); err != nil {
		return err
	}
	eventually(s.t, "probed", func() bool {
		_, held := r.Find(traffic.Identity{Device: name}, "POST", "/", s.clock.now())
		return held
	})
	return nil
}
