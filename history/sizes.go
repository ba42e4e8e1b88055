package history

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
)

const (
	sizesEvery   = time.Minute
	sizesTimeout = 10 * time.Second
)

// Sizes shows how large history's tables are, as PostgreSQL said last: a scrape asks nobody. While it does not answer, or
// before it has, nothing is shown.
type Sizes struct {
	store *Store
	bytes *prometheus.Desc

	mu sync.Mutex
	of map[string]int64 // by table
}

var _ prometheus.Collector = (*Sizes)(nil)

// NewSizes registers the metric; Run reads.
func NewSizes(store *Store, registry prometheus.Registerer) (*Sizes, error) {
	s := &Sizes{store: store, bytes: prometheus.NewDesc("weir_history_size_bytes",
		"Bytes on disk that a table of history takes with its indexes and partitions, read once a minute.", []string{"table"}, nil)}
	if err := registry.Register(s); err != nil {
		return nil, fmt.Errorf("history: sizes of tables: %w", err)
	}
	return s, nil
}

// Run reads the sizes until ctx is done. That PostgreSQL does not answer is told by who needs it.
func (s *Sizes) Run(ctx context.Context) error {
	ticker := time.NewTicker(sizesEvery)
	defer ticker.Stop()
	for {
		s.read(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (s *Sizes) read(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, sizesTimeout)
	defer cancel()
	of, err := s.store.tableSizes(ctx)
	if err != nil {
		of = nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of = of
}

// tableSizes asks for the sizes of all tables of the schema; a partitioned one has those of its partitions.
func (s *Store) tableSizes(ctx context.Context) (map[string]int64, error) {
	const doing = "asking for the sizes of tables"
	rows, err := s.Query(ctx, `
		SELECT c.relname, (pg_total_relation_size(c.oid) + coalesce((
			SELECT sum(pg_total_relation_size(p.relid)) FROM pg_partition_tree(c.oid) p WHERE p.relid <> c.oid), 0))::bigint
		FROM pg_class c WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition`)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	of := map[string]int64{}
	var table string
	var size int64
	if _, err := pgx.ForEachRow(rows, []any{&table, &size}, func() error { of[table] = size; return nil }); err != nil {
		return nil, s.Fail(doing, err)
	}
	return of, nil
}

// Describe implements prometheus.Collector.
func (s *Sizes) Describe(ch chan<- *prometheus.Desc) { ch <- s.bytes }

// Collect implements prometheus.Collector.
func (s *Sizes) Collect(ch chan<- prometheus.Metric) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for table, size := range s.of {
		ch <- prometheus.MustNewConstMetric(s.bytes, prometheus.GaugeValue, float64(size), table)
	}
}
