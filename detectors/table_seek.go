package detectors

import (
	"encoding/binary"
	"math/bits"
)

// tagsAhead is how many tags are compared at once.
const tagsAhead = 16

// tagOf is seven bits of the fingerprint that its place does not depend on.
func tagOf(lo uint64) uint8 { return uint8(lo) | 0x80 }

// matches has a bit for each of the sixteen tags from at on that may equal tag. A byte that follows an equal one may be
// taken for equal: the slot decides.
func (s *subtable) matches(at int, tag uint8) uint64 {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	pattern := uint64(tag) * ones
	window := s.tags[at : at+16 : at+16]
	a := binary.LittleEndian.Uint64(window) ^ pattern
	b := binary.LittleEndian.Uint64(window[8:]) ^ pattern
	a = (a - ones) &^ a & tops
	b = (b - ones) &^ b & tops
	const gather = 0x0002040810204081 // brings the top bits of eight bytes together, at the top
	return (a>>7*gather>>49&0xff | b>>7*gather>>49&0xff<<8)
}

// seek is the index of a key, or -1. find tells where one belongs that is not there.
func (s *subtable) seek(key Fingerprint) int {
	at := s.homeOf(key.Hi)
	for found := s.matches(at, tagOf(key.Lo)); found != 0; found &= found - 1 {
		i := at + bits.TrailingZeros64(found)
		if i >= len(s.slots) {
			break
		}
		if e := &s.slots[i]; e.lo == key.Lo && e.hi == key.Hi {
			return i
		}
	}
	if s.tags[at+tagsAhead-1] == 0 {
		return -1
	}
	if i, found := s.find(key); found {
		return i
	}
	return -1
}

// holds reports whether a key stands at an index.
func (s *subtable) holds(at int, key Fingerprint) bool {
	if uint(at) >= uint(len(s.slots)) {
		return false
	}
	e := &s.slots[at]
	return e.lo == key.Lo && e.hi == key.Hi && e.b != 0
}
