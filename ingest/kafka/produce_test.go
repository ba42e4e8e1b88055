package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
)

// Each Batch lies in the log as one record batch, which is what makes it atomic.

func TestAppendIsOneRecordBatch(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(2)
	kit.put(topic, map[int][]string{0: numbered("small ", 3), 1: slices.Repeat([]string{strings.Repeat("e", 300)}, 10_000)})
	kit.put(topic, map[int][]string{0: {"next"}})
	leaders, err := kit.k.leaders(kit.ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	for p, want := range [][]int32{{3, 1}, {10_000}} {
		answer, err := kit.k.roundTrip(kit.ctx, 10*time.Second, &fetchRequest{broker: leaders[p], topic: topic,
			positions: positions(0, p), bytes: 32 << 20, partitionBytes: 32 << 20})
		if err != nil {
			t.Fatal(err)
		}
		set, got := answer.(*fetchResponse).partitions[0].records, []int32(nil)
		for len(set) > 0 {
			batch, rest, whole, err := nextBatch(set)
			if err != nil || !whole {
				t.Fatal(err, whole)
			}
			if packed := batch.attributes&attributeCodec != 0; packed != (batch.count == 10_000) {
				t.Errorf("a batch of %d records is compressed: %v", batch.count, packed)
			}
			got, set = append(got, batch.count), rest
		}
		if !slices.Equal(got, want) {
			t.Errorf("partition %d has batches of %v records, want %v", p, got, want)
		}
	}
}

func TestAppendRefusesTooLarge(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(2, func(s *ingest.TopicSpec) { s.MaxMessageBytes = 64 << 10 })
	appender := kit.k.Appender(topic)
	err := appender.Append(kit.ctx, batches(map[int][]string{0: {incompressible(t, 100<<10)}, 1: {"small"}}))
	var partly *ingest.AppendError
	if !errors.Is(err, ingest.ErrBatchTooLarge) || !errors.As(err, &partly) || !slices.Equal(slices.Collect(maps.Keys(partly.Failed)), []int{0}) {
		t.Errorf("100 KiB for 64: %v, want partition 0 too large and 1 written", err)
	}
	// The limit is for what is sent, and this compresses well.
	if err := appender.Append(kit.ctx, batches(map[int][]string{0: {strings.Repeat("z", 1<<20)}})); err != nil {
		t.Error(err)
	}
	err = appender.Append(kit.ctx, batches(map[int][]string{0: {incompressible(t, mostRequestBytes)}}))
	if !errors.Is(err, ingest.ErrBatchTooLarge) || !strings.Contains(err.Error(), "weir sends up to") {
		t.Errorf("more than a request takes: %v", err)
	}
	if got := kit.read(kit.k.Log(topic), positions(0, 0, 1), 1); len(got[0]) != 1 || len(got[1]) != 1 {
		t.Errorf("%d and %d records were written, want 1 each", len(got[0]), len(got[1]))
	}
}

func TestAppendRefusesBadBatches(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(2)
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
			if err := kit.k.Appender(tc.topic).Append(kit.ctx, tc.batches); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
	if err := kit.k.Appender(topic).Append(kit.ctx, []ingest.Batch{{Partition: 0}, {Partition: 1}}); err != nil {
		t.Errorf("nothing to append: %v", err)
	}
	bounds, err := kit.k.Log(topic).Bounds(kit.ctx, []int{0, 1})
	if err != nil || bounds[0].End != 0 || bounds[1].End != 0 {
		t.Errorf("the log has grown: %v, %v", bounds, err)
	}
}

func TestAppendChecksEveryPartition(t *testing.T) {
	kit, cluster := newFaultyKit(t, 2)
	topic := kit.topic(6)
	cluster.Fault(
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1, 4}, Err: kerr.NotEnoughReplicas},
		kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{5}, Err: kerr.NotLeaderForPartition},
	)
	all := make(map[int][]string)
	for p := range 6 {
		all[p] = []string{"x"}
	}
	err := kit.k.Appender(topic).Append(kit.ctx, batches(all))
	var partly *ingest.AppendError
	if !errors.As(err, &partly) {
		t.Fatal(err)
	}
	// A fault fails one request, and two brokers got one each.
	for p, want := range map[int]error{1: kafka.NotEnoughReplicas, 4: kafka.NotEnoughReplicas, 5: kafka.NotLeaderForPartition} {
		if got := partly.Failed[p]; got != nil && !errors.Is(got, want) {
			t.Errorf("partition %d: %v, want %v", p, got, want)
		}
	}
	if !errors.Is(err, kafka.NotEnoughReplicas) || !errors.Is(err, kafka.NotLeaderForPartition) || !strings.Contains(err.Error(), topic) {
		t.Errorf("the error does not tell what happened: %v", err)
	}
	bounds, boundsErr := kit.k.Log(topic).Bounds(kit.ctx, numbers(6))
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
	kit, cluster := newFaultyKit(t, 1)
	topic := kit.topic(2)
	cluster.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		return nil, errors.New("cut"), true
	})
	err := kit.k.Appender(topic).Append(kit.ctx, batches(map[int][]string{0: {"x"}, 1: {"y"}}))
	var partly *ingest.AppendError
	if !errors.As(err, &partly) || len(partly.Failed) != 2 || errors.Is(err, ingest.ErrBatchTooLarge) {
		t.Errorf("got %v, want both partitions failed", err)
	}
	if err := kit.k.Appender(topic).Append(kit.ctx, batches(map[int][]string{0: {"x"}, 1: {"y"}})); err != nil {
		t.Errorf("the next append: %v", err)
	}
	ctx, cancel := context.WithCancel(kit.ctx)
	cancel()
	if err := kit.k.Appender(topic).Append(ctx, batches(map[int][]string{0: {"x"}})); !errors.Is(err, context.Canceled) {
		t.Errorf("after cancel: %v", err)
	}
}

func TestSplitRequests(t *testing.T) {
	batch := func(partition int, leader int32, size int) encodedBatch {
		return encodedBatch{partition: partition, leader: leader, set: make([]byte, size)}
	}
	for _, tc := range []struct {
		name    string
		batches []encodedBatch
		want    []string
	}{
		{"nothing", nil, nil},
		{"small ones together", []encodedBatch{batch(0, 1, 10), batch(1, 1, 10), batch(2, 1, 10)}, []string{"1: 0 1 2"}},
		{"by leader", []encodedBatch{batch(0, 1, 10), batch(1, 2, 10), batch(2, 1, 10)}, []string{"1: 0 2", "2: 1"}},
		{"much in a few", []encodedBatch{batch(0, 1, 3<<20), batch(1, 1, 3<<20), batch(2, 1, 3<<20), batch(3, 1, 3<<20), batch(4, 1, 3<<20),
			batch(5, 1, 3<<20), batch(6, 1, 3<<20), batch(7, 1, 3<<20)}, []string{"1: 0 1", "1: 2 3", "1: 4 5", "1: 6 7"}},
		{"a large one alone", []encodedBatch{batch(0, 1, 31<<20), batch(1, 1, 31<<20)}, []string{"1: 0", "1: 1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, request := range splitRequests(tc.batches) {
				text, size := fmt.Sprint(request[0].leader, ":"), 0
				for _, b := range request {
					text += fmt.Sprint(" ", b.partition)
					size += len(b.set)
				}
				if size > mostRequestBytes {
					t.Errorf("a request of %d bytes", size)
				}
				got = append(got, strings.Replace(text, " :", ":", 1))
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// Who may send a batch again without writing it twice goes by the type: only what the leader checks before it appends has
// certainly not been written.
func TestAppendErrorTellsWhatIsNotWritten(t *testing.T) {
	for code, unwritten := range map[kafka.Error]bool{
		kafka.LeaderNotAvailable: true, kafka.NotLeaderForPartition: true, kafka.UnknownTopicOrPartition: true, kafka.NotEnoughReplicas: true,
		kafka.NotEnoughReplicasAfterAppend: false, kafka.RequestTimedOut: false, kafka.MessageSizeTooLarge: false,
	} {
		err := produceError(code, "says the broker")
		if !errors.Is(err, code) || errors.As(err, new(*ingest.UnwrittenError)) != unwritten {
			t.Errorf("%v: got %#v, want unwritten %v", code, err, unwritten)
		}
	}
	if err := produceError(0, ""); err != nil {
		t.Error(err)
	}
}
