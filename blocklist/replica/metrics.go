package replica

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
)

// Why a block in Redis is not taken over.
const (
	rejectedUnreadable = "unreadable"
	rejectedNeverBlock = "never_block"
)

type replicaMetrics struct {
	reloads  *prometheus.CounterVec // reason
	deltas   *prometheus.CounterVec // op
	rejected *prometheus.CounterVec // reason
	refused  *prometheus.CounterVec // reason
	failures prometheus.Counter
	spared   prometheus.Counter
}

func newReplicaMetrics(to prometheus.Registerer, r *Replica) (*replicaMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
	}
	m := &replicaMetrics{
		reloads:  counter("weir_blocklist_reloads_total", "Reasons to load the whole blocklist again, as they came up.", "reason"),
		deltas:   counter("weir_blocklist_deltas_total", "Changes read from the delta streams.", "op"),
		rejected: counter("weir_blocklist_rejected_total", "Blocks in Redis that were not taken over.", "reason"),
		refused: counter("weir_blocklist_modes_refused_total",
			"Modes in Redis that were not acted on, since the rule store has not signed them, or a later one.",
			"reason"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_blocklist_failures_total", Help: "Times that Redis did not answer a replica."}),
		spared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_blocklist_spared_total", Help: "Requests of the never-block list that a block by another field would have held."}),
	}
	for _, reason := range []string{reloadGap, reloadBackward, reloadMissing, reloadAsked, reloadDue} {
		m.reloads.WithLabelValues(reason)
	}
	for _, op := range []string{blocklist.OpBlock, blocklist.OpRelease, blocklist.OpMode, blocklist.OpStream, blocklist.OpReload} {
		m.deltas.WithLabelValues(op)
	}
	for _, reason := range []string{rejectedUnreadable, rejectedNeverBlock} {
		m.rejected.WithLabelValues(reason)
	}
	for _, reason := range []string{refusedUnsigned, refusedForged, refusedOlder} {
		m.refused.WithLabelValues(reason)
	}
	return m, register(to, m.reloads, m.deltas, m.rejected, m.refused, m.failures, m.spared,
		gauge("weir_blocklist_rules_held_back",
			"Rules held as in shadow since the rule store has not signed the mode that Redis has of them.",
			func() float64 { return float64(r.HeldBack()) }),
		newBlocksByRule(r.table),
		gauge("weir_blocklist_staleness_seconds", "Time since Redis last answered.", func() float64 { return r.Staleness().Seconds() }),
		gauge("weir_blocklist_behind_seconds", "Age of the newest moment of which every change is known.", func() float64 { return r.Behind().Seconds() }),
		gauge("weir_blocklist_missing_slots", "Hash slots of Redis not read since the start, or since changes were missed.",
			func() float64 { return float64(r.Missing()) }),
		gauge("weir_blocklist_foreign", "1 while Redis is another installation's, so that nothing is taken from there.",
			func() float64 {
				if r.Foreign() != nil {
					return 1
				}
				return 0
			}),
		gauge("weir_blocklist_ready", "1 when the blocklist has been loaded, from a Redis that has the epoch of the namespace.",
			func() float64 {
				if r.Unready() == nil {
					return 1
				}
				return 0
			}))
}

// blocksByRule shows how many blocks of each rule the table holds.
type blocksByRule struct {
	table *table
	desc  *prometheus.Desc
}

var _ prometheus.Collector = (*blocksByRule)(nil)

const blocksHelp = "Blocks that this copy holds, by rule: those that have just expired, or that a change of their rule's mode has ended, are among them."

func newBlocksByRule(t *table) *blocksByRule {
	return &blocksByRule{table: t, desc: prometheus.NewDesc("weir_blocklist_blocks", blocksHelp, []string{"rule"}, nil)}
}

// Describe implements prometheus.Collector.
func (c *blocksByRule) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector. The table has counted: a scrape looks at no block.
func (c *blocksByRule) Collect(ch chan<- prometheus.Metric) {
	for rule, n := range c.table.counts() {
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, float64(n), rule)
	}
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
