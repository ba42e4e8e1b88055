package detectors

import (
	"encoding/binary"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// spill moves a packed log beside the cell, for good: until the key is forgotten.
func (s *slidingLog) spill(c *cell) {
	var few [2]uint64
	v := s.view(c, &few)
	entries := make([]logEntry, 0, roomFor(len(v)))
	for i, e := range v {
		entries = append(entries, logEntry{unpack(e), int64(i) + 1})
	}
	if c.b&cellBlock != 0 {
		s.giveBlock(c, len(v))
	}
	s.putFar(c, entries)
}

func (s *slidingLog) putFar(c *cell, entries []logEntry) {
	far := s.far.hold(c)
	far.entries = fitted(entries)
	s.lineage.ledger.bytes += far.bytes()
}

func (f *farLog) bytes() int64 { return 64 + 24*int64(roomFor(len(f.entries))) }

func (s *slidingLog) addFar(c *cell, ev *event) {
	far := s.far.at(c)
	was := far.bytes()
	far.expire(s.lineage.window, ev.dead, 1+len(far.entries)/2)
	far.entries = s.insert(reserve(far.entries, len(far.entries)+1), far.base, ev)
	s.lineage.ledger.bytes += far.bytes() - was
}

// expire drops the entries that no event on time can meet any more: those whose window ended by dead. Fewer than atLeast
// of them are left for later, so that a busy key does not move its log for each. They are met at every event until then,
// so they are not walked.
func (f *farLog) expire(window, dead traffic.Time, atLeast int) {
	n, _ := slices.BinarySearchFunc(f.entries, dead, func(x logEntry, dead traffic.Time) int {
		if later(x.time, window) <= dead {
			return -1
		}
		return 1
	})
	if n >= atLeast {
		f.drop(n)
	}
}

// saturate keeps the newest n once more than 2n are held, as for packed logs, and returns the newest that it gave up.
func (f *farLog) saturate() (given entry, equals int) {
	most := int64(0)
	for i := range f.entries {
		most = max(most, f.entries[i].limit)
	}
	keep := max(int(most)+1, leastKept)
	n := len(f.entries) - keep
	if n <= keep {
		return given, 0
	}
	given = f.entries[n-1].entry
	for equals < n && f.entries[n-1-equals].entry == given {
		equals++
	}
	f.drop(n)
	return given, equals
}

func (f *farLog) drop(n int) {
	f.base = f.entries[n-1].sum
	f.entries = fitted(slices.Delete(f.entries, 0, n))
}

// entries lists the cell's entries and the sum before them; the list is valid until the next call.
func (s *slidingLog) entries(c *cell) (log []logEntry, base int64) {
	if c.b&cellFar != 0 {
		far := s.far.at(c)
		return far.entries, far.base
	}
	var few [2]uint64
	s.scratch = s.scratch[:0]
	for i, e := range s.view(c, &few) {
		s.scratch = append(s.scratch, logEntry{unpack(e), int64(i) + 1})
	}
	return s.scratch, 0
}

// ask answers without adding.
func (s *slidingLog) ask(c *cell, ev *event) {
	log, base := s.entries(c)
	end, start := base, base
	for i := range log {
		if log[i].time <= ev.time {
			end = log[i].sum
		}
		if log[i].time <= earlier(ev.time, s.lineage.window) {
			start = log[i].sum
		}
	}
	ev.count = end - start
}

func (s *slidingLog) between(c *cell, a, b place) int64 {
	if c.b&cellFar == 0 {
		return s.betweenPacked(c, pack(a.entry), pack(b.entry)) + int64(b.nth-a.nth)
	}
	log, _ := s.entries(c)
	n := int64(b.nth - a.nth)
	for i := len(log) - 1; i >= 0 && log[i].compare(a.entry) >= 0; i-- {
		if log[i].compare(b.entry) < 0 {
			n++
		}
	}
	return n
}

// betweenPacked counts the entries x with a <= x < b.
func (s *slidingLog) betweenPacked(c *cell, a, b uint64) int64 {
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

func (s *slidingLog) newest(c *cell) (n int, newest traffic.Time) {
	if c.b&cellFar != 0 {
		log := s.far.at(c).entries
		return len(log), log[len(log)-1].time
	}
	if c.b&cellBlock != 0 {
		return int(c.b >> 32 & 0xffff), unpack(c.a).time
	}
	if n = int(c.a >> 60); n == 2 {
		return n, unpack(c.b & packedBits).time
	}
	return n, unpack(c.a & packedBits).time
}

func (s *slidingLog) dead(c *cell, at traffic.Time) bool {
	_, newest := s.newest(c)
	return later(newest, s.lineage.window) <= at
}

func (s *slidingLog) gauge(c *cell) (count int64, newest traffic.Time) {
	n, newest := s.newest(c)
	if s.weighted {
		far := s.far.at(c)
		return far.entries[n-1].sum - far.base, newest
	}
	return int64(n), newest
}

func (s *slidingLog) beside(c *cell) int64 {
	switch {
	case c.b&cellFar != 0:
		return s.far.at(c).bytes()
	case c.b&cellBlock != 0:
		return blockBytes(int(c.b >> 32 & 0xffff))
	}
	return 0
}

func (s *slidingLog) release(c *cell) {
	switch {
	case c.b&cellFar != 0:
		s.lineage.ledger.bytes -= s.beside(c)
		s.far.give(c)
	case c.b&cellBlock != 0:
		s.giveBlock(c, int(c.b>>32&0xffff))
	}
}

func (s *slidingLog) compact(c *cell) {
	if c.b&cellBlock == 0 || !s.lineage.ledger.arena.sparse() {
		return
	}
	class := blockClass(int(c.b >> 32 & 0xffff))
	ref := s.lineage.ledger.arena.gather(uint32(c.b&cellIndex), class)
	c.b = c.b&^cellIndex | uint64(ref)
}

// The forms of a log in a snapshot. Which one it is is part of the state.
const (
	logPacked = 0
	logFar    = 1
)

func (s *slidingLog) append(dst []byte, c *cell, _ int) []byte {
	form := byte(logPacked)
	if c.b&cellFar != 0 {
		form = logFar
	}
	log, last := s.entries(c)
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(len(log)))
	before := traffic.Time(0)
	for i := range log {
		dst = binary.AppendVarint(dst, int64(log[i].time-before))
		dst = binary.AppendUvarint(dst, uint64(log[i].limit))
		before = log[i].time
		if form == logFar {
			dst = binary.AppendUvarint(dst, uint64(log[i].sum-last))
			last = log[i].sum
		}
	}
	return dst
}

func (s *slidingLog) restore(c *cell, r *reader) {
	form := r.upTo(logFar, "form of a log")
	if s.weighted && form == logPacked {
		r.fail("a log of sums in the form that has no units")
	}
	n := r.length(2, "log entries")
	log := make([]logEntry, 0, n)
	before, sum := traffic.Time(0), int64(0)
	for i := 0; i < n && r.err == nil; i++ {
		e := entry{before + traffic.Time(r.varint()), int64(r.upTo(1<<31-1, "limit"))}
		units := int64(1)
		if form == logFar {
			units = int64(r.upTo(1<<40, "units"))
		}
		if i > 0 && log[i-1].compare(e) > 0 {
			r.fail("log entries are not ascending")
		}
		if form == logPacked && (!packable(e, 1) || n > packedMost) {
			r.fail("a log entry that does not fit its form")
		}
		sum += units
		log = append(log, logEntry{e, sum})
		before = e.time
	}
	if r.err == nil && n == 0 {
		r.fail("a log without entries")
	}
	if r.err != nil {
		return
	}
	s.put(c, log, form)
}

// put makes log the entries of an empty cell.
func (s *slidingLog) put(c *cell, log []logEntry, form uint64) {
	if form == logFar {
		s.putFar(c, log)
		return
	}
	s.packed = s.packed[:0]
	for i := range log {
		s.packed = append(s.packed, pack(log[i].entry))
	}
	s.store(c, s.packed)
}
