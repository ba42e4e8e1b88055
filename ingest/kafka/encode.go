package kafka

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/pierrec/lz4/v4"
	"github.com/segmentio/kafka-go/compress"

	"github.com/weirhq/weir/ingest"
)

// compressFrom is the size of a batch's records from which they are compressed: below it lz4 saves next to nothing.
const compressFrom = 1 << 10

// packer encodes record sets. It keeps its memory from one to the next, so it is used by one goroutine at a time.
type packer struct {
	plain []byte // the records, before compression
	set   []byte
	lz4   lz4.Compressor
}

// packerKeeps is the most memory of a packer, either way, that waits for the next use.
const packerKeeps = 8 << 20

// recordSet encodes a record set, as a Produce request carries it: its length, then values as exactly one record batch,
// format 2, without keys and headers. ms is every record's time in milliseconds; on weir's topics the broker writes its
// own over it. Values are copied. The answer is the packer's until its next use.
func (p *packer) recordSet(values [][]byte, ms int64) ([]byte, error) {
	if len(values) == 0 || len(values) > math.MaxInt32 {
		return nil, fmt.Errorf("a record batch holds 1 to %d records, got %d", math.MaxInt32, len(values))
	}
	p.plain = p.plain[:0]
	for i, value := range values {
		p.plain = appendRecord(p.plain, int64(i), value)
	}
	const header = 4 + batchHeaderBytes
	p.set = growBy(p.set[:0], header)
	codec := compress.None
	if len(p.plain) >= compressFrom {
		packed, err := appendLZ4(p.set, p.plain, &p.lz4)
		if err != nil {
			return nil, err
		}
		if p.set = packed; len(packed)-header < len(p.plain) {
			codec = compress.Lz4
		}
	}
	if codec == compress.None {
		p.set = append(p.set[:header], p.plain...)
	}
	if len(p.set) > math.MaxInt32-4 {
		return nil, fmt.Errorf("%w: %d bytes", ingest.ErrBatchTooLarge, len(p.set))
	}
	fillHeader(p.set, codec, len(values), ms)
	return p.set, nil
}

// fillHeader writes what stands before the records of set.
func fillHeader(set []byte, codec compress.Compression, records int, ms int64) {
	be, batch := binary.BigEndian, set[4:]
	be.PutUint32(set, uint32(len(batch)))
	be.PutUint64(batch, 0) // base offset: the broker's to set
	be.PutUint32(batch[8:], uint32(len(batch)-batchPrefixBytes))
	be.PutUint32(batch[12:], ^uint32(0)) // leader epoch: the broker's to set
	batch[16] = 2                        // magic
	be.PutUint16(batch[21:], uint16(codec))
	be.PutUint32(batch[23:], uint32(records-1))
	be.PutUint64(batch[27:], uint64(ms))
	be.PutUint64(batch[35:], uint64(ms))
	be.PutUint64(batch[43:], ^uint64(0)) // producer, epoch and sequence: -1, not idempotent
	be.PutUint16(batch[51:], ^uint16(0))
	be.PutUint32(batch[53:], ^uint32(0))
	be.PutUint32(batch[57:], uint32(records))
	be.PutUint32(batch[17:], crc32.Checksum(batch[batchCRCFrom:], castagnoli()))
}

func appendRecord(dst []byte, delta int64, value []byte) []byte {
	length := 1 + 1 + varintBytes(delta) + 1 + varintBytes(int64(len(value))) + len(value) + 1
	if value == nil {
		length = 1 + 1 + varintBytes(delta) + 1 + 1 + 1
	}
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, 0, 0) // attributes, time delta
	dst = binary.AppendVarint(dst, delta)
	dst = binary.AppendVarint(dst, -1) // no key
	if value == nil {
		dst = binary.AppendVarint(dst, -1)
	} else {
		dst = binary.AppendVarint(dst, int64(len(value)))
		dst = append(dst, value...)
	}
	return append(dst, 0) // no headers
}

func varintBytes(v int64) int {
	n := 1
	for u := uint64(v<<1) ^ uint64(v>>63); u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
