package detect

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
)

// metrics are the numbers of a detector: its own, those by rule, those by partition, and how far behind it is.
type metrics struct {
	rules      *ruleMetrics
	partitions *partitionMetrics
	lags       *ingest.Lags

	events, duplicates, ticks, losses, resets, snapshotBytes, lost  prometheus.Counter
	trialsForgotten, goodForgotten, runningLeftOut, approachDropped prometheus.Counter
	errors, restores, evicted                                       *prometheus.CounterVec // call; outcome; reason
	snapshotSeconds, snapshotPause                                  prometheus.Histogram
}

// newMetrics registers the stage's metrics.
func newMetrics(opt *Options) (*metrics, error) {
	var all []prometheus.Collector
	opts := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Name: "weir_detect_" + name, Help: help}
	}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(opts(name, help))
		all = append(all, c)
		return c
	}
	vec := func(name, help, by string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(opts(name, help), []string{by})
		all = append(all, c)
		return c
	}
	histogram := func(name, help string, buckets []float64) prometheus.Histogram {
		h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "weir_detect_" + name, Help: help, Buckets: buckets})
		all = append(all, h)
		return h
	}
	m := &metrics{
		rules: newRuleMetrics(), partitions: newPartitionMetrics(opt),
		events: counter("events_total",
			"Event records accepted by the fence. Of what a process that crashed had counted since its newest "+
				"snapshot, its successor counts the last two minutes again, and all of it where the process had "+
				"lived for less."),
		lost: counter("lost_version_events_total", "Events that no rule counts, since the rule store has lost "+
			"the routing version that they were routed by."),
		duplicates:      counter("duplicates_total", "Event records dropped by the fence; expected after a router's restart."),
		ticks:           counter("ticks_total", "Progress ticks folded."),
		losses:          counter("losses_total", "Losses that the hits topic has acknowledged: gaps and holes that an operator accepted, and records that were deleted before they were read. A gap in requests is one."),
		trialsForgotten: counter("trials_forgotten_total", "Keys and blocks of which it was forgotten what a block would have done to them, because trials take an eighth of the budget at most. Sums of their rules and minutes say that they may be wrong."),
		approachDropped: counter("before_limit_dropped_total", "Requests of sources on their way to a limit that were kept as evidence and had to go for want of room, because they take a 64th of the budget at most. Episodes that they may be missing in say so."),
		goodForgotten:   counter("good_sources_forgotten_total", "Sources that were known to be good, and were forgotten before 30 days because there are too many."),
		runningLeftOut:  counter("running_left_out_total", "Running counts that were not told of because those of other hits were greater: up to 64 are told in a keyed partition and second."),
		resets:          counter("reset_total", "Windows of keys that were forgotten because an operator reset them (weir counters reset)."),
		errors:          vec("errors_total", "Failed calls, each tried again.", "call"),
		restores:        vec("restores_total", "Partitions taken, by what was found: warm (own memory, still right), restored, torn (a snapshot passed over), fresh.", "outcome"),
		evicted:         vec("evicted_total", "Keys forgotten to stay within the budget, by what they were.", "reason"),
		snapshotBytes:   counter("snapshot_bytes_total", "Bytes of snapshots stored."),
		snapshotSeconds: histogram("snapshot_seconds", "Time to store a snapshot.", prometheus.DefBuckets),
		snapshotPause:   histogram("snapshot_pause_seconds", "Time that records waited for a slice of a snapshot.", []float64{.0005, .001, .002, .003, .005, .01, .05}),
	}
	if keeps := opt.Retention.Time; keeps > 0 {
		kept := prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_detect_keyed_retention_seconds", Help: "How long the keyed topic keeps records (kafka.retention.keyed). A snapshot that is older is of no use; from a third of it on time runs out.",
		})
		kept.Set(keeps.Seconds())
		all = append(all, kept)
	}
	margin := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_detect_idle_margin_seconds", Help: "How far the progress of an idle source partition stays behind the clock (detect.idle_margin).",
	})
	margin.Set(opt.IdleMargin.Seconds())
	all = append(all, margin)
	for reason := range detectors.NumEvictions {
		m.evicted.WithLabelValues(reason.String())
	}
	for _, outcome := range []string{restoreWarm, restoreRestored, restoreTorn, restoreFresh} {
		m.restores.WithLabelValues(outcome)
	}
	for _, call := range calls() {
		m.errors.WithLabelValues(call)
	}
	for _, c := range append(all, m.rules.set, m.partitions) {
		if err := opt.Registerer.Register(c); err != nil {
			return nil, fmt.Errorf("detect: metrics: %w", err)
		}
	}
	var err error
	if m.lags, err = ingest.NewLags(opt.Registerer, opt.Clock); err != nil {
		return nil, fmt.Errorf("detect: %w", err)
	}
	return m, nil
}

// The calls that may fail.
const (
	callFetch       = "fetch"
	callAppend      = "append"      // to the hits topic
	callCommits     = "commits"     // looking at them
	callCommit      = "commit"      // writing one
	callReport      = "report"      // how partitions are
	callAcceptances = "acceptances" // reading what operators accept
	callFenced      = "fenced"      // a snapshot that another owner's took the place of
	callSnapshot    = "snapshot"
	callOwnership   = "ownership"
	callTake        = "take" // a partition
	callLoad        = "load" // a snapshot
	callRouting     = "routing"
)

func calls() []string {
	return []string{
		callFetch, callAppend, callCommits, callCommit, callReport, callAcceptances, callFenced, callSnapshot, callOwnership, callTake, callLoad, callRouting,
	}
}

// The outcomes of taking a partition.
const (
	restoreWarm     = "warm"
	restoreRestored = "restored"
	restoreTorn     = "torn"
	restoreFresh    = "fresh"
)

// add shows what a partition has done since it was last asked.
func (m *metrics) add(now, last detectors.Counts) {
	m.events.Add(float64(now.Events - last.Events))
	m.duplicates.Add(float64(now.Duplicates - last.Duplicates))
	m.ticks.Add(float64(now.Ticks - last.Ticks))
	m.lost.Add(float64(now.Lost - last.Lost))
	m.resets.Add(float64(now.Reset - last.Reset))
	m.trialsForgotten.Add(float64(now.TrialsEvicted - last.TrialsEvicted))
	m.goodForgotten.Add(float64(now.GoodEvicted - last.GoodEvicted))
	m.approachDropped.Add(float64(now.ApproachDropped - last.ApproachDropped))
	m.runningLeftOut.Add(float64(now.RunningLeftOut - last.RunningLeftOut))
	for reason := range detectors.NumEvictions {
		m.evicted.WithLabelValues(reason.String()).Add(float64(now.Evicted[reason] - last.Evicted[reason]))
	}
}

// sent shows a hit that the hits topic has acknowledged.
func (m *metrics) sent(h *detectors.Hit) {
	if h.Kind == detectors.KindLoss {
		if !h.Shared() || h.Keyed == 0 { // keyed partition 0 counts what all of them tell
			m.losses.Inc()
		}
		return
	}
	m.rules.hit(h)
}

// forget drops what is shown of partitions that are not this process's any more.
func (m *metrics) forget(partitions []int) {
	m.rules.open(nil)
	for _, p := range partitions {
		m.partitions.forget(p)
	}
}
