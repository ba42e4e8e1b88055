package reconcile

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
)

type reconcilerMetrics struct {
	runs       *prometheus.CounterVec // cause
	changes    *prometheus.CounterVec // outcome
	compared   prometheus.Counter
	unasserted prometheus.Gauge
	failures   prometheus.Counter
}

func newReconcilerMetrics(to prometheus.Registerer) (*reconcilerMetrics, error) {
	m := &reconcilerMetrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reconcile_runs_total", Help: "Times that all blocks were asserted anew in Redis."}, []string{"cause"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reconcile_changes_total", Help: "Blocks and tombstones that Redis had lost, by what was done."}, []string{"outcome"}),
		compared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_reconcile_compared_total", Help: "Blocks and tombstones of the history that were compared with Redis."}),
		unasserted: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_reconcile_unasserted", Help: "Blocks and tombstones that the last round could not assert, since their master did not answer or was full."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_reconcile_failures_total", Help: "Rounds of the reconciler that failed."}),
	}
	for _, cause := range []string{causeFlush, causeFailover, causeReturn, causeSweep} {
		m.runs.WithLabelValues(cause)
	}
	for _, outcome := range []blocklist.Outcome{blocklist.OutcomeWritten, blocklist.OutcomeExtended, blocklist.OutcomeReleased} {
		m.changes.WithLabelValues(string(outcome))
	}
	return m, register(to, m.runs, m.changes, m.compared, m.unasserted, m.failures)
}

// register registers all collectors or reports the first that the registry refuses.
func register(to prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}
