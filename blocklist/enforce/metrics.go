package enforce

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/ruleseries"
	"github.com/weirhq/weir/rules"
)

type enforcerMetrics struct {
	records   *prometheus.CounterVec // kind
	rules     *ruleseries.Rules
	decisions *ruleseries.Series[prometheus.Counter] // mode, action, reason
	written   atomic.Int64                           // decisions of action written
	ignored   *prometheus.CounterVec                 // reason
	withheld  *prometheus.CounterVec                 // reason
	unwritten prometheus.Counter
	again     prometheus.Counter
	failures  prometheus.Counter
	fallback  prometheus.Counter
	latency   prometheus.Histogram
	duration  prometheus.Histogram
}

func newEnforcerMetrics(to prometheus.Registerer, blocks *Standing) (*enforcerMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	byRule := ruleseries.New()
	m := &enforcerMetrics{
		rules:   byRule,
		records: counter("weir_enforce_records_total", "Records of the hits topic that ENFORCE has applied, by kind.", "kind"),
		decisions: byRule.Counters(prometheus.CounterOpts{
			Name: "weir_enforce_decisions_total",
			Help: "Decisions by rule. Mode block: as appended to the blocks topic (written, extended, withheld with its reason, released), of a canary too. Mode shadow: " +
				"would_write for each block that the rule would have written, or the rest of its canary, would_withhold for each episode that would have opened without one; Redis is not asked. All of them begin at 0 with the rule.",
		}, []string{"mode", "action", "reason"},
			allDecisions()...),
		ignored: counter("weir_enforce_ignored_total", "Records that had no effect on any block, by reason.", "reason"),
		withheld: counter("weir_enforce_withheld_total", "Attempts to block that were withheld, by reason: each hit and each update of it in a batch of its own, "+
			"also where the decision was told before and is not told again.", "reason"),
		unwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_unwritten_releases_total",
			Help: "Releases that gates were told of and whose tombstone the reconciler is to put, since the master of the key did not answer."}),
		again: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_again_total",
			Help: "Hits read from history and applied once more: of sources that were over the limit of a rule when it began to block, or its canary took a step."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_failures_total", Help: "Batches that failed and are retried."}),
		fallback: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_enforce_modes_fallback_total", Help: "Batches applied under the last known modes, since the rule store did not answer."}),
		latency: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_event_to_block_seconds",
			Help: "From the time of an episode's last over event, as the event says, to when ENFORCE knew that Redis has the block that it wrote or extended; each once, " +
				"also of a batch that fails afterwards. Of several records about an episode in one batch the earliest counts. Closing hits are left out. An event ahead of the clock counts as 0.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "weir_enforce_batch_seconds", Help: "Time to apply one batch.", Buckets: prometheus.DefBuckets}),
	}
	// What begins with its first count grows unseen.
	for _, reason := range withheldReasons() {
		m.withheld.WithLabelValues(reason)
	}
	for _, reason := range ignoredReasons() {
		m.ignored.WithLabelValues(reason)
	}
	for _, kind := range recordKinds() {
		m.records.WithLabelValues(string(kind))
	}
	return m, register(to, m.records, m.rules, m.ignored, m.withheld, m.unwritten, m.again, m.failures, m.fallback, m.latency, m.duration, blocks)
}

// allDecisions are the modes, actions and reasons that there are of each rule. Each decision is told once, and many come together, when
// Redis is full or a backlog is worked off: of a series that begins with them a rate sees none.
func allDecisions() (all [][]string) {
	for _, action := range []blocklist.Action{blocklist.ActionWritten, blocklist.ActionExtended, blocklist.ActionReleased} {
		all = append(all, []string{string(rules.ModeBlock), string(action), ""})
	}
	for _, reason := range withheldReasons() {
		all = append(all, []string{string(rules.ModeBlock), string(blocklist.ActionWithheld), reason})
	}
	all = append(all, []string{string(rules.ModeShadow), actionWouldWrite, ""})
	for _, reason := range shadowReasons() {
		all = append(all, []string{string(rules.ModeShadow), actionWouldWithhold, reason})
	}
	return all
}

// withheldReasons are all reasons of withheld decisions.
func withheldReasons() []string {
	return []string{
		blocklist.ReasonFull, blocklist.ReasonCrowded, blocklist.ReasonUnreachable, blocklist.ReasonMaxLag, blocklist.ReasonNeverBlock, blocklist.ReasonReleased,
		blocklist.ReasonExpired, blocklist.ReasonStale, blocklist.ReasonUnreadable, blocklist.ReasonOldVersion, blocklist.ReasonUnlearned, blocklist.ReasonNoSpec, blocklist.ReasonCanary,
	}
}

// countDecision counts under a reason from a fixed list: the reason of a release is an operator's own words.
func (m *enforcerMetrics) countDecision(d *blocklist.Decision) {
	m.decide(d.Rule, rules.ModeBlock, string(d.Action), d.WithheldReason())
	if d.Action == blocklist.ActionWritten {
		m.written.Add(1)
	}
}

func (m *enforcerMetrics) decide(rule string, mode rules.Mode, action, reason string) {
	m.decisions.Of(rule, string(mode), action, reason).Inc()
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
