package partitions_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
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

// TestAcceptancesAreOfOneStop: what was accepted once lets a partition of requests go on once. A later stop before a
// gap of the same numbers, as where a commit is lost a second time or a topic was made anew, is another one. A stage
// that is started anew, or that accepts on the way, stands as it stood.
func TestAcceptancesAreOfOneStop(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	ctx := t.Context()
	source := 1
	report := func(side ingest.Side, state ingest.State, gap int64, owner string) {
		t.Helper()
		if err := b.Partitions.Report(ctx, streams.Live, []ingest.PartitionStatus{{Side: side, Partition: 1,
			Owner: owner,
			State: state, Reason: "the group has no commit", GapSource: source, GapOffset: gap,
			Epoch: 1}}); err != nil {
			t.Fatal(err)
		}
	}
	accept := func(side ingest.Side, gap int64, want bool) {
		t.Helper()
		news, err := b.Partitions.Accept(ctx, streams.Live, "token",
			ingest.Acceptance{Side: side, Partition: 1, GapSource: source,
				GapOffset: gap, By: "ann", Reason: "retention"})
		if err != nil || news != want {
			t.Errorf("accepting %s before %d: news %t, %v; want %t", side, gap, news, err, want)
		}
	}
	holds := func(when string, want int) {
		t.Helper()
		if got, err := b.Partitions.Accepted(ctx, streams.Live); err != nil || len(got) != want {
			t.Errorf("%s: %v hold, %v; want %d", when, got, err, want)
		}
	}
	const requests, keyed = ingest.SideRequests, ingest.SideKeyed
	report(requests, ingest.Refused, 0, "a")
	holds("nobody has accepted", 0)
	accept(requests, 0, true)
	accept(requests, 0, false)
	report(requests, ingest.Refused, 0, "b") // started anew, before it passed
	holds("accepted", 1)
	accept(requests, 0, false)
	report(requests, ingest.Running, -1, "b")
	holds("passed", 0)
	report(requests, ingest.Refused, 0, "b")
	holds("stopped a second time", 0)
	accept(requests, 0, true)
	holds("accepted a second time", 1)
	report(requests, ingest.Refused, 7, "b") // records behind it are gone, too
	report(requests, ingest.Refused, 0, "c") // and the topic was made anew
	holds("before another gap meanwhile", 0)
	if n := b.Number(t, "SELECT count(*) FROM weir.audit WHERE action = 'accept-gap'"); n != 2 {
		t.Errorf("the audit trail has %d acceptances, want 2", n)
	}

	report(keyed, ingest.Halted, 5, "a")
	accept(keyed, 5, true)
	report(keyed, ingest.Running, -1, "a")
	report(keyed, ingest.Halted, 5, "b") // which begins at a snapshot of before the gap
	accept(keyed, 5, false)
	holds("a keyed partition that folds its log again", 1)

	source = ingest.KeyedAnew
	report(keyed, ingest.Halted, 5, "b")
	accept(keyed, 5, true)
	report(keyed, ingest.Halted, 5, "c") // started anew, before it went on
	holds("a keyed log that was made anew", 2)
	report(keyed, ingest.Running, -1, "c")
	report(keyed, ingest.Halted, 5, "c")
	holds("a keyed log that was made anew a second time", 1)
	accept(keyed, 5, true)
	holds("accepted a second time as well", 2)
}
