package enforce

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
)

type enforcerMetrics struct {
	records   *prometheus.CounterVec // kind
	decisions *prometheus.CounterVec // action, reason
	written   atomic.Int64           // decisions of action written
	ignored   *prometheus.CounterVec // reason
	dead      *prometheus.CounterVec // reason
	unwritten prometheus.Counter
	failures  prometheus.Counter
	fallback  prometheus.Counter
	age       prometheus.Histogram
	duration  prometheus.Histogram
}

func newEnforcerMetrics(to prometheus.Registerer) (*enforcerMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &enforcerMetrics{
		records:   counter("weir_enforce_records_total", "Records of the hits topic that ENFORCE has applied, by kind.", "kind"),
		decisions: counter("weir_enforce_decisions_total", "Decisions appended to the blocks topic.", "action", "reason"),
		ignored:   counter("weir_enforce_ignored_total", "Records that had no effect on any block, by reason.", "reason"),
		dead:      counter("weir_enforce_dead_letters_total", "Records that went to the dead letters, by reason.", "reason"),
		unwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_unwritten_releases_total",
			Help: "Releases that gates were told of and whose tombstone the reconciler is to put, since the master of the key did not answer."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_failures_total", Help: "Batches that failed and are retried."}),
		fallback: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_modes_fallback_total", Help: "Batches applied under the last known modes, since the rule store did not answer."}),
		age: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_enforce_evidence_age_seconds", Help: "Age of the evidence when its block was written or extended.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_enforce_batch_seconds", Help: "Time to apply one batch.", Buckets: prometheus.DefBuckets}),
	}
	return m, register(to, m.records, m.decisions, m.ignored, m.dead, m.unwritten, m.failures, m.fallback, m.age, m.duration)
}

// countDecision counts under a reason from a fixed list: the reason of a release is an operator's own words.
func (m *enforcerMetrics) countDecision(d *blocklist.Decision) {
	m.decisions.WithLabelValues(string(d.Action), d.WithheldReason()).Inc()
	if d.Action == blocklist.ActionWritten {
		m.written.Add(1)
	}
}

// Written is the number of blocks that this stage has written since it was made.
func (e *Enforcer) Written() int64 { return e.metrics.written.Load() }

// register registers all collectors or reports the first that the registry refuses.
func register(to prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}
