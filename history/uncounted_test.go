package history_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestWhatRulesDidNotCount(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	sum := func(n int, kind detectors.Kind, reason string, minute int, events int64) detectors.Hit {
		return detectors.Hit{Format: detectors.HitFormat, Kind: kind, ID: fmt.Sprint("sum-", n), Rule: "flood", Lineage: 1, Reason: reason,
			Count: events, First: dawn.Add(time.Duration(minute) * time.Minute), Last: dawn, Seen: dawn, Source: n, Keyed: 3}
	}
	late, early := sum(0, detectors.KindLate, "", 0, 5), sum(1, detectors.KindUncounted, "out_of_order", 1, 7)
	greater := early
	greater.Count = 9
	b.record(t, history.Live, late, greater, early, late)
	b.record(t, history.Live, early, sum(2, detectors.KindUncounted, "out_of_order", 2, 1))
	routed := []detectors.RoutedUncounted{
		{Router: "a", Rule: "flood", Reason: detectors.UncountedMissingField, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 40},
		{Router: "b", Rule: "flood", Reason: detectors.UncountedMissingField, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 2},
		{Router: "b", Rule: "other", Reason: detectors.UncountedMissingValue, Minute: dawn.Add(2 * time.Minute), Seen: dawn, Events: 3},
		{Router: "b", Rule: "dear", Reason: detectors.UncountedBudget, Minute: dawn.Add(2 * time.Minute), Seen: dawn,
			Events: 222},
	}
	for _, events := range []int64{40, 44, 41} {
		routed[0].Events = events
		if err := b.StoreUncounted(t.Context(), history.Live, routed); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.StoreUncounted(t.Context(), "replay/monday", routed); err != nil {
		t.Fatal(err)
	}
	figures := func(stream string, since traffic.Time, rule string) history.Figures {
		t.Helper()
		n, err := b.NotCounted(t.Context(), stream, since)
		if err != nil {
			t.Fatal(err)
		}
		return n.Figures(rule)
	}
	unknown := history.UnknownFigures()
	unknown.Late = 5
	if got := figures(history.Live, 0, "flood"); got != unknown {
		t.Errorf("without a routing version %v, want %v", got, unknown)
	}
	b.PublishRecordFormat(t, rules.UncountedRecordFormat-1)
	began := traffic.At(time.Now())
	if got := figures(history.Live, 0, "flood"); got != unknown {
		t.Errorf("while processes may be there that do not tell %v, want %v", got, unknown)
	}
	b.PublishRecordFormat(t, rules.UncountedRecordFormat)
	if got := figures(history.Live, began, "flood").OutOfOrder; got != history.UnknownFigure {
		t.Errorf("in a time of which they were there a part: %v", got)
	}
	b.Run(t, "DELETE FROM weir.routing_versions WHERE number = 1")
	for _, tt := range []struct {
		since traffic.Time
		rule  string
		want  history.Figures
	}{
		{0, "flood", history.Figures{Late: 5, OutOfOrder: 10, MissingField: 46}},
		{dawn.Add(2 * time.Minute), "flood", history.Figures{OutOfOrder: 1, MissingField: 46}},
		{0, "other", history.Figures{MissingValue: 3}},
		{0, "dear", history.Figures{Budget: 222}},
		{0, "none", history.Figures{}},
	} {
		if got := figures(history.Live, tt.since, tt.rule); got != tt.want {
			t.Errorf("%s since %v: %v, want %v", tt.rule, tt.since, got, tt.want)
		}
	}
	rows, err := b.Uncounted(t.Context(), history.UncountedQuery{Stream: history.Live, Rule: "flood", Since: dawn.Add(time.Minute)})
	var got []string
	for _, r := range rows {
		got = append(got, fmt.Sprint(r.Reason, " ", r.Events, " ", r.Source != nil))
	}
	want := []string{"missing_field 44 false", "missing_field 2 false", "out_of_order 1 true", "out_of_order 9 true"}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("got %q, %v; want %q", got, err, want)
	}
	if rows, err = b.Uncounted(t.Context(), history.UncountedQuery{Reason: "late"}); err != nil || len(rows) != 1 || rows[0].Events != 5 {
		t.Errorf("late ones: %+v, %v", rows, err)
	}
	if err := b.Streams.Delete(t.Context(), "replay/monday"); err != nil {
		t.Fatal(err)
	}
	if rows, err = b.Uncounted(t.Context(), history.UncountedQuery{Stream: "replay/monday"}); err != nil || len(rows) > 0 {
		t.Errorf("a replay that was deleted has left %+v, %v", rows, err)
	}
}

// What is not known is null, so that nobody takes it for 0.
func TestUnknownFiguresAreNull(t *testing.T) {
	t.Parallel()
	f := history.UnknownFigures()
	f.Late = 3
	raw, err := json.Marshal(f)
	if want := `{"late":3,"out_of_order":null,"missing_field":null,"missing_value":null,"budget":null}`; err != nil ||
		string(raw) != want {
		t.Fatalf("%s, %v; want %s", raw, err, want)
	}
	var again history.Figures
	if err := json.Unmarshal(raw, &again); err != nil || again != f {
		t.Errorf("read back %v, %v", again, err)
	}
}
