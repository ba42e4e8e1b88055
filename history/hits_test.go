package history_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/traffic"
)

func TestHitsByRuleTimeAndStream(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var hits []detectors.Hit
	for n := range 6 {
		h := hitNumber(n)
		h.Rule = []string{"even", "odd"}[n%2]
		hits = append(hits, h)
	}
	hits[5].Phase = detectors.PhaseMerged
	b.record(t, history.Live, hits...)
	b.record(t, "replay/monday", hits[:2]...)
	tests := []struct {
		name  string
		query history.HitQuery
		want  string
	}{
		{"all", history.HitQuery{}, "[4 3 2 1 1 0 0]"},
		{"live", history.HitQuery{Stream: "live"}, "[4 3 2 1 0]"},
		{"merged too", history.HitQuery{Stream: "live", Merged: true}, "[5 4 3 2 1 0]"},
		{"rule", history.HitQuery{Stream: "live", Rule: "even"}, "[4 2 0]"},
		{"replay", history.HitQuery{Stream: "replay/monday"}, "[1 0]"},
		{"since", history.HitQuery{Stream: "live", Since: hits[3].First}, "[4 3]"},
		{"until", history.HitQuery{Stream: "live", Until: hits[3].First}, "[2 1 0]"},
		{"limit", history.HitQuery{Stream: "live", Limit: 2}, "[4 3]"},
	}
	for _, tt := range tests {
		if got := fmt.Sprint(b.offsets(t, tt.query)); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
	if err := b.Streams.Delete(t.Context(), "replay/monday"); err != nil {
		t.Fatal(err)
	}
	if got, err := b.Hits(t.Context(), history.HitQuery{}); err != nil || len(got) != 5 {
		t.Errorf("after deleting the replay %d hits, %v; want those of live", len(got), err)
	}
}

func TestSummaryLateAndLosses(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	hits := []detectors.Hit{hitNumber(0), hitNumber(1), hitNumber(2), hitNumber(3)}
	hits[1].Subject = hits[0].Subject
	hits[2].Count, hits[2].Phase = 40, detectors.PhaseClosed
	hits[3].Phase = detectors.PhaseMerged
	late := func(n int, rule string, events int64) detectors.Hit {
		return detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindLate, ID: fmt.Sprint("late-", n), Rule: rule, Lineage: 1,
			Count: events, First: dawn.Add(time.Duration(n) * time.Minute), Last: dawn, Seen: dawn, Source: n, Keyed: 3}
	}
	loss := detectors.Hit{Format: detectors.HitFormat, Kind: detectors.KindLoss, ID: "loss", Generation: 1, Source: -1, Offset: 20, Keyed: 3,
		Count: 10, First: traffic.BeforeTime, Seen: dawn, Reason: "retention"}
	b.record(t, history.Live, append(hits, late(0, "flood", 5), late(1, "flood", 6), late(1, "flood", 7), late(2, "other", 1), loss, loss)...)

	summary, err := b.Summary(t.Context(), history.Live)
	want := []history.RuleSummary{{Rule: "flood", Episodes: 3, Sources: 2, Events: 42, Late: 12}, {Rule: "other", Late: 1}}
	if err != nil || !reflect.DeepEqual(summary, want) {
		t.Errorf("summary %+v, %v; want %+v", summary, err, want)
	}
	sums, err := b.Late(t.Context(), history.LateQuery{Rule: "flood", Since: dawn.Add(time.Second)})
	wantLate := []history.LateSum{{Stream: "live", Rule: "flood", Lineage: 1, Source: 1, Keyed: 3, Minute: dawn.Add(time.Minute), Latest: dawn, Events: 7}}
	if err != nil || len(sums) != 1 || *sums[0].Place() != (history.Place{At: dawn.Add(time.Minute), ID: "flood/late-1"}) {
		t.Fatalf("late %+v, %v", sums, err)
	}
	if wrote, err := json.Marshal(sums); err != nil || string(wrote) != jsonOf(t, wantLate) {
		t.Errorf("late %+v, %v; want %+v", sums, err, wantLate)
	}
	var losses int
	var retention, told string
	err = b.Conn.QueryRow(t.Context(), "SELECT count(*), min(reason), min(watermark)::text FROM weir.losses_v WHERE stream = 'live' AND offsets = 10").
		Scan(&losses, &retention, &told)
	if err != nil || losses != 1 || retention != "retention" || told != "-infinity" {
		t.Errorf("%d losses for %q, watermark %s, %v", losses, retention, told, err)
	}
}

func jsonOf(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
