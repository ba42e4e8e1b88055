package blocklist

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// reconciled is a reconciler of what has been decided, which looks often and does not sweep while a test goes on.
func reconciled(t *testing.T, s *stage) *Reconciler {
	t.Helper()
	r := sweeper(t, s, s.log)
	if err := r.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

// With a master of a cluster away, what is to be blocked there is withheld, and nothing waits for it: releases behind a thousand of
// those act at a gate within a second, wherever their blocks lie, batch after batch. When the master answers again the
// tombstones are put, and who is over still is blocked.
func TestReleaseActsWithAMasterAway(t *testing.T) {
	for which := 1; which <= 2; which++ {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			s, nodes := clusterOfItsOwn(t)
			dead, live := nodes[which], nodes[3-which]
			s.publishModes()
			onLive, onDead := s.clientsOn("10.1.0.0", 8, live.Addr, ""), s.clientsOn("10.2.0.0", 8, dead.Addr, "")
			s.applyMessages(spread(s.raising(detectors.PhaseOpen, onLive[:7]...), s.raising(detectors.PhaseOpen, onDead[:7]...)))
			rec := reconciled(t, s)
			r := newReplicaR(t, s)
			for i := range 7 {
				eventuallyIs(t, "before", r, s, onLive[i], true)
				eventuallyIs(t, "before", r, s, onDead[i], true)
			}
			dead.Freeze()
			run(t, rec.Run)

			withheld := s.clientsOn("10.3.0.0", 6000, dead.Addr, "")
			for round := range 6 {
				s.clock.add(time.Millisecond)
				begin := s.log.len()
				batch := spread(s.raising(detectors.PhaseOpen, withheld[1000*round:1000*(round+1)]...),
					s.releasing(onLive[round]), s.releasing(onDead[round]))
				if round == 0 {
					batch = append(batch, spread(s.raising(detectors.PhaseOpen, onLive[7]))...)
				}
				withinASecond(t, fmt.Sprint("releases of round ", round), func() {
					s.applyMessages(batch)
					eventuallyIs(t, "released on the master that answers", r, s, onLive[round], false)
					eventuallyIs(t, "released on the master that is away", r, s, onDead[round], false)
				})
				got := s.log.decided(begin)
				if got["withheld unreachable"] != 1000 || got["released "] != 2 || len(got) != 2+min(1, got["written "]) {
					t.Errorf("round %d: decisions %v", round, got)
				}
			}
			eventuallyIs(t, "blocked on the master that answers", r, s, onLive[7], true)
			if got := s.metric("weir_enforce_decisions_total", "withheld", ReasonUnreachable); got != 6000 {
				t.Errorf("the metric counts %v withheld, want 6000", got)
			}
			if got := s.metric("weir_enforce_unwritten_releases_total"); got != 6 {
				t.Errorf("the metric counts %v releases without a tombstone, want 6", got)
			}
			if got := s.metric("weir_enforce_failures_total"); got != 0 {
				t.Errorf("%v batches failed", got)
			}

			dead.Thaw()
			for round := range 6 {
				s.goneFromRedis(onDead[round])
			}
			s.blocksWithTheNextUpdate(withheld[5000])
			eventuallyIs(t, "a client that was withheld", r, s, withheld[5000], true)
			fresh := newReplicaR(t, s) // it knows what Redis knows
			for round := range 6 {
				eventuallyIs(t, "released", r, s, onDead[round], false)
				eventuallyIs(t, "released, at a gate that starts", fresh, s, onDead[round], false)
			}
			eventuallyIs(t, "never released", fresh, s, onDead[6], true)
			eventuallyIs(t, "withheld once", fresh, s, withheld[5000], true)
		})
	}
}

// A master that is away so shortly that the reconciler never sees it, and ENFORCE does: its return is a cause to assert.
func TestTombstoneIsPutAfterAShortAbsence(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	dead := nodes[1]
	on := s.clientsOn("10.2.0.0", 3, dead.Addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	rec := reconciled(t, s)
	runs := func() float64 { return testutil.ToFloat64(rec.metrics.runs.WithLabelValues(causeReturn)) }
	if err := rec.Check(t.Context()); err != nil || runs() != 0 {
		t.Fatalf("%v returns, %v", runs(), err)
	}
	dead.Freeze()
	s.applyMessages(s.raising(detectors.PhaseOpen, on[1])) // what it was asked first it does when it goes on, the release not
	s.applyMessages(s.releasing(on[0]))
	dead.Thaw()
	testbed.Eventually(t, 10*time.Second, func() error {
		if err := rec.Check(t.Context()); err != nil {
			return err
		}
		if runs() != 1 {
			return fmt.Errorf("%v rounds after a return", runs())
		}
		return nil
	})
	if b, tomb, err := s.store.Get(t.Context(), on[0].subject, floodRule); err != nil || b != nil || tomb == nil {
		t.Errorf("block %+v, tombstone %+v, %v", b, tomb, err)
	}
	if got := fmt.Sprint(s.log.decided(0)); got != "map[released :1 withheld unreachable:1 written :1]" {
		t.Errorf("decisions: %s", got)
	}
	s.applyMessages(s.raising(detectors.PhaseUpdate, on[0])) // of the episode that was released
	if b, _, err := s.store.Get(t.Context(), on[0].subject, floodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
}

// Without the master of the delta streams no gate can be told of anything: the batch waits, also one that has nothing to tell.
func TestBatchWaitsForTheMasterOfTheStreams(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	home, other := nodes[0], nodes[1]
	on := s.clientsOn("10.2.0.0", 2, other.Addr, "")
	at := s.clientsOn("10.3.0.0", 1, home.Addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	begin := s.log.len()
	for name, batch := range map[string][]traffic.Message{
		"a block of its own":                             s.raising(detectors.PhaseOpen, at[0]),
		"a block of another master that is away":         s.raising(detectors.PhaseOpen, on[1]),
		"the release of a block on another that is away": s.releasing(on[0]),
	} {
		home.Freeze()
		other.Freeze()
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Errorf("%s: the batch did not wait", name)
		}
		home.Thaw()
		other.Thaw()
	}
	if got := s.log.decided(begin); len(got) != 0 {
		t.Errorf("decisions: %v", got)
	}
	s.blocksWithTheNextUpdate(on[1])
	s.blocksWithTheNextUpdate(at[0])
}

// A block is not written where it cannot be counted.
func TestBlockWaitsForTheCountOfItsAddress(t *testing.T) {
	s, nodes := clusterOfItsOwn(t)
	s.store.Bound(Crowds{PerAddress: 10, Claimed: []traffic.Field{traffic.FieldDevice}})
	dead, live := nodes[1], nodes[2]
	on := s.clientsOn("10.2.0.0", 2, live.Addr, dead.Addr)
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	begin := s.log.len()
	dead.Freeze()
	s.applyMessages(append(s.raising(detectors.PhaseOpen, on[1]), s.releasing(on[0])...))
	if got := fmt.Sprint(s.log.decided(begin)); got != "map[released :1 withheld unreachable:1]" {
		t.Errorf("decisions: %s", got)
	}
	if b, _, err := s.store.Get(t.Context(), on[1].subject, floodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
	s.goneFromRedis(on[0])
	dead.Thaw()
	s.blocksWithTheNextUpdate(on[1])
}

// A standalone server that is away stops the batch, which is tried again and has its whole effect.
func TestBatchWaitsForAStandaloneRedis(t *testing.T) {
	node := testbed.OwnRedis(t)
	s := newStage(t, node.Server())
	s.server = Server{URL: node.Server().URL, Timeout: 200 * time.Millisecond}
	s.reconnect()
	node.Freeze()
	batch := s.messages(s.hit())
	if err := s.Apply(t.Context(), batch); err == nil || s.log.len() != 0 {
		t.Errorf("%v, and %d decisions", err, s.log.len())
	}
	node.Thaw()
	testbed.Eventually(t, 10*time.Second, func() error { return s.Apply(t.Context(), batch) })
	if b, _ := s.stands(); b == nil {
		t.Error("nothing stands")
	}
}

// When a replica takes the place of its master, nothing is lost: what was withheld comes with the next update, and what was
// released meanwhile has its tombstone there.
func TestNothingIsLostWhenAReplicaTakesOver(t *testing.T) {
	nodes := startCluster(t)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.addr)
	}
	s := connectedTo(t, addrs)
	home := s.masterOf(s.keys.Streams())
	dead := nodes[0]
	if dead.addr == home {
		dead = nodes[1]
	}
	replica := replicaOf(t, dead)
	on := s.clientsOn("10.2.0.0", 3, dead.addr, "")
	s.applyMessages(s.raising(detectors.PhaseOpen, on[0]))
	dead.do("wait", 1, 10_000)
	rec := reconciled(t, s)
	r := newReplicaR(t, s)
	eventuallyIs(t, "before", r, s, on[0], true)

	begin := s.log.len()
	dead.pause()
	run(t, rec.Run)
	withinASecond(t, "the batches", func() {
		s.applyMessages(s.raising(detectors.PhaseOpen, on[1]))
		s.applyMessages(append(s.raising(detectors.PhaseOpen, on[2]), s.releasing(on[0])...))
		eventuallyIs(t, "released", r, s, on[0], false)
	})
	if got := fmt.Sprint(s.log.decided(begin)); got != "map[released :1 withheld unreachable:2]" {
		t.Errorf("decisions: %s", got)
	}
	s.blocksWithTheNextUpdate(on[1])
	s.blocksWithTheNextUpdate(on[2])
	s.goneFromRedis(on[0])
	testbed.Eventually(t, 10*time.Second, func() error {
		s.client.(*redis.ClusterClient).ReloadState(t.Context())
		if now := s.masterOf(s.keys.Block(on[0].subject, floodRule)); now != replica.addr {
			return fmt.Errorf("the master is %s, want the replica at %s", now, replica.addr)
		}
		return nil
	})
	eventuallyIs(t, "withheld once", r, s, on[1], true)
	eventuallyIs(t, "withheld once", r, s, on[2], true)
	eventuallyIs(t, "released", r, s, on[0], false)
}
