package blocklist

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func newReconciler(t testing.TB, s *stage) *Reconciler {
	t.Helper()
	r, err := NewReconciler(ReconcilerOptions{
		Store: s.store, Modes: s.rules, Active: s.log, Interval: 20 * time.Millisecond, Sweep: time.Hour, Clock: s.clock.now,
		Logger: quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestFlushIsMadeGood(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		run(t, newReconciler(t, s).Run)
		registry := prometheus.NewRegistry()
		r := replicaIn(t, s, registry)
		open := s.hit()
		freed := s.hit(func(h *detectors.Hit) { h.ID, h.BlockSubject = strings.Repeat("c", 32), "device=free" })
		request, err := NewRelease("device=free", floodRule, "ops", "", s.clock.now())
		if err != nil {
			t.Fatal(err)
		}
		extended := open
		extended.Phase, extended.Last = detectors.PhaseUpdate, open.Last.Add(time.Second)
		s.applyMessages(s.messages(open, freed, request))
		s.applyMessages(s.messages(extended))
		eventuallyHeld(t, r, s.clock, true)
		want, _ := s.stands()
		testbed.Eventually(t, 10*time.Second, func() error { // the first assertion, in whose middle a flush would not be seen
			if known, err := s.store.HasMarker(t.Context()); err != nil || !known {
				return fmt.Errorf("the reconciler has not been there yet: %v", err)
			}
			return nil
		})

		s.forget()
		testbed.Eventually(t, 10*time.Second, func() error {
			b, _, err := s.store.Get(t.Context(), viewer, floodRule)
			if err != nil {
				return err
			}
			if b == nil {
				return errors.New("the block is still gone")
			}
			// A round that began before the flush was whole may have put it back; the one that has seen all of it marks.
			if known, err := s.store.HasMarker(t.Context()); err != nil || !known {
				return fmt.Errorf("the flush is not made good yet: %v", err)
			}
			if b.Until != want.Until || b.Hit != want.Hit || b.Generation != want.Generation {
				t.Fatalf("block: got %+v, want %+v", b, want)
			}
			return nil
		})
		testbed.Eventually(t, 10*time.Second, func() error {
			if metric(t, registry, "weir_blocklist_reloads_total") == 0 {
				return errors.New("the replica has not noticed")
			}
			return nil
		})
		eventuallyHeld(t, r, s.clock, true)

		s.log.take()
		update := freed
		update.Phase, update.Last = detectors.PhaseUpdate, s.clock.now()
		s.restart()
		if got := fmt.Sprint(s.apply(update)); got != "[withheld released]" {
			t.Errorf("the released episode goes on after the flush: %s", got)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			modes, err := s.store.Modes(t.Context())
			if err == nil && (len(modes) != 1 || modes[0].Rule != floodRule || modes[0].Mode != rules.ModeBlock) {
				err = fmt.Errorf("modes after the flush: %+v", modes)
			}
			return err
		})
	})
}

// A failover may lose the last writes and keep the marker: the sweep makes that good, and gates hear of it.
func TestSweepMakesLostWritesGood(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		rec := newReconciler(t, s)
		check := func() {
			t.Helper()
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check()
		check() // takes the lease
		r := newReplicaR(t, s)
		if _, err := s.writer.raiseAll(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		s.applyMessages(s.messages(s.hit()))
		eventuallyHeld(t, r, s.clock, true)
		if err := s.client.Del(t.Context(), s.keys.Block(viewer, floodRule)).Err(); err != nil {
			t.Fatal(err)
		}
		check()
		if b, _ := s.stands(); b != nil {
			t.Fatalf("asserted anew before it was time: %+v", b)
		}
		if err := s.client.Del(t.Context(), s.keys.Lease()).Err(); err != nil { // time has passed
			t.Fatal(err)
		}
		check()
		if b, _ := s.stands(); b == nil {
			t.Error("the sweep did not put the block back")
		}
		if n := testutil.ToFloat64(rec.metrics.changes.WithLabelValues("written")); n != 1 {
			t.Errorf("%v blocks written anew, want 1", n)
		}
		entries, err := s.client.XRange(t.Context(), s.keys.Stream(streamReconcile), "-", "+").Result()
		if err != nil || len(entries) == 0 || entries[len(entries)-1].Values["op"] != opBlock {
			t.Errorf("deltas of the reconciler: %v, %v; want the block last", entries, err)
		}
	})
}

func TestNothingIsAssertedThatMayNotHold(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		now := s.clock.now()
		decision := func(change func(d *Decision)) {
			d := Decision{
				Format: DecisionFormat, ID: "x", Action: ActionWritten, Rule: floodRule, Subject: viewer, Hit: "a", Generation: 1,
				Since: now, Until: now.Add(ttl), At: now,
			}
			change(&d)
			s.log.all = append(s.log.all, d)
		}
		decision(func(d *Decision) { d.Generation = 0 })                  // before the last promotion
		decision(func(d *Decision) { d.Until = now })                     // over
		decision(func(d *Decision) { d.Action = ActionWithheld })         // never written
		decision(func(d *Decision) { d.Rule = "other" })                  // does not block
		decision(func(d *Decision) { d.Subject = "ip=127.0.0.1%2F32" })   // never to be blocked
		decision(func(d *Decision) { d.Subject = "device={x}" })          // no subject
		decision(func(d *Decision) { d.Subject, d.Hit = "device=f", "" }) // released below
		decision(func(d *Decision) {
			d.Subject, d.Action, d.Since, d.By = "device=f", ActionReleased, now.Add(time.Second), "ops"
		})
		rec := newReconciler(t, s)
		if err := rec.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		listing, err := s.store.List(t.Context(), now, Filter{Tombstones: true})
		if err != nil {
			t.Fatal(err)
		}
		if len(listing.Items) != 1 || listing.Items[0].Tombstone == nil || listing.Items[0].Subject != "device=f" {
			t.Errorf("asserted: %+v, want the tombstone only", listing.Items)
		}
	})
}

func TestReconcilerOwesWhatItCouldNotDo(t *testing.T) {
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	s.applyMessages(s.messages(s.hit()))
	rec := newReconciler(t, s)
	if err := rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.forget()
	away := errors.New("connection refused")
	s.rules.answer(away)
	if err := rec.Check(t.Context()); !errors.Is(err, away) {
		t.Fatalf("got %v, want the rule store's error", err)
	}
	if b, _ := s.stands(); b != nil {
		t.Fatal("asserted under unknown modes")
	}
	s.rules.answer(nil)
	if err := rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b, _ := s.stands(); b == nil {
		t.Error("the block is still gone")
	}
}

func TestOtherMastersMeanAFailover(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		rec := newReconciler(t, s)
		s.applyMessages(s.messages(s.hit()))
		for range 2 { // the marker, and the lease of the sweep
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.client.Del(t.Context(), s.keys.Block(viewer, floodRule)).Err(); err != nil {
			t.Fatal(err)
		}
		for address := range rec.masters {
			rec.masters[address] = "run id of before"
		}
		if err := rec.Check(t.Context()); err != nil {
			t.Fatal(err)
		}
		if b, _ := s.stands(); b == nil {
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

func newReplicaR(t testing.TB, s *stage) *Replica { return replicaIn(t, s, prometheus.NewRegistry()) }

func replicaIn(t testing.TB, s *stage, registry *prometheus.Registry) *Replica {
	t.Helper()
	r, err := NewReplica(ReplicaOptions{Store: s.store, Clock: s.clock.now, Logger: quiet(), Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	follow(t, r)
	return r
}
