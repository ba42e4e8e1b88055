package detectors

import (
	"cmp"
	"encoding/binary"
	"iter"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// slidingLog keeps the times of a key's events, in order. The window of an event at t is (t-window, t], of the events
// that come before it in the order of time, the greatest limit first where times are equal, or are it; the event is over when
// they add up to more than its own limit.
//
// Exact for events in any order: one that comes late is put in its place, and every window that it lies in is judged
// again. In order, that is one comparison: the event is over if the limit-th before it lies in its window.
//
// Memory: the entries not yet dead by the watermark. Once the newest event is over, only the newest n are kept, n the
// greatest limit among the entries and of the rule plus one, or leastKept, trimmed at 2n so that the work is amortised: enough to judge
// everything that comes after. What is lost is exactness for late events that lie before those n, or less than a window
// after what was dropped, in an attack that is already known: a burst before it may stay unseen, and its hit says
// at_least. A limit raised above n under-counts for at most one window, and the hit of the attack says at_least. Both
// let pass.
// An entry takes 8 bytes; two lie within the slot, more in a block of the arena, of which the least has room for eight.
// Entries that are more than a time since 1970 and a limit up to 255 (sums, greater limits), and logs of more than 256
// entries, take 24 bytes each, and an event that comes late moves those after it: a log with a limit of many thousands is
// slow when its events are late.
//
// This is the "sliding window log" of the rate-limiting literature; the treatment of late events is weir's own.
type slidingLog struct {
	lineage   *lineage
	weighted  bool // entries weigh their units
	packed    packedLogs
	overflows pool[overflowLog] // logs that packedLogs cannot hold, for good: until the key is forgotten
	scratch   []logEntry
}

// logEntry is an entry with the sum of units from the log's first up to it, which makes the sum over any stretch a
// subtraction.
type logEntry struct {
	entry
	sum int64
}

// leastKept is how many entries of a source that is over are kept at least. As long as no event comes later than so many
// others, first, last and count of the episode are those of the events in order of time.
const leastKept = 32

var _ algorithm = (*slidingLog)(nil)
var _ rangeCounter = (*slidingLog)(nil)
var _ compacter = (*slidingLog)(nil)

func newSlidingLog(l *lineage) *slidingLog {
	return &slidingLog{lineage: l, weighted: l.kind.count == countSum, packed: packedLogs{window: l.window, ledger: l.ledger}}
}

func (s *slidingLog) add(c *cell, ev *event) {
	e := entry{ev.time, ev.limit}
	if c.b&cellOverflow == 0 {
		if !s.weighted && packable(e, ev.units) && s.packed.add(c, ev, pack(e)) {
			return
		}
		s.overflow(c)
	}
	log := s.overflows.at(c)
	was := log.bytes()
	log.add(s.lineage.window, ev)
	s.lineage.ledger.bytes += log.bytes() - was
}

// overflow moves a packed log out of its slot.
func (s *slidingLog) overflow(c *cell) {
	log, _ := s.entries(c)
	entries := append(make([]logEntry, 0, roomFor(len(log))), log...)
	s.packed.release(c)
	s.putOverflow(c, entries)
}

func (s *slidingLog) putOverflow(c *cell, entries []logEntry) {
	log := s.overflows.hold(c)
	log.entries = fitted(entries)
	s.lineage.ledger.bytes += log.bytes()
}

// entries lists the cell's entries and the sum before them; the list is valid until the next call.
func (s *slidingLog) entries(c *cell) (log []logEntry, base int64) {
	if c.b&cellOverflow != 0 {
		log := s.overflows.at(c)
		return log.entries, log.base
	}
	s.scratch = s.packed.entries(s.scratch[:0], c)
	return s.scratch, 0
}

// trim keeps the newest n once more than 2n are held, if the newest is over: entries that are not over are never trimmed,
// so the events after an episode's last over event are all there.
func (s *slidingLog) trim(c *cell, ev *event) (given entry, equals int) {
	n, newest := s.newest(c)
	if n <= 2*leastKept || newest != ev.exceedances[len(ev.exceedances)-1].time {
		return given, 0
	}
	if c.b&cellOverflow == 0 {
		return s.packed.trim(c, ev.most)
	}
	log := s.overflows.at(c)
	was := log.bytes()
	given, equals = log.trim(ev.most)
	s.lineage.ledger.bytes += log.bytes() - was
	return given, equals
}

func (s *slidingLog) between(c *cell, a, b place) int64 {
	n := int64(b.nth - a.nth)
	if c.b&cellOverflow == 0 {
		return n + s.packed.between(c, pack(a.entry), pack(b.entry))
	}
	return n + s.overflows.at(c).between(a.entry, b.entry)
}

func (s *slidingLog) countAt(c *cell, at traffic.Time, _ int64) int64 {
	log, base := s.entries(c)
	end, start := base, base
	for i := range log {
		if log[i].time <= at {
			end = log[i].sum
		}
		if log[i].time <= earlier(at, s.lineage.window) {
			start = log[i].sum
		}
	}
	return end - start
}

func (s *slidingLog) newest(c *cell) (n int, newest traffic.Time) {
	if c.b&cellOverflow != 0 {
		log := s.overflows.at(c).entries
		return len(log), log[len(log)-1].time
	}
	return newestPacked(c)
}

func (s *slidingLog) dead(c *cell, at traffic.Time) bool {
	_, newest := s.newest(c)
	return later(newest, s.lineage.window) <= at
}

func (s *slidingLog) gauge(c *cell) (count int64, newest traffic.Time) {
	n, newest := s.newest(c)
	if s.weighted {
		log := s.overflows.at(c)
		return log.entries[n-1].sum - log.base, newest
	}
	return int64(n), newest
}

func (s *slidingLog) outOfSlotBytes(c *cell) int64 {
	if c.b&cellOverflow != 0 {
		return s.overflows.at(c).bytes()
	}
	return s.packed.blockBytes(c)
}

func (s *slidingLog) release(c *cell) {
	if c.b&cellOverflow != 0 {
		s.lineage.ledger.bytes -= s.overflows.at(c).bytes()
		s.overflows.give(c)
		return
	}
	s.packed.release(c)
}

func (s *slidingLog) compact(c *cell) {
	if c.b&cellBlock != 0 {
		s.packed.compact(c)
	}
}

// The forms of a log in a snapshot. Which one it is is part of the state.
const (
	logPacked   = 0
	logOverflow = 1
)

func (s *slidingLog) append(dst []byte, c *cell, _ int) []byte {
	form := byte(logPacked)
	if c.b&cellOverflow != 0 {
		form = logOverflow
	}
	log, base := s.entries(c)
	dst = append(dst, form)
	dst = binary.AppendUvarint(dst, uint64(len(log)))
	before := traffic.Time(0)
	for i := range ascending(log) {
		dst = binary.AppendVarint(dst, int64(log[i].time-before))
		dst = binary.AppendUvarint(dst, uint64(log[i].limit))
		before = log[i].time
		if form == logOverflow {
			dst = binary.AppendUvarint(dst, uint64(log[i].sum-sumUpTo(log, i, base)))
		}
	}
	return dst
}

// ascending yields the indexes of log as a snapshot has them, by (time, limit): what every build reads. Equal entries keep
// their order.
func ascending(log []logEntry) iter.Seq[int] {
	return func(yield func(int) bool) {
		for from, to := 0, 0; from < len(log); from = to {
			for to < len(log) && log[to].time == log[from].time {
				to++
			}
			for end := to; end > from; {
				start := end - 1
				for start > from && log[start-1].limit == log[start].limit {
					start--
				}
				for i := start; i < end; i++ {
					if !yield(i) {
						return
					}
				}
				end = start
			}
		}
	}
}

// sumUpTo is the sum before the entry at i. base is the sum before the log.
func sumUpTo(log []logEntry, i int, base int64) int64 {
	if i == 0 {
		return base
	}
	return log[i-1].sum
}

func (s *slidingLog) restore(c *cell, r *reader) {
	form := r.upTo(logOverflow, "form of a log")
	if s.weighted && form == logPacked {
		r.fail("a log of sums in the form that has no units")
	}
	n := r.length(2, "log entries")
	log := make([]logEntry, 0, n)
	before := traffic.Time(0)
	for i := 0; i < n && r.err == nil; i++ {
		e := entry{before + traffic.Time(r.varint()), int64(r.upTo(1<<31-1, "limit"))}
		units := int64(1)
		if form == logOverflow {
			units = int64(r.upTo(1<<40, "units"))
		}
		if i > 0 && cmp.Or(cmp.Compare(before, e.time), cmp.Compare(log[i-1].limit, e.limit)) > 0 {
			r.fail("log entries are not ascending")
		}
		if form == logPacked && (!packable(e, 1) || n > packedMost) {
			r.fail("a log entry that does not fit its form")
		}
		log = append(log, logEntry{e, units})
		before = e.time
	}
	if r.err == nil && n == 0 {
		r.fail("a log without entries")
	}
	if r.err != nil {
		return
	}
	slices.SortStableFunc(log, func(a, b logEntry) int { return a.compare(b.entry) })
	for i := range log {
		log[i].sum += sumUpTo(log, i, 0)
	}
	s.put(c, log, form)
}

// put makes log the entries of an empty cell.
func (s *slidingLog) put(c *cell, log []logEntry, form uint64) {
	if form == logOverflow {
		s.putOverflow(c, log)
		return
	}
	s.packed.put(c, log)
}
