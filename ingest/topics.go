package ingest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
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
	requestsMaxMessageBytes = 4 << 20
	internalMaxMessageBytes = 32 << 20
)

// Carriers gives the specs of the topics that events come in by: requests, and where those go that cannot be read.
func (s TopicSettings) Carriers(names TopicNames) []TopicSpec {
	return slices.DeleteFunc(s.Topics(names), func(spec TopicSpec) bool {
		return spec.Name != names.Requests && spec.Name != names.Dead
	})
}

// Topics gives the specs of a stream's topics.
func (s TopicSettings) Topics(names TopicNames) []TopicSpec {
	count := func(n, otherwise int) int {
		if n > 0 {
			return n
		}
		return otherwise
	}
	specs := []TopicSpec{
		{Name: names.Requests, Partitions: count(s.RequestsPartitions, 12), Retention: s.RequestsRetention, MaxMessageBytes: requestsMaxMessageBytes},
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
	timestampTypeKey   = "message.timestamp.type"
	logAppendTime      = "LogAppendTime"
	maxMessageBytesKey = "max.message.bytes"
	cleanupPolicyKey   = "cleanup.policy"
	retentionKey       = "retention.ms"
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

// CheckPartitions is an error if a topic has another number of partitions than it must have. note tells of another number
// that does no harm; it is empty where there is nothing to tell.
func (s TopicSpec) CheckPartitions(has int) (note string, err error) {
	d, differs := s.PartitionDifference(has)
	switch {
	case !differs:
		return "", nil
	case d.Fixed:
		return "", Advise(fmt.Errorf("topic %s has %d partitions, the configuration says %d: its partition count is fixed when it is created",
			s.Name, has, s.Partitions), "correct the configuration, or use another namespace")
	}
	return d.String(), nil
}

// PartitionDifference compares the number of partitions that a topic has with the wanted one.
func (s TopicSpec) PartitionDifference(has int) (d TopicDifference, differs bool) {
	return TopicDifference{Got: strconv.Itoa(has), Want: strconv.Itoa(s.Partitions), Fixed: s.FixedPartitions}, has != s.Partitions
}

// TopicDifference is one thing in which a topic is not as its spec says.
type TopicDifference struct {
	Setting   string // as Kafka calls it; empty: the number of partitions
	Got, Want string
	Fixed     bool // nothing can change it: what is stored depends on it
}

// String says setting, got and wanted.
func (d TopicDifference) String() string {
	switch {
	case d.Setting != "":
		return fmt.Sprintf("%s is %s, want %s", d.Setting, d.Got, d.Want)
	case d.Fixed:
		return fmt.Sprintf("it has %s partitions, want %s", d.Got, d.Want)
	}
	return fmt.Sprintf("has %s partitions, the configuration says %s; it is used as it is", d.Got, d.Want)
}

// OperatorsChoice says that weir works with what the topic has: how long it keeps records, and how many partitions where
// that is not fixed.
func (d TopicDifference) OperatorsChoice() bool {
	return !d.Fixed && (d.Setting == "" || d.Setting == retentionKey)
}

// Settings are the topic's settings as Kafka writes them.
func (s TopicSpec) Settings() map[string]string {
	out := map[string]string{
		timestampTypeKey: logAppendTime, cleanupPolicyKey: "delete", maxMessageBytesKey: strconv.Itoa(s.MaxMessageBytes),
	}
	if s.Retention != 0 {
		out[retentionKey] = s.retentionMillis()
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

// Differences compares the settings that a topic has with those that it must have, in the order of their names. A setting
// that the broker does not tell is none.
func (s TopicSpec) Differences(has map[string]string) []TopicDifference {
	var wrong []TopicDifference
	wanted := s.Settings()
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		got, known := has[key]
		switch want := wanted[key]; {
		case !known || got == want:
		case key == maxMessageBytesKey && atLeast(got, s.MaxMessageBytes):
		case key == minInsyncKey && atLeast(got, 2):
		default:
			wrong = append(wrong, TopicDifference{Setting: key, Got: got, Want: want})
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
	if millis, err := strconv.ParseInt(settings[retentionKey], 10, 64); err == nil && millis > 0 {
		r.Time = time.Duration(min(millis, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
	}
	if n, err := strconv.ParseInt(settings[retentionBytesKey], 10, 64); err == nil && n > 0 {
		r.Bytes = n
	}
	return r
}
