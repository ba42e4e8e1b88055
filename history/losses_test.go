package history_test

import (
	"strings"
	"testing"

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
