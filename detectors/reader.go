package detectors

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// reader takes a binary form apart. The first error stays; after it every read gives zero, so a decoder may check once
// at its end. No length that it reads is trusted beyond the bytes that are there.
type reader struct {
	b      []byte
	err    error
	format int // of what is read, where it has several
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b = nil
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// fixed64 reads eight bytes, big-endian.
func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 {
		r.fail("%d bytes left, 8 are needed", len(r.b))
		return 0
	}
	v := binary.BigEndian.Uint64(r.b)
	r.b = r.b[8:]
	return v
}

// count reads a number that fits an int64.
func (r *reader) count() int64 {
	v := r.uvarint()
	if v > math.MaxInt64 {
		r.fail("number %d does not fit 63 bits", v)
		return 0
	}
	return int64(v)
}

// upTo reads a number that must not be above limit.
func (r *reader) upTo(limit uint64, what string) uint64 {
	v := r.uvarint()
	if v > limit {
		r.fail("%s %d, allowed: up to %d", what, v, limit)
		return 0
	}
	return v
}

// length reads how many elements follow, each of at least size bytes, so that no more is allocated than the input
// could hold.
func (r *reader) length(size int, what string) int {
	return int(r.upTo(uint64(len(r.b)/size), what))
}

// bytes reads a length and as many bytes; the result aliases the input.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.fail("%d bytes announced, %d left", n, len(r.b))
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// text is bytes as a string; it aliases the input too.
func (r *reader) text() string {
	b := r.bytes()
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// done reports the first error, or bytes left over, wrapped in kind.
func (r *reader) done(kind error) error {
	if r.err != nil {
		return fmt.Errorf("%w: %w", kind, r.err)
	}
	if len(r.b) != 0 {
		return fmt.Errorf("%w: %d bytes left over", kind, len(r.b))
	}
	return nil
}

// take reads n bytes; the result aliases the input.
func (r *reader) take(n int) []byte {
	if n > len(r.b) {
		r.fail("%d bytes left, %d are needed", len(r.b), n)
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}
