package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// slidingLog keeps the times of a key's events, in order. The window of an event at t is (t-window, t], of the events
// that come before it in the order of (time, limit) or are it; the event is over when they add up to more than its own
// limit.
//
// Exact for events in any order: one that comes late is put in its place, and every window that it lies in is judged
// again. In order, that is one comparison: the event is over if the limit-th before it lies in its window.
//
// Memory: the entries not yet dead by the watermark. Once the newest event is over, only the newest n are kept, n the
// greatest limit among the entries plus one, or leastKept, trimmed at 2n so that the work is amortised: enough to judge
// everything that comes after. What is lost is exactness for late events that lie before those n in an
// attack that is already known; a limit raised above n under-counts for at most one window. Both let pass.
// An entry takes 8 bytes; two lie within the key, more in a block beside it, of which the least has room for eight.
// Entries that are more than a time since 1970 and a limit up to 255 (sums, greater limits), and logs of more than 256
// entries, take 24 bytes each, and an event that comes late moves those after it: a log with a limit of many thousands is
// slow when its events are late.
//
// This is the "sliding window log" of the rate-limiting literature; the treatment of late events is weir's own.
type slidingLog struct {
	lineage  *lineage
	weighted bool // entries weigh their units
	far      pool[farLog]
	scratch  []logEntry
	packed   []uint64
}

// logEntry is an entry with the sum of units from the log's first up to it, which makes the sum over any stretch a
// subtraction.
type logEntry struct {
	entry
	sum int64
}

// farLog is a log whose entries do not fit words. base is the sum before its first entry.
type farLog struct {
	entries []logEntry
	base    int64
}

// leastKept is how many entries of a source that is over are kept at least: enough for first, last and count of its
// episode to be those of the events in order of time, whatever order they come in, for as long as the disorder reaches
// back over fewer events.
const leastKept = 32

var _ algorithm = (*slidingLog)(nil)
var _ spanner = (*slidingLog)(nil)

func (s *slidingLog) add(c *cell, ev *event) {
	e := entry{ev.time, ev.limit}
	switch {
	case ev.units == 0:
		s.ask(c, ev)
	case c.b&cellFar != 0:
		s.addFar(c, ev)
	case s.weighted || !packable(e, ev.units):
		s.spill(c)
		s.addFar(c, ev)
	default:
		s.addPacked(c, ev, pack(e))
	}
}

// addPacked is add for entries that fit words: the path of nearly all events.
func (s *slidingLog) addPacked(c *cell, ev *event, e uint64) {
	if s.addUnder(c, ev, e) {
		return
	}
	var few [2]uint64
	v := s.view(c, &few)
	n := len(v)
	if n > 0 && v[n-1] > e {
		s.addLate(c, ev)
		return
	}
	window := s.lineage.window
	if n >= 2 && n == blockRoom(n) && later(unpack(v[0]).time, window) <= ev.dead {
		v = v[deadPacked(v, window, ev.dead):]
		n = len(v)
	}
	if n == packedMost {
		s.spill(c)
		s.addFar(c, ev)
		return
	}
	first := n - int(ev.limit)
	if first == n || first >= 0 && unpack(v[first]).time > ev.time-window {
		for ev.nth < n && v[n-1-ev.nth] == e {
			ev.nth++
		}
		start := entry{time: ev.time - window, limit: packedLimit}
		ev.count = int64(n-searchPacked(v, pack(start)+1)) + 1
		ev.overs = append(ev.overs, over{place: place{unpack(e), ev.nth}, count: ev.count})
	} else if ev.exact {
		ev.count = int64(n-deadPacked(v, window, ev.time)) + 1
	}
	s.append1(c, v, e)
}

// addUnder is addPacked for an event that comes in order, cannot be over, and has room in the log's block. It only writes
// to the block, so it does not wait for it.
func (s *slidingLog) addUnder(c *cell, ev *event, e uint64) bool {
	n := int(c.b >> 32 & 0xffff)
	if c.b&cellBlock == 0 || c.a > e || int64(n) >= ev.limit || ev.exact {
		return false
	}
	class := blockClass(n)
	if n == blockSize(class) {
		return false
	}
	s.lineage.ledger.arena.block(uint32(c.b&cellIndex), class)[n] = e
	c.a, c.b = e, c.b+1<<32
	return true
}

// append1 stores v and e after it.
func (s *slidingLog) append1(c *cell, v []uint64, e uint64) {
	n := len(v)
	switch {
	case n == 0:
		s.store(c, []uint64{e})
	case c.b&cellBlock != 0 && n > 2 && int(c.b>>32&0xffff) == n && n < blockRoom(n):
		s.lineage.ledger.arena.block(uint32(c.b&cellIndex), blockClass(n))[n] = e
		c.a, c.b = e, c.b+1<<32
	case c.b&cellBlock == 0 && n == 1:
		*c = cell{a: v[0] | 2<<60, b: cellUsed | e}
	default:
		s.packed = append(append(s.packed[:0], v...), e)
		s.store(c, s.packed)
	}
}

// trim keeps the newest n once more than 2n are held, if the newest is over: entries that are not over are never trimmed,
// so the events after an episode's last over event are all there.
func (s *slidingLog) trim(c *cell, ev *event) (given entry, equals int) {
	n, newest := s.newest(c)
	if n <= 2*leastKept || newest != ev.overs[len(ev.overs)-1].time {
		return given, 0
	}
	if c.b&cellFar != 0 {
		far := s.far.at(c)
		was := far.bytes()
		given, equals = far.saturate()
		s.lineage.ledger.bytes += far.bytes() - was
		return given, equals
	}
	v := s.view(c, nil)
	most := int64(0)
	for _, e := range v {
		most = max(most, int64(e&packedLimit))
	}
	keep := max(int(most)+1, leastKept)
	if n <= 2*keep {
		return given, 0
	}
	newestGiven := v[n-keep-1]
	for equals < n-keep && v[n-keep-1-equals] == newestGiven {
		equals++
	}
	s.packed = append(s.packed[:0], v[n-keep:]...)
	s.store(c, s.packed)
	return unpack(newestGiven), equals
}

// addLate puts an event in its place among packed ones that are newer.
func (s *slidingLog) addLate(c *cell, ev *event) {
	var few [2]uint64
	v := s.view(c, &few)
	v = v[deadPacked(v, s.lineage.window, ev.dead):]
	if len(v) == packedMost {
		s.spill(c)
		s.addFar(c, ev)
		return
	}
	s.scratch = s.scratch[:0]
	for i, e := range v {
		s.scratch = append(s.scratch, logEntry{unpack(e), int64(i) + 1})
	}
	s.scratch = s.insert(s.scratch, 0, ev)
	s.packed = s.packed[:0]
	for i := range s.scratch {
		s.packed = append(s.packed, pack(s.scratch[i].entry))
	}
	s.store(c, s.packed)
}

// insert puts the event in its place and judges every window that it lies in. base is the sum before the log.
func (s *slidingLog) insert(log []logEntry, base int64, ev *event) []logEntry {
	e := entry{ev.time, ev.limit}
	at, _ := slices.BinarySearchFunc(log, e, func(x logEntry, e entry) int {
		if x.compare(e) <= 0 {
			return -1 // after its equals
		}
		return 1
	})
	before := base
	if at > 0 {
		before = log[at-1].sum
	}
	log = slices.Insert(log, at, logEntry{e, before})
	for i := at; i < len(log); i++ {
		log[i].sum += ev.units
	}
	for ev.nth < at && log[at-1-ev.nth].entry == e {
		ev.nth++
	}
	ev.behind = at < len(log)-1
	end := later(ev.time, s.lineage.window)
	here := place{e, ev.nth}
	for j := at; j < len(log) && log[j].time < end; j++ {
		if j > at {
			if here.entry != log[j].entry {
				here = place{entry: log[j].entry, nth: -1}
			}
			here.nth++
		}
		count := min(log[j].sum-s.before(log, j, base), maxCount)
		if j == at {
			ev.count = count
		}
		if count > log[j].limit {
			ev.overs = append(ev.overs, over{place: here, count: count})
		}
	}
	return log
}

// before is the sum before the window that ends at index j.
func (s *slidingLog) before(log []logEntry, j int, base int64) int64 {
	start := earlier(log[j].time, s.lineage.window)
	lo, _ := slices.BinarySearchFunc(log[:j], start, func(x logEntry, t traffic.Time) int {
		if x.time <= t {
			return -1
		}
		return 1
	})
	if lo == 0 {
		return base
	}
	return log[lo-1].sum
}
