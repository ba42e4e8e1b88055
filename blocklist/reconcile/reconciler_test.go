package reconcile

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func newReconciler(t testing.TB, s *blocktest.Stage) *Reconciler {
	t.Helper()
	r, err := New(Options{
		Store: s.Store, Modes: s.Rules, Active: s.Log, Clock: s.Clock.Now,
		Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.interval, r.sweep = 20*time.Millisecond, time.Hour
	return r
}

func TestFlushIsMadeGood(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		blocktest.Run(t, newReconciler(t, s).Run)
		registry := prometheus.NewRegistry()
		r := replicaIn(t, s, registry)
		open := s.Hit()
		freed := s.Hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = strings.Repeat("c", 32), "device=free" })
		request, err := blocklist.NewRelease("device=free", blocktest.FloodRule, "ops", "", s.Clock.Now())
		if err != nil {
			t.Fatal(err)
		}
		extended := open
		extended.Phase, extended.Last = detectors.PhaseUpdate, open.Last.Add(time.Second)
		s.ApplyMessages(s.Messages(open, freed, request))
		s.ApplyMessages(s.Messages(extended))
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		want, _ := s.Stands()
		testbed.Eventually(t, 10*time.Second, func() error { // the first assertion, in whose middle a flush would not be seen
			if known, err := s.Store.HasMarker(t.Context()); err != nil || !known {
				return fmt.Errorf("the reconciler has not been there yet: %v", err)
			}
			return nil
		})

		s.Forget()
		testbed.Eventually(t, 10*time.Second, func() error {
			b, _, err := s.Store.Get(t.Context(), blocktest.Viewer, blocktest.FloodRule)
			if err != nil {
				return err
			}
			if b == nil {
				return errors.New("the block is still gone")
			}
			// A round that began before the flush was whole may have put it back; the one that has seen all of it marks.
			if known, err := s.Store.HasMarker(t.Context()); err != nil || !known {
				return fmt.Errorf("the flush is not made good yet: %v", err)
			}
			if b.Until != want.Until || b.Hit != want.Hit || b.Generation != want.Generation {
				t.Fatalf("block: got %+v, want %+v", b, want)
			}
			return nil
		})
		testbed.Eventually(t, 10*time.Second, func() error {
			if blocktest.Metric(t, registry, "weir_blocklist_reloads_total") == 0 {
				return errors.New("the replica has not noticed")
			}
			return nil
		})
		blocktest.EventuallyHeld(t, r, s.Clock, true)

		s.Log.Take()
		update := freed
		update.Phase, update.Last = detectors.PhaseUpdate, s.Clock.Now()
		s.Restart()
		if got := fmt.Sprint(s.Decide(update)); got != "[withheld released]" {
			t.Errorf("the released episode goes on after the flush: %s", got)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			modes, err := s.Store.Modes(t.Context())
			if err == nil && (len(modes) != 1 || modes[0].Rule != blocktest.FloodRule || modes[0].Mode != rules.ModeBlock) {
				err = fmt.Errorf("modes after the flush: %+v", modes)
			}
			return err
		})
	})
}

// A failover may lose the last writes and keep the marker: the sweep makes that good, and gates hear of it.
func TestSweepMakesLostWritesGood(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		rec := newReconciler(t, s)
		check := func() {
			t.Helper()
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check()
		check() // takes the lease
		r := newReplica(t, s)
		if _, err := s.Writer.Raise(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.ApplyMessages(s.Messages(s.Hit()))
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		if err := s.Client.Del(t.Context(), s.Keys.Block(blocktest.Viewer, blocktest.FloodRule)).Err(); err != nil {
			t.Fatal(err)
		}
		check()
		if b, _ := s.Stands(); b != nil {
			t.Fatalf("asserted anew before it was time: %+v", b)
		}
		if err := s.Client.Del(t.Context(), s.Keys.Lease()).Err(); err != nil { // time has passed
			t.Fatal(err)
		}
		check()
		if b, _ := s.Stands(); b == nil {
			t.Error("the sweep did not put the block back")
		}
		if n := testutil.ToFloat64(rec.metrics.changes.WithLabelValues("written")); n != 1 {
			t.Errorf("%v blocks written anew, want 1", n)
		}
		entries, err := s.Client.XRange(t.Context(), s.Keys.Stream(blocklist.StreamReconcile), "-", "+").Result()
		if err != nil || len(entries) == 0 || entries[len(entries)-1].Values["op"] != blocklist.OpBlock {
			t.Errorf("deltas of the reconciler: %v, %v; want the block last", entries, err)
		}
	})
}

// late lets time pass before Redis is asked what stands.
type late struct{ pass func() }

var _ redis.Hook = (*late)(nil)

// DialHook changes nothing.
func (l *late) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook changes nothing.
func (l *late) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

// ProcessPipelineHook lets the time pass before keys are read.
func (l *late) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if slices.ContainsFunc(cmds, func(c redis.Cmder) bool { return c.Name() == "mget" }) {
			l.pass()
		}
		return next(ctx, cmds)
	}
}

// A block or a tombstone that ends while a sweep is under way was not lost: neither is it put back, nor do gates hear of it.
func TestWhatEndsDuringASweepIsNotPutBack(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		for _, action := range []blocklist.Action{blocklist.ActionWritten, blocklist.ActionReleased} {
			s := blocktest.NewStage(t, server)
			s.Clock.Stop()
			now := s.Clock.Now()
			s.Log.All = append(s.Log.All, blocklist.Decision{
				Format: blocklist.DecisionFormat, ID: "x", Action: action, Rule: blocktest.FloodRule, Subject: blocktest.Viewer, Hit: "a", Generation: 1,
				Since: now, Until: now.Add(blocktest.TTL), At: now,
			})
			left := blocktest.TTL
			s.Client.AddHook(&late{func() { s.Clock.Add(left); left = 0 }})
			rec := newReconciler(t, s)
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
			if left != 0 {
				t.Fatal("Redis was not asked what stands")
			}
			if n := testutil.ToFloat64(rec.metrics.changes.WithLabelValues(string(action))); n != 0 {
				t.Errorf("%v %s, want 0: it was over by then", n, action)
			}
			listing, err := s.Store.List(t.Context(), now, blocklist.Filter{Tombstones: true})
			if err != nil || len(listing.Items) != 0 {
				t.Errorf("put back: %+v, %v", listing.Items, err)
			}
		}
	})
}

func TestNothingIsAssertedThatMayNotHold(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		now := s.Clock.Now()
		decision := func(change func(d *blocklist.Decision)) {
			d := blocklist.Decision{
				Format: blocklist.DecisionFormat, ID: "x", Action: blocklist.ActionWritten, Rule: blocktest.FloodRule, Subject: blocktest.Viewer, Hit: "a", Generation: 1,
				Since: now, Until: now.Add(blocktest.TTL), At: now,
			}
			change(&d)
			s.Log.All = append(s.Log.All, d)
		}
		decision(func(d *blocklist.Decision) { d.Generation = 0 })                    // before the last promotion
		decision(func(d *blocklist.Decision) { d.Until = now })                       // over
		decision(func(d *blocklist.Decision) { d.Action = blocklist.ActionWithheld }) // never written
		decision(func(d *blocklist.Decision) { d.Rule = "other" })                    // does not block
		decision(func(d *blocklist.Decision) { d.Subject = "ip=127.0.0.1%2F32" })     // never to be blocked
		decision(func(d *blocklist.Decision) { d.Subject = "device={x}" })            // no subject
		decision(func(d *blocklist.Decision) { d.Subject, d.Hit = "device=f", "" })   // released below
		decision(func(d *blocklist.Decision) {
			d.Subject, d.Action, d.Since, d.By = "device=f", blocklist.ActionReleased, now.Add(time.Second), "ops"
		})
		rec := newReconciler(t, s)
		if err := rec.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		listing, err := s.Store.List(t.Context(), now, blocklist.Filter{Tombstones: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(listing.Items) != 1 || listing.Items[0].Tombstone == nil || listing.Items[0].Subject != "device=f" {
			t.Errorf("asserted: %+v, want the tombstone only", listing.Items)
		}
	})
}

func TestReconcilerOwesWhatItCouldNotDo(t *testing.T) {
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.ApplyMessages(s.Messages(s.Hit()))
	rec := newReconciler(t, s)
	if err := rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.Forget()
	away := errors.New("connection refused")
	s.Rules.Answer(away)
	if err := rec.Check(t.Context()); !errors.Is(err, away) {
		t.Fatalf("got %v, want the rule store's error", err)
	}
	if b, _ := s.Stands(); b != nil {
		t.Fatal("asserted under unknown modes")
	}
	s.Rules.Answer(nil)
	if err := rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, _ := s.Stands(); b == nil {
		t.Error("the block is still gone")
	}
}

func TestOtherMastersMeanAFailover(t *testing.T) {
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		rec := newReconciler(t, s)
		s.ApplyMessages(s.Messages(s.Hit()))
		for range 2 { // the marker, and the lease of the sweep
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Client.Del(t.Context(), s.Keys.Block(blocktest.Viewer, blocktest.FloodRule)).Err(); err != nil {
			t.Fatal(err)
		}
		for address := range rec.masters {
			rec.masters[address] = "run id of before"
		}
		if err := rec.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b, _ := s.Stands(); b == nil {
			t.Error("what the failover lost is still gone")
		}
		if n := testutil.ToFloat64(rec.metrics.runs.WithLabelValues(causeFailover)); n != 1 {
			t.Errorf("%v rounds for a failover, want 1", n)
		}
		if err := rec.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := testutil.ToFloat64(rec.metrics.runs.WithLabelValues(causeFailover)); n != 1 {
			t.Errorf("%v rounds for one failover", n)
		}
	})
}

func newReplica(t testing.TB, s *blocktest.Stage) *replica.Replica {
	return replicaIn(t, s, prometheus.NewRegistry())
}

func replicaIn(t testing.TB, s *blocktest.Stage, registry *prometheus.Registry) *replica.Replica {
	t.Helper()
	r, err := replica.New(replica.Options{Store: s.Store, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Follow(t, r)
	return r
}
