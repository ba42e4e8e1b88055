package kafka_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/kafkakit"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

func now() traffic.Time { return traffic.At(time.Now()) }

// Brokers are on this machine: what is heard of their clocks bounds them on both sides, and shows no difference.
func TestAnAcknowledgementTellsTheBrokersTime(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	if _, heard, _ := kafka.Clock(kit.K)(kit.Ctx, now); heard {
		t.Error("a clock was heard before anything was sent")
	}
	before := now()
	kit.Put(topic, map[int][]string{0: {"one"}})
	r, heard, err := kafka.Clock(kit.K)(kit.Ctx, now)
	if err != nil || !heard || r.Asked < before || r.Answered > now() || r.Theirs < before.Add(-time.Minute) {
		t.Errorf("heard %+v, %v, %v of what was appended after %s", r, heard, err, before)
	}
	if _, heard, _ := kafka.Clock(kit.K)(kit.Ctx, now); heard {
		t.Error("what was taken was heard again")
	}
}

// A record that is read was appended at any time before: it shows only that a clock is ahead.
func TestARecordTellsThatTheBrokerIsAhead(t *testing.T) {
	kit := kafkakit.New(t)
	topic := kit.Topic(1)
	kit.Put(topic, map[int][]string{0: {"one"}})
	_, _, _ = kafka.Clock(kit.K)(kit.Ctx, now) // of the acknowledgement
	log := kit.K.Log(topic)
	testbed.Eventually(t, 10*time.Second, func() error {
		got, err := log.Fetch(kit.Ctx, []ingest.Position{{Partition: 0, Offset: 0}}, time.Second)
		if err != nil || len(got) == 0 || len(got[0].Messages) == 0 {
			return errors.New("nothing was read")
		}
		return err
	})
	if r, heard, _ := kafka.Clock(kit.K)(kit.Ctx, now); heard && r.Apart() > time.Minute {
		t.Errorf("heard %+v of a record of the past", r)
	}
	kit.K.Hear(now().Add(-time.Hour))
	if r, heard, _ := kafka.Clock(kit.K)(kit.Ctx, now); heard {
		t.Errorf("heard %+v of a record that has lain for an hour", r)
	}
	kit.K.Hear(now().Add(time.Hour))
	if r, heard, _ := kafka.Clock(kit.K)(kit.Ctx, now); !heard || r.Apart() < 59*time.Minute {
		t.Errorf("heard %+v, %v of a record of in an hour", r, heard)
	}
}
