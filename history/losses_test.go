package history_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
)

// A loss that is told again, since its commit did not come about, is one row; another one is another.
func TestALossIsOneRow(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	if n, newest, err := b.Streams.RecentLosses(t.Context()); n != 0 || newest != "" || err != nil {
		t.Errorf("%d losses, %q, %v", n, newest, err)
	}
	lost := ingest.Loss{Stage: ingest.StageEnforce, Partition: 3, From: 25, Next: 5,
		Log: ingest.Bounds{Start: 0, End: 9}, Offsets: 4, Reason: "made\x00anew"}
	other := lost
	other.Log.End++
	for _, l := range []ingest.Loss{lost, lost, other} {
		if err := b.Streams.KeepLoss(t.Context(), history.Live, "weir.hits", l); err != nil {
			t.Fatal(err)
		}
	}
	for sql, want := range map[string]int64{
		"SELECT count(*) FROM weir.losses_v": 2,
		`SELECT count(*) FROM weir.losses_v WHERE source_partition = -1 AND keyed_partition = -1
			AND source_offset = 5 AND offsets = 4 AND generation > 0
			AND seen <= now() AND reason LIKE 'stage enforce, topic weir.hits, partition 3: made%anew'`: 2,
	} {
		if got := b.Number(t, sql); got != want {
			t.Errorf("%s: %d, want %d", sql, got, want)
		}
	}
	if n, newest, err := b.Streams.RecentLosses(t.Context()); n != 2 ||
		!strings.HasPrefix(newest, "stage enforce, topic weir.hits, partition 3: made") || err != nil {
		t.Errorf("%d losses, %q, %v", n, newest, err)
	}
	b.Run(t, "UPDATE weir.losses SET recorded_at = now() - interval '25 hours'")
	if n, _, err := b.Streams.RecentLosses(t.Context()); n != 0 || err != nil {
		t.Errorf("%d losses of yesterday, %v", n, err)
	}
}

// What an operator has given up names him in history: a gap of requests, which every keyed partition tells of, a hole
// that one of them has found, and a stretch of its log. What retention took names nobody.
func TestLossesNameWhoAcceptedThem(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	gaps := []ingest.Acceptance{
		{Side: ingest.SideRequests, Partition: 4, GapSource: 4, GapOffset: 70, By: "ann"},
		{Side: ingest.SideKeyed, Partition: 3, GapSource: 4, GapOffset: 80, By: "bob"},
		{Side: ingest.SideKeyed, Partition: 3, GapSource: ingest.GapInKeyed, GapOffset: 90, By: "cyd"},
	}
	for _, a := range gaps {
		a.Reason = "a disk"
		if _, err := b.Partitions.Accept(t.Context(), history.Live, "token", a); err != nil {
			t.Fatal(err)
		}
	}
	var hits []detectors.Hit
	lost := func(source int, offset int64, keyed int) {
		hits = append(hits, detectors.Hit{
			Format: detectors.HitFormat, Kind: detectors.KindLoss, ID: fmt.Sprint("loss-", len(hits)), Generation: 1,
			Source: source, Offset: offset, Keyed: keyed, Count: 10, First: dawn, Seen: dawn, Reason: "gone",
		})
	}
	lost(4, 70, 0)
	lost(4, 80, 3)
	lost(ingest.GapInKeyed, 90, 3)
	lost(ingest.GapInKeyed, 90, 2) // of another partition
	lost(4, 81, 3)
	b.record(t, history.Live, hits...)
	rows, err := b.Conn.Query(t.Context(), "SELECT accepted_by FROM weir.losses_v ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if want := []string{"ann", "bob", "cyd", "", ""}; err != nil || !slices.Equal(got, want) {
		t.Errorf("accepted by %q, %v; want %q", got, err, want)
	}
}
