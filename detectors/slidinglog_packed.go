package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// packedLogs are the sliding logs that take a word for each entry: nearly all. Two entries lie within the slot, more in a
// block of the ledger's arena.
//
// A packed entry is time<<8 | 255-limit, 60 bits, so that its order is that of entries. The cell of a packed log:
//
//	one or two entries: a is the first, with their number in bits 60-61; b has the second in bits 0-59
//	more:               b has cellBlock, the number in bits 32-47 and the block's ref in bits 0-31; a is the last entry,
//	                    so that to add one, or to see that a log is dead, does not have to load the block
type packedLogs struct {
	window  traffic.Time
	ledger  *ledger
	words   []uint64 // scratch
	scratch []logEntry
}

const (
	packedBits  = 1<<60 - 1
	packedLimit = 255
	packedTime  = 1 << 52
	packedMost  = 256
)

func packable(e entry, units int64) bool {
	return units == 1 && e.time >= 0 && e.time < packedTime && e.limit <= packedLimit
}

func pack(e entry) uint64 { return uint64(e.time)<<8 | uint64(packedLimit-e.limit) }

func unpack(v uint64) entry { return entry{traffic.Time(v >> 8), packedLimit - int64(v&packedLimit)} }

// add counts an event whose entry is e, and judges it; false when the log is too long to be packed, and nothing was done.
func (s *packedLogs) add(c *cell, ev *event, e uint64) (ok bool) {
	if s.addUnder(c, ev, e) {
		return true
	}
	var few [2]uint64
	v := s.view(c, &few)
	n := len(v)
	if n > 0 && v[n-1] > e {
		return s.addLate(c, ev)
	}
	window := s.window
	if n >= 2 && n == blockRoom(n) && later(unpack(v[0]).time, window) <= ev.dead {
		v = v[deadPacked(v, window, ev.dead):]
		n = len(v)
	}
	if n == packedMost {
		return false
	}
	first := n - int(ev.limit)
	if first == n || first >= 0 && unpack(v[first]).time > ev.time-window {
		for ev.nth < n && v[n-1-ev.nth] == e {
			ev.nth++
		}
		start := entry{time: max(0, ev.time-window+1), limit: packedLimit}
		count := int64(n-searchPacked(v, pack(start))) + 1
		ev.exceedances = append(ev.exceedances, exceedance{place: place{unpack(e), ev.nth}, count: count})
	}
	s.append1(c, v, e)
	ev.count = int64(n) + 1
	return true
}

// addUnder is add for an event that comes in order, cannot be over, and has room in the log's block. It only writes
// to the block, so it does not wait for it.
func (s *packedLogs) addUnder(c *cell, ev *event, e uint64) bool {
	n := int(c.b >> 32 & 0xffff)
	if c.b&cellBlock == 0 || c.a > e || int64(n) >= ev.limit {
		return false
	}
	class := blockClass(n)
	if n == blockSize(class) {
		return false
	}
	s.ledger.arena.block(uint32(c.b&cellIndex), class)[n] = e
	c.a, c.b = e, c.b+1<<32
	ev.count = int64(n) + 1
	return true
}

// append1 stores v and e after it.
func (s *packedLogs) append1(c *cell, v []uint64, e uint64) {
	n := len(v)
	switch {
	case n == 0:
		s.store(c, []uint64{e})
	case c.b&cellBlock != 0 && n > 2 && int(c.b>>32&0xffff) == n && n < blockRoom(n):
		s.ledger.arena.block(uint32(c.b&cellIndex), blockClass(n))[n] = e
		c.a, c.b = e, c.b+1<<32
	case c.b&cellBlock == 0 && n == 1:
		*c = cell{a: v[0] | 2<<60, b: cellUsed | e}
	default:
		s.words = append(append(s.words[:0], v...), e)
		s.store(c, s.words)
	}
}

// addLate puts an event in its place among packed ones that are newer.
func (s *packedLogs) addLate(c *cell, ev *event) (ok bool) {
	var few [2]uint64
	v := s.view(c, &few)
	v = v[deadPacked(v, s.window, ev.dead):]
	if len(v) == packedMost {
		return false
	}
	s.scratch = s.scratch[:0]
	for i, e := range v {
		s.scratch = append(s.scratch, logEntry{unpack(e), int64(i) + 1})
	}
	s.scratch = insertEntry(s.scratch, 0, s.window, ev)
	s.put(c, s.scratch)
	return true
}

// put makes log the entries of the cell.
func (s *packedLogs) put(c *cell, log []logEntry) {
	s.words = s.words[:0]
	for i := range log {
		s.words = append(s.words, pack(log[i].entry))
	}
	s.store(c, s.words)
}

// entries appends the cell's entries to dst.
func (s *packedLogs) entries(dst []logEntry, c *cell) []logEntry {
	var few [2]uint64
	for i, e := range s.view(c, &few) {
		dst = append(dst, logEntry{unpack(e), int64(i) + 1})
	}
	return dst
}

// trim is slidingLog.trim of a cell whose newest entry is over.
func (s *packedLogs) trim(c *cell, most int64) (given entry, equals int) {
	v := s.view(c, nil)
	for _, e := range v {
		most = max(most, unpack(e).limit)
	}
	keep := max(int(most)+1, leastKept)
	n := len(v)
	if n <= 2*keep {
		return given, 0
	}
	newestGiven := v[n-keep-1]
	for equals < n-keep && v[n-keep-1-equals] == newestGiven {
		equals++
	}
	s.words = append(s.words[:0], v[n-keep:]...)
	s.store(c, s.words)
	return unpack(newestGiven), equals
}

// between counts the entries x with a <= x < b.
func (s *packedLogs) between(c *cell, a, b uint64) int64 {
	var few [2]uint64
	v := s.view(c, &few)
	n := int64(0)
	for i := len(v) - 1; i >= 0 && v[i] >= a; i-- {
		if v[i] < b {
			n++
		}
	}
	return n
}

// newestPacked is how many entries a packed log has, and the time of the newest.
func newestPacked(c *cell) (n int, newest traffic.Time) {
	if c.b&cellBlock != 0 {
		return int(c.b >> 32 & 0xffff), unpack(c.a).time
	}
	if n = int(c.a >> 60); n == 2 {
		return n, unpack(c.b & packedBits).time
	}
	return n, unpack(c.a & packedBits).time
}

// blockBytes is what the cell is charged for its block.
func (s *packedLogs) blockBytes(c *cell) int64 {
	if c.b&cellBlock == 0 {
		return 0
	}
	return blockBytes(int(c.b >> 32 & 0xffff))
}

// release gives the cell's block back.
func (s *packedLogs) release(c *cell) {
	if c.b&cellBlock != 0 {
		s.giveBlock(c, int(c.b>>32&0xffff))
	}
}

// compact moves the cell's block out of a sparsely used page, if there is reason to.
func (s *packedLogs) compact(c *cell) {
	if !s.ledger.arena.sparse() {
		return
	}
	class := blockClass(int(c.b >> 32 & 0xffff))
	ref := s.ledger.arena.compact(uint32(c.b&cellIndex), class)
	c.b = c.b&^cellIndex | uint64(ref)
}

// view is the packed entries of the cell; few is where they are put when they lie in the cell itself.
func (s *packedLogs) view(c *cell, few *[2]uint64) []uint64 {
	switch {
	case c.b == 0:
		return nil
	case c.b&cellBlock == 0:
		few[0], few[1] = c.a&packedBits, c.b&packedBits
		return few[:c.a>>60]
	}
	n := int(c.b >> 32 & 0xffff)
	return s.ledger.arena.block(uint32(c.b&cellIndex), blockClass(n))[:n]
}

// store makes v the entries of the cell, at least one. What is where is a function of the number of entries alone.
func (s *packedLogs) store(c *cell, v []uint64) {
	has := 0
	if c.b&cellBlock != 0 {
		has = int(c.b >> 32 & 0xffff)
	}
	ledger := s.ledger
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

func (s *packedLogs) giveBlock(c *cell, has int) {
	if has > 0 {
		s.ledger.arena.give(uint32(c.b & cellIndex))
		s.ledger.bytes -= blockBytes(has)
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
