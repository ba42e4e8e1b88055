package kafka_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

func TestBounds(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 3)
	topic := kit.Topic(5)
	kit.Put(topic, map[int][]string{0: {"a", "b", "c"}, 3: {"d"}})
	if err := cluster.DeleteRecords(topic, 0, 2); err != nil {
		t.Fatal(err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: topic, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: 3})
	log := kit.K.Log(topic)
	got, err := log.Bounds(kit.Ctx, []int{0, 1, 2, 3, 4})
	if err != nil {
		t.Fatal(err)
	}
	want := map[int]ingest.Bounds{0: {Start: 2, End: 3}, 1: {}, 2: {}, 3: {Start: 0, End: 1}, 4: {}}
	for p, b := range want {
		if got[p] != b {
			t.Errorf("partition %d: %v, want %v", p, got[p], b)
		}
	}
	// That the time ran out says less than what was wrong until then, where there was time for an answer.
	for soon := 300 * time.Millisecond; ; soon *= 4 {
		ctx, cancel := context.WithTimeout(kit.Ctx, soon)
		got, err := log.Bounds(ctx, []int{0, 9})
		cancel()
		if errors.Is(err, kafkago.UnknownTopicOrPartition) {
			break
		}
		if !errors.Is(err, context.DeadlineExceeded) || soon > 10*time.Second {
			t.Fatalf("bounds with a partition that does not exist: %v, %v", got, err)
		}
	}
}

// A partition whose leader is away is absent, the others are not kept waiting, and it comes back by itself.
func TestFetchLeaderAway(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	fault := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Partitions: []int32{0}, Err: kerr.NotLeaderForPartition, Count: -1})
	log := kit.K.Log(topic)
	answers, err := log.Fetch(kit.Ctx, kafkakit.Positions(0, 0, 1), time.Minute)
	if err != nil || len(answers) != 1 || answers[0].Partition != 1 || len(answers[0].Messages) != 1 {
		t.Fatalf("got %v, %v, want partition 1 alone", answers, err)
	}
	// While nobody can answer, Fetch waits and the broker is left in peace.
	before := fault.Hits()
	answers, err = log.Fetch(kit.Ctx, kafkakit.Positions(0, 0), time.Second)
	if err != nil || len(answers) != 0 {
		t.Errorf("got %v, %v, want nothing after the wait", answers, err)
	}
	if asked := fault.Hits() - before; asked > 10 {
		t.Errorf("a partition without a leader was asked for %d times in a second", asked)
	}
	fault.Remove()
	if got := kit.Read(log, kafkakit.Positions(0, 0), 1); values(got[0])[0] != "a" {
		t.Errorf("got %v", got)
	}
}

// A record on one broker is given at once while another broker has nothing and holds its answer back; and what that one
// answers later is taken up, not asked for again.
func TestFetchSeveralBrokers(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 3)
	topic := kit.Topic(3)
	for p := range int32(3) {
		if err := cluster.MoveTopicPartition(topic, p, p); err != nil {
			t.Fatal(err)
		}
	}
	log := kit.K.Log(topic)
	testbed.Eventually(t, 10*time.Second, func() error {
		leaders, err := kit.K.Leaders(kit.Ctx, topic)
		if err == nil && !slices.Equal(leaders, []int32{0, 1, 2}) {
			err = errors.New("the move is not seen yet")
		}
		return err
	})
	seen := cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: topic, Count: -1, Observe: true})
	at := kafkakit.Positions(0, 0, 1, 2)
	for i := range 20 {
		kit.Put(topic, map[int][]string{0: {"x"}})
		answers, err := log.Fetch(kit.Ctx, at, forever) // kit.Ctx ends before: who waits for the silent brokers gets nothing
		if err != nil || len(answers) != 1 || answers[0].Partition != 0 || len(answers[0].Messages) != 1 {
			t.Fatalf("round %d: got %v, %v", i, answers, err)
		}
		at[0].Offset = answers[0].Next
	}
	if asked := seen.Hits(); asked > 20+2 {
		t.Errorf("%d requests for 20 records of one broker and two silent ones, want at most 22", asked)
	}
	kit.Put(topic, map[int][]string{2: {"y"}})
	answers, err := log.Fetch(kit.Ctx, at, forever)
	if err != nil || len(answers) != 1 || answers[0].Partition != 2 || values(answers[0].Messages)[0] != "y" {
		t.Errorf("the request that was under way gave %v, %v", answers, err)
	}
}

// Fetching goes on when a partition moves to another broker.
func TestFetchLeaderMoves(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 2)
	topic := kit.Topic(1)
	log := kit.K.Log(topic)
	at := kafkakit.Positions(0, 0)
	for i, node := range []int32{0, 1, 0} {
		if err := cluster.MoveTopicPartition(topic, 0, node); err != nil {
			t.Fatal(err)
		}
		testbed.Eventually(t, 10*time.Second, func() error {
			return kit.K.Appender(topic).Append(kit.Ctx, kafkakit.Batches(map[int][]string{0: {"x"}}))
		})
		got := kit.Read(log, at, 1)[0]
		if got[0].Offset != int64(i) {
			t.Fatalf("move %d: offset %d", i, got[0].Offset)
		}
		at[0].Offset = got[0].Offset + 1
	}
}
