package kafka

import (
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"

	"github.com/weirhq/weir/internal/testbed"
)

func TestFetchTransactions(t *testing.T) {
	kit := newKit(t)
	topic := kit.topic(1)
	kit.put(topic, map[int][]string{0: {"plain"}})
	for i, commit := range []bool{false, true, false} {
		transact(kit, topic, string(rune('a'+i)), commit, numbered(string(rune('a'+i)), 3))
	}
	kit.put(topic, map[int][]string{0: {"end"}})
	transact(kit, topic, "d", false, []string{"d0"})
	log := kit.k.Log(topic)
	got := kit.read(log, positions(0, 0), 5)
	if want := []string{"plain", "b0", "b1", "b2", "end"}; !slices.Equal(values(got[0]), want) {
		t.Errorf("got %v, want %v", shown(got[0]), want)
	}
	// What follows the last message is no record; Next passes it by up to the end.
	bounds, err := log.Bounds(kit.ctx, []int{0})
	if err != nil {
		t.Fatal(err)
	}
	at := positions(got[0][4].Offset+1, 0)
	testbed.Eventually(t, 10*time.Second, func() error {
		answers, err := log.Fetch(kit.ctx, at, 100*time.Millisecond)
		for _, f := range answers {
			if len(f.Messages) > 0 {
				t.Errorf("aborted records came: %v", shown(f.Messages))
			}
			at[0].Offset = f.Next
		}
		if err == nil && at[0].Offset < bounds[0].End { // the last marker may have come after the look
			err = errors.New("next has not come to the end")
		}
		return err
	})
}

func transact(kit *kit, topic, id string, commit bool, values []string) {
	kit.t.Helper()
	client := kit.k.client
	id = topic + "." + id
	var producer *kafka.ProducerSession
	testbed.Eventually(kit.t, 20*time.Second, func() error { // a fresh broker is still loading its coordinators
		answer, err := client.InitProducerID(kit.ctx, &kafka.InitProducerIDRequest{TransactionalID: id, TransactionTimeoutMs: 30_000, ProducerID: -1, ProducerEpoch: -1})
		if err == nil {
			err = answer.Error
		}
		if err == nil {
			producer = answer.Producer
		}
		return err
	})
	testbed.Eventually(kit.t, 20*time.Second, func() error { // Concurrent Transactions right after another one
		added, err := client.AddPartitionsToTxn(kit.ctx, &kafka.AddPartitionsToTxnRequest{TransactionalID: id, ProducerID: producer.ProducerID,
			ProducerEpoch: producer.ProducerEpoch, Topics: map[string][]kafka.AddPartitionToTxn{topic: {{Partition: 0}}}})
		if err == nil {
			err = added.Topics[topic][0].Error
		}
		return err
	})
	made := madeBatch{values: values, ms: time.Now().UnixMilli(), attributes: attributeTransactional,
		edit: func(raw []byte) {
			binary.BigEndian.PutUint64(raw[43:], uint64(producer.ProducerID))
			binary.BigEndian.PutUint16(raw[51:], uint16(producer.ProducerEpoch))
			binary.BigEndian.PutUint32(raw[53:], 0)
		}}
	set := binary.BigEndian.AppendUint32(nil, uint32(len(made.bytes(kit.t))))
	set = append(set, made.bytes(kit.t)...)
	answer, err := kit.k.roundTrip(kit.ctx, 10*time.Second, &rawproduce.Request{TransactionalID: id, Acks: -1, Timeout: 10_000,
		Topics: []rawproduce.RequestTopic{{Topic: topic, Partitions: []rawproduce.RequestPartition{{
			RecordSet: protocol.RawRecordSet{Reader: strings.NewReader(string(set))}}}}}})
	if err != nil {
		kit.t.Fatal(err)
	}
	if code := answer.(*produce.Response).Topics[0].Partitions[0].ErrorCode; code != 0 {
		kit.t.Fatal(kafka.Error(code))
	}
	ended, err := client.EndTxn(kit.ctx, &kafka.EndTxnRequest{TransactionalID: id, ProducerID: producer.ProducerID,
		ProducerEpoch: producer.ProducerEpoch, Committed: commit})
	if err != nil || ended.Error != nil {
		kit.t.Fatal(err, ended)
	}
}
