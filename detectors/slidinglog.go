package detectors

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// entry is one event in a sliding log. Entries are ordered by (time, source, offset), so that the order in which equal
// times arrived does not matter.
type entry struct {
	time   traffic.Time
	source int32
	offset int64
	limit  int32 // the event's own limit: that of its record's routing version
}

func (a entry) compare(b entry) int {
	if c := cmp.Compare(a.time, b.time); c != 0 {
		return c
	}
	if c := cmp.Compare(a.source, b.source); c != 0 {
		return c
	}
	return cmp.Compare(a.offset, b.offset)
}

// slidingLog is the sliding-log algorithm: the times of a key's events, kept in order. The window of an event at t is
// (t-window, t], of the events that come before it or are it; the event is over when more than its own limit lie there.
//
// Exact for events in any order: one that comes late is put in its place, and every window that it lies in is judged
// again. In order, that is one comparison: the event is over if the limit-th before it lies in its window.
//
// Memory: the entries not yet dead by the watermark. Once the newest event is over, only the newest n are kept, n the
// greatest limit among the entries plus one, trimmed at 2n so that the work is amortised: enough to judge everything
// that comes after, and counts saturate there. What is lost is exactness for late events that lie before those n in an
// attack that is already known; a limit raised above n under-counts for at most one window. Both let pass.
//
// This is the "sliding window log" of the rate-limiting literature; the treatment of late events is weir's own.
type slidingLog struct {
	entries  []entry
	maxLimit int32 // greatest limit among the entries, ever
}

// insert puts e in its place and returns its index.
func (l *slidingLog) insert(e entry) int {
	l.maxLimit = max(l.maxLimit, e.limit)
	n := len(l.entries)
	if n == 0 || l.entries[n-1].compare(e) < 0 {
		l.entries = append(l.entries, e)
		return n
	}
	at, _ := slices.BinarySearchFunc(l.entries, e, entry.compare)
	l.entries = slices.Insert(l.entries, at, e)
	return at
}

// over reports whether the event at index j is over its limit.
func (l *slidingLog) over(j int, window traffic.Time) bool {
	e := &l.entries[j]
	first := j - int(e.limit)
	return first >= 0 && l.entries[first].time > e.time-window
}

// peak is the count of the window that ends at index j, saturated at n.
func (l *slidingLog) peak(j int, window traffic.Time) int {
	lo, start := max(0, j-int(l.maxLimit)), l.entries[j].time-window
	if l.entries[lo].time <= start {
		n, _ := slices.BinarySearchFunc(l.entries[lo:j], start+1, func(e entry, t traffic.Time) int {
			return cmp.Compare(e.time, t)
		})
		lo += n
	}
	return j - lo + 1
}

// between counts the entries x with a < x <= b.
func (l *slidingLog) between(a, b entry) int64 {
	lo, found := slices.BinarySearchFunc(l.entries, a, entry.compare)
	if found {
		lo++
	}
	hi, found := slices.BinarySearchFunc(l.entries, b, entry.compare)
	if found {
		hi++
	}
	return int64(max(0, hi-lo))
}

// expire drops the entries that no on-time event can meet any more: those whose window ended by dead. Fewer than atLeast
// of them are left for later, so that a busy key does not move its log for each.
func (l *slidingLog) expire(window, dead traffic.Time, atLeast int) {
	n := 0
	for n < len(l.entries) && l.entries[n].time+window <= dead {
		n++
	}
	if n >= atLeast {
		l.drop(n)
	}
}

// saturate keeps the newest n once more than 2n are held. It is called only when the newest entry is over: entries that
// are not over are never trimmed, so the events after an episode's last over event are all still there.
func (l *slidingLog) saturate() {
	n := int(l.maxLimit) + 1
	if len(l.entries) > 2*n {
		l.drop(len(l.entries) - n)
	}
}

func (l *slidingLog) drop(n int) {
	if n > 0 {
		l.entries = slices.Delete(l.entries, 0, n)
	}
}

func (l *slidingLog) newest() traffic.Time { return l.entries[len(l.entries)-1].time }
