package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/metadata"

	"github.com/weirhq/weir/ingest"
)

// Transactions says which transactions of a topic are open. Kafka tells the producer of one to who may read the topic
// (KIP-664, Kafka 2.8), and its transactional id to who may describe that (Kafka 3.0).
type Transactions struct {
	k     *Client
	topic string
}

// NewTransactions gives a look at the open transactions of topic.
func NewTransactions(k *Client, topic string) *Transactions { return &Transactions{k: k, topic: topic} }

// errNotTold says that a cluster does not take a request.
var errNotTold = errors.New("this version of Kafka does not tell")

// Keys of requests that kafka-go has no types for: https://kafka.apache.org/protocol#protocol_api_keys.
const (
	describeProducers protocol.ApiKey = 61
	listTransactions  protocol.ApiKey = 66
)

// Open is the transaction that ends what readers of a partition are shown: the open one that begins first. There is
// none where Start is ingest.NoOffset. What Kafka does not tell of it is left empty.
func (t *Transactions) Open(ctx context.Context, partition int) (ingest.Transaction, error) {
	none := ingest.Transaction{Start: ingest.NoOffset}
	leaders, err := t.k.leaders(ctx, t.topic)
	if err != nil {
		return none, err
	}
	if partition >= len(leaders) {
		return none, fmt.Errorf("topic %s partition %d: %w", t.topic, partition, kafka.UnknownTopicOrPartition)
	}
	answer, err := t.ask(ctx, describeProducers, leaders[partition], askProducers(t.topic, partition))
	if err != nil {
		return none, fmt.Errorf("topic %s partition %d: producers: %w", t.topic, partition, err)
	}
	found, err := answer.firstOpen(partition)
	if err != nil || found.Start == ingest.NoOffset {
		return found, err
	}
	found.ID, err = t.transactionalID(ctx, found.Producer)
	if errors.Is(err, errNotTold) {
		err = nil
	}
	return found, err
}

// askProducers is a request of DescribeProducers for one partition.
func askProducers(topic string, partition int) func(b []byte) []byte {
	return func(b []byte) []byte {
		b = appendCompactCount(b, 1)
		b = append(appendCompactCount(b, len(topic)), topic...)
		b = appendCompactCount(b, 1)
		b = binary.BigEndian.AppendUint32(b, uint32(partition))
		return append(b, 0, 0) // no tagged fields of the topic, nor of the request
	}
}

// firstOpen reads an answer to DescribeProducers, version 0.
func (a *compactAnswer) firstOpen(partition int) (ingest.Transaction, error) {
	found := ingest.Transaction{Start: ingest.NoOffset}
	a.int32() // throttled for
	for range a.compactCount(3) {
		a.compactText()
		for range a.compactCount(9) {
			number, code := a.int32(), a.int16()
			a.compactText()
			for range a.compactCount(37) {
				producer := a.int64()
				a.take(4 + 4 + 8 + 4) // its epoch, last sequence and time, its coordinator's epoch
				start := a.int64()
				a.tags()
				if int(number) == partition && start >= 0 && (found.Start == ingest.NoOffset || start < found.Start) {
					found = ingest.Transaction{Start: start, Producer: producer}
				}
			}
			a.tags()
			if int(number) == partition && code != 0 && !a.bad {
				return found, kafka.Error(code)
			}
		}
		a.tags()
	}
	return found, a.cut()
}

// transactionalID asks every broker for the transactional id of a producer: its coordinator alone knows it. It is empty
// where none of them says.
func (t *Transactions) transactionalID(ctx context.Context, producer int64) (string, error) {
	answer, err := t.k.roundTrip(ctx, t.k.cfg.RequestTimeout, &metadata.Request{TopicNames: []string{}})
	if err != nil {
		return "", fmt.Errorf("brokers: %w", err)
	}
	layout, ok := answer.(*metadata.Response)
	if !ok {
		return "", fmt.Errorf("brokers: unexpected answer %T", answer)
	}
	var failed error
	for _, broker := range layout.Brokers {
		answer, err := t.ask(ctx, listTransactions, broker.NodeID, askTransactions(producer))
		var id string
		if err == nil {
			id, err = answer.idOf(producer)
		}
		if err == nil && id != "" {
			return id, nil
		}
		if err != nil {
			failed = fmt.Errorf("transactions of broker %d: %w", broker.NodeID, err)
		}
	}
	return "", failed
}

// askTransactions is a request of ListTransactions for those of one producer.
func askTransactions(producer int64) func(b []byte) []byte {
	return func(b []byte) []byte {
		b = appendCompactCount(b, 0) // in whatever state
		b = appendCompactCount(b, 1)
		b = binary.BigEndian.AppendUint64(b, uint64(producer))
		return append(b, 0) // no tagged fields
	}
}

// idOf reads an answer to ListTransactions, version 0.
func (a *compactAnswer) idOf(producer int64) (id string, err error) {
	a.int32() // throttled for
	if code := a.int16(); code != 0 && !a.bad {
		return "", kafka.Error(code)
	}
	for range a.compactCount(1) {
		a.compactText() // states that it does not know
	}
	for range a.compactCount(11) {
		of, number := a.compactText(), a.int64()
		a.compactText() // its state
		a.tags()
		if number == producer && id == "" {
			id = of
		}
	}
	return id, a.cut()
}

// ask sends version 0 of a request that has had Kafka's compact encoding (KIP-482) from the beginning.
func (t *Transactions) ask(ctx context.Context, key protocol.ApiKey, broker int32,
	body func([]byte) []byte) (*compactAnswer, error) {
	answer, err := t.k.roundTrip(ctx, t.k.cfg.RequestTimeout, &compactRequest{key: key, broker: broker, body: body})
	if err != nil {
		return nil, err
	}
	read, ok := answer.(*compactAnswer)
	if !ok {
		return nil, fmt.Errorf("unexpected answer %T", answer)
	}
	return read, nil
}

// compactRequest is a request to one broker that kafka-go has no type for, written over a connection of its Transport.
type compactRequest struct {
	key       protocol.ApiKey
	broker    int32
	body      func([]byte) []byte
	supported bool // the connection's broker takes it
}

// compactAnswer is what the broker has answered, behind the header.
type compactAnswer struct {
	key protocol.ApiKey
	answerCursor
}

var (
	_ protocol.Message       = (*compactRequest)(nil)
	_ protocol.BrokerMessage = (*compactRequest)(nil)
	_ protocol.RawExchanger  = (*compactRequest)(nil)
	_ protocol.Message       = (*compactAnswer)(nil)
)

// ApiKey is the request's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (r *compactRequest) ApiKey() protocol.ApiKey { return r.key }

// ApiKey is the request's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (a *compactAnswer) ApiKey() protocol.ApiKey { return a.key }

// Broker is the one that is asked.
func (r *compactRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	broker, ok := cluster.Brokers[r.broker]
	if !ok {
		return protocol.Broker{}, fmt.Errorf("broker %d is gone: %w", r.broker, kafka.BrokerNotAvailable)
	}
	return broker, nil
}

// Required takes over the exchange; what the broker takes is told here only.
func (r *compactRequest) Required(versions map[protocol.ApiKey]int16) bool {
	_, r.supported = versions[r.key]
	return true
}

// RawExchange writes the request and reads its answer.
func (r *compactRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if !r.supported {
		return nil, fmt.Errorf("request %d: %w", r.key, errNotTold)
	}
	b := make([]byte, 4, 128) // the size comes with converse
	b = binary.BigEndian.AppendUint16(b, uint16(r.key))
	b = binary.BigEndian.AppendUint16(b, 0) // version
	b = binary.BigEndian.AppendUint32(b, 0) // the only request under way on this connection
	b = appendKafkaString(b, clientID)
	b = r.body(append(b, 0)) // no tagged fields of the header
	body, err := converse(rw, fmt.Sprintf("request %d", r.key), b, 0, maxGroupAnswer)
	if err != nil {
		return nil, err
	}
	answer := &compactAnswer{key: r.key, answerCursor: answerCursor{rest: body}}
	answer.tags()
	return answer, nil
}

// cut says that an answer ends within a field.
func (a *compactAnswer) cut() error {
	if a.bad {
		return fmt.Errorf("request %d: the answer ends within a field", a.key)
	}
	return nil
}

// uvarint reads an unsigned varint.
func (a *compactAnswer) uvarint() uint64 {
	v, n := binary.Uvarint(a.rest)
	if n <= 0 {
		a.rest, a.bad = nil, true
		return 0
	}
	a.rest = a.rest[n:]
	return v
}

// compactCount reads an array's length, which is written as one more, and refuses one that the bytes left cannot hold.
func (a *compactAnswer) compactCount(leastElement int) int {
	n := a.uvarint()
	if n > uint64(len(a.rest)/leastElement)+1 {
		a.rest, a.bad = nil, true
	}
	if a.bad || n == 0 {
		return 0
	}
	return int(n - 1)
}

// compactText reads a text that may be null, which is read as empty.
func (a *compactAnswer) compactText() string {
	return string(a.take(a.compactCount(1)))
}

// tags passes tagged fields by: none is known.
func (a *compactAnswer) tags() {
	for range a.compactCountOfTags() {
		a.uvarint()
		n := a.uvarint()
		if n > uint64(len(a.rest)) {
			a.rest, a.bad = nil, true
			return
		}
		a.take(int(n))
	}
}

// compactCountOfTags reads how many tagged fields follow, which is written as it is.
func (a *compactAnswer) compactCountOfTags() int {
	n := a.uvarint()
	if n > uint64(len(a.rest)/2) {
		a.rest, a.bad = nil, true
		return 0
	}
	return int(n)
}

// appendCompactCount appends the length of an array or of a text.
func appendCompactCount(b []byte, n int) []byte { return binary.AppendUvarint(b, uint64(n)+1) }
