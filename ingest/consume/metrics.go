package consume

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// metrics are the numbers of all consumers of a process, by stage.
type metrics struct {
	records  *prometheus.CounterVec   // stage
	failures *prometheus.CounterVec   // stage
	seconds  *prometheus.HistogramVec // stage
	losses   *prometheus.CounterVec   // stage, partition
	replaces *prometheus.CounterVec   // stage, partition
	olders   *prometheus.CounterVec   // stage, partition
	stranded *prometheus.GaugeVec     // stage, partition
	newer    *prometheus.GaugeVec     // stage, partition
	lags     *ingest.Lags
}

// newMetrics makes the numbers of a stage, or finds those that another consumer of the process published.
func newMetrics(r prometheus.Registerer, stage string) (*metrics, error) {
	opts := func(name, help string) prometheus.Opts {
		return prometheus.Opts{Namespace: "weir", Subsystem: "stage", Name: name, Help: help}
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts(opts(name, help)), labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts(opts(name, help)), labels)
	}
	var err error
	m := &metrics{
		records:  ingest.Published(r, counter("records_total", "Records that the stage's store has acknowledged.", "stage"), &err),
		failures: ingest.Published(r, counter("apply_failures_total", "Batches that the stage's store did not take; they are given again.", "stage"), &err),
		seconds: ingest.Published(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "weir", Subsystem: "stage", Name: "apply_seconds", Help: "Time to apply one batch, failures included.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15),
		}, []string{"stage"}), &err),
		losses: ingest.Published(r, counter("lost_records_total",
			"Records that the log held and the stage never read: retention deleted them, or the log lost its end.",
			"stage", "partition"), &err),
		replaces: ingest.Published(r, counter("log_replaced_total",
			"Times that a log did not hold what the stage had read of it: it lost its end, or was "+
				"made anew. The stage reads on at what it may not have read.", "stage", "partition"), &err),
		olders: ingest.Published(r, counter("store_older_total",
			"Times that the stage's store had come back older than it was. It is given again what it has lost.",
			"stage", "partition"), &err),
		stranded: ingest.Published(r, gauge("stranded_partition",
			"1 while the commit lies beyond the end of the log: for 5 seconds, then the stage goes "+
				"on.", "stage", "partition"), &err),
		newer: ingest.Published(r, gauge("newer_format_partition",
			"1 while a record that a newer build wrote waits for an upgrade of this "+
				"process.", "stage", "partition"), &err),
	}
	if err != nil {
		return nil, err
	}
	m.records.WithLabelValues(stage)
	m.failures.WithLabelValues(stage)
	m.seconds.WithLabelValues(stage)
	m.lags, err = ingest.NewLags(r, func() traffic.Time { return traffic.At(time.Now()) })
	return m, err
}

func (m *metrics) applied(stage string, started time.Time, records int, err error) {
	m.seconds.WithLabelValues(stage).Observe(time.Since(started).Seconds())
	if err != nil {
		m.failures.WithLabelValues(stage).Inc()
		return
	}
	m.records.WithLabelValues(stage).Add(float64(records))
}

// begin has the series of a partition begin at 0.
func (m *metrics) begin(stage string, partition int) {
	m.lost(stage, partition, 0)
	m.replaced(stage, partition, 0)
	m.older(stage, partition, 0)
	m.strand(stage, partition, 0)
	m.await(stage, partition, false)
}

func (m *metrics) lost(stage string, partition int, records int64) {
	m.losses.WithLabelValues(stage, strconv.Itoa(partition)).Add(float64(records))
}

func (m *metrics) replaced(stage string, partition int, times float64) {
	m.replaces.WithLabelValues(stage, strconv.Itoa(partition)).Add(times)
}

func (m *metrics) older(stage string, partition int, times float64) {
	m.olders.WithLabelValues(stage, strconv.Itoa(partition)).Add(times)
}

func (m *metrics) strand(stage string, partition int, stranded float64) {
	m.stranded.WithLabelValues(stage, strconv.Itoa(partition)).Set(stranded)
}

// await shows whether a partition waits at a record of a newer build.
func (m *metrics) await(stage string, partition int, waits bool) {
	value := 0.0
	if waits {
		value = 1
	}
	m.newer.WithLabelValues(stage, strconv.Itoa(partition)).Set(value)
}

func (m *metrics) forget(stage string, partition int) {
	m.stranded.DeleteLabelValues(stage, strconv.Itoa(partition))
	m.newer.DeleteLabelValues(stage, strconv.Itoa(partition))
}
