package history_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// naiveCheckpoints is Checkpoints for one partition, as the contract says it.
type naiveCheckpoints struct {
	epoch int64
	owner string
	kept  []detectors.Checkpoint // newest first
}

func (n *naiveCheckpoints) take(owner string, held int64) detectors.Claim {
	if held != 0 && held == n.epoch && owner == n.owner {
		return detectors.Claim{Epoch: held, Kept: true}
	}
	n.epoch, n.owner = n.epoch+1, owner
	return detectors.Claim{Epoch: n.epoch, Generations: append([]detectors.Checkpoint{}, n.kept...)}
}

func (n *naiveCheckpoints) write(cp detectors.Checkpoint) bool {
	if n.epoch == 0 || cp.Epoch != n.epoch {
		return false
	}
	if len(n.kept) > 0 && n.kept[0].Epoch == cp.Epoch && n.kept[0].Offset == cp.Offset {
		n.kept[0] = cp
		return true
	}
	n.kept = append([]detectors.Checkpoint{cp}, n.kept...)
	n.kept = n.kept[:min(2, len(n.kept))]
	return true
}

func TestCheckpointsAgainstNaive(t *testing.T) {
	b := newBed(t)
	partition := 0
	rapid.Check(t, func(r *rapid.T) {
		partition++
		naive := &naiveCheckpoints{}
		owners := rapid.SampledFrom([]string{"a", "b", "c"})
		epochs := func(label string) int64 { return rapid.Int64Range(0, naive.epoch+1).Draw(r, label) }
		r.Repeat(map[string]func(*rapid.T){
			"take": func(r *rapid.T) {
				owner, held := owners.Draw(r, "owner"), epochs("held")
				want := naive.take(owner, held)
				got, err := b.Take(t.Context(), history.Live, partition, owner, held)
				if err != nil {
					r.Fatal(err)
				}
				if got.Generations == nil && len(want.Generations) == 0 {
					got.Generations = want.Generations
				}
				if !reflect.DeepEqual(got, want) {
					r.Fatalf("take by %s holding %d: got %+v, want %+v", owner, held, got, want)
				}
			},
			"write": func(r *rapid.T) {
				cp := detectors.Checkpoint{Epoch: epochs("epoch"), Offset: rapid.Int64Range(0, 5).Draw(r, "offset"),
					Data: rapid.SliceOfN(rapid.Byte(), 0, 20).Draw(r, "data")}
				err := b.Write(t.Context(), history.Live, partition, cp)
				if naive.write(cp) != (err == nil) || err != nil && !errors.Is(err, detectors.ErrFenced) {
					r.Fatalf("write of %+v at epoch %d: %v", cp, naive.epoch, err)
				}
			},
		})
	})
}

// tenure is what one taker of a partition found and did.
type tenure struct {
	claim detectors.Claim
	wrote int64 // the last offset that was acknowledged under the claim; 0 for none
	err   error
}

// hold takes the partition and writes five checkpoints, or as many as it is let.
func (b *bed) hold(t *testing.T, owner string) tenure {
	claim, err := b.Take(t.Context(), history.Live, 1, owner, 0)
	held := tenure{claim: claim, err: err}
	for offset := int64(1); offset <= 5 && err == nil; offset++ {
		err = b.Write(t.Context(), history.Live, 1, detectors.Checkpoint{Epoch: claim.Epoch, Offset: offset, Data: []byte{1}})
		if err == nil {
			held.wrote = offset
		} else if !errors.Is(err, detectors.ErrFenced) {
			held.err = err
		}
	}
	return held
}

// Every taker writes as long as it is let; each must find, in what it took, the last write that was acknowledged.
func TestConcurrentTakersAreFenced(t *testing.T) {
	b := newBed(t)
	const takers, rounds = 4, 25
	all := make([][]tenure, takers)
	var wg sync.WaitGroup
	for i := range takers {
		wg.Go(func() {
			for range rounds {
				all[i] = append(all[i], b.hold(t, fmt.Sprint("owner-", i)))
			}
		})
	}
	wg.Wait()
	byEpoch := make(map[int64]tenure)
	for _, held := range slices.Concat(all...) {
		if held.err != nil {
			t.Fatal(held.err)
		}
		byEpoch[held.claim.Epoch] = held
	}
	if len(byEpoch) != takers*rounds {
		t.Fatalf("%d takers got %d epochs", takers*rounds, len(byEpoch))
	}
	var wrote detectors.Checkpoint
	for epoch := int64(1); epoch <= takers*rounds; epoch++ {
		held := byEpoch[epoch]
		var newest detectors.Checkpoint
		if len(held.claim.Generations) > 0 {
			newest = held.claim.Generations[0]
		}
		if newest.Epoch != wrote.Epoch || newest.Offset != wrote.Offset {
			t.Fatalf("epoch %d found epoch %d offset %d newest, acknowledged was epoch %d offset %d",
				epoch, newest.Epoch, newest.Offset, wrote.Epoch, wrote.Offset)
		}
		if held.wrote > 0 {
			wrote = detectors.Checkpoint{Epoch: epoch, Offset: held.wrote}
		}
	}
}

func TestPartitionReports(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	halted := detectors.PartitionState{Side: detectors.SideKeyed, Partition: 1, Owner: "b", State: "halted", Reason: "hole\x00",
		Offset: 7, End: 9, Epoch: 3, Watermark: dawn, GapSource: 2, GapOffset: 5}
	first := []detectors.PartitionState{
		{Side: detectors.SideKeyed, Partition: 1, Owner: "a", State: "running", Epoch: 2},
		{Side: detectors.SideRequests, Partition: 0, Owner: "a", State: "running", Offset: 10, End: 12},
	}
	for _, report := range [][]detectors.PartitionState{first, {halted}, first, nil} {
		if err := b.Report(ctx, history.Live, report); err != nil {
			t.Fatal(err)
		}
	}
	states, err := b.PartitionStates(ctx, history.Live)
	if err != nil || len(states) != 2 {
		t.Fatalf("states %+v, %v", states, err)
	}
	halted.Reason = `hole\x00`
	if states[0].PartitionState != first[1] || states[1].PartitionState != halted {
		t.Errorf("got %+v; want requests first, and of keyed what the greater epoch said", states)
	}
}

func TestAcceptances(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	gap := detectors.Acceptance{Side: detectors.SideKeyed, Partition: 1, GapSource: 2, GapOffset: 5, By: "ann", Reason: "retention"}
	other := gap
	other.GapOffset = 9
	for _, a := range []detectors.Acceptance{gap, other, gap} {
		if err := b.Accept(ctx, history.Live, a); err != nil {
			t.Fatal(err)
		}
	}
	got, err := b.Accepted(ctx, history.Live)
	if err != nil || !reflect.DeepEqual(got, []detectors.Acceptance{gap, other}) {
		t.Errorf("accepted %+v, %v", got, err)
	}
	entries, err := b.Audit(ctx, "partition keyed/1 of live", 0)
	if err != nil || len(entries) != 2 || entries[0].Actor != "ann" || entries[0].Action != "accept-gap" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if _, err := b.RecreateGeneration(ctx, history.Live, 8, "ann", "topic was deleted"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Accepted(ctx, history.Live); err != nil || len(got) != 0 {
		t.Errorf("after recreation still %+v, %v", got, err)
	}
}
