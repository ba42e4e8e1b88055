package history_test

import (
	"fmt"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// Episodes near a limit, and over one on trial, are found by their kind alone: nothing that asks who was over a limit sees
// them, neither by rule, source and time nor in sums and views. They are joined from their records like others, and go with
// their replay.
func TestEpisodesBesideALimitAreToldApart(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	var hits []detectors.Hit
	kinds := []detectors.Kind{detectors.KindHit, detectors.KindNear, detectors.KindCandidate, detectors.KindCandidate}
	for n, kind := range kinds {
		h := hitNumber(n)
		h.Kind = kind
		hits = append(hits, h)
	}
	closed := hits[2]
	closed.Phase, closed.Count = detectors.PhaseClosed, closed.Count+5
	b.record(t, history.Live, closed, hits[0], hits[1], hits[2], hits[3], closed)
	b.record(t, "replay/monday", hits...)
	for kind, want := range map[detectors.Kind]string{
		"": "[0]", detectors.KindHit: "[0]", detectors.KindNear: "[1]", detectors.KindCandidate: "[3 2]", "attempt": "[]",
	} {
		q := history.HitQuery{Stream: history.Live, Kind: kind}
		if got := fmt.Sprint(b.offsets(t, q)); got != want {
			t.Errorf("kind %q: %s, want %s", kind, got, want)
		}
		if n, err := b.CountHits(t.Context(), q); err != nil || n != int64(len(b.offsets(t, q))) {
			t.Errorf("kind %q: counted %d, %v", kind, n, err)
		}
	}
	found, err := b.Hits(t.Context(), history.HitQuery{Stream: history.Live, Kind: detectors.KindCandidate, Rule: closed.Rule})
	if err != nil || found[1].Kind != detectors.KindCandidate || found[1].Count != closed.Count || found[1].Phase != detectors.PhaseClosed {
		t.Errorf("%+v, %v", found, err)
	}
	for i := range hits {
		byID, err := b.HitsByID(t.Context(), hits[i].ID, 5)
		if err != nil || len(byID) != 1 || byID[0].Stream != history.Live || byID[0].Kind != kinds[i] {
			t.Errorf("%s: %+v, %v", hits[i].ID, byID, err)
		}
	}
	sums, err := b.Summary(t.Context(), history.Live)
	if err != nil || len(sums) != 1 || sums[0].Episodes != 1 {
		t.Errorf("%+v, %v", sums, err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_v"); n != 2 {
		t.Errorf("hits_v has %d rows, want those of kind hit, 2", n)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_beside_v WHERE kind = 'candidate' AND phase = 'closed'"); n != 1 {
		t.Errorf("hits_beside_v has %d closed candidates", n)
	}
	if err := b.Streams.Delete(t.Context(), "replay/monday"); err != nil {
		t.Fatal(err)
	}
	if n := b.Number(t, "SELECT count(*) FROM weir.hits_beside_all"); n != 3 {
		t.Errorf("%d rows are left of the live stream's 3", n)
	}
}
