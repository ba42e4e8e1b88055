package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// The record batch format, version ("magic") 2: https://kafka.apache.org/documentation/#recordbatch. weir has its own
// decoder because kafka-go's gives neither the append time of LogAppendTime topics nor the end of a batch whose last
// records were compacted away, and delivers aborted and control records; and because it costs a fraction.

// errCorrupt is wrapped by every error about bytes that are no valid record batch.
var errCorrupt = errors.New("corrupt record batch")

const (
	batchHeaderBytes = 61 // up to the first record
	batchPrefixBytes = 12 // base offset and length, which the length does not include
	batchCRCFrom     = 21 // the checksum covers everything from the attributes on
	leastRecordBytes = 7  // of a record without key, value and headers

	attributeCodec         = 0x07
	attributeLogAppendTime = 0x08
	attributeTransactional = 0x10
	attributeControl       = 0x20
)

// batchHeader is one record batch before its records are looked at.
type batchHeader struct {
	base       int64
	lastDelta  int32
	attributes int16
	firstTime  int64 // milliseconds
	maxTime    int64 // milliseconds; the append time if the topic has LogAppendTime
	producer   int64
	count      int32
	crc        uint32
	raw        []byte // the whole batch
}

func (b *batchHeader) last() int64 { return b.base + int64(b.lastDelta) }

// nextBatch cuts the first batch off set. cut is false when set ends within it, as the last batch of an answer may.
func nextBatch(set []byte) (b batchHeader, rest []byte, cut bool, err error) {
	if len(set) < batchHeaderBytes {
		// Magic is at the same place in all versions, so old formats are recognized even when cut short.
		if len(set) > 16 && set[16] != 2 {
			return b, nil, false, oldFormat(set[16])
		}
		return b, nil, false, nil
	}
	if set[16] != 2 {
		return b, nil, false, oldFormat(set[16])
	}
	b.base = int64(binary.BigEndian.Uint64(set))
	length := int64(int32(binary.BigEndian.Uint32(set[8:])))
	if length < batchHeaderBytes-batchPrefixBytes {
		return b, nil, false, fmt.Errorf("%w at offset %d: length %d is less than a header", errCorrupt, b.base, length)
	}
	if batchPrefixBytes+length > int64(len(set)) {
		return b, nil, false, nil
	}
	b.raw, rest = set[:batchPrefixBytes+length], set[batchPrefixBytes+length:]
	b.crc = binary.BigEndian.Uint32(b.raw[17:])
	b.attributes = int16(binary.BigEndian.Uint16(b.raw[21:]))
	b.lastDelta = int32(binary.BigEndian.Uint32(b.raw[23:]))
	b.firstTime = int64(binary.BigEndian.Uint64(b.raw[27:]))
	b.maxTime = int64(binary.BigEndian.Uint64(b.raw[35:]))
	b.producer = int64(binary.BigEndian.Uint64(b.raw[43:]))
	b.count = int32(binary.BigEndian.Uint32(b.raw[57:]))
	if b.base < 0 || b.lastDelta < 0 || b.base > math.MaxInt64-int64(b.lastDelta)-1 || b.count < 0 {
		return b, nil, false, fmt.Errorf("%w at offset %d: last delta %d, %d records", errCorrupt, b.base, b.lastDelta, b.count)
	}
	if sum := crc32.Checksum(b.raw[batchCRCFrom:], castagnoli()); sum != b.crc {
		return b, nil, false, fmt.Errorf("%w at offset %d: CRC-32C is %08x, the batch says %08x", errCorrupt, b.base, sum, b.crc)
	}
	return b, rest, true, nil
}

// recordHint is an upper bound of the records in a set, for preallocation: the sum of the counts in the headers of its whole
// batches, capped by the bytes present, so that a lying header cannot make us allocate.
func recordHint(set []byte) int {
	n, most := 0, len(set)/leastRecordBytes
	for len(set) >= batchHeaderBytes && n < most {
		length := int64(int32(binary.BigEndian.Uint32(set[8:])))
		if length < batchHeaderBytes-batchPrefixBytes || batchPrefixBytes+length > int64(len(set)) {
			break
		}
		n += int(max(0, int32(binary.BigEndian.Uint32(set[57:]))))
		set = set[batchPrefixBytes+length:]
	}
	return min(n, most)
}

// appendTimeOf is the append time of a set's first record, 0 where the header is cut short. It reads only the header, so
// that nothing is unpacked for it.
func appendTimeOf(set []byte) traffic.Time {
	if len(set) < batchHeaderBytes || set[16] != 2 {
		return 0
	}
	at := 27 // the first record's time
	if binary.BigEndian.Uint16(set[21:])&attributeLogAppendTime != 0 {
		at = 35 // the append time
	}
	return recordTime(int64(binary.BigEndian.Uint64(set[at:])))
}

// castagnoli is a look-up in hash/crc32, which builds this table once.
func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func oldFormat(magic byte) error {
	return fmt.Errorf("%w: message format %d; weir reads format 2 (Kafka 0.11 and newer): "+
		"set the topic's message.format.version and let the old segments expire", errCorrupt, magic)
}

// recordTime converts a time in milliseconds, which for CreateTime topics is whatever a producer wrote.
func recordTime(ms int64) traffic.Time {
	const most = math.MaxInt64 / 1000
	return traffic.Time(max(-most, min(ms, most)) * 1000)
}

// eachRecord calls fn with offset, milliseconds, key and value of each record, ascending. Key and value lie in the batch
// or in a buffer of their own: they stay valid.
func (b *batchHeader) eachRecord(c *codecs, fn func(offset, ms int64, key, value []byte) error) error {
	payload, err := c.decompress(b.attributes&attributeCodec, b.raw[batchHeaderBytes:])
	if err != nil {
		return fmt.Errorf("%w at offset %d: %w", errCorrupt, b.base, err)
	}
	before := int64(-1)
	for i := range b.count {
		r := recordCursor{rest: payload}
		body := recordCursor{rest: r.take(r.varint())}
		payload = r.rest
		body.take(1) // attributes, unused
		time, delta := body.varint(), body.varint()
		key := body.nullable()
		value := body.nullable()
		if r.bad || body.bad {
			return fmt.Errorf("%w at offset %d: record %d of %d is cut", errCorrupt, b.base, i, b.count)
		}
		if delta <= before || delta > int64(b.lastDelta) {
			return fmt.Errorf("%w at offset %d: record %d has offset delta %d after %d, the last is %d",
				errCorrupt, b.base, i, delta, before, b.lastDelta)
		}
		before = delta
		ms := b.firstTime + time
		if b.attributes&attributeLogAppendTime != 0 {
			ms = b.maxTime
		}
		if err := fn(b.base+delta, ms, key, value); err != nil {
			return err
		}
	}
	if len(payload) != 0 {
		return fmt.Errorf("%w at offset %d: %d bytes after the last record", errCorrupt, b.base, len(payload))
	}
	return nil
}

// abortMarker says whether a control batch ends its producer's transaction as aborted.
func (b *batchHeader) abortMarker(c *codecs) (bool, error) {
	aborted := false
	err := b.eachRecord(c, func(_, _ int64, key, _ []byte) error {
		if len(key) < 4 {
			return fmt.Errorf("%w at offset %d: control key of %d bytes", errCorrupt, b.base, len(key))
		}
		aborted = aborted || binary.BigEndian.Uint16(key[2:]) == 0
		return nil
	})
	return aborted, err
}

// recordCursor reads the fields of a record. After a field that does not fit, bad is set and every answer is zero.
type recordCursor struct {
	rest []byte
	bad  bool
}

func (c *recordCursor) varint() int64 {
	v, n := binary.Varint(c.rest)
	if n <= 0 {
		c.rest, c.bad = nil, true
		return 0
	}
	c.rest = c.rest[n:]
	return v
}

func (c *recordCursor) take(n int64) []byte {
	if n < 0 || n > int64(len(c.rest)) {
		c.rest, c.bad = nil, true
		return nil
	}
	b := c.rest[:n:n]
	c.rest = c.rest[n:]
	return b
}

// nullable reads bytes with their length before them; length -1 is nil.
func (c *recordCursor) nullable() []byte {
	n := c.varint()
	if n == -1 {
		return nil
	}
	return c.take(n)
}

// A batch that does not decode still has a length and a last offset in its header, and from these follows where the log goes
// on. Brokers find their way by the same fields, without looking at the checksum.

// leastEntryBytes is the shortest thing that a log of any format holds: an old message without key and value.
const leastEntryBytes = batchPrefixBytes + 14

// cutEntry cuts off the first entry of set by the length in its header, and returns the last offset that the header names.
// ok is false where set ends within the entry.
func cutEntry(set []byte) (last int64, rest []byte, ok bool) {
	if len(set) < leastEntryBytes {
		return 0, nil, false
	}
	size := batchPrefixBytes + int64(int32(binary.BigEndian.Uint32(set[8:])))
	if size < leastEntryBytes || size > int64(len(set)) {
		return 0, nil, false
	}
	last = int64(binary.BigEndian.Uint64(set)) // of an old message, which is one record or names the last of a compressed set
	if set[16] >= 2 && size >= batchHeaderBytes {
		last += int64(int32(binary.BigEndian.Uint32(set[23:])))
	}
	return last, set[size:], true
}

// behindBad is the offset behind the unreadable batches at the beginning of set, the answer to a fetch from asked on;
// NoOffset where their headers do not tell. A batch whose checksum is right is believed: its base offset counts for more
// than the last offset in the damaged header before it. Damaged batches in a row are one gap.
func behindBad(set []byte, asked, high int64) int64 {
	next := ingest.NoOffset
	for first := true; ; first = false {
		batch, _, whole, err := nextBatch(set)
		switch {
		case err == nil && !whole:
			return next
		case err == nil && first:
			return max(batch.last(), asked) + 1 // its header is right, and only its records do not decode
		case err == nil && batch.base > asked:
			return batch.base
		}
		last, rest, ok := cutEntry(set)
		if !ok {
			return next
		}
		if last >= asked && last < high {
			next = max(next, last+1)
		}
		set = rest
	}
}

// passedBy cuts off damaged batches that lie before asked altogether, which the good batch behind them shows: it begins at
// asked or before. A broker sends such batches when the last offset in one of their headers is damaged.
func passedBy(set []byte, asked int64) (rest []byte, ok bool) {
	for {
		if _, rest, ok = cutEntry(set); !ok {
			return nil, false
		}
		behind, _, whole, err := nextBatch(rest)
		if err == nil {
			return rest, whole && behind.base <= asked
		}
		set = rest
	}
}
