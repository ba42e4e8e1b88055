package history

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
)

// recordMetrics are shared by all recorders of a process. What could not be stored is among the dead letters, and batches
// that failed are RECORD's as a stage.
type recordMetrics struct {
	rows *prometheus.CounterVec // table
}

// newRecordMetrics makes the metrics of a recorder that writes these tables.
func newRecordMetrics(registry prometheus.Registerer, tables ...string) (*recordMetrics, error) {
	rows := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_history_rows_recorded_total", Help: "Records stored in history, by table; several may tell of one row.",
	}, []string{"table"})
	var err error
	m := &recordMetrics{rows: ingest.Published(registry, rows, &err)}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	for _, table := range tables {
		m.rows.WithLabelValues(table)
	}
	return m, nil
}

// leftOutMetrics count what the bounds of history leave out.
type leftOutMetrics struct{ rows, samples prometheus.Counter }

func newLeftOutMetrics(registry prometheus.Registerer) (*leftOutMetrics, error) {
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_history_left_out_total",
		Help: "Rows of episodes, and samples of rows, that history has left out, by the bound that left them out: rows_per_minute, samples_per_minute.",
	}, []string{"reason"})
	var err error
	counter = ingest.Published(registry, counter, &err)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &leftOutMetrics{counter.WithLabelValues("rows_per_minute"), counter.WithLabelValues("samples_per_minute")}, nil
}

// stored adds records by their tables.
func (m *recordMetrics) stored(records map[string]int) {
	for table, n := range records {
		m.rows.WithLabelValues(table).Add(float64(n))
	}
}
