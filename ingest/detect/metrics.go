package detect

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
)

type metrics struct {
	events, duplicates, ticks, late, counted prometheus.Counter
	hits, errors, restores, evicted          *prometheus.CounterVec
	uncounted                                *prometheus.CounterVec
	snapshotBytes                            prometheus.Counter
	snapshotSeconds, snapshotPause           prometheus.Histogram
	perPartition                             []*prometheus.GaugeVec
	snapshotAge, blind, halted, lag          *prometheus.GaugeVec
	keys, bytes, stalled, watermark, skew    *prometheus.GaugeVec
}

// newMetrics registers the stage's metrics; each carries the stream as a constant label.
func newMetrics(reg prometheus.Registerer, stream string) (*metrics, error) {
	labels := prometheus.Labels{"stream": stream}
	var all []prometheus.Collector
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_detect_" + name, Help: help, ConstLabels: labels})
		all = append(all, c)
		return c
	}
	vec := func(name, help string, by ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "weir_detect_" + name, Help: help, ConstLabels: labels}, by)
		all = append(all, c)
		return c
	}
	m := &metrics{
		evicted:         vec("evicted_total", "Keys forgotten to stay within the budget, by what they were.", "reason"),
		events:          counter("events_total", "Event records accepted by the fence."),
		duplicates:      counter("duplicates_total", "Event records dropped by the fence; expected after a router's restart."),
		ticks:           counter("ticks_total", "Progress ticks folded."),
		late:            counter("late_total", "Events too late for a rule, counted per rule."),
		counted:         counter("counted_total", "Events that fed a window, counted per rule."),
		uncounted:       vec("rule_uncounted_total", "Events that a rule watches and that its windows left out.", "rule", "reason"),
		hits:            vec("hits_total", "Records sent to the hits topic.", "kind", "phase"),
		errors:          vec("errors_total", "Failed calls, each tried again.", "call"),
		restores:        vec("restores_total", "Partitions taken, by what was found: warm (own memory, still right), restored, torn (a snapshot passed over), fresh.", "outcome"),
		snapshotBytes:   counter("snapshot_bytes_total", "Bytes of snapshots stored."),
		snapshotSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_detect_snapshot_seconds", Help: "Time to store a snapshot.", ConstLabels: labels}),
	}
	m.snapshotPause = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "weir_detect_snapshot_pause_seconds", Help: "Time that records waited for a slice of a snapshot.", ConstLabels: labels,
		Buckets: []float64{.0005, .001, .002, .003, .005, .01, .05},
	})
	gauge := func(name, help string) *prometheus.GaugeVec {
		g := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "weir_detect_" + name, Help: help, ConstLabels: labels}, []string{"partition"})
		all, m.perPartition = append(all, g), append(m.perPartition, g)
		return g
	}
	m.snapshotAge = gauge("snapshot_timestamp_seconds", "When the partition's newest snapshot was stored.")
	m.blind = gauge("blind", "1 when the fence has dropped every event record for 10 s.")
	m.halted = gauge("halted", "1 when the partition has stopped: see weir partitions list.")
	m.lag = gauge("lag_records", "Keyed records not yet folded.")
	m.keys = gauge("keys", "Windows held in memory.")
	m.bytes = gauge("bytes", "Bytes that the windows held in memory take of the partition's budget.")
	m.stalled = gauge("stalled_sources", "Source partitions that the watermark does not wait for.")
	m.skew = gauge("skew_seconds", "How far the source partitions that are not stalled lie apart in event time.")
	m.watermark = gauge("watermark_seconds", "The watermark, as a Unix time.")
	all = append(all, m.snapshotSeconds, m.snapshotPause)
	for _, c := range all {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// watch has the series of a version's rules begin at 0, so that a rate sees the first event that is left out.
func (m *metrics) watch(r *rules.Routing) {
	for i := range r.Rules {
		for _, reason := range []detectors.Uncounted{detectors.UncountedLate, detectors.UncountedOutOfOrder} {
			m.uncounted.WithLabelValues(r.Rules[i].ID, reason.String())
		}
	}
}

func (m *metrics) add(now, last detectors.Counts, leftOut []detectors.RuleUncounted) {
	m.events.Add(float64(now.Events - last.Events))
	m.duplicates.Add(float64(now.Duplicates - last.Duplicates))
	m.ticks.Add(float64(now.Ticks - last.Ticks))
	m.late.Add(float64(now.Late - last.Late))
	m.counted.Add(float64(now.Counted - last.Counted))
	for _, u := range leftOut {
		m.uncounted.WithLabelValues(u.Rule, u.Reason.String()).Add(float64(u.Events))
	}
	for reason := range detectors.NumEvictions {
		m.evicted.WithLabelValues(reason.String()).Add(float64(now.Evicted[reason] - last.Evicted[reason]))
	}
}

// forget drops the gauges of partitions that are not this process's any more.
func (m *metrics) forget(partitions []int) {
	for _, p := range partitions {
		for _, g := range m.perPartition {
			g.DeleteLabelValues(label(p))
		}
	}
}
