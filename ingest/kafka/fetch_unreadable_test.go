package kafka_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
)

// TestFetchOfABatchThatUnpacksToTooMuch: its partition answers with what is wrong, where the log ends and where it goes on,
// and reads on from there. Other partitions do not notice.
func TestFetchOfABatchThatUnpacksToTooMuch(t *testing.T) {
	kit := kafkakit.New(t)
	if err := kit.K.LimitUnpacked(1 << 20); err != nil {
		t.Fatal(err)
	}
	topic := kit.Topic(2)
	kit.Put(topic, map[int][]string{0: {"a"}, 1: {"b"}})
	const records = 3000
	kit.PutPacked(topic, 0, slices.Repeat([][]byte{[]byte(strings.Repeat("x", 1000))}, records))
	kit.Put(topic, map[int][]string{0: {"after"}})
	log := kit.K.Log(topic)
	if got := kit.Read(log, kafkakit.Positions(0, 0), 1); values(got[0])[0] != "a" {
		t.Fatalf("before it: %v", got)
	}
	answers, err := log.Fetch(kit.Ctx, kafkakit.Positions(1, 0), time.Minute)
	var unreadable *ingest.UnreadableError
	if err != nil || len(answers) != 1 || !errors.As(answers[0].Err, &unreadable) {
		t.Fatalf("answers %+v, %v", answers, err)
	}
	if unreadable.Next != 1+records || answers[0].Next != 1 || answers[0].HighWatermark != 2+records ||
		!strings.Contains(unreadable.Error(), "the limit of 1048576 bytes") || !strings.Contains(unreadable.Error(), "at offset 1") {
		t.Errorf("answer %+v, goes on at %d", answers[0], unreadable.Next)
	}
	if got := kit.Read(log, kafkakit.Positions(unreadable.Next, 0), 1); values(got[0])[0] != "after" {
		t.Errorf("behind it: %v", got)
	}
	if got := kit.Read(log, kafkakit.Positions(0, 1), 1); values(got[1])[0] != "b" {
		t.Errorf("the other partition: %v", got)
	}
}
