package history_test

import (
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// How much a list leaves out is counted under the conditions of the list, and not under its limit.
func TestRowsAreCountedBeyondTheLimit(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var hits []detectors.Hit
	for n := range 7 {
		h := hitNumber(n)
		h.Rule = []string{"even", "odd"}[n%2]
		hits = append(hits, h)
	}
	b.record(t, history.Live, hits...)
	b.record(t, "replay/monday", hits[:2]...)
	for _, tt := range []struct {
		query history.HitQuery
		want  int64
	}{
		{history.HitQuery{Stream: history.Live, Limit: 2}, 7},
		{history.HitQuery{Stream: history.Live, Rule: "odd", Limit: 2}, 3},
		{history.HitQuery{Stream: "replay/monday", Limit: 1}, 2},
		{history.HitQuery{Rule: "none"}, 0},
	} {
		if got, err := b.CountHits(t.Context(), tt.query); err != nil || got != tt.want {
			t.Errorf("%+v: counted %d, %v; want %d", tt.query, got, err, tt.want)
		}
	}
}
