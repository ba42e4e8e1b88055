package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func TestAppendAndFetch(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(3)
	before := traffic.At(time.Now())
	many, long := numbered("event ", 500), strings.Repeat("compressible ", 1000)
	kit.put(topic, map[int][]string{0: {"a", "", long}, 1: many})
	kit.put(topic, map[int][]string{0: {"b"}, 2: {"c", "d", "e", "f"}})
	log := kit.k.Log(topic)

	got := kit.read(log, positions(0, 0, 2), 4)
	if !slices.Equal(values(got[0]), []string{"a", "", long, "b"}) || !slices.Equal(values(got[2]), []string{"c", "d", "e", "f"}) {
		t.Errorf("got %v and %v", shown(got[0]), shown(got[2]))
	}
	got = kit.read(log, positions(0, 1), 500)
	if !slices.Equal(values(got[1]), many) {
		t.Errorf("500 events came back as %v…", shown(got[1][:5]))
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
	answers, err := log.Fetch(kit.ctx, positions(497, 1), time.Second)
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
	kit := newKit(t)
	topic := kit.topic(1)
	want := []string{}
	for codec := kafka.Compression(0); codec <= kafka.Zstd; codec++ {
		var records []kafka.Record
		for _, v := range numbered(codec.String()+strings.Repeat("-", 100), 20) {
			records = append(records, kafka.Record{Key: kafka.NewBytes([]byte("k")), Value: kafka.NewBytes([]byte(v)), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}}})
			want = append(want, v)
		}
		_, err := kit.k.client.Produce(kit.ctx, &kafka.ProduceRequest{
			Topic: topic, RequiredAcks: kafka.RequireAll, Compression: codec, Records: kafka.NewRecordReader(records...),
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := kit.read(kit.k.Log(topic), positions(0, 0), len(want)); !slices.Equal(values(got[0]), want) {
		t.Errorf("got %v", shown(got[0]))
	}
}

// A topic with the producers' times gives those.

func TestFetchCreateTime(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(1)
	setTopic(kit, topic, "message.timestamp.type", "CreateTime")
	at := time.Now().Add(-time.Hour).Truncate(time.Millisecond)
	sent := int64(0)
	testbed.Eventually(t, 10*time.Second, func() error { // a broker heeds a setting a moment after it has taken it
		_, err := kit.k.client.Produce(kit.ctx, &kafka.ProduceRequest{
			Topic: topic, RequiredAcks: kafka.RequireAll, Records: kafka.NewRecordReader(
				kafka.Record{Time: at, Value: kafka.NewBytes([]byte("a"))}, kafka.Record{Time: at.Add(time.Second), Value: kafka.NewBytes([]byte("b"))}),
		})
		if err != nil {
			return err
		}
		got := kit.read(kit.k.Log(topic), positions(sent, 0), 2)[0]
		sent += 2
		if got[0].Appended != traffic.At(at) || got[1].Appended != traffic.At(at.Add(time.Second)) {
			return fmt.Errorf("got %v and %v, want %v and a second more", got[0].Appended, got[1].Appended, at)
		}
		return nil
	})
}

func setTopic(kit *kit, topic, key, value string) {
	kit.t.Helper()
	answer, err := kit.k.client.IncrementalAlterConfigs(kit.ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{{Name: key, Value: value}},
		}},
	})
	if err != nil || answer.Resources[0].Error != nil {
		kit.t.Fatal(err, answer)
	}
}

// Batches larger than all bounds of a fetch come through, also when a partition with small ones is always asked for too.
func TestFetchLargerThanBounds(t *testing.T) {
	kit := newKit(t, func(c *Config) { c.fetchBytes, c.partitionFetchBytes = 64<<10, 16<<10 })
	topic := kit.topic(3)
	large := incompressible(t, 3<<20)
	for range 20 {
		kit.put(topic, map[int][]string{0: {incompressible(t, 20<<10)}, 1: {incompressible(t, 20<<10)}})
	}
	kit.put(topic, map[int][]string{2: {large}})
	kit.put(topic, map[int][]string{2: {"after"}})
	log := kit.k.Log(topic)
	at := positions(0, 0, 1, 2)
	var got []string
	for began, round := time.Now(), 0; len(got) < 2; round++ {
		if round > 200 && time.Since(began) > 10*time.Second { // small answers come faster than the large one is read
			t.Fatalf("partition 2 gave %d of 2 records in %d fetches", len(got), round)
		}
		answers, err := log.Fetch(kit.ctx, at, time.Second)
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

func TestFetchWaits(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(2)
	log := kit.k.Log(topic)
	started := time.Now()
	answers, err := log.Fetch(kit.ctx, positions(0, 0, 1), 300*time.Millisecond)
	if took := time.Since(started); err != nil || len(answers) != 2 || took < 290*time.Millisecond {
		t.Fatalf("an empty topic answered %v, %v after %v; want both partitions, empty, after the wait", answers, err, took)
	}
	for _, f := range answers {
		if len(f.Messages) != 0 || f.Next != 0 || f.HighWatermark != 0 || f.Err != nil {
			t.Errorf("empty partition answered %+v", f)
		}
	}
	// While a fetch waits, other requests of the same client go on, and the first record ends it.
	done := make(chan time.Duration, 1)
	go func() {
		answers, err = log.Fetch(kit.ctx, positions(0, 0, 1), 20*time.Second)
		done <- time.Since(started)
	}()
	started = time.Now()
	kit.put(topic, map[int][]string{1: {"x"}})
	if took := <-done; err != nil || took > 5*time.Second {
		t.Fatalf("the fetch ended after %v with %v", took, err)
	}
	if !slices.ContainsFunc(answers, func(f ingest.Fetched) bool { return f.Partition == 1 && len(f.Messages) == 1 }) {
		t.Errorf("the record is not in the answer %v", answers)
	}
	ctx, cancel := context.WithCancel(kit.ctx)
	time.AfterFunc(50*time.Millisecond, cancel)
	started = time.Now()
	if _, err := log.Fetch(ctx, positions(1, 1), 20*time.Second); !errors.Is(err, context.Canceled) || time.Since(started) > 5*time.Second {
		t.Errorf("a cancelled fetch ended with %v after %v", err, time.Since(started))
	}
}

func TestFetchOutOfRange(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(2)
	kit.put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	answers, err := kit.k.Log(topic).Fetch(kit.ctx, []ingest.Position{{Partition: 0, Offset: 17}, {Partition: 1, Offset: 0}}, time.Second)
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

// A read-committed reader sees committed transactions only, in order, and steps over everything else.

// transact writes values in a transaction of its own, and ends it.

func TestSilence(t *testing.T) {
	start := time.Unix(1000, 0)
	at := func(s int) time.Time { return start.Add(time.Duration(s) * time.Second) }
	answers := func(partitions ...int) []ingest.Fetched {
		var out []ingest.Fetched
		for _, p := range partitions {
			out = append(out, ingest.Fetched{Partition: p})
		}
		return out
	}
	type step struct {
		at             int
		asked          []int
		answered       []int
		silent, report []int
	}
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"one is silent while the other answers", []step{
			{at: 0, asked: []int{0, 1}, answered: []int{0}},
			{at: 29, asked: []int{0, 1}, answered: []int{0}},
			{at: 30, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
			{at: 40, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}},
			{at: 61, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
			{at: 62, asked: []int{0, 1}, answered: []int{0, 1}},
			{at: 80, asked: []int{0, 1}, answered: []int{0}},
		}},
		{"all are silent: that is an outage, and told as one", []step{
			{at: 0, asked: []int{0, 1}}, {at: 20, asked: []int{0, 1}}, {at: 40, asked: []int{0, 1}}, {at: 60, asked: []int{0, 1}},
		}},
		{"given to another owner", []step{
			{at: 0, asked: []int{0, 1}, answered: []int{0}},
			{at: 20, asked: []int{0}, answered: []int{0}},
			{at: 60, asked: []int{0}, answered: []int{0}},
			{at: 70, asked: []int{0, 1}, answered: []int{0}}, // and back: the clock starts anew
			{at: 99, asked: []int{0, 1}, answered: []int{0}},
			{at: 101, asked: []int{0, 1}, answered: []int{0}, silent: []int{1}, report: []int{1}},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newSilence(30 * time.Second)
			for _, step := range tc.steps {
				silent, report := s.observe(at(step.at), positions(0, step.asked...), answers(step.answered...))
				if !slices.Equal(silent, step.silent) || !slices.Equal(report, step.report) {
					t.Errorf("at %d: silent %v report %v, want %v %v", step.at, silent, report, step.silent, step.report)
				}
			}
		})
	}
}
