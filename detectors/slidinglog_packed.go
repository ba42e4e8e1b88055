package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// A packed entry is time<<8 | limit, 60 bits, so that its order is that of entries. The cell of a packed log:
//
//	one or two entries: a is the first, with their number in bits 60-61; b has the second in bits 0-59
//	more:               b has cellBlock, the number in bits 32-47 and the block's ref in bits 0-31; a is the last entry,
//	                    so that to add one, or to see that a log is dead, does not have to load the block
const (
	packedBits  = 1<<60 - 1
	packedLimit = 255
	packedTime  = 1 << 52
	packedMost  = 256
)

func packable(e entry, units int64) bool {
	return units == 1 && e.time >= 0 && e.time < packedTime && e.limit <= packedLimit
}

func pack(e entry) uint64 { return uint64(e.time)<<8 | uint64(e.limit) }

func unpack(v uint64) entry { return entry{traffic.Time(v >> 8), int64(v & packedLimit)} }

// view is the packed entries of the cell; few is where they are put when they lie in the cell itself.
func (s *slidingLog) view(c *cell, few *[2]uint64) []uint64 {
	switch {
	case c.b == 0:
		return nil
	case c.b&cellBlock == 0:
		few[0], few[1] = c.a&packedBits, c.b&packedBits
		return few[:c.a>>60]
	}
	n := int(c.b >> 32 & 0xffff)
	return s.lineage.ledger.arena.block(uint32(c.b&cellIndex), blockClass(n))[:n]
}

// store makes v the entries of the cell, at least one. What is where is a function of the number of entries alone.
func (s *slidingLog) store(c *cell, v []uint64) {
	has := 0
	if c.b&cellBlock != 0 {
		has = int(c.b >> 32 & 0xffff)
	}
	ledger := s.lineage.ledger
	n := len(v)
	if n <= 2 {
		next := cell{a: v[0] | uint64(n)<<60, b: cellUsed}
		if n == 2 {
			next.b |= v[1]
		}
		s.giveBlock(c, has)
		*c = next
		return
	}
	class := blockClass(n)
	if has > 0 && blockClass(has) == class {
		copy(ledger.arena.block(uint32(c.b&cellIndex), class), v)
		c.a, c.b = v[n-1], cellUsed|cellBlock|uint64(n)<<32|c.b&cellIndex
		return
	}
	ref := ledger.arena.take(class)
	copy(ledger.arena.block(ref, class), v)
	ledger.bytes += blockBytes(n)
	s.giveBlock(c, has)
	*c = cell{a: v[n-1], b: cellUsed | cellBlock | uint64(n)<<32 | uint64(ref)}
}

func (s *slidingLog) giveBlock(c *cell, has int) {
	if has > 0 {
		s.lineage.ledger.arena.give(uint32(c.b & cellIndex))
		s.lineage.ledger.bytes -= blockBytes(has)
	}
}

// blockBytes is what n entries in a block are charged.
func blockBytes(n int) int64 { return 8 * int64(blockSize(blockClass(n))) }

// blockRoom is how many entries there is room for where n lie.
func blockRoom(n int) int {
	if n <= 2 {
		return 2
	}
	return blockSize(blockClass(n))
}

// searchPacked is how many of v come before e.
func searchPacked(v []uint64, e uint64) int {
	at, _ := slices.BinarySearch(v, e)
	return at
}

// deadPacked is how many of v lie in no window of an event after the instant.
func deadPacked(v []uint64, window, at traffic.Time) int {
	n := 0
	for n < len(v) && later(unpack(v[n]).time, window) <= at {
		n++
	}
	return n
}
