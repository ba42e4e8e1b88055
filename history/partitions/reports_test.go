package partitions_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

func TestPartitionReports(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx := t.Context()
	halted := ingest.PartitionStatus{Side: ingest.SideKeyed, Partition: 1, Owner: "b", State: "halted", Reason: "hole\x00",
		Offset: 7, End: 9, Epoch: 3, Watermark: traffic.At(time.Date(2026, 11, 1, 6, 0, 0, 0, time.UTC)), GapSource: 2, GapOffset: 5}
	first := []ingest.PartitionStatus{
		{Side: ingest.SideKeyed, Partition: 1, Owner: "a", State: "running", Epoch: 2},
		{Side: ingest.SideRequests, Partition: 0, Owner: "a", State: "running", Offset: 10, End: 12},
	}
	for _, report := range [][]ingest.PartitionStatus{first, {halted}, first, nil} {
		if err := b.Partitions.Report(ctx, streams.Live, report); err != nil {
			t.Fatal(err)
		}
	}
	states, err := b.Partitions.PartitionStates(ctx, streams.Live)
	if err != nil || len(states) != 2 {
		t.Fatalf("states %+v, %v", states, err)
	}
	halted.Reason = `hole\x00`
	if states[0].PartitionStatus != first[1] || states[1].PartitionStatus != halted {
		t.Errorf("got %+v; want requests first, and of keyed what the greater epoch said", states)
	}
}

func TestAcceptances(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	ctx := t.Context()
	gap := ingest.Acceptance{Side: ingest.SideKeyed, Partition: 1, GapSource: 2, GapOffset: 5, By: "ann", Reason: "retention"}
	other := gap
	other.GapOffset = 9
	for i, a := range []ingest.Acceptance{gap, other, gap} {
		if news, err := b.Partitions.Accept(ctx, streams.Live, "token", a); err != nil || news != (i < 2) {
			t.Fatal(news, err)
		}
	}
	got, err := b.Partitions.Accepted(ctx, streams.Live)
	if err != nil || !reflect.DeepEqual(got, []ingest.Acceptance{gap, other}) {
		t.Errorf("accepted %+v, %v", got, err)
	}
	entries, err := b.Audit.Of(ctx, "partition keyed/1 of live", 0)
	if err != nil || len(entries) != 2 || entries[0].Actor != "ann" ||
		entries[0].Action != "accept-gap" || entries[0].Via != "token" {
		t.Errorf("audit %+v, %v", entries, err)
	}
	if _, err := b.Streams.RecreateGeneration(ctx, streams.Live, 8, "ann", "topic was deleted"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Partitions.Accepted(ctx, streams.Live); err != nil || len(got) != 0 {
		t.Errorf("after recreation still %+v, %v", got, err)
	}
}
