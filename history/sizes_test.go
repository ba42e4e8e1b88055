package history_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
)

// sizes are what the metric says, by table.
func sizes(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
		}
	}
	return of
}

// newSizes are the sizes of a store's tables, which nobody reads yet, in a registry of their own.
func newSizes(t *testing.T, store *history.Store) (*history.Sizes, *prometheus.Registry) {
	t.Helper()
	registry := prometheus.NewRegistry()
	s, err := history.NewSizes(store, registry)
	if err != nil {
		t.Fatal(err)
	}
	return s, registry
}

// runSizes reads sizes, the first ones at once, until the returned function is called.
func runSizes(t *testing.T, s *history.Sizes) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestSizesAreThoseOfTheTables(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	b.Run(t, `CREATE TABLE weir.by_day (day int, text text) PARTITION BY RANGE (day)`)
	b.Run(t, `CREATE TABLE weir.by_day_1 PARTITION OF weir.by_day FOR VALUES FROM (1) TO (2)`)
	b.Run(t, `INSERT INTO weir.by_day SELECT 1, repeat('x', 1000) FROM generate_series(1, 1000)`)
	var batch []detectors.Hit
	for n := range 200 {
		batch = append(batch, hitNumber(n))
	}
	if err := b.hitRecorder(t, &letterBox{}).Apply(t.Context(), messages(t, batch...)); err != nil {
		t.Fatal(err)
	}
	s, registry := newSizes(t, b.Store)
	defer runSizes(t, s)()
	testbed.Eventually(t, 20*time.Second, func() error {
		of := sizes(t, registry)
		if of["hits"] == 0 {
			return fmt.Errorf("shown %v", of)
		}
		return nil
	})
	of := sizes(t, registry)
	if want := float64(b.Number(t, "SELECT pg_total_relation_size('weir.hits')")); of["hits"] != want || of["hits"] <= of["losses"] {
		t.Errorf("hits take %v bytes, an empty table %v; PostgreSQL says %v", of["hits"], of["losses"], want)
	}
	if _, ok := of["by_day_1"]; ok || of["by_day"] < 1_000_000 {
		t.Errorf("a partitioned table of a megabyte: %v", of)
	}
	if _, ok := of["block_decisions"]; !ok {
		t.Errorf("shown %v", of)
	}
}

// While PostgreSQL does not answer, no size is better than an old one.
func TestSizesOfAServerThatIsAway(t *testing.T) {
	t.Parallel()
	b := newBed(t)
	s, registry := newSizes(t, b.Store)
	shown := func(some bool) {
		t.Helper()
		stop := runSizes(t, s)
		defer stop()
		testbed.Eventually(t, 20*time.Second, func() error {
			if of := sizes(t, registry); some != (len(of) > 0) {
				return fmt.Errorf("shown %v", of)
			}
			return nil
		})
	}
	shown(true)
	b.Store.Close() // nobody answers from now on
	shown(false)
}
