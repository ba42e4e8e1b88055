package detectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"unsafe"
)

// reader takes a binary form apart. The first error stays; after it every read gives zero, so a decoder may check once
// at its end. No length that it reads is trusted beyond the bytes that are there.
type reader struct {
	b      []byte
	rest   *pieces // what follows b; nil when b is all
	format int     // of the snapshot that is read
	err    error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf(format, args...)
	}
	r.b, r.rest = nil, nil
}

// left is how many bytes are still to be read.
func (r *reader) left() int {
	if r.rest == nil {
		return len(r.b)
	}
	return len(r.b) + r.rest.left
}

// grow adds the next piece to b, and reports whether there was one.
func (r *reader) grow() bool {
	if r.rest == nil || r.rest.left == 0 {
		return false
	}
	b, err := r.rest.after(r.b)
	if err != nil {
		r.fail("%w", err)
		return false
	}
	r.b = b
	return true
}

// need makes b hold n bytes, unless so many are not left.
func (r *reader) need(n int) bool {
	for len(r.b) < n && n <= r.left() && r.grow() {
		continue
	}
	return len(r.b) >= n
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n == 0 && r.grow() {
		return r.uvarint()
	}
	if n <= 0 {
		r.fail("ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n == 0 && r.grow() {
		return r.varint()
	}
	if n <= 0 {
		r.fail("ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

// fixed64 reads eight bytes, big-endian.
func (r *reader) fixed64() uint64 {
	if len(r.b) < 8 && !r.need(8) {
		r.fail("%d bytes left, 8 are needed", r.left())
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
	return int(r.upTo(uint64(r.left()/size), what))
}

// bytes reads a length and as many bytes; the result aliases the input.
func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) && (n > uint64(r.left()) || !r.need(int(n))) {
		r.fail("%d bytes announced, %d left", n, r.left())
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
	if err := r.end(); err != nil {
		return fmt.Errorf("%w: %w", kind, err)
	}
	return nil
}

// end reports the first error, or bytes left over.
func (r *reader) end() error {
	if n := r.left(); r.err == nil && n != 0 {
		return fmt.Errorf("%d bytes left over", n)
	}
	return r.err
}

// take reads n bytes; the result aliases the input.
func (r *reader) take(n int) []byte {
	if !r.need(n) {
		r.fail("%d bytes left, %d are needed", r.left(), n)
		return nil
	}
	out := r.b[:n:n]
	r.b = r.b[n:]
	return out
}

// errPieces is wrapped by errors of getting a piece of a snapshot, which say nothing about the snapshot.
var errPieces = errors.New("piece of a snapshot")

// pieces is a snapshot that arrives piece by piece. Its checksum is compared as soon as the last piece is there.
type pieces struct {
	next func() ([]byte, error)
	left int    // bytes of the snapshot, without its checksum, that next has not given yet
	crc  uint32 // of those that it has
	tail []byte // what has come of the checksum
}

// after is rest with the next piece behind it. Memory of earlier pieces is never overwritten: texts may alias it.
func (p *pieces) after(rest []byte) ([]byte, error) {
	b, err := p.next()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errPieces, err)
	}
	if len(b) == 0 || len(b) > p.left+sumBytes-len(p.tail) {
		return nil, fmt.Errorf("a piece of %d bytes, %d are to come", len(b), p.left+sumBytes-len(p.tail))
	}
	body := b[:min(len(b), p.left)]
	p.left -= len(body)
	p.crc = crc32.Update(p.crc, castagnoli, body)
	p.tail = append(p.tail, b[len(body):]...)
	if len(rest) > 0 {
		body = slices.Concat(rest, body)
	}
	if p.left > 0 {
		return body, nil
	}
	if len(p.tail) < sumBytes { // no bytes are left but those of the checksum
		return p.after(body)
	}
	if sum := binary.BigEndian.Uint32(p.tail); sum != p.crc {
		return nil, fmt.Errorf("CRC %08x, its bytes give %08x", sum, p.crc)
	}
	return body, nil
}
