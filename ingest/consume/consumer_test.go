package consume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// noteSink notes what was applied; before, if set, decides about a batch first.
type noteSink struct {
	t      *testing.T
	before func(ctx context.Context, batch []traffic.Message) error

	mu      sync.Mutex
	applied map[int][]traffic.Message
	sizes   []int
	busy    map[int]bool
}

var _ ingest.Sink = (*noteSink)(nil)

func newNoteSink(t *testing.T) *noteSink {
	return &noteSink{t: t, applied: make(map[int][]traffic.Message), busy: make(map[int]bool)}
}

func (s *noteSink) Apply(ctx context.Context, batch []traffic.Message) error {
	p := batch[0].Partition
	s.mu.Lock()
	if s.busy[p] {
		s.t.Errorf("two batches of partition %d at the same time", p)
	}
	s.busy[p] = true
	s.mu.Unlock()
	var err error
	if s.before != nil {
		err = s.before(ctx, batch)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[p] = false
	for _, m := range batch {
		if m.Partition != p {
			s.t.Errorf("a batch holds partitions %d and %d", p, m.Partition)
		}
	}
	if err == nil {
		s.applied[p] = append(s.applied[p], batch...)
		s.sizes = append(s.sizes, len(batch))
	}
	return err
}

func (s *noteSink) offsets(p int) []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []int64
	for _, m := range s.applied[p] {
		out = append(out, m.Offset)
	}
	return out
}

// startConsumer runs a consumer until the returned function is called, which waits for its end.
func startConsumer(kit *kafkakit.Kit, k *kafka.Client, topic string, sink ingest.Sink, edit ...func(*Options)) (stop func()) {
	kit.T.Helper()
	opts := Options{Name: "test", Log: k.Log(topic), Sink: sink, Wait: 100 * time.Millisecond, CommitEvery: 20 * time.Millisecond,
		Group:  k.Group(topic, topic, kafkakit.GroupOptions()),
		Logger: kafkakit.Logger(kit.T), Registerer: kit.Registry}
	for _, e := range edit {
		e(&opts)
	}
	consumer, err := New(opts)
	if err != nil {
		kit.T.Fatal(err)
	}
	ctx, cancel := context.WithCancel(kit.Ctx)
	done := make(chan error, 1)
	go func() { done <- consumer.Run(ctx) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					kit.T.Error(err)
				}
			case <-time.After(3 * time.Minute):
				kit.T.Error("the consumer does not end")
			}
		})
	}
	kit.T.Cleanup(stop)
	return stop
}

func upTo(n int) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = int64(i)
	}
	return out
}

func TestConsumerAppliesInOrder(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(3)
	for i := range 10 {
		kit.Put(topic, map[int][]string{0: kafkakit.Numbered(fmt.Sprint(i, "-"), 50), 2: {"x"}})
	}
	sink := newNoteSink(t)
	stop := startConsumer(kit, kit.K, topic, sink, func(o *Options) { o.BatchRecords = 30 })
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	kit.Put(topic, map[int][]string{1: {"later"}})
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	for p, n := range map[int]int{0: 500, 1: 1, 2: 10} {
		if got := sink.offsets(p); !slices.Equal(got, upTo(n)) {
			t.Errorf("partition %d: applied %v, want 0 to %d", p, got, n-1)
		}
	}
	if slices.Max(sink.sizes) > 30 {
		t.Errorf("a batch of %d records, want at most 30", slices.Max(sink.sizes))
	}
	if n := testutil.ToFloat64(kit.Counter(t, "weir_stage_records_total")); n != 511 {
		t.Errorf("%v records counted, want 511", n)
	}
	lag, err := kit.K.Lag(kit.Ctx, topic, topic)
	if err != nil || len(lag) != 3 || lag[0]+lag[1]+lag[2] != 0 {
		t.Errorf("lag %v, %v", lag, err)
	}
	// The next process goes on behind the commits.
	kit.Put(topic, map[int][]string{0: {"more"}, 2: {"more"}})
	next := newNoteSink(t)
	stop = startConsumer(kit, kit.K, topic, next)
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if !slices.Equal(next.offsets(0), []int64{500}) || len(next.offsets(1)) > 0 || !slices.Equal(next.offsets(2), []int64{10}) {
		t.Errorf("after a restart: %v %v %v", next.offsets(0), next.offsets(1), next.offsets(2))
	}
}

// A batch that is refused is given again, the same, until it is taken; other partitions go on.
func TestConsumerRefusedBatch(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a", "b", "c"}, 1: {"d"}})
	sink := newNoteSink(t)
	var mu sync.Mutex
	healed, tries := false, 0
	sink.before = func(_ context.Context, batch []traffic.Message) error {
		mu.Lock()
		defer mu.Unlock()
		if batch[0].Partition == 1 || healed {
			return nil
		}
		if tries++; batch[0].Offset != 0 {
			t.Errorf("given again from offset %d", batch[0].Offset)
		}
		return errors.New("store is away")
	}
	stop := startConsumer(kit, kit.K, topic, sink)
	testbed.Eventually(t, 20*time.Second, func() error {
		commits, err := kit.K.FetchCommits(kit.Ctx, topic, topic, []int{0, 1})
		mu.Lock()
		defer mu.Unlock()
		if err != nil || commits[1].Offset != 1 || tries < 3 {
			return fmt.Errorf("partition 1 at %d after %d tries of partition 0, %w", commits[1].Offset, tries, err)
		}
		if commits[0].Offset != 0 {
			t.Errorf("partition 0 is committed up to %d, and nothing of it is applied", commits[0].Offset)
		}
		return nil
	})
	mu.Lock()
	healed = true
	mu.Unlock()
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := sink.offsets(0); !slices.Equal(got, upTo(3)) {
		t.Errorf("applied %v", got)
	}
	if n := testutil.ToFloat64(kit.Counter(t, "weir_stage_apply_failures_total")); n < 3 {
		t.Errorf("%v failures counted", n)
	}
}

// What is in hand when the process is stopped is finished and committed; a sink that hangs is given up after Drain. That one
// partition is finished while another hangs is TestConsumerDrainsOneBesideAnother.
func TestConsumerDrains(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	stops := func(drain time.Duration, released bool) (took time.Duration) {
		t.Helper()
		sink, inHand, release := newNoteSink(t), make(chan int, 2), make(chan struct{})
		sink.before = func(ctx context.Context, batch []traffic.Message) error {
			inHand <- batch[0].Partition
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		}
		stop := startConsumer(kit, kit.K, topic, sink, func(o *Options) { o.Drain = drain })
		<-inHand
		<-inHand
		if released {
			time.AfterFunc(200*time.Millisecond, func() { close(release) })
		}
		started := time.Now()
		stop()
		return time.Since(started)
	}
	committed := func(want int64) {
		t.Helper()
		commits, err := kit.K.FetchCommits(kit.Ctx, topic, topic, []int{0, 1})
		if err != nil || commits[0].Offset != want || commits[1].Offset != want {
			t.Errorf("commits %v, %v, want %d of both", commits, err, want)
		}
	}
	if took := stops(time.Second, false); took < 900*time.Millisecond {
		t.Errorf("stopping a sink that hangs took %v, want the drain time of 1 s at least", took)
	}
	committed(0)
	if took := stops(time.Minute, true); took < 190*time.Millisecond {
		t.Errorf("stopping took %v, and the batches in hand 200 ms", took)
	}
	committed(1)
}

// Members come and go; nothing is lost, and what is applied twice is so because of a takeover.
func TestConsumersShareAndTakeOver(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(4)
	total := 0
	put := func(n int) {
		total += n
		all := make(map[int][]string)
		for p := range 4 {
			all[p] = kafkakit.Numbered("e", n)
		}
		kit.Put(topic, all)
	}
	sinks := []*noteSink{newNoteSink(t), newNoteSink(t), newNoteSink(t)}
	put(100)
	stopA := startConsumer(kit, kit.K, topic, sinks[0])
	put(100)
	stopB := startConsumer(kit, kit.Client(), topic, sinks[1])
	testbed.Eventually(t, 2*time.Minute, func() error {
		put(1)
		for p := range 4 {
			if len(sinks[1].offsets(p)) > 0 {
				return nil
			}
		}
		return errors.New("the second member has got nothing yet")
	})
	stopA()
	put(100)
	stopC := startConsumer(kit, kit.Client(), topic, sinks[2])
	put(100)
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stopB()
	stopC()
	for p := range 4 {
		seen := make(map[int64]bool)
		for _, sink := range sinks {
			for _, offset := range sink.offsets(p) {
				seen[offset] = true
			}
		}
		if len(seen) != total {
			t.Errorf("partition %d: %d of %d records were applied", p, len(seen), total)
		}
	}
}

func TestConsumerLingers(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	sink := newNoteSink(t)
	stop := startConsumer(kit, kit.K, topic, sink, func(o *Options) { o.BatchRecords, o.Linger = 5, time.Hour })
	for range 4 {
		kit.Put(topic, map[int][]string{0: {"a", "b", "c"}})
	}
	testbed.Eventually(t, 20*time.Second, func() error {
		if got := sink.offsets(0); len(got) != 10 {
			return fmt.Errorf("applied %v of 12 in batches of 5", got)
		}
		return nil
	})
	stop()
	if !slices.Equal(sink.sizes, []int{5, 5}) {
		t.Errorf("batches of %v", sink.sizes)
	}
	// What lingered when the consumer stopped comes again, and after the linger time also when the batch is not full.
	sink = newNoteSink(t)
	stop = startConsumer(kit, kit.K, topic, sink, func(o *Options) { o.BatchRecords, o.Linger = 5, 50*time.Millisecond })
	if err := kit.K.AwaitCaughtUp(kit.Ctx, topic, topic); err != nil {
		t.Fatal(err)
	}
	stop()
	if got := sink.offsets(0); !slices.Equal(got, []int64{10, 11}) {
		t.Errorf("applied %v", got)
	}
}

func TestNewConsumerRefuses(t *testing.T) {
	if _, err := New(Options{Name: "x"}); err == nil {
		t.Error("a consumer of nothing was made")
	}
}
