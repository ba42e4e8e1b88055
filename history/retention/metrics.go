package retention

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	days     *prometheus.GaugeVec   // table
	dropped  *prometheus.CounterVec // table
	expired  *prometheus.CounterVec // table
	failures prometheus.Counter
	hours    prometheus.Counter
	again    prometheus.Counter
}

func newMetrics(registry prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		days: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_history_partitions", Help: "Days that a table of history has, those made ahead included, as of the last minute.",
		}, []string{"table"}),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_history_partitions_dropped_total", Help: "Days of history that were dropped since they were older than history.retention, by table.",
		}, []string{"table"}),
		expired: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_history_rows_expired_total", Help: "Rows that were deleted from tables without days since they were older than history.retention, by table.",
		}, []string{"table"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_history_retention_failures_total", Help: "Times that keeping history within its time failed; it is tried again a minute later.",
		}),
		hours: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_history_sums_made_total", Help: "Hours of history that were summed up for questions about days and months.",
		}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_history_sums_renewed_total", Help: "Sums of a rule in an hour of history that were made again, since rows had changed.",
		}),
	}
	for _, c := range []prometheus.Collector{m.days, m.dropped, m.expired, m.failures, m.hours, m.again} {
		if err := registry.Register(c); err != nil {
			return nil, fmt.Errorf("retention of history: %w", err)
		}
	}
	for _, table := range Tables() {
		m.dropped.WithLabelValues(table)
	}
	m.expired.WithLabelValues(pointsTable)
	for _, over := range withoutDays() {
		m.expired.WithLabelValues(over.table)
	}
	return m, nil
}
