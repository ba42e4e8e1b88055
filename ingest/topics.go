package ingest

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"time"
)

// TopicSettings are the parts of the topics that configuration decides.
type TopicSettings struct {
	RequestsPartitions int // default 12
	KeyedPartitions    int // default 64; fixed for the life of the topic
	HitsPartitions     int // default 12
	BlocksPartitions   int // default 12
	DeadPartitions     int // default 1
	Replication        int // default 0: the broker's default.replication.factor

	// How long records are kept; 0 leaves it to the broker (log.retention.hours), negative keeps them for ever.
	RequestsRetention, KeyedRetention, HitsRetention, BlocksRetention, DeadRetention time.Duration
}

// TopicSpec is what one topic must look like.
type TopicSpec struct {
	Name            string
	Partitions      int
	FixedPartitions bool // another count is an error: the records' places depend on it
	Replication     int  // when it is created; 0: the broker's default
	Retention       time.Duration
	MaxMessageBytes int
}

// The largest record batch of each topic, compressed. One event has at most 1 MiB, but gateways batch.
const (
	RequestsMaxMessageBytes = 4 << 20
	internalMaxMessageBytes = 32 << 20
)

// Topics gives the specs of a stream's topics.
func (s TopicSettings) Topics(names TopicNames) []TopicSpec {
	count := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	specs := []TopicSpec{
		{Name: names.Requests, Partitions: count(s.RequestsPartitions, 12), Retention: s.RequestsRetention, MaxMessageBytes: RequestsMaxMessageBytes},
		{Name: names.Keyed, Partitions: count(s.KeyedPartitions, 64), FixedPartitions: true, Retention: s.KeyedRetention, MaxMessageBytes: internalMaxMessageBytes},
		{Name: names.Hits, Partitions: count(s.HitsPartitions, 12), Retention: s.HitsRetention, MaxMessageBytes: internalMaxMessageBytes},
		{Name: names.Blocks, Partitions: count(s.BlocksPartitions, 12), Retention: s.BlocksRetention, MaxMessageBytes: internalMaxMessageBytes},
		{Name: names.Dead, Partitions: count(s.DeadPartitions, 1), Retention: s.DeadRetention, MaxMessageBytes: internalMaxMessageBytes},
	}
	for i := range specs {
		specs[i].Replication = s.Replication
	}
	return specs
}

// Topic settings that weir depends on.
const (
	TimestampTypeKey   = "message.timestamp.type"
	LogAppendTime      = "LogAppendTime"
	MaxMessageBytesKey = "max.message.bytes"
	CleanupPolicyKey   = "cleanup.policy"
	RetentionKey       = "retention.ms"
	retentionBytesKey  = "retention.bytes"
	minInsyncKey       = "min.insync.replicas"
)

// Check refuses a topic that cannot be created.
func (s TopicSpec) Check() error {
	switch {
	case s.Name == "":
		return errors.New("topic without a name")
	case s.Partitions < 1:
		return fmt.Errorf("topic %s: %d partitions: want at least 1", s.Name, s.Partitions)
	case s.MaxMessageBytes < 1:
		return fmt.Errorf("topic %s: largest message %d bytes: want at least 1", s.Name, s.MaxMessageBytes)
	}
	return nil
}

// CheckPartitions compares the number of partitions that a topic has with the wanted one. note is empty where they are equal.
func (s TopicSpec) CheckPartitions(has int) (note string, err error) {
	if has == s.Partitions {
		return "", nil
	}
	if s.FixedPartitions {
		return "", fmt.Errorf("topic %s has %d partitions, the configuration says %d: its partition count is fixed when it is "+
			"created; correct the configuration, or use another namespace", s.Name, has, s.Partitions)
	}
	return fmt.Sprintf("has %d partitions, the configuration says %d; it is used as it is", has, s.Partitions), nil
}

// Settings are the topic's settings as Kafka writes them.
func (s TopicSpec) Settings() map[string]string {
	out := map[string]string{
		TimestampTypeKey: LogAppendTime, CleanupPolicyKey: "delete", MaxMessageBytesKey: strconv.Itoa(s.MaxMessageBytes),
	}
	if s.Retention != 0 {
		out[RetentionKey] = s.retentionMillis()
	}
	if s.Replication >= 3 {
		// An acknowledged record must survive the loss of a broker; with one in-sync replica "all" would mean one.
		out[minInsyncKey] = "2"
	}
	return out
}

func (s TopicSpec) retentionMillis() string {
	if s.Retention < 0 {
		return "-1"
	}
	return strconv.FormatInt(s.Retention.Milliseconds(), 10)
}

// Differences compares what a topic has with what it must have. An entry says setting, got and wanted.
func (s TopicSpec) Differences(has map[string]string) map[string]string {
	wrong := make(map[string]string)
	for key, want := range s.Settings() {
		got, known := has[key]
		switch {
		case !known || got == want:
		case key == MaxMessageBytesKey && atLeast(got, s.MaxMessageBytes):
		case key == minInsyncKey && atLeast(got, 2):
		default:
			wrong[key] = fmt.Sprintf("%s is %s, want %s", key, got, want)
		}
	}
	return wrong
}

func atLeast(text string, least int) bool {
	n, err := strconv.Atoi(text)
	return err == nil && n >= least
}

// Retention is what a topic keeps of each partition.
type Retention struct {
	Time  time.Duration // 0: for ever
	Bytes int64         // 0: without bound
}

// ParseRetention reads a topic's settings. Kafka writes -1 for no bound; a broker that says nothing has none.
func ParseRetention(settings map[string]string) Retention {
	var r Retention
	if millis, err := strconv.ParseInt(settings[RetentionKey], 10, 64); err == nil && millis > 0 {
		r.Time = time.Duration(min(millis, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	if n, err := strconv.ParseInt(settings[retentionBytesKey], 10, 64); err == nil && n > 0 {
		r.Bytes = n
	}
	return r
}
