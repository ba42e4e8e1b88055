package kafka

import (
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/weirhq/weir/ingest"
)

// fetchRequest is a Fetch of one topic's partitions from their leader, written and read by weir itself over a connection
// of kafka-go's Transport: https://kafka.apache.org/protocol#The_Messages_Fetch, versions 5 to 11. One request carries all
// partitions; the record batches stay raw bytes.
type fetchRequest struct {
	broker         int32
	client, topic  string
	positions      []ingest.Position
	wait           time.Duration
	bytes          int // bound of the answer, passed only by a single batch
	partitionBytes int // bound of a partition's share
	correlation    int32
	uncommitted    bool  // records of transactions that have not ended, or were aborted, as well
	version        int16 // what the connection negotiated
}

var (
	_ protocol.Message       = (*fetchRequest)(nil)
	_ protocol.BrokerMessage = (*fetchRequest)(nil)
	_ protocol.RawExchanger  = (*fetchRequest)(nil)
	_ protocol.Message       = (*fetchResponse)(nil)
)

// The versions that weir can write; kafka-go negotiates no higher one.
const (
	leastFetchVersion = 5 // the first with the log's start; all brokers that know record format 2 have it
	mostFetchVersion  = 11

	readUncommitted, readCommitted = 0, 1 // isolation_level of KIP-98
)

func (r *fetchRequest) isolation() byte {
	if r.uncommitted {
		return readUncommitted
	}
	return readCommitted
}

// ApiKey is Fetch's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (*fetchRequest) ApiKey() protocol.ApiKey { return protocol.Fetch }

// Broker sends the request to the leader that was chosen when the positions were sorted by leader.
func (r *fetchRequest) Broker(cluster protocol.Cluster) (protocol.Broker, error) {
	broker, ok := cluster.Brokers[r.broker]
	if !ok {
		return protocol.Broker{}, fmt.Errorf("fetch: broker %d is gone: %w", r.broker, kafka.BrokerNotAvailable)
	}
	return broker, nil
}

// Required takes over the exchange; the negotiated versions are told here only.
func (r *fetchRequest) Required(versions map[protocol.ApiKey]int16) bool {
	r.version = versions[protocol.Fetch]
	return true
}

// RawExchange writes the request and reads its answer.
func (r *fetchRequest) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if r.version < leastFetchVersion || r.version > mostFetchVersion {
		return nil, fmt.Errorf("fetch: the broker speaks version %d of Fetch, weir %d to %d: use Kafka 0.11 or newer",
			r.version, leastFetchVersion, mostFetchVersion)
	}
	// Generous: the bound asked for, or one batch beyond it, of which the broker's own limit is the measure.
	body, err := converse(rw, "fetch", r.encode(), r.correlation, 2*r.bytes+maxUnpackedBytes)
	if err != nil {
		return nil, err
	}
	return decodeFetchResponse(body, r.version)
}

// converse sends a request, of which the first four bytes are left for its size, and gives its answer behind the number
// of the request. An answer of more than limit bytes is refused. what names the request in errors.
func converse(rw io.ReadWriter, what string, request []byte, number int32, limit int) ([]byte, error) {
	binary.BigEndian.PutUint32(request, uint32(len(request)-4))
	if _, err := rw.Write(request); err != nil {
		return nil, fmt.Errorf("%s: writing the request: %w", what, err)
	}
	var size [4]byte
	if _, err := io.ReadFull(rw, size[:]); err != nil {
		return nil, fmt.Errorf("%s: reading the answer: %w", what, err)
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 4 || n > limit {
		return nil, fmt.Errorf("%s: the answer says it has %d bytes: want 4 to %d", what, n, limit)
	}
	body, err := readAnswer(rw, n)
	if err != nil {
		return nil, fmt.Errorf("%s: reading an answer of %d bytes: %w", what, n, err)
	}
	if got := int32(binary.BigEndian.Uint32(body)); got != number {
		return nil, fmt.Errorf("%s: answer to request %d, want %d", what, got, number)
	}
	return body[4:], nil
}

// readAnswer reads n bytes into a new buffer, in steps, so that a peer must send what it makes weir allocate.
func readAnswer(r io.Reader, n int) ([]byte, error) {
	const step = 64 << 20
	var body []byte
	for len(body) < n {
		more := min(n-len(body), step)
		body = slices.Grow(body, more)
		if _, err := io.ReadFull(r, body[len(body):len(body)+more]); err != nil {
			return nil, err
		}
		body = body[:len(body)+more]
	}
	return body, nil
}

func (r *fetchRequest) encode() []byte {
	b := make([]byte, 4, 128+len(r.client)+len(r.topic)+32*len(r.positions)) // the size comes with converse
	be := binary.BigEndian
	b = be.AppendUint16(b, uint16(protocol.Fetch))
	b = be.AppendUint16(b, uint16(r.version))
	b = be.AppendUint32(b, uint32(r.correlation))
	b = appendKafkaString(b, r.client)
	b = be.AppendUint32(b, ^uint32(0)) // replica -1: a consumer
	b = be.AppendUint32(b, uint32(max(0, r.wait.Milliseconds())))
	b = be.AppendUint32(b, 1) // answer as soon as there is anything
	b = be.AppendUint32(b, uint32(r.bytes))
	b = append(b, r.isolation())
	if r.version >= 7 {
		b = be.AppendUint32(b, 0)          // no fetch session
		b = be.AppendUint32(b, ^uint32(0)) // nor its epoch
	}
	b = be.AppendUint32(b, 1)
	b = appendKafkaString(b, r.topic)
	b = be.AppendUint32(b, uint32(len(r.positions)))
	for _, p := range r.positions {
		b = be.AppendUint32(b, uint32(p.Partition))
		if r.version >= 9 {
			b = be.AppendUint32(b, ^uint32(0)) // leader epoch unknown
		}
		b = be.AppendUint64(b, uint64(p.Offset))
		b = be.AppendUint64(b, ^uint64(0)) // log start: for followers only
		b = be.AppendUint32(b, uint32(r.shareOf(p)))
	}
	if r.version >= 7 {
		b = be.AppendUint32(b, 0) // nothing forgotten
	}
	if r.version >= 11 {
		b = appendKafkaString(b, "") // no rack: always the leader
	}
	return b
}

const (
	// leastShare is asked for at least, however little room there is: a batch is answered whole or not at all.
	leastShare = 128 << 10
	// usualPacking is about how many times smaller events are on the wire, compressed.
	usualPacking = 4
)

// shareOf is how many bytes a broker may answer for a position: about what there is room for, unpacked. What comes beyond
// would be asked for again.
func (r *fetchRequest) shareOf(p ingest.Position) int {
	if p.Room <= 0 {
		return r.partitionBytes
	}
	return min(r.partitionBytes, max(p.Room/usualPacking, leastShare))
}

func appendKafkaString(b []byte, s string) []byte {
	return append(binary.BigEndian.AppendUint16(b, uint16(len(s))), s...)
}

// fetchResponse is a Fetch answer; the record batches are still encoded.
type fetchResponse struct {
	partitions []fetchedPartition
}

// ApiKey is Fetch's.
//
//nolint:staticcheck // kafka-go's interface spells it so
func (*fetchResponse) ApiKey() protocol.ApiKey { return protocol.Fetch }

type fetchedPartition struct {
	partition     int
	code          kafka.Error // 0: none
	highWatermark int64
	lastStable    int64
	logStart      int64
	aborted       []abortedTransaction
	records       []byte // part of the answer's buffer
}

func decodeFetchResponse(body []byte, version int16) (*fetchResponse, error) {
	c := answerCursor{rest: body}
	c.int32() // throttled for so long already
	if version >= 7 {
		if code := kafka.Error(c.int16()); code != 0 && !c.bad {
			return nil, fmt.Errorf("fetch: %w", code)
		}
		c.int32() // session
	}
	out := &fetchResponse{}
	for range c.count(6) {
		c.take(int(c.int16())) // topic: only one was asked for
		for range c.count(30) {
			p := fetchedPartition{partition: int(c.int32()), code: kafka.Error(c.int16())}
			p.highWatermark = c.int64()
			p.lastStable = c.int64() // the records end there by themselves
			p.logStart = c.int64()
			for range c.count(16) {
				p.aborted = append(p.aborted, abortedTransaction{producer: c.int64(), first: c.int64()})
			}
			if version >= 11 {
				c.int32() // preferred replica: none without a rack
			}
			if n := c.int32(); n > 0 {
				p.records = c.take(int(n))
			}
			if c.bad {
				break
			}
			out.partitions = append(out.partitions, p)
		}
	}
	if c.bad {
		return nil, fmt.Errorf("fetch: the answer of %d bytes ends within a field", len(body))
	}
	return out, nil
}

// answerCursor reads big-endian fields. After one that does not fit, bad is set and every answer is zero.
type answerCursor struct {
	rest []byte
	bad  bool
}

func (c *answerCursor) take(n int) []byte {
	if n < 0 || n > len(c.rest) {
		c.rest, c.bad = nil, true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

func (c *answerCursor) int16() int16 {
	if b := c.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (c *answerCursor) int32() int32 {
	if b := c.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

func (c *answerCursor) int64() int64 {
	if b := c.take(8); b != nil {
		return int64(binary.BigEndian.Uint64(b))
	}
	return 0
}

// count reads an array's length, -1 being none, and refuses one that the bytes left cannot hold.
func (c *answerCursor) count(leastElement int) int {
	n := int(c.int32())
	if n > len(c.rest)/leastElement {
		c.rest, c.bad = nil, true
	}
	if c.bad {
		return 0
	}
	return max(n, 0)
}
