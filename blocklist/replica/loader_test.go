package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// scanGate holds SCANs back while it is shut, as a million blocks would; another command where it is told.
type scanGate struct {
	command string // in lower case; "": scan
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
		if shut := g.shut.Load(); shut != nil && cmd.Name() == cmp.Or(g.command, "scan") {
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
	skip := func(s *blocktest.Stage, by int) { // entries of the stream that nobody will see
		last := s.Keys.Last(stream)
		id, err := s.Client.Get(s.T.Context(), last).Result()
		if err != nil {
			s.T.Fatal(err)
		}
		if err := s.Client.Set(s.T.Context(), last, fmt.Sprintf("%d-7", int(number(id))+by), 0).Err(); err != nil {
			s.T.Fatal(err)
		}
	}
	tests := []struct {
		reason string
		cause  func(s *blocktest.Stage)
	}{
		{"start", nil},
		{reloadDue, func(*blocktest.Stage) {}},
		{reloadGap, func(s *blocktest.Stage) {
			skip(s, 5)
			if err := s.Writer.Tell(s.T.Context(), stream, 0, []blocklist.Delta{{Op: "later"}}); err != nil {
				s.T.Fatal(err)
			}
		}},
		{reloadBackward, func(s *blocktest.Stage) {
			if err := s.Client.Del(s.T.Context(), s.Keys.Stream(stream)).Err(); err != nil {
				s.T.Fatal(err)
			}
			skip(s, -1)
		}},
		{reloadMissing, func(s *blocktest.Stage) { skip(s, 50) }},
		{reloadAsked, func(s *blocktest.Stage) {
			if err := s.Writer.Tell(s.T.Context(), blocklist.StreamReconcile, s.Clock.Now(), []blocklist.Delta{blocklist.ReloadDelta()}); err != nil {
				s.T.Fatal(err)
			}
		}},
	}
	for _, tt := range tests {
		t.Run(tt.reason, func(t *testing.T) {
			t.Parallel()
			s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
			gate := &scanGate{}
			s.Client.AddHook(gate)
			s.PublishModes()
			s.Decide(s.Hit(func(h *detectors.Hit) { h.BlockSubject = "device=first" }))
			every := time.Hour
			if tt.reason == reloadDue {
				every = 100 * time.Millisecond
			}
			var open func()
			if tt.cause == nil {
				open = gate.close()
			}
			r, err := New(Options{
				Store: s.Store, Reload: every, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
			})
			if err != nil {
				t.Fatal(err)
			}
			blocktest.Run(t, r.Run)
			if tt.cause != nil {
				eventually(t, "loaded", r.Ready)
				open = gate.close()
				tt.cause(s)
			}
			eventually(t, "loading", func() bool { return gate.waiting.Load() > 0 })
			mark, _ := r.loads.owed()

			hit := func(id string) detectors.Hit {
				return s.Hit(func(h *detectors.Hit) { // of an episode that opens now, after any release
					h.ID, h.First = strings.Repeat(id, 32), s.Clock.Now()
					h.Last, h.Seen = h.First, h.First
				})
			}
			s.Decide(hit("1"))
			blocktest.EventuallyHeld(t, r, s.Clock, true)
			s.Decide(s.Release())
			blocktest.EventuallyHeld(t, r, s.Clock, false)
			s.Decide(hit("2"))
			blocktest.EventuallyHeld(t, r, s.Clock, true)
			s.Publish(blocktest.FloodRule, rules.ModeShadow)
			blocktest.EventuallyHeld(t, r, s.Clock, false)
			s.Publish(blocktest.FloodRule, rules.ModeBlock)
			s.Decide(hit("3"))
			blocktest.EventuallyHeld(t, r, s.Clock, true)
			if now, _ := r.loads.owed(); tt.cause != nil && tt.reason != reloadDue && reloads(r, tt.reason) != 1 || now != mark {
				t.Errorf("%v loads for %s, mark %d became %d; want one, still under way", reloads(r, tt.reason), tt.reason, mark, now)
			}

			open()
			eventually(t, "loaded anew", func() bool { return !r.loads.owes() })
			blocktest.EventuallyHeld(t, r, s.Clock, true)
			s.Decide(s.Release())
			blocktest.EventuallyHeld(t, r, s.Clock, false)
			if r.Missing() != 0 {
				t.Errorf("%d slots missing after the load", r.Missing())
			}
		})
	}
}

// A gate that missed a release learns of it from the first keys that it reads, before the load has come to the blocks.
func TestMissedReleaseActsBeforeBlocksAreRead(t *testing.T) {
	t.Parallel()
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	gate := &scanGate{}
	s.PublishModes()
	s.Decide(s.Hit())
	r := newReplica(t, s)
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	tomb := blocklist.NewTombstone(blocktest.FloodRule, "", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
	if _, err := s.Writer.Release(t.Context(), []blocklist.Release{{Name: blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, Tombstone: tomb}}); err != nil {
		t.Fatal(err)
	}
	s.Client.AddHook(blockScans{gate})
	open := gate.close()
	defer open()
	if err := s.Writer.Tell(t.Context(), blocklist.StreamReconcile, s.Clock.Now(), []blocklist.Delta{blocklist.ReloadDelta()}); err != nil {
		t.Fatal(err)
	}
	blocktest.EventuallyHeld(t, r, s.Clock, false)
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
	t.Parallel()
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		rec := reconcilerOf(t, s)
		if err := rec.Check(t.Context()); err != nil { // puts the marker
			t.Fatal(err)
		}
		s.Decide(s.Hit())
		r := newReplica(t, s)
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		ask := func() {
			t.Helper()
			if err := s.Writer.Tell(t.Context(), blocklist.StreamReconcile, s.Clock.Now(), []blocklist.Delta{blocklist.ReloadDelta()}); err != nil {
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
		epoch := s.Keys.Epoch()
		marker, err := s.Client.Get(t.Context(), epoch).Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{s.Keys.Block(blocktest.Viewer, blocktest.FloodRule), epoch} { // of two slots
			if err := s.Client.Del(t.Context(), key).Err(); err != nil {
				t.Fatal(err)
			}
		}
		load() // without the marker Redis is not to be believed
		for n := range 3 {
			if err := awaitProbe(s, r, n); err != nil {
				t.Fatal(err)
			}
		}
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		if err := s.Client.Set(t.Context(), epoch, marker, 0).Err(); err != nil {
			t.Fatal(err)
		}
		load()
		blocktest.EventuallyHeld(t, r, s.Clock, false)
	})
}

// awaitProbe waits until r has compared the newest numbers once more: it then knows a stream that nothing told of.
func awaitProbe(s *blocktest.Stage, r *Replica, n int) error {
	name := fmt.Sprint("probe-", n)
	err := s.Client.SAdd(s.T.Context(), s.Keys.Streams(), name).Err()
	if err != nil {
		return err
	}
	b := blocklist.NewBlock(blocktest.FloodRule, s.Rules.States[blocktest.FloodRule].Generation, "1", s.Clock.Now(), s.Clock.Now().Add(time.Hour))
	subject := traffic.Subject("device=" + name)
	if err := s.Writer.Tell(s.T.Context(), name, s.Clock.Now(), []blocklist.Delta{blocklist.BlockDelta(blocklist.Name{Subject: subject, Rule: blocktest.FloodRule}, &b)}); err != nil {
		return err
	}
	eventually(s.T, "probed", func() bool {
		_, held := r.Find(traffic.Identity{Device: name}, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now())
		return held
	})
	return nil
}
