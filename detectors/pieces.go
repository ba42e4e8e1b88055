package detectors

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
)

// errPieces is wrapped by what went wrong with getting a piece of a snapshot, which says nothing about the snapshot.
var errPieces = errors.New("piece of a snapshot")

// pieces is a snapshot as it comes, piece by piece. Its checksum is compared as soon as the last one is there.
type pieces struct {
	next func() ([]byte, error)
	left int    // bytes of the snapshot, without its checksum, that next has not given yet
	crc  uint32 // of those that it has
	tail []byte // what has come of the checksum
}

// after is rest and the next piece behind it. Nothing is written over that was given before: what aliases it stays.
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
