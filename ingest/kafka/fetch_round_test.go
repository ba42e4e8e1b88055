package kafka_test

import (
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/traffic"
)

// TestFetchKeepsToItsRoom: an answer ends with the batch that fills the room, tells when the next one was appended, and
// the rooms of all positions bound the answers together.
func TestFetchKeepsToItsRoom(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(3)
	for p := range 3 {
		for range 3 {
			kit.Put(topic, map[int][]string{p: kafkakit.Numbered("event-", 10)})
		}
	}
	log := kit.K.Log(topic)
	whole := kit.Read(log, kafkakit.Positions(0, 0), 30)[0]
	fetch := func(at ...ingest.Position) map[int]ingest.Fetched {
		t.Helper()
		answers, err := log.Fetch(kit.Ctx, at, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		got := map[int]ingest.Fetched{}
		for _, f := range answers {
			got[f.Partition] = f
		}
		return got
	}
	for _, tt := range []struct {
		room, events int
		offset, next int64
		following    traffic.Time
	}{
		{1, 10, 0, 10, whole[10].Appended},
		{1, 10, 10, 20, whole[20].Appended},
		{ingest.HeldBytes(&whole[0])*10 + 1, 20, 0, 20, whole[20].Appended},
		{1 << 20, 30, 0, 30, 0},
		{0, 30, 0, 30, 0},
	} {
		f := fetch(ingest.Position{Partition: 0, Offset: tt.offset, Room: tt.room})[0]
		if len(f.Messages) != tt.events || f.Next != tt.next || f.Following != tt.following {
			t.Errorf("room %d from %d: %d events, next %d, following %v; want %d, %d, %v",
				tt.room, tt.offset, len(f.Messages), f.Next, f.Following, tt.events, tt.next, tt.following)
		}
	}
	all := fetch(ingest.Position{Partition: 0, Room: 100}, ingest.Position{Partition: 1, Room: 100}, ingest.Position{Partition: 2, Room: 100})
	events := 0
	for _, f := range all {
		if events += len(f.Messages); f.Following == 0 {
			t.Errorf("partition %d does not say what follows: %+v", f.Partition, f)
		}
	}
	if len(all) != 3 || events != 10 {
		t.Errorf("%d events of %d partitions with room for one batch, want 10 of 3", events, len(all))
	}
}
