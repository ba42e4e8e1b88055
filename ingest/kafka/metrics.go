package kafka

import (
	"context"
	"errors"
	"slices"

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
	fenced         *prometheus.CounterVec // group
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
		fenced:       counter("group_fenced_total", "Times that another process joined a consumer group with this one's instance id.", "group"),
		commitErrors: counter("commit_errors_total", "Commits that were refused or had no answer.", "group", "reason"),
	}
	var err error
	for _, vec := range []**prometheus.CounterVec{&m.fetchedRecords, &m.fetchedBytes, &m.skippedRecords, &m.fetchErrors,
		&m.appendedBytes, &m.appendErrors, &m.generations, &m.rejoins, &m.fenced, &m.commitErrors} {
		*vec = ingest.Published(r, *vec, &err)
	}
	m.silent = ingest.Published(r, m.silent, &err)
	m.appendSeconds = ingest.Published(r, m.appendSeconds, &err)
	return m, err
}

// The reasons of failures: few, so that all of them can begin at 0. The log has Kafka's own words.
const (
	reasonCancelled      = "cancelled"       // by the caller, or the client was closed
	reasonConnection     = "connection"      // no answer
	reasonTimeout        = "timeout"         // no answer in time, the broker's own wait included
	reasonLeaderAway     = "leader away"     // of the partition; another broker has it, or will
	reasonNotAllowed     = "not allowed"     // by the cluster's access rules
	reasonRefused        = "refused"         // any other answer
	reasonOutOfRange     = "out of range"    // the offset is not in the log
	reasonCorrupt        = "corrupt"         // the records cannot be read
	reasonNoReplicas     = "no replicas"     // fewer are in sync than min.insync.replicas
	reasonTooLarge       = "too large"       // the batch, by the topic's max.message.bytes
	reasonGenerationOver = "generation over" // the group has gone on without this member
	reasonCoordinator    = "coordinator"     // of the group: it is loading, or elsewhere
)

// reasonsOfAll are those of any request.
func reasonsOfAll() []string {
	return []string{reasonCancelled, reasonConnection, reasonTimeout, reasonLeaderAway, reasonNotAllowed, reasonRefused}
}

func fetchReasons() []string  { return append(reasonsOfAll(), reasonOutOfRange, reasonCorrupt) }
func appendReasons() []string { return append(reasonsOfAll(), reasonNoReplicas, reasonTooLarge) }
func commitReasons() []string { return append(reasonsOfAll(), reasonGenerationOver, reasonCoordinator) }

// Why records are skipped.
const (
	skippedControl = "control"
	skippedAborted = "aborted"
)

// beginLog has the series of a topic that is read begin at 0.
func (m *metrics) beginLog(topic string) {
	m.fetchedRecords.WithLabelValues(topic)
	m.fetchedBytes.WithLabelValues(topic)
	m.silent.WithLabelValues(topic)
	m.skippedRecords.WithLabelValues(topic, skippedControl)
	m.skippedRecords.WithLabelValues(topic, skippedAborted)
	for _, reason := range fetchReasons() {
		m.fetchErrors.WithLabelValues(topic, reason)
	}
}

// beginAppender has the series of a topic that is written begin at 0.
func (m *metrics) beginAppender(topic string) {
	m.appendedBytes.WithLabelValues(topic)
	m.appendSeconds.WithLabelValues(topic)
	for _, reason := range appendReasons() {
		m.appendErrors.WithLabelValues(topic, reason)
	}
}

// beginGroup has the series of a consumer group begin at 0.
func (m *metrics) beginGroup(group string) {
	m.generations.WithLabelValues(group)
	m.rejoins.WithLabelValues(group)
	m.fenced.WithLabelValues(group)
	for _, reason := range commitReasons() {
		m.commitErrors.WithLabelValues(group, reason)
	}
}

func (m *metrics) fetchFailed(topic string, err error) {
	m.fetchErrors.WithLabelValues(topic, reasonOf(err, fetchReasons())).Inc()
}

func (m *metrics) appendFailed(topic string, err error) {
	m.appendErrors.WithLabelValues(topic, reasonOf(err, appendReasons())).Inc()
}

func (m *metrics) commitFailed(group string, err error) {
	m.commitErrors.WithLabelValues(group, reasonOf(err, commitReasons())).Inc()
}

// reasonOf is the one of allowed that tells why, reasonRefused for what none of them names.
func reasonOf(err error, allowed []string) string {
	if reason := errorReason(err); slices.Contains(allowed, reason) {
		return reason
	}
	return reasonRefused
}

func errorReason(err error) string {
	var code kafka.Error
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, ingest.ErrGenerationOver):
		return reasonGenerationOver
	case errors.Is(err, ingest.ErrOutOfRange):
		return reasonOutOfRange
	case errors.Is(err, errCorrupt):
		return reasonCorrupt
	case errors.Is(err, ingest.ErrBatchTooLarge):
		return reasonTooLarge
	case errors.As(err, &code):
		return codeReason(code)
	case errors.Is(err, errGroupLoading):
		return reasonCoordinator
	case errors.Is(err, context.Canceled), errors.Is(err, errKafkaClosed):
		return reasonCancelled
	case errors.As(err, &timeout) && timeout.Timeout():
		return reasonTimeout
	}
	return reasonConnection
}

func codeReason(code kafka.Error) string {
	switch code {
	case kafka.RequestTimedOut:
		return reasonTimeout
	case kafka.BrokerNotAvailable, kafka.NetworkException:
		return reasonConnection
	case kafka.GroupLoadInProgress, kafka.GroupCoordinatorNotAvailable, kafka.NotCoordinatorForGroup:
		return reasonCoordinator
	case kafka.NotEnoughReplicas, kafka.NotEnoughReplicasAfterAppend:
		return reasonNoReplicas
	case kafka.MessageSizeTooLarge, kafka.RecordListTooLarge:
		return reasonTooLarge
	case kafka.TopicAuthorizationFailed, kafka.GroupAuthorizationFailed, kafka.ClusterAuthorizationFailed, kafka.SASLAuthenticationFailed:
		return reasonNotAllowed
	case kafka.OffsetOutOfRange:
		return reasonOutOfRange
	case kafka.InvalidMessage, kafka.InvalidMessageSize:
		return reasonCorrupt
	}
	if leaderAway(code) {
		return reasonLeaderAway
	}
	return reasonRefused
}
