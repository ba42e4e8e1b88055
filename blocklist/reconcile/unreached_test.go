package reconcile

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// reconciled is a reconciler of what has been decided, which looks often and does not sweep while a test goes on.
func reconciled(t *testing.T, s *blocktest.Stage) *Reconciler {
	t.Helper()
	r := sweeper(t, s, s.Log)
	testbed.Eventually(t, 20*time.Second, func() error { return r.Check(t.Context()) }) // a master that is slow to answer is away, too
	return r
}

// With a master of a cluster away, what is to be blocked there is withheld, and nothing waits for it: releases behind a thousand of
// those act at a gate within a second, wherever their blocks lie, batch after batch. When the master answers again the
// tombstones are put, and who is over still is blocked.
func TestReleaseActsWithAMasterAway(t *testing.T) {
	for which := 1; which <= 2; which++ {
		t.Run(fmt.Sprint("master ", which), func(t *testing.T) {
			s, nodes := blocktest.ClusterOfItsOwn(t)
			dead, live := nodes[which], nodes[3-which]
			s.PublishModes()
			onLive, onDead := s.ClientsOn("10.1.0.0", 8, live.Addr, ""), s.ClientsOn("10.2.0.0", 8, dead.Addr, "")
			s.ApplyMessages(blocktest.Spread(s.Raising(detectors.PhaseOpen, onLive[:7]...), s.Raising(detectors.PhaseOpen, onDead[:7]...)))
			rec := reconciled(t, s)
			r := newReplica(t, s)
			for i := range 7 {
				blocktest.EventuallyIs(t, "before", r, s, onLive[i], true)
				blocktest.EventuallyIs(t, "before", r, s, onDead[i], true)
			}
			dead.Freeze()
			blocktest.Run(t, rec.Run)

			withheld := s.ClientsOn("10.3.0.0", 6000, dead.Addr, "")
			for round := range 6 {
				s.Clock.Add(time.Millisecond)
				begin := s.Log.Len()
				batch := blocktest.Spread(s.Raising(detectors.PhaseOpen, withheld[1000*round:1000*(round+1)]...),
					s.Releasing(onLive[round]), s.Releasing(onDead[round]))
				if round == 0 {
					batch = append(batch, blocktest.Spread(s.Raising(detectors.PhaseOpen, onLive[7]))...)
				}
				testbed.Promptly(t, fmt.Sprint("releases of round ", round), func() {
					s.ApplyMessages(batch)
					blocktest.EventuallyIs(t, "released on the master that answers", r, s, onLive[round], false)
					blocktest.EventuallyIs(t, "released on the master that is away", r, s, onDead[round], false)
				})
				got := s.Log.Decided(begin)
				if got["withheld unreachable"] != 1000 || got["released "] != 2 || len(got) != 2+min(1, got["written "]) {
					t.Errorf("round %d: decisions %v", round, got)
				}
			}
			blocktest.EventuallyIs(t, "blocked on the master that answers", r, s, onLive[7], true)
			if got := s.Metric("weir_enforce_decisions_total", "withheld", "block", blocklist.ReasonUnreachable, blocktest.FloodRule); got != 6000 {
				t.Errorf("the metric counts %v withheld, want 6000", got)
			}
			if got := s.Metric("weir_enforce_unwritten_releases_total"); got != 6 {
				t.Errorf("the metric counts %v releases without a tombstone, want 6", got)
			}
			if got := s.Metric("weir_enforce_failures_total"); got != 0 {
				t.Errorf("%v batches failed", got)
			}

			dead.Thaw()
			for round := range 6 {
				s.GoneFromRedis(onDead[round])
			}
			s.BlocksWithTheNextUpdate(withheld[5000])
			blocktest.EventuallyIs(t, "a client that was withheld", r, s, withheld[5000], true)
			fresh := newReplica(t, s) // it knows what Redis knows
			for round := range 6 {
				blocktest.EventuallyIs(t, "released", r, s, onDead[round], false)
				blocktest.EventuallyIs(t, "released, at a gate that starts", fresh, s, onDead[round], false)
			}
			blocktest.EventuallyIs(t, "never released", fresh, s, onDead[6], true)
			blocktest.EventuallyIs(t, "withheld once", fresh, s, withheld[5000], true)
		})
	}
}

// A master that is away so shortly that the reconciler never sees it, and ENFORCE does: its return is a cause to assert.
func TestTombstoneIsPutAfterAShortAbsence(t *testing.T) {
	s, nodes := blocktest.ClusterOfItsOwn(t)
	dead := nodes[1]
	on := s.ClientsOn("10.2.0.0", 3, dead.Addr, "")
	s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[0]))
	rec := reconciled(t, s)
	runs := func() float64 { return testutil.ToFloat64(rec.metrics.runs.WithLabelValues(causeReturn)) }
	if err := rec.Check(t.Context()); err != nil || runs() != 0 {
		t.Fatalf("%v returns, %v", runs(), err)
	}
	dead.Freeze()
	s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[1])) // what it was asked first it does when it goes on, the release not
	s.ApplyMessages(s.Releasing(on[0]))
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
	if b, tomb, err := s.Store.Get(t.Context(), on[0].Subject, blocktest.FloodRule); err != nil || b != nil || tomb == nil {
		t.Errorf("block %+v, tombstone %+v, %v", b, tomb, err)
	}
	if got := fmt.Sprint(s.Log.Decided(0)); got != "map[released :1 withheld unreachable:1 written :1]" {
		t.Errorf("decisions: %s", got)
	}
	s.ApplyMessages(s.Raising(detectors.PhaseUpdate, on[0])) // of the episode that was released
	if b, _, err := s.Store.Get(t.Context(), on[0].Subject, blocktest.FloodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
}

// Without the master of the delta streams no gate can be told of anything: the batch waits, also one that has nothing to tell.
func TestBatchWaitsForTheMasterOfTheStreams(t *testing.T) {
	s, nodes := blocktest.ClusterOfItsOwn(t)
	home, other := nodes[0], nodes[1]
	on := s.ClientsOn("10.2.0.0", 2, other.Addr, "")
	at := s.ClientsOn("10.3.0.0", 1, home.Addr, "")
	s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[0]))
	begin := s.Log.Len()
	for name, batch := range map[string][]traffic.Message{
		"a block of its own":                             s.Raising(detectors.PhaseOpen, at[0]),
		"a block of another master that is away":         s.Raising(detectors.PhaseOpen, on[1]),
		"the release of a block on another that is away": s.Releasing(on[0]),
	} {
		home.Freeze()
		other.Freeze()
		if err := s.Apply(t.Context(), batch); err == nil {
			t.Errorf("%s: the batch did not wait", name)
		}
		home.Thaw()
		other.Thaw()
	}
	if got := s.Log.Decided(begin); len(got) != 0 {
		t.Errorf("decisions: %v", got)
	}
	s.BlocksWithTheNextUpdate(on[1])
	s.BlocksWithTheNextUpdate(at[0])
}

// A block is not written where it cannot be counted.
func TestBlockWaitsForTheCountOfItsAddress(t *testing.T) {
	s, nodes := blocktest.ClusterOfItsOwn(t)
	s.Store.Bound(blocklist.Crowds{PerAddress: 10, Claimed: []traffic.Field{traffic.FieldDevice}})
	dead, live := nodes[1], nodes[2]
	on := s.ClientsOn("10.2.0.0", 2, live.Addr, dead.Addr)
	s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[0]))
	begin := s.Log.Len()
	dead.Freeze()
	s.ApplyMessages(append(s.Raising(detectors.PhaseOpen, on[1]), s.Releasing(on[0])...))
	if got := fmt.Sprint(s.Log.Decided(begin)); got != "map[released :1 withheld unreachable:1]" {
		t.Errorf("decisions: %s", got)
	}
	if b, _, err := s.Store.Get(t.Context(), on[1].Subject, blocktest.FloodRule); err != nil || b != nil {
		t.Errorf("block %+v, %v", b, err)
	}
	s.GoneFromRedis(on[0])
	dead.Thaw()
	s.BlocksWithTheNextUpdate(on[1])
}

// A standalone server that is away stops the batch, which is tried again and has its whole effect.
func TestBatchWaitsForAStandaloneRedis(t *testing.T) {
	node := testbed.OwnRedis(t)
	s := blocktest.NewStage(t, node.Server())
	s.Server = blocklist.Server{URL: node.Server().URL, Timeout: 200 * time.Millisecond}
	s.Reconnect()
	node.Freeze()
	batch := s.Messages(s.Hit())
	if err := s.Apply(t.Context(), batch); err == nil || s.Log.Len() != 0 {
		t.Errorf("%v, and %d decisions", err, s.Log.Len())
	}
	node.Thaw()
	testbed.Eventually(t, 10*time.Second, func() error { return s.Apply(t.Context(), batch) })
	testbed.Eventually(t, 10*time.Second, func() error { // with that timeout a busy server may fail to answer
		b, _, err := s.Store.Get(t.Context(), blocktest.Viewer, blocktest.FloodRule)
		if err == nil && b == nil {
			t.Fatal("nothing stands")
		}
		return err
	})
}

// When a replica takes the place of its master, nothing is lost: what was withheld comes with the next update, and what was
// released meanwhile has its tombstone there.
func TestNothingIsLostWhenAReplicaTakesOver(t *testing.T) {
	nodes := blocktest.StartCluster(t)
	var addrs []string
	for _, n := range nodes {
		addrs = append(addrs, n.Addr)
	}
	s := blocktest.ConnectedTo(t, addrs)
	home := s.MasterOf(s.Keys.Streams())
	dead := nodes[0]
	if dead.Addr == home {
		dead = nodes[1]
	}
	replica := blocktest.ReplicaOf(t, dead)
	on := s.ClientsOn("10.2.0.0", 3, dead.Addr, "")
	s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[0]))
	dead.Do("wait", 1, 10_000)
	rec := reconciled(t, s)
	r := newReplica(t, s)
	blocktest.EventuallyIs(t, "before", r, s, on[0], true)

	begin := s.Log.Len()
	dead.Pause()
	blocktest.Run(t, rec.Run)
	testbed.Promptly(t, "the batches", func() {
		s.ApplyMessages(s.Raising(detectors.PhaseOpen, on[1]))
		s.ApplyMessages(append(s.Raising(detectors.PhaseOpen, on[2]), s.Releasing(on[0])...))
		blocktest.EventuallyIs(t, "released", r, s, on[0], false)
	})
	if got := fmt.Sprint(s.Log.Decided(begin)); got != "map[released :1 withheld unreachable:2]" {
		t.Errorf("decisions: %s", got)
	}
	for _, n := range append(nodes, replica) { // only now, so that the replica does not take over before
		if n != dead {
			n.TakeForAwayAfter(time.Second)
		}
	}
	s.BlocksWithTheNextUpdate(on[1])
	s.BlocksWithTheNextUpdate(on[2])
	s.GoneFromRedis(on[0])
	testbed.Eventually(t, 10*time.Second, func() error {
		s.Client.(*redis.ClusterClient).ReloadState(t.Context())
		if now := s.MasterOf(s.Keys.Block(on[0].Subject, blocktest.FloodRule)); now != replica.Addr {
			return fmt.Errorf("the master is %s, want the replica at %s", now, replica.Addr)
		}
		return nil
	})
	blocktest.EventuallyIs(t, "withheld once", r, s, on[1], true)
	blocktest.EventuallyIs(t, "withheld once", r, s, on[2], true)
	blocktest.EventuallyIs(t, "released", r, s, on[0], false)
}
