package historytest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// refused fails the test: all that it records can be stored.
type refused struct{ t testing.TB }

func (r refused) Put(_ context.Context, dead []traffic.DeadLetter) error {
	r.t.Errorf("dead letters: %+v", dead)
	return nil
}

func (b *Bed) days() history.Days {
	return retention.NewDays(b.Store, 0, func() traffic.Time { return traffic.At(time.Now()) })
}

// Recorder stores batches; they may come again.
type Recorder interface {
	Apply(ctx context.Context, batch []traffic.Message) error
}

// Apply stores a batch as RECORD's consumer does: again where PostgreSQL has not answered in time, as for a process that stood still.
func Apply(t testing.TB, recorder Recorder, batch []traffic.Message) {
	t.Helper()
	const tries = 3
	for try := 1; ; try++ {
		switch err := recorder.Apply(t.Context(), batch); {
		case err == nil:
			return
		case try == tries || !errors.Is(err, context.DeadlineExceeded):
			t.Fatal(err)
		}
	}
}

// Record stores hits of the live stream, as RECORD does.
func (b *Bed) Record(t testing.TB, hits ...detectors.Hit) {
	t.Helper()
	recorder, err := history.NewHitRecorder(b.Store, history.Live, "weir.hits", refused{t}, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]traffic.Message, len(hits))
	for i := range hits {
		if batch[i].Value, err = detectors.EncodeHit(&hits[i]); err != nil {
			t.Fatal(err)
		}
	}
	Apply(t, recorder, batch)
}

// Decide stores decisions about blocks of the live stream, as RECORD does.
func (b *Bed) Decide(t testing.TB, decisions ...blocklist.Decision) {
	t.Helper()
	recorder, err := history.NewDecisionRecorder(b.Store, history.Live, "weir.blocks", refused{t}, b.days(), prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	batch := make([]traffic.Message, len(decisions))
	for i := range decisions {
		if batch[i].Value, err = blocklist.EncodeDecision(&decisions[i]); err != nil {
			t.Fatal(err)
		}
	}
	Apply(t, recorder, batch)
}
