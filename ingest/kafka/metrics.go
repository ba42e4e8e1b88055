package kafka

import (
	"context"
	"errors"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
)

// metrics are the client's own numbers. The stages count what the records mean.
type metrics struct {
	fetchedRecords *prometheus.CounterVec // topic
	fetchedBytes   *prometheus.CounterVec // topic
	skippedRecords *prometheus.CounterVec // topic, reason
	fetchErrors    *prometheus.CounterVec // topic, reason
	silent         *prometheus.GaugeVec   // topic
	appendedBytes  *prometheus.CounterVec // topic
	appendErrors   *prometheus.CounterVec // topic, reason
	appendSeconds  *prometheus.HistogramVec
	generations    *prometheus.CounterVec // group
	rejoins        *prometheus.CounterVec // group
	commitErrors   *prometheus.CounterVec // group, reason
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "weir", Subsystem: "kafka", Name: name, Help: help}, labels)
	}
	m := &metrics{
		fetchedRecords: counter("fetched_records_total", "Records read.", "topic"),
		fetchedBytes:   counter("fetched_bytes_total", "Bytes of record batches read, compressed as they came.", "topic"),
		skippedRecords: counter("skipped_records_total", "Records that are no events: control records and those of aborted transactions.", "topic", "reason"),
		fetchErrors:    counter("fetch_errors_total", "Fetches, or partitions in one, that failed.", "topic", "reason"),
		silent: prometheus.NewGaugeVec(prometheus.GaugeOpts{Namespace: "weir", Subsystem: "kafka", Name: "silent_partitions",
			Help: "Partitions that are asked for but have not been answered for long, while others are."}, []string{"topic"}),
		appendedBytes: counter("appended_bytes_total", "Bytes of acknowledged record batches, compressed as they were sent.", "topic"),
		appendErrors:  counter("append_errors_total", "Record batches that were not acknowledged.", "topic", "reason"),
		appendSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Namespace: "weir", Subsystem: "kafka", Name: "append_seconds",
			Help: "Time until all batches of one append were acknowledged.", Buckets: prometheus.ExponentialBuckets(0.0005, 2, 15)}, []string{"topic"}),
		generations:  counter("group_generations_total", "Generations of a consumer group that this process took part in.", "group"),
		rejoins:      counter("group_rejoins_total", "Times that this process left a consumer group to join it anew.", "group"),
		commitErrors: counter("commit_errors_total", "Commits that were refused or had no answer.", "group", "reason"),
	}
	var err error
	for _, vec := range []**prometheus.CounterVec{&m.fetchedRecords, &m.fetchedBytes, &m.skippedRecords, &m.fetchErrors,
		&m.appendedBytes, &m.appendErrors, &m.generations, &m.rejoins, &m.commitErrors} {
		*vec = ingest.Published(r, *vec, &err)
	}
	m.silent = ingest.Published(r, m.silent, &err)
	m.appendSeconds = ingest.Published(r, m.appendSeconds, &err)
	return m, err
}

// errorReason is a short, countable name for err.
func errorReason(err error) string {
	var code kafka.Error
	switch {
	case err == nil:
		return "none"
	case errors.Is(err, ingest.ErrGenerationOver):
		return "generation over"
	case errors.Is(err, ingest.ErrOutOfRange):
		return "out of range"
	case errors.Is(err, errCorrupt):
		return "corrupt"
	case errors.As(err, &code):
		if title := code.Title(); title != "" {
			return title
		}
		return "code " + strconv.Itoa(int(code))
	case errors.Is(err, context.Canceled), errors.Is(err, errKafkaClosed):
		return "cancelled"
	}
	var timeout interface{ Timeout() bool }
	if errors.As(err, &timeout) && timeout.Timeout() {
		return "timeout"
	}
	return "connection"
}
