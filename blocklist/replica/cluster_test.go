package replica

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func (s *slotSet) has(slot int) bool { return s[slot/64]&(1<<(slot%64)) != 0 }

func holdsDevice(r *Replica, c *blocktest.Clock, i int) bool {
	_, held := r.Find(traffic.Identity{Device: fmt.Sprint(i)}, rules.Target{Method: "POST", Path: "/"}, c.Now())
	return held
}

func startReplica(t testing.TB, s *blocktest.Stage) *Replica {
	t.Helper()
	r, err := New(Options{Store: s.Store, Clock: s.Clock.Now, Logger: blocktest.Quiet(), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	blocktest.Run(t, r.Run)
	return r
}

// Slots move from a master that is still to be read to one that has been. Nobody's SCAN shows their keys; the load reads
// them once more where they went, and does not call itself whole while a slot lies on two masters.
func TestLoadDuringReshardingLosesNothing(t *testing.T) {
	const blocks, moved = 20_000, 300
	nodes := blocktest.StartCluster(t)
	gate := &scanGate{}
	s := blocktest.ClusterStage(t, nodes, nodes[2], gate)
	s.PublishModes()
	s.Fill(blocks)
	open := gate.close()
	r := startReplica(t, s)
	eventually(t, "two of three masters read", func() bool {
		return gate.waiting.Load() > 0 && r.Len() > blocks/2 && r.Len() == loadedFrom(t, nodes[:2])
	})
	first := slotCount - moved
	for slot := first; slot < slotCount; slot++ {
		nodes[2].MoveKeys(slot, nodes[0])
		if slot%2 == 0 {
			nodes[2].GiveSlot(slot, nodes[0])
		}
	}
	open()
	eventually(t, "read but for the slots that lie on two masters", func() bool { return r.Missing() == moved/2 })
	if !r.Ready() {
		t.Error("not ready with all but a few slots read")
	}
	for slot := first + 1; slot < slotCount; slot += 2 {
		nodes[2].GiveSlot(slot, nodes[0])
	}
	testbed.Eventually(t, 30*time.Second, func() error {
		if n := r.Missing(); n != 0 {
			return fmt.Errorf("%d slots are missing", n)
		}
		return nil
	})
	lost := 0
	for i := range blocks {
		if !holdsDevice(r, s.Clock, i) {
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
func loadedFrom(t testing.TB, nodes []*blocktest.OwnRedis) int {
	n := 0
	for _, node := range nodes {
		keys, err := node.Client.Keys(t.Context(), "*:block:*").Result()
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
	t.Parallel()
	const blocks = 3000
	nodes := blocktest.StartCluster(t)
	s := blocktest.ClusterStage(t, nodes, nodes[0], &scanGate{})
	s.PublishModes()
	s.Fill(blocks)
	modesAt, err := nodes[0].Client.ClusterKeySlot(t.Context(), s.Keys.Rules()).Result()
	if err != nil {
		t.Fatal(err)
	}
	gone := nodes[2]
	if modesAt >= 10923 {
		gone = nodes[0]
	}
	own, err := ownSlots(gone.Do("cluster", "nodes"))
	if err != nil {
		t.Fatal(err)
	}
	there := make([]bool, blocks)
	for i := range there {
		slot, err := nodes[1].Client.ClusterKeySlot(t.Context(), s.Keys.Block(traffic.Subject(fmt.Sprint("device=", i)), blocktest.FloodRule)).Result()
		if err != nil {
			t.Fatal(err)
		}
		there[i] = !own.has(int(slot))
	}
	resume := gone.Pause()
	r := startReplica(t, s)
	testbed.Eventually(t, 30*time.Second, func() error {
		if !r.Ready() {
			return fmt.Errorf("not ready; %d blocks", r.Len())
		}
		return nil
	})
	for i, want := range there {
		if want && !holdsDevice(r, s.Clock, i) {
			t.Fatalf("block %d, of a master that answers, is not held", i)
		}
	}
	if got := r.Missing(); got != own.size() {
		t.Errorf("%d slots are said to be missing, want the %d of the master that is away", got, own.size())
	}
	// The gate follows meanwhile. Only the deltas are written: some key of the batch might be the missing master's.
	b := blocklist.NewBlock(blocktest.FloodRule, 1, strings.Repeat("a", 32), s.Clock.Now(), s.Clock.Now().Add(time.Hour))
	if err := s.Writer.Tell(t.Context(), "3", s.Clock.Now(), []blocklist.Delta{blocklist.BlockDelta(blocklist.Name{Subject: blocktest.Viewer, Rule: blocktest.FloodRule}, &b)}); err != nil {
		t.Fatal(err)
	}
	blocktest.EventuallyHeld(t, r, s.Clock, true)
	s.Publish(blocktest.FloodRule, rules.ModeShadow)
	blocktest.EventuallyHeld(t, r, s.Clock, false)
	s.Rules.States[blocktest.FloodRule] = rules.ModeState{Rule: blocktest.FloodRule, Mode: rules.ModeBlock, Generation: 1}

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
