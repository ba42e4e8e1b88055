package kafka_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
)

// A reader sees committed transactions only, in order, and steps over everything else.
func TestFetchTransactions(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	kit.Put(topic, map[int][]string{0: {"plain"}})
	kit.Transact(topic, false, "a0", "a1", "a2")
	kit.Transact(topic, true, "b0", "b1", "b2")
	kit.Transact(topic, false, "c0", "c1", "c2")
	kit.Put(topic, map[int][]string{0: {"end"}})
	kit.Transact(topic, false, "d0")
	log := kit.Client(func(c *kafka.Config) { c.Committed, c.Registerer = []string{topic}, nil }).Log(topic)
	got := kit.Read(log, kafkakit.Positions(0, 0), 5)
	if want := []string{"plain", "b0", "b1", "b2", "end"}; !slices.Equal(values(got[0]), want) {
		t.Errorf("got %v, want %v", values(got[0]), want)
	}
	// What follows the last message is no record; Next passes it by up to the end.
	bounds, err := log.Bounds(kit.Ctx, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	at := kafkakit.Positions(got[0][4].Offset+1, 0)
	testbed.Eventually(t, 10*time.Second, func() error {
		answers, err := log.Fetch(kit.Ctx, at, 100*time.Millisecond)
		for _, f := range answers {
			if len(f.Messages) > 0 {
				t.Errorf("aborted records came: %v", values(f.Messages))
			}
			at[0].Offset = f.Next
		}
		if err == nil && at[0].Offset < bounds[0].End { // the last marker may have come after the look
			err = errors.New("next has not come to the end")
		}
		return err
	})
	// While one is open, an answer says that readers come no further, and that the log does.
	end := kit.Begin(topic, "e0")
	defer end(false)
	testbed.Eventually(t, 10*time.Second, func() error {
		answers, err := log.Fetch(kit.Ctx, at, 100*time.Millisecond)
		if err != nil || len(answers) != 1 {
			return fmt.Errorf("%d answers, %w", len(answers), err)
		}
		f := answers[0]
		at[0].Offset = f.Next
		if len(f.Messages) > 0 || !f.Held || f.Readable != f.Next || f.HighWatermark != f.Next+1 {
			return fmt.Errorf("%d messages, next %d, readable %d, high watermark %d", len(f.Messages), f.Next,
				f.Readable, f.HighWatermark)
		}
		return nil
	})
}

// Who reads a topic uncommitted waits for no transaction: records of open ones come, and of aborted ones, and the
// answer names no place where readers end. Another topic of the same client is read committed.
func TestFetchUncommitted(t *testing.T) {
	kit := kafkakit.New(t)
	topic, other := kit.Topic(1), kit.Topic(1)
	for _, of := range []string{topic, other} {
		kit.Put(of, map[int][]string{0: {"plain"}})
		kit.Transact(of, false, "a0", "a1")
		kit.Transact(of, true, "b0")
		defer kit.Begin(of, "c0")(false)
		kit.Put(of, map[int][]string{0: {"behind"}})
	}
	k := kit.Client(func(c *kafka.Config) { c.Committed, c.Registerer = []string{other}, nil })
	for of, want := range map[string][]string{
		topic: {"plain", "a0", "a1", "b0", "c0", "behind"},
		other: {"plain", "b0"},
	} {
		log := k.Log(of)
		if got := values(kit.Read(log, kafkakit.Positions(0, 0), len(want))[0]); !slices.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	bounds, err := k.Log(topic).Bounds(kit.Ctx, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	at := kafkakit.Positions(bounds[0].End, 0)
	answers, err := k.Log(topic).Fetch(kit.Ctx, at, 100*time.Millisecond)
	if err != nil || len(answers) != 1 || answers[0].Held {
		t.Errorf("at the log's end: %+v, %v", answers, err)
	}
}

// Kafka tells whose transaction is open: of several the one that ends what readers see; and nothing once it has ended.
func TestOpenTransactionIsNamed(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	open := kafka.NewTransactions(kit.K, topic)
	kit.Put(topic, map[int][]string{0: {"plain"}})
	expect := func(want ingest.Transaction) {
		t.Helper()
		testbed.Eventually(t, 10*time.Second, func() error {
			got, err := open.Open(kit.Ctx, 0)
			if want.Start != ingest.NoOffset && got.Producer > 0 {
				got.Producer = 0
			}
			if err != nil || got != want {
				return fmt.Errorf("got %+v, %w, want %+v", got, err, want)
			}
			return nil
		})
	}
	expect(ingest.Transaction{Start: ingest.NoOffset})
	end := kit.Begin(topic, "a0", "a1")
	expect(ingest.Transaction{Start: 1, ID: topic + ".transactions"})
	end(false)
	expect(ingest.Transaction{Start: ingest.NoOffset})
	if got, err := open.Open(kit.Ctx, 9); err == nil || got.Start != ingest.NoOffset {
		t.Errorf("of a partition that there is not: %+v, %v", got, err)
	}
}
