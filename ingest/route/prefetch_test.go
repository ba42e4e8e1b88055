package route

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/traffic"
)

// TestPrefetcherHoldsWhatItMay: what is read ahead stays within its bound and one batch, however small the batches were on
// their way; and every partition is read in the end, the one that the order waits for first.
func TestPrefetcherHoldsWhatItMay(t *testing.T) {
	const (
		parts, bound = 6, 2 << 20
		n            = 40_000
	)
	kit := kafkakit.New(t)
	topic := kit.Topic(parts, func(s *ingest.TopicSpec) { s.MaxMessageBytes = 4 << 20 })
	value := []byte(`{"v":1,"ip":"192.0.2.1","user_agent":"` + strings.Repeat("x", 400) + `"}`)
	batch := n * ingest.HeldBytes(&traffic.Message{Value: value})
	values := make([][]byte, n)
	for i := range values {
		values[i] = value
	}
	for p := range parts {
		kit.PutPacked(topic, p, values)
	}
	wake := make(chan struct{}, 1)
	in := newPrefetcher(kit.K.Log(topic), 100*time.Millisecond, bound, wake, func(err error) { t.Error(err) })
	for p := range parts {
		in.open(p, 0, traffic.BeforeTime, nil)
	}
	ctx, cancel := context.WithCancel(kit.Ctx)
	done := make(chan struct{})
	go func() { in.run(ctx); close(done) }()
	read, most := 0, 0
	again := time.NewTicker(orderTimeout / 10) // as a session's timer does, when what it waits for does not come
	defer again.Stop()
	for order := newOrder(simNow); read < parts*n; {
		select {
		case <-wake:
		case <-again.C:
		case <-ctx.Done():
			t.Fatalf("%d of %d events were read", read, parts*n)
		}
		for held := in.size(); held > 0; held = in.size() {
			most = max(most, held)
			took := 0
			sources := make([]*queuedSource, parts)
			before := make([]int, parts)
			for p := range sources {
				sources[p] = in.queued(p, 0)
				before[p] = len(sources[p].messages)
			}
			order.wait(order.choose(sources, &chunkRoom{10_000, 8 << 20}))
			for p, q := range sources {
				if k := before[p] - len(q.messages); k > 0 {
					took += k
					in.discard(p, lastTaken(in, p, k)+1)
				}
			}
			if read += took; took == 0 {
				break // the order waits
			}
		}
	}
	cancel()
	<-done
	// A batch may pass the bound, and so may the one that the order waits for.
	if limit := bound + 2*batch; most > limit {
		t.Errorf("%d MiB were held, allowed: %d", most>>20, limit>>20)
	}
	packed := int(testutil.ToFloat64(kit.Counter(t, "weir_kafka_fetched_bytes_total")))
	if batch < 5*bound || packed > parts*bound/4 {
		t.Errorf("%d bytes that unpack to %d show nothing", packed, parts*batch)
	}
	t.Logf("%d KiB packed, %d MiB unpacked; %d MiB were held at most", packed>>10, parts*batch>>20, most>>20)
}

// lastTaken is the offset of the k-th message that is queued of a partition.
func lastTaken(in *prefetcher, partition, k int) int64 {
	messages, _ := in.peek(partition)
	return messages[k-1].Offset
}

// TestPrefetcherReadsTheOldestFirst: room goes to those that are behind, and not to what lies far ahead of them.
func TestPrefetcherReadsTheOldestFirst(t *testing.T) {
	in := newPrefetcher(nil, time.Second, 10_000, make(chan struct{}, 1), func(err error) { t.Error(err) })
	for p := range 4 {
		in.open(p, 0, traffic.BeforeTime, nil)
	}
	asks := func() string {
		asked, _ := in.ask()
		out := ""
		for _, a := range asked {
			out += fmt.Sprintf("%d:%d ", a.at.Partition, a.at.Room)
		}
		return out
	}
	answer := func(p, n int, from, to traffic.Time, high int64) {
		q := in.queues[p]
		f := ingest.Fetched{Partition: p, HighWatermark: high, Next: q.next + int64(n)}
		for i := range n {
			f.Messages = append(f.Messages, traffic.Message{
				Partition: p, Offset: q.next + int64(i), Appended: from + (to-from)*traffic.Time(i+1)/traffic.Time(n), Value: make([]byte, 52),
			})
		}
		q.add(&f)
	}
	if got := asks(); got != "0:2500 1:2500 2:2500 3:2500 " {
		t.Errorf("at first: %s", got)
	}
	answer(0, 10, 0, 5*oneSecond, 1000)   // the furthest behind, with most to come
	answer(1, 10, 0, 8*oneSecond, 1000)   // hardly ahead
	answer(2, 10, 0, 300*oneSecond, 1000) // far ahead
	answer(3, 0, 0, 0, 0)                 // has nothing
	if got := asks(); got != "0:2333 1:2333 3:2333 " {
		t.Errorf("with partition 2 far ahead: %s", got)
	}
	answer(1, 50, 8*oneSecond, 9*oneSecond, 1000)
	answer(0, 20, 5*oneSecond, 6*oneSecond, 1000)
	if got := asks(); got != "" {
		t.Errorf("the bound is reached, and the order waits for nobody: %s", got)
	}
	in.discard(0, 30)
	answer(1, 40, 9*oneSecond, 10*oneSecond, 1000)
	in.queues[0].silent, in.queues[3].silent = false, false
	if got := asks(); got != "" {
		t.Errorf("partition 1 has what is older than all that may come of 0: %s", got)
	}
	in.discard(1, 60)
	answer(2, 60, 300*oneSecond, 310*oneSecond, 1000)
	if got := asks(); got != "0:1 " {
		t.Errorf("the order waits for partition 0: one batch of it, though the bound is reached: %s", got)
	}
}

// TestQueueIsDryBeforeAnOpenTransaction: what nobody can read yet is not waited for, and yet the log's end is not reached.
func TestQueueIsDryBeforeAnOpenTransaction(t *testing.T) {
	for _, tt := range []struct {
		next           int64
		held           bool
		readable, high int64
		dry, atEnd     bool
	}{{10, false, 0, 10, true, true}, {10, true, 10, 15, true, false}, {9, true, 10, 15, false, false},
		{9, false, 0, 10, false, false}, {0, true, 0, 3, true, false}, {0, false, 0, 0, true, true}} {
		q := &fetchQueue{}
		q.add(&ingest.Fetched{Next: tt.next, Held: tt.held, Readable: tt.readable, HighWatermark: tt.high})
		if q.dry != tt.dry || q.atEnd != tt.atEnd {
			t.Errorf("%+v: dry %v, at the end %v", tt, q.dry, q.atEnd)
		}
	}
}
