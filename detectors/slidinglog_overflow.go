package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// overflowLog is a sliding log out of its slot: of entries that do not fit packed words, or of more than packedMost.
type overflowLog struct {
	entries []logEntry
	base    int64 // sum before the first entry
}

// bytes is what the log is charged.
func (o *overflowLog) bytes() int64 { return 64 + 24*int64(roomFor(len(o.entries))) }

// add puts the event in its place and judges every window that it lies in.
func (o *overflowLog) add(window traffic.Time, ev *event) {
	o.expire(window, ev.dead, 1+len(o.entries)/2)
	o.entries = insertEntry(reserve(o.entries, len(o.entries)+1), o.base, window, ev)
}

// expire drops the entries that no event on time can meet any more: those whose window ended by dead. Fewer than atLeast
// of them are left for later, so that a busy key does not move its log for each. They are met at every event until then,
// so they are not walked.
func (o *overflowLog) expire(window, dead traffic.Time, atLeast int) {
	n, _ := slices.BinarySearchFunc(o.entries, dead, func(x logEntry, dead traffic.Time) int {
		if later(x.time, window) <= dead {
			return -1
		}
		return 1
	})
	if n >= atLeast {
		o.drop(n)
	}
}

// trim keeps the newest n once more than 2n are held, as for packed logs, and returns the newest that it gave up.
func (o *overflowLog) trim(most int64) (given entry, equals int) {
	for i := range o.entries {
		most = max(most, o.entries[i].limit)
	}
	keep := max(int(most)+1, leastKept)
	n := len(o.entries) - keep
	if n <= keep {
		return given, 0
	}
	given = o.entries[n-1].entry
	for equals < n && o.entries[n-1-equals].entry == given {
		equals++
	}
	o.drop(n)
	return given, equals
}

func (o *overflowLog) drop(n int) {
	o.base = o.entries[n-1].sum
	o.entries = fitted(slices.Delete(o.entries, 0, n))
}

// between counts the entries x with a <= x < b.
func (o *overflowLog) between(a, b entry) (n int64) {
	for i := len(o.entries) - 1; i >= 0 && o.entries[i].compare(a) >= 0; i-- {
		if o.entries[i].compare(b) < 0 {
			n++
		}
	}
	return n
}

// insertEntry puts the event in its place and judges every window that it lies in. base is the sum before the log.
func insertEntry(log []logEntry, base int64, window traffic.Time, ev *event) []logEntry {
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
	end := later(ev.time, window)
	here := place{e, ev.nth}
	for j := at; j < len(log) && log[j].time < end; j++ {
		if j > at {
			if here.entry != log[j].entry {
				here = place{entry: log[j].entry, nth: -1}
			}
			here.nth++
		}
		count := min(log[j].sum-sumBefore(log, j, base, window), maxCount)
		if j == at {
			ev.count = count
		}
		if count > log[j].limit {
			ev.exceedances = append(ev.exceedances, exceedance{place: here, count: count})
		}
	}
	return log
}

// sumBefore is the sum before the window that ends at index j.
func sumBefore(log []logEntry, j int, base int64, window traffic.Time) int64 {
	start := earlier(log[j].time, window)
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
