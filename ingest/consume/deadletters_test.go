package consume

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/traffic"
)

func newTestLetters(kit *kafkakit.Kit, topic string, partitions int) ingest.DeadLetters {
	kit.T.Helper()
	letters, err := NewDeadLetters(DeadLetterOptions{Appender: kit.K.Appender(topic), Partitions: partitions, Logger: kafkakit.Logger(kit.T), Registerer: kit.Registry,
		Reasons: map[string][]string{ingest.StageRoute: {"malformed"}, ingest.StageRecord: {"malformed"}, ingest.StageEnforce: {"malformed"}}})
	if err != nil {
		kit.T.Fatal(err)
	}
	return letters
}

func TestDeadLetters(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(2)
	letters := newTestLetters(kit, topic, 2)
	var put []traffic.DeadLetter
	for i := range 5 {
		put = append(put, traffic.NewDeadLetter("route", "malformed", "at byte 3: \xff\x00", "weir.requests",
			traffic.Message{Partition: i, Offset: int64(100 + i), Value: fmt.Appendf(nil, "\x00\xff %d", i)}))
	}
	put = append(put, traffic.NewDeadLetter("record", "refused", strings.Repeat("long ", 2000), "weir.hits",
		traffic.Message{Value: []byte(strings.Repeat("v", 100_000))}))
	if err := letters.Put(kit.Ctx, put); err != nil {
		t.Fatal(err)
	}
	if err := letters.Put(kit.Ctx, nil); err != nil {
		t.Errorf("no letters: %v", err)
	}
	got := kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 0), 4)
	even := got[0]
	got = kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 1), 2)
	odd := got[1]
	for i, m := range slices.Concat(even[:3], odd[:2]) {
		want := put[[]int{0, 2, 4, 1, 3}[i]]
		var letter traffic.DeadLetter
		if err := json.Unmarshal(m.Value, &letter); err != nil {
			t.Fatal(err)
		}
		if letter.Version != traffic.DeadLetterVersion || letter.Stage != "route" || letter.Reason != "malformed" || letter.Topic != want.Topic ||
			letter.Partition != want.Partition || letter.Offset != want.Offset || string(letter.Value) != string(want.Value) || letter.Size != len(want.Value) {
			t.Errorf("letter %d is %+v, want %+v", i, letter, want)
		}
	}
	var long traffic.DeadLetter
	if err := json.Unmarshal(even[3].Value, &long); err != nil {
		t.Fatal(err)
	}
	if len(long.Detail) > deadLetterDetail+len("…") || len(long.Value) != traffic.DeadLetterBytes || long.Size != 100_000 {
		t.Errorf("detail of %d bytes, value of %d, size %d", len(long.Detail), len(long.Value), long.Size)
	}
	counts := `
		# HELP weir_dead_letters_total Records put to the dead-letter topic.
		# TYPE weir_dead_letters_total counter
		weir_dead_letters_total{reason="malformed",stage="enforce"} 0
		weir_dead_letters_total{reason="malformed",stage="record"} 0
		weir_dead_letters_total{reason="malformed",stage="route"} 5
		weir_dead_letters_total{reason="refused",stage="record"} 1
	`
	if err := testutil.GatherAndCompare(kit.Registry, strings.NewReader(counts), "weir_dead_letters_total"); err != nil {
		t.Error(err)
	}
}

// Letters that together are more than the topic takes are divided.
func TestDeadLettersDivided(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1, func(s *ingest.TopicSpec) { s.MaxMessageBytes = 60_000 })
	var put []traffic.DeadLetter
	for i := range 40 {
		put = append(put, traffic.NewDeadLetter("route", "malformed", "", "weir.requests",
			traffic.Message{Offset: int64(i), Value: []byte(kafkakit.Incompressible(t, 8_000))}))
	}
	if err := newTestLetters(kit, topic, 1).Put(kit.Ctx, put); err != nil {
		t.Fatal(err)
	}
	for i, m := range kit.Read(kit.K.Log(topic), kafkakit.Positions(0, 0), 40)[0] {
		var letter traffic.DeadLetter
		if err := json.Unmarshal(m.Value, &letter); err != nil || letter.Offset != int64(i) {
			t.Fatalf("letter %d is that of offset %d, %v", i, letter.Offset, err)
		}
	}
}

func TestDeadLettersTriesAgain(t *testing.T) {
	kit, cluster := kafkakit.NewFaulty(t, 1)
	topic := kit.Topic(2)
	letters := newTestLetters(kit, topic, 2)
	put := []traffic.DeadLetter{{Stage: "s", Reason: "r"}, {Stage: "s", Reason: "r", Partition: 1}}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Partitions: []int32{1}, Err: kerr.NotEnoughReplicas, Count: 2})
	if err := letters.Put(kit.Ctx, put); err != nil {
		t.Fatal(err)
	}
	bounds, err := kit.K.Log(topic).Bounds(kit.Ctx, []int{0, 1})
	if err != nil || bounds[0].End != 1 || bounds[1].End != 1 {
		t.Errorf("bounds %v, %v, want one letter in each: what was acknowledged is not written again", bounds, err)
	}
	cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Topic: topic, Err: kerr.NotEnoughReplicas, Count: -1})
	ctx, cancel := context.WithTimeout(kit.Ctx, 300*time.Millisecond)
	defer cancel()
	if err := letters.Put(ctx, put); err == nil || errors.Is(err, ingest.ErrBatchTooLarge) {
		t.Errorf("while Kafka takes nothing: %v", err)
	}
}
