package blocklist

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
)

func TestReplicaFailsStatic(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.publishModes()
	s.apply(s.hit())
	r := newReplica(t, s)
	eventuallyHeld(t, r, s.clock, true)
	if r.Staleness() > 5*time.Second {
		t.Errorf("staleness is %s while Redis answers", r.Staleness())
	}

	server.SetError("LOADING Redis is loading the dataset in memory")
	testbed.Eventually(t, 10*time.Second, func() error {
		if testutil.ToFloat64(r.metrics.failures) < 2 {
			return errors.New("no failures yet")
		}
		return nil
	})
	s.clock.add(ttl / 2)
	if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); !held || !r.Ready() {
		t.Error("a known block is gone with Redis away")
	}
	if r.Staleness() < ttl/2 {
		t.Errorf("staleness is %s, want half of %s at least", r.Staleness(), ttl)
	}
	s.clock.add(ttl / 2)
	if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); held {
		t.Error("a block outlasts its expiry")
	}

	server.SetError("")
	s.apply(s.hit(func(h *detectors.Hit) { h.ID = strings.Repeat("b", 32) }))
	eventuallyHeld(t, r, s.clock, true)
	if n := r.allReloads(); n != 0 {
		t.Errorf("%v reloads, want none: no number was missing", n)
	}
}

// A Redis that was flushed knows nothing; that is no reason to let everybody in before the reconciler has been there.
func TestReplicaHoldsBlocksThroughAFlush(t *testing.T) {
	testbed.EachRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := newStage(t, server)
		rec := reconcilerOf(t, s)
		check := func() {
			t.Helper()
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check()
		s.applyMessages(s.messages(s.hit()))
		r := newReplica(t, s)
		eventuallyHeld(t, r, s.clock, true)
		s.forget()
		testbed.Eventually(t, 10*time.Second, func() error {
			if reloads(r, reloadBackward) == 0 {
				return errors.New("the replica has not noticed")
			}
			if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); !held {
				t.Fatal("the block is gone with the flush")
			}
			return nil
		})
		if b, _ := s.stands(); b != nil {
			t.Fatalf("Redis holds %+v", b)
		}
		s.log.take() // nothing to assert: what is put back decides in the end
		check()
		eventuallyHeld(t, r, s.clock, false)
	})
}

func TestReplicaWithoutRedisIsNotReady(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := newStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.publishModes()
	s.apply(s.hit())
	server.SetError("LOADING Redis is loading the dataset in memory")
	r, err := NewReplica(ReplicaOptions{Store: s.store, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if testutil.ToFloat64(r.metrics.failures) < 2 {
			return errors.New("no failures yet")
		}
		return nil
	})
	if _, held := r.Find(viewerIdentity, "POST", "/", s.clock.now()); held || r.Ready() {
		t.Error("ready without having read anything")
	}
	server.SetError("")
	eventuallyHeld(t, r, s.clock, true)
}

// reconcilerOf is a reconciler of what has been decided.
func reconcilerOf(t testing.TB, s *stage) *Reconciler {
	t.Helper()
	r, err := NewReconciler(ReconcilerOptions{
		Store: s.store, Modes: s.rules, Active: s.log, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
