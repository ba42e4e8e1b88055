package kafka_test

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
)

// Each Batch lies in the log as one record batch, which is what makes it atomic.
func TestAppendIsOneRecordBatch(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: kafkakit.Numbered("small ", 3), 1: slices.Repeat([]string{strings.Repeat("e", 300)}, 10_000)})
	kit.Put(topic, map[int][]string{0: {"next"}})
	small, err := kit.K.StoredBatches(kit.Ctx, topic, 0)
	if want := []kafka.StoredBatch{{Records: 3}, {Records: 1}}; err != nil || !slices.Equal(small, want) {
		t.Errorf("got %+v, %v, want %+v", small, err, want)
	}
	large, err := kit.K.StoredBatches(kit.Ctx, topic, 1)
	if want := []kafka.StoredBatch{{Records: 10_000, Compressed: true}}; err != nil || !slices.Equal(large, want) {
		t.Errorf("got %+v, %v, want %+v", large, err, want)
	}
}

func TestAppendRefusesTooLarge(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2, func(s *ingest.TopicSpec) { s.MaxMessageBytes = 64 << 10 })
	appender := kit.K.Appender(topic)
	err := appender.Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {kafkakit.Incompressible(t, 100<<10)}, 1: {"small"}}))
	var partly *ingest.AppendError
	if !errors.Is(err, ingest.ErrBatchTooLarge) || !errors.As(err, &partly) || !slices.Equal(slices.Collect(maps.Keys(partly.Failed)), []int{0}) {
		t.Errorf("100 KiB for 64: %v, want partition 0 too large and 1 written", err)
	}
	// The limit is for what is sent, and this compresses well.
	if err := appender.Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {strings.Repeat("z", 1<<20)}})); err != nil {
		t.Error(err)
	}
	err = appender.Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {kafkakit.Incompressible(t, kafka.MostRequestBytes)}}))
	if !errors.Is(err, ingest.ErrBatchTooLarge) || !strings.Contains(err.Error(), "weir sends up to") {
		t.Errorf("more than a request takes: %v", err)
	}
	if got := kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 0, 1), 1); len(got[0]) != 1 || len(got[1]) != 1 {
		t.Errorf("%d and %d records were written, want 1 each", len(got[0]), len(got[1]))
	}
}

func TestAppendRefusesBadBatches(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	for _, tc := range []struct {
		name    string
		topic   string
		batches []ingest.Batch
		want    string
	}{
		{"partition twice", topic, []ingest.Batch{{Partition: 1, Values: [][]byte{{1}}}, {Partition: 1, Values: [][]byte{{2}}}}, "two batches for partition 1"},
		{"no such partition", topic, []ingest.Batch{{Partition: 2, Values: [][]byte{{1}}}}, "partitions 0 to 1, got a batch for 2"},
		{"negative partition", topic, []ingest.Batch{{Partition: -1, Values: [][]byte{{1}}}}, "got a batch for -1"},
		{"no such topic", topic + ".missing", []ingest.Batch{{Values: [][]byte{{1}}}}, "Unknown Topic"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if err := kit.K.Appender(tc.topic).Append(kit.Ctx, tc.batches); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if err := kit.K.Appender(topic).Append(kit.Ctx, []ingest.Batch{{Partition: 0}, {Partition: 1}}); err != nil {
		t.Errorf("nothing to append: %v", err)
	}
	bounds, err := kit.K.Log(topic).Bounds(kit.Ctx, []int{0, 1})
	if err != nil || bounds[0].End != 0 || bounds[1].End != 0 {
		t.Errorf("the log has grown: %v, %v", bounds, err)
	}
}

func TestAppendChecksEveryPartition(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 2)
	topic := kit.Topic(6)
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1, 4}, Err: kerr.NotEnoughReplicas},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{5}, Err: kerr.NotLeaderForPartition},
	)
	all := make(map[int][]string)
	for p := range 6 {
		all[p] = []string{"x"}
	}
	err := kit.K.Appender(topic).Append(kit.Ctx, kafkakit.Batches(all))
	var partly *ingest.AppendError
	if !errors.As(err, &partly) {
		t.Fatal(err)
	}
	// A fault fails one request, and two brokers got one each.
	for p, want := range map[int]error{1: kafkago.NotEnoughReplicas, 4: kafkago.NotEnoughReplicas, 5: kafkago.NotLeaderForPartition} {
		if got := partly.Failed[p]; got != nil && !errors.Is(got, want) {
			t.Errorf("partition %d: %v, want %v", p, got, want)
		}
	}
	if !errors.Is(err, kafkago.NotEnoughReplicas) || !errors.Is(err, kafkago.NotLeaderForPartition) || !strings.Contains(err.Error(), topic) {
		t.Errorf("the error does not tell what happened: %v", err)
	}
	bounds, boundsErr := kit.K.Log(topic).Bounds(kit.Ctx, ingest.AllPartitions(6))
	if boundsErr != nil {
		t.Fatal(boundsErr)
	}
	for p, b := range bounds {
		if written, failed := b.End == 1, partly.Failed[p] != nil; written == failed {
			t.Errorf("partition %d: written %v, reported as failed %v", p, written, failed)
		}
	}
}

// A lost connection fails all partitions of the request, and none as too large: what became of them is unknown.
func TestAppendConnectionLost(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(2)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	err := kit.K.Appender(topic).Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {"x"}, 1: {"y"}}))
	var partly *ingest.AppendError
	if !errors.As(err, &partly) || len(partly.Failed) != 2 || errors.Is(err, ingest.ErrBatchTooLarge) {
		t.Errorf("got %v, want both partitions failed", err)
	}
	if err := kit.K.Appender(topic).Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {"x"}, 1: {"y"}})); err != nil {
		t.Errorf("the next append: %v", err)
	}
	ctx, cancel := context.WithCancel(kit.Ctx)
	cancel()
	if err := kit.K.Appender(topic).Append(ctx, kafkakit.Batches(map[int][]string{0: {"x"}})); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}
