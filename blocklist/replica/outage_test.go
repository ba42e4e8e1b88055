package replica

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

func TestReplicaFailsStatic(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.PublishModes()
	s.Decide(s.Hit())
	r := newReplica(t, s)
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	testbed.Eventually(t, 10*time.Second, func() error { // it is less again once a busy machine has let it ask
		if old := r.Staleness(); old > 5*time.Second {
			return fmt.Errorf("staleness is %s while Redis answers", old)
		}
		return nil
	})

	server.SetError("LOADING Redis is loading the dataset in memory")
	testbed.Eventually(t, 10*time.Second, func() error {
		if testutil.ToFloat64(r.metrics.failures) < 2 {
			return errors.New("no failures yet")
		}
		return nil
	})
	s.Clock.Add(blocktest.TTL / 2)
	if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); !held || !r.Ready() {
		t.Error("a known block is gone with Redis away")
	}
	if r.Staleness() < blocktest.TTL/2 {
		t.Errorf("staleness is %s, want half of %s at least", r.Staleness(), blocktest.TTL)
	}
	s.Clock.Add(blocktest.TTL / 2)
	if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held {
		t.Error("a block outlasts its expiry")
	}

	server.SetError("")
	s.Decide(s.Hit(func(h *detectors.Hit) { h.ID = strings.Repeat("b", 32) }))
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	if n := r.allReloads(); n != 0 {
		t.Errorf("%v reloads, want none: no number was missing", n)
	}
}

// A Redis that was flushed knows nothing; that is no reason to let everybody in before the reconciler has been there.
func TestReplicaHoldsBlocksThroughAFlush(t *testing.T) {
	t.Parallel()
	testbed.BothRedis(t, func(t *testing.T, server testbed.RedisServer) {
		s := blocktest.NewStage(t, server)
		rec := reconcilerOf(t, s)
		check := func() {
			t.Helper()
			if err := rec.Check(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		check()
		s.ApplyMessages(s.Messages(s.Hit()))
		r := newReplica(t, s)
		blocktest.EventuallyHeld(t, r, s.Clock, true)
		s.Forget()
		testbed.Eventually(t, 10*time.Second, func() error {
			if reloads(r, reloadBackward) == 0 {
				return errors.New("the replica has not noticed")
			}
			if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); !held {
				t.Fatal("the block is gone with the flush")
			}
			return nil
		})
		if b, _ := s.Stands(); b != nil {
			t.Fatalf("Redis holds %+v", b)
		}
		s.Log.Take() // nothing to assert: what is put back decides in the end
		check()
		blocktest.EventuallyHeld(t, r, s.Clock, false)
	})
}

func TestReplicaWithoutRedisIsNotReady(t *testing.T) {
	server := testbed.EmbeddedRedis(t)
	s := blocktest.NewStage(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: "redis://" + server.Addr() + "/0"})
	s.PublishModes()
	s.Decide(s.Hit())
	server.SetError("LOADING Redis is loading the dataset in memory")
	r, err := New(Options{Store: s.Store, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, r.Run)
	testbed.Eventually(t, 10*time.Second, func() error {
		if testutil.ToFloat64(r.metrics.failures) < 2 {
			return errors.New("no failures yet")
		}
		return nil
	})
	if _, held := r.Find(blocktest.ViewerIdentity, rules.Target{Method: "POST", Path: "/"}, s.Clock.Now()); held || r.Ready() {
		t.Error("ready without having read anything")
	}
	server.SetError("")
	blocktest.EventuallyHeld(t, r, s.Clock, true)
}

// reconcilerOf is a reconciler of what has been decided.
func reconcilerOf(t testing.TB, s *blocktest.Stage) *reconcile.Reconciler {
	t.Helper()
	r, err := reconcile.New(reconcile.Options{
		Store: s.Store, Modes: s.Rules, Active: s.Log, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}
