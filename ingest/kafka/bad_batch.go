package kafka

import "encoding/binary"
import "github.com/weirhq/weir/ingest"

// What can be said of a batch that does not decode: how long it says it is, and where the log goes on behind it. Brokers
// find their way by the same fields, without looking at the checksum.

// leastEntryBytes is the shortest thing that a log of any format holds: an old message without key and value.
const leastEntryBytes = batchPrefixBytes + 14

// cutEntry cuts the first entry of set off by the length that it says it has, and gives the last offset that it says it
// holds. ok is false where set ends before that.
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

// behindBad is the offset where the log goes on behind what cannot be read at the beginning of set, which was asked for
// from offset asked on; NoOffset where that cannot be told. A batch whose checksum is right is believed, so that its
// neighbour's base offset counts for more than what a damaged one says of itself. A stretch of damaged ones is one gap.
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

// passedBy cuts off bad batches of which nothing is wanted, since the good one behind them begins at asked or before: a
// broker sends them when the offset that one of them ends with is damaged.
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
