package blocklist

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func holdsDevice(r *Replica, c *clock, i int) bool {
	_, held := r.Find(traffic.Identity{Device: fmt.Sprint(i)}, "POST", "/", c.now())
	return held
}

func startReplica(t testing.TB, s *stage) *Replica {
	t.Helper()
	r, err := NewReplica(ReplicaOptions{Store: s.store, Clock: s.clock.now, Logger: quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
	return r
}

// Slots move from a master that is still to be read to one that has been. Nobody's SCAN shows their keys; the load reads
// them once more where they went, and does not call itself whole while a slot lies on two masters.
func TestLoadDuringReshardingLosesNothing(t *testing.T) {
	const blocks, moved = 20_000, 300
	nodes := startCluster(t)
	gate := &scanGate{}
	s := clusterStage(t, nodes, nodes[2], gate)
	s.publishModes()
	s.fill(blocks)
	open := gate.close()
	r := startReplica(t, s)
	eventually(t, "two of three masters read", func() bool {
		return gate.waiting.Load() > 0 && r.Len() > blocks/2 && r.Len() == loadedFrom(t, nodes[:2])
	})
	first := slotCount - moved
	for slot := first; slot < slotCount; slot++ {
		nodes[2].moveKeys(slot, nodes[0])
		if slot%2 == 0 {
			nodes[2].giveSlot(slot, nodes[0])
		}
	}
	open()
	eventually(t, "read but for the slots that lie on two masters", func() bool { return r.Missing() == moved/2 })
	if !r.Ready() {
		t.Error("not ready with all but a few slots read")
	}
	for slot := first + 1; slot < slotCount; slot += 2 {
		nodes[2].giveSlot(slot, nodes[0])
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		if n := r.Missing(); n != 0 {
			return fmt.Errorf("%d slots are missing", n)
		}
		return nil
	})
	lost := 0
	for i := range blocks {
		if !holdsDevice(r, s.clock, i) {
			lost++
		}
	}
	if lost > 0 {
		t.Errorf("%d of %d blocks are not held after a load during which %d slots moved", lost, blocks, moved)
	}
	if n := r.allReloads(); n != 0 {
		t.Errorf("%v loads anew", n)
	}
}

// loadedFrom is how many blocks the masters hold.
func loadedFrom(t testing.TB, nodes []*ownRedis) int {
	n := 0
	for _, node := range nodes {
		keys, err := node.client.Keys(t.Context(), "*:block:*").Result()
		if err != nil {
			t.Fatal(err)
		}
		n += len(keys)
	}
	return n
}

// A gate that starts while a master is away is ready with what the others have, says what is missing, and follows; the
// rest comes with the master.
func TestOneMasterAwayCostsItsOwnBlocksOnly(t *testing.T) {
	const blocks = 3000
	nodes := startCluster(t)
	s := clusterStage(t, nodes, nodes[0], &scanGate{})
	s.publishModes()
	s.fill(blocks)
	modesAt, err := nodes[0].client.ClusterKeySlot(t.Context(), s.keys.Rules()).Result()
	if err != nil {
		t.Fatal(err)
	}
	gone := nodes[2]
	if modesAt >= 10923 {
		gone = nodes[0]
	}
	own, err := ownSlots(gone.do("cluster", "nodes"))
	if err != nil {
		t.Fatal(err)
	}
	there := make([]bool, blocks)
	for i := range there {
		slot, err := nodes[1].client.ClusterKeySlot(t.Context(), s.keys.Block(traffic.Subject(fmt.Sprint("device=", i)), floodRule)).Result()
		if err != nil {
			t.Fatal(err)
		}
		there[i] = !own.has(int(slot))
	}
	resume := gone.pause()
	r := startReplica(t, s)
	testbed.Eventually(t, 30*time.Second, func() error {
		if !r.Ready() {
			return fmt.Errorf("not ready; %d blocks", r.Len())
		}
		return nil
	})
	for i, want := range there {
		if want && !holdsDevice(r, s.clock, i) {
			t.Fatalf("block %d, of a master that answers, is not held", i)
		}
	}
	if got := r.Missing(); got != own.size() {
		t.Errorf("%d slots are said to be missing, want the %d of the master that is away", got, own.size())
	}
	// The gate follows meanwhile. Only the deltas are written: some key of the batch might be the missing master's.
	b := NewBlock(floodRule, 1, strings.Repeat("a", 32), s.clock.now(), s.clock.now().Add(time.Hour))
	if err := s.writer.appendDeltas(t.Context(), "3", s.clock.now(), []delta{blockDelta(held{viewer, floodRule}, &b)}); err != nil {
		t.Fatal(err)
	}
	eventuallyHeld(t, r, s.clock, true)
	s.publish(floodRule, rules.ModeShadow)
	eventuallyHeld(t, r, s.clock, false)
	s.rules.modes[floodRule] = rules.ModeState{Rule: floodRule, Mode: rules.ModeBlock, Generation: 1}

	resume()
	testbed.Eventually(t, 30*time.Second, func() error {
		if n := r.Missing(); n != 0 {
			return fmt.Errorf("%d slots are missing", n)
		}
		return nil
	})
	if got, want := r.Len(), blocks+1; got != want {
		t.Errorf("%d blocks held once the master is back, want %d", got, want)
	}
}
