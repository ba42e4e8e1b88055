package kafka_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	kafkago "github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestAppendAndFetch(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(3)
	before := traffic.At(time.Now())
	many, long := kafkakit.Numbered("event ", 500), strings.Repeat("compressible ", 1000)
	kit.Put(topic, map[int][]string{0: {"a", "", long}, 1: many})
	kit.Put(topic, map[int][]string{0: {"b"}, 2: {"c", "d", "e", "f"}})
	log := kit.K.Log(topic)

	got := kit.Read(log, kafkakit.Positions(0, 0, 2), 4)
	if !slices.Equal(values(got[0]), []string{"a", "", long, "b"}) || !slices.Equal(values(got[2]), []string{"c", "d", "e", "f"}) {
		t.Errorf("got %v and %v", values(got[0]), values(got[2]))
	}
	got = kit.Read(log, kafkakit.Positions(0, 1), 500)
	if !slices.Equal(values(got[1]), many) {
		t.Errorf("500 events came back as %v…", values(got[1][:5]))
	}
	for i, m := range got[1] {
		if m.Offset != int64(i) || m.Partition != 1 {
			t.Fatalf("message %d has partition %d and offset %d", i, m.Partition, m.Offset)
		}
		// Broker and test have the same clock; the broker's has milliseconds.
		if age := m.Appended.Sub(before); age < -time.Millisecond || age > time.Minute {
			t.Fatalf("message %d was appended %v after the test began: not the broker's time", i, age)
		}
		if m.Appended != got[1][0].Appended {
			t.Fatalf("message %d of one batch has another append time", i)
		}
	}
	answers, err := log.Fetch(kit.Ctx, kafkakit.Positions(497, 1), time.Minute)
	if err != nil || len(answers) != 1 {
		t.Fatal(answers, err)
	}
	f := answers[0]
	if len(f.Messages) != 3 || f.Messages[0].Offset != 497 || f.Next != 500 || f.HighWatermark != 500 || f.LogStart != 0 {
		t.Errorf("from within a batch: %d messages, next %d, high watermark %d, start %d", len(f.Messages), f.Next, f.HighWatermark, f.LogStart)
	}
	if age := f.Asked.Sub(before); age < 0 || traffic.At(time.Now()).Sub(f.Asked) < 0 {
		t.Errorf("asked %v after the test began", age)
	}
}

// The batches of other producers, with keys, headers and every codec, read as one log.
func TestFetchAllCodecs(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	want := []string{}
	for codec := kafkago.Compression(0); codec <= kafkago.Zstd; codec++ {
		var records []kafkago.Record
		for _, v := range kafkakit.Numbered(codec.String()+strings.Repeat("-", 100), 20) {
			records = append(records, kafkago.Record{Key: kafkago.NewBytes([]byte("k")), Value: kafkago.NewBytes([]byte(v)), Headers: []kafkago.Header{{Key: "h", Value: []byte("v")}}})
			want = append(want, v)
		}
		_, err := kit.K.Raw().Produce(kit.Ctx, &kafkago.ProduceRequest{
			Topic: topic, RequiredAcks: kafkago.RequireAll, Compression: codec, Records: kafkago.NewRecordReader(records...),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 0), len(want)); !slices.Equal(values(got[0]), want) {
		t.Errorf("got %v", values(got[0]))
	}
}

// A topic with the producers' times gives those.
func TestFetchCreateTime(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	setTopic(kit, topic, "message.timestamp.type", "CreateTime")
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	sent := int64(0)
	testbed.Eventually(t, 10*time.Second, func() error { // a broker heeds a setting a moment after it has taken it
		_, err := kit.K.Raw().Produce(kit.Ctx, &kafkago.ProduceRequest{
			Topic: topic, RequiredAcks: kafkago.RequireAll, Records: kafkago.NewRecordReader(
				kafkago.Record{Time: at, Value: kafkago.NewBytes([]byte("a"))}, kafkago.Record{Time: at.Add(time.Second), Value: kafkago.NewBytes([]byte("b"))}),
		})
		if err != nil {
			return err
		}
		got := kit.Read(kit.K.Log(topic), kafkakit.Positions(sent, 0), 2)[0]
		sent += 2
		if got[0].Appended != traffic.At(at) || got[1].Appended != traffic.At(at.Add(time.Second)) {
			return fmt.Errorf("got %v and %v, want %v and a second more", got[0].Appended, got[1].Appended, at)
		}
		return nil
	})
}

func setTopic(kit *kafkakit.Kit, topic, key, value string) {
	kit.T.Helper()
	answer, err := kit.K.Raw().IncrementalAlterConfigs(kit.Ctx, &kafkago.IncrementalAlterConfigsRequest{
		Resources: []kafkago.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafkago.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafkago.IncrementalAlterConfigsRequestConfig{{Name: key, Value: value}},
		}},
	})
	if err != nil || answer.Resources[0].Error != nil {
		kit.T.Fatal(err, answer)
	}
}

// Batches larger than all bounds of a fetch come through, also when a partition with small ones is always asked for too.
func TestFetchLargerThanBounds(t *testing.T) {
	kit := kafkakit.New(t, func(c *kafka.Config) { c.LimitFetch(64<<10, 16<<10) })
	topic := kit.Topic(3)
	large := kafkakit.Incompressible(t, 3<<20)
	for range 20 {
		kit.Put(topic, map[int][]string{0: {kafkakit.Incompressible(t, 20<<10)}, 1: {kafkakit.Incompressible(t, 20<<10)}})
	}
	kit.Put(topic, map[int][]string{2: {large}})
	kit.Put(topic, map[int][]string{2: {"after"}})
	log := kit.K.Log(topic)
	at := kafkakit.Positions(0, 0, 1, 2)
	var got []string
	for began, round := time.Now(), 0; len(got) < 2; round++ {
		if round > 200 && time.Since(began) > time.Minute { // small answers come faster than the large one is read
			t.Fatalf("partition 2 gave %d of 2 records in %d fetches", len(got), round)
		}
		answers, err := log.Fetch(kit.Ctx, at, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range answers {
			at[f.Partition].Offset = f.Next
			if f.Partition == 2 {
				got = append(got, values(f.Messages)...)
			} else if f.Next == 20 {
				at[f.Partition].Offset = 0 // always more of the small ones
			}
		}
	}
	if got[0] != large || got[1] != "after" {
		t.Errorf("%d and %d bytes came back", len(got[0]), len(got[1]))
	}
}

// forever is a wait that outlasts kit.Ctx: a Fetch that comes to its end returns that one's error, and not an answer.
const forever = time.Hour

func TestFetchWaits(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	testbed.Eventually(t, time.Minute, func() error { // a busy broker's answer may come when Fetch has given it up
		answers, err := kit.K.Log(topic).Fetch(kit.Ctx, kafkakit.Positions(0, 0, 1), 300*time.Millisecond)
		if err != nil {
			t.Fatalf("an empty topic answered %v, %v; want both partitions, empty, after the wait", answers, err)
		}
		for _, f := range answers {
			if len(f.Messages) != 0 || f.Next != 0 || f.HighWatermark != 0 || f.Err != nil {
				t.Errorf("empty partition answered %+v", f)
			}
		}
		if len(answers) != 2 {
			return fmt.Errorf("an empty topic answered %v, want both partitions", answers)
		}
		return nil
	})
	// While a fetch waits, other requests of the same client go on, and the first record ends it.
	log := kit.K.Log(topic)
	var answers []ingest.Fetched
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		answers, err = log.Fetch(kit.Ctx, kafkakit.Positions(0, 0, 1), forever)
	}()
	kit.Put(topic, map[int][]string{1: {"x"}})
	if <-done; err != nil {
		t.Fatalf("the fetch ended with %v", err)
	}
	if !slices.ContainsFunc(answers, func(f ingest.Fetched) bool { return f.Partition == 1 && len(f.Messages) == 1 }) {
		t.Errorf("the record is not in the answer %v", answers)
	}
	ctx, cancel := context.WithCancel(kit.Ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := log.Fetch(ctx, kafkakit.Positions(1, 1), forever); !errors.Is(err, context.Canceled) {
		t.Errorf("a cancelled fetch ended with %v", err)
	}
}

func TestFetchOutOfRange(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	answers, err := kit.K.Log(topic).Fetch(kit.Ctx, []ingest.Position{{Partition: 0, Offset: 17}, {Partition: 1, Offset: 0}}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range answers {
		if f.Partition == 0 {
			found = true
			if !errors.Is(f.Err, ingest.ErrOutOfRange) || f.Next != 17 {
				t.Errorf("partition 0 answered %+v", f)
			}
		}
	}
	if !found {
		t.Errorf("partition 0 is not in the answer %v", answers)
	}
}
