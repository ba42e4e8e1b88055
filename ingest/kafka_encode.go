package ingest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/segmentio/kafka-go/compress"
)

// compressFrom is the size of a batch's records from which they are compressed: below it lz4 saves next to nothing.
const compressFrom = 1 << 10

// appendRecordSet appends a record set, as a Produce request carries it, to dst: its length, then values as exactly one
// record batch, format 2, without keys and headers. ms is every record's time in milliseconds; on weir's topics the
// broker writes its own over it. Values are copied.
func appendRecordSet(dst []byte, values [][]byte, ms int64) ([]byte, error) {
	if len(values) == 0 || len(values) > math.MaxInt32 {
		return dst, fmt.Errorf("a record batch holds 1 to %d records, got %d", math.MaxInt32, len(values))
	}
	start := len(dst)
	be := binary.BigEndian
	dst = be.AppendUint32(dst, 0)          // length of the set; last
	dst = be.AppendUint64(dst, 0)          // base offset: the broker's to set
	dst = be.AppendUint32(dst, 0)          // length of the batch; last
	dst = be.AppendUint32(dst, ^uint32(0)) // leader epoch: the broker's to set
	dst = append(dst, 2)                   // magic
	dst = be.AppendUint32(dst, 0)          // checksum; last
	dst = be.AppendUint16(dst, 0)          // attributes
	dst = be.AppendUint32(dst, uint32(len(values)-1))
	dst = be.AppendUint64(dst, uint64(ms))
	dst = be.AppendUint64(dst, uint64(ms))
	dst = be.AppendUint64(dst, ^uint64(0)) // producer, epoch and sequence: -1, not idempotent
	dst = be.AppendUint16(dst, ^uint16(0))
	dst = be.AppendUint32(dst, ^uint32(0))
	dst = be.AppendUint32(dst, uint32(len(values)))
	records := len(dst)
	for i, value := range values {
		dst = appendRecord(dst, int64(i), value)
	}
	dst, err := compressRecords(dst, start+4, records)
	if err != nil {
		return dst[:start], err
	}
	batch := dst[start+4:]
	if len(batch) > math.MaxInt32-4 {
		return dst[:start], fmt.Errorf("%w: %d bytes", ErrBatchTooLarge, len(batch))
	}
	be.PutUint32(dst[start:], uint32(len(batch)))
	be.PutUint32(batch[8:], uint32(len(batch)-batchPrefixBytes))
	be.PutUint32(batch[17:], crc32.Checksum(batch[batchCRCFrom:], castagnoli()))
	return dst, nil
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

// compressRecords compresses what follows records, in place, if it pays, and sets the codec in the batch that starts at
// batch.
func compressRecords(dst []byte, batch, records int) ([]byte, error) {
	plain := len(dst) - records
	if plain < compressFrom {
		return dst, nil
	}
	var packed bytes.Buffer
	packed.Grow(plain/2 + 64)
	lz4 := compress.Lz4.Codec().NewWriter(&packed)
	_, err := lz4.Write(dst[records:])
	if closeErr := lz4.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return dst, fmt.Errorf("lz4: %w", err)
	}
	if packed.Len() >= plain {
		return dst, nil
	}
	binary.BigEndian.PutUint16(dst[batch+21:], uint16(compress.Lz4))
	return append(dst[:records], packed.Bytes()...), nil
}
