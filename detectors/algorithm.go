package detectors

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// cell is the state of one key: two words whose meaning is the algorithm's, save the flags at the top of b.
// A key that has seen nothing has b 0.
type cell struct{ a, b uint64 }

const (
	cellOffender = 1 << 63 // in a table only: the key has episodes, and the cell itself lies with them (offender.cell), at the index in the low 32 bits
	cellUsed     = 1 << 62 // always set
	cellOverflow = 1 << 61 // the state lies out of the slot, in a pool, at the index in the low 32 bits; not of buckets
	cellBlock    = 1 << 60 // sliding log only: the entries are in a block of the arena

	cellIndex = math.MaxUint32
)

// overflowCell refers to state out of the slot, at an index of its pool.
func overflowCell(index uint32) cell { return cell{b: cellUsed | cellOverflow | uint64(index)} }

// event is an arrival as an algorithm sees it, and the answers of the algorithm.
type event struct {
	time  traffic.Time
	units int64  // at least 1
	value uint64 // hash of what is counted, when distinct values are
	limit int64  // the event's own limit: that of its record's routing version
	most  int64  // the greatest limit that an event of that version can have
	burst int64  // capacity of a bucket
	// dead is the instant before which no event on time can lie: state of its past is of no use any more.
	dead traffic.Time

	// Answers.
	// count is what the window holds with the event, or more. 0: it is not known, as of an event that came late.
	count       int64
	nth         int          // of the events of its time and limit that were there before it; of logs
	exceedances []exceedance // events that this one put over the limit, ascending
	// left is how many of the units are counted nowhere, because the event came too late for the state of its key.
	left int64
	// behind says that the key has had a newer event.
	behind bool
	// settles is when the exceedances become certain: until the watermark has passed this instant, an event on
	// time before it may still undo them. BeforeTime: they are certain.
	settles traffic.Time
	// withdraw says that earlier exceedances which were not certain yet may have been none.
	withdraw bool
}

// begin makes ev an arrival of one unit. Field by field: a whole event would be cleared, filled and copied.
func (ev *event) begin(at traffic.Time, limit, burst int64) {
	ev.time, ev.units, ev.limit, ev.most, ev.burst = at, 1, limit, limit, burst
	ev.value, ev.count, ev.nth, ev.exceedances = 0, 0, 0, ev.exceedances[:0]
	ev.left, ev.behind, ev.settles, ev.withdraw = 0, false, traffic.BeforeTime, false
}

// entry is one event in the order of its key's time. Events of one time are ordered by their limits, the greatest first, so
// that which are over depends on nothing but times and limits, whatever the order of arrival; and the least limit is asked
// of all events of its instant.
type entry struct {
	time  traffic.Time
	limit int64
}

func (e entry) compare(o entry) int {
	switch {
	case e.time != o.time:
		if e.time < o.time {
			return -1
		}
		return 1
	case e.limit > o.limit:
		return -1
	case e.limit < o.limit:
		return 1
	}
	return 0
}

// place is the position of an event in the order of its key: after nth equal entries. Algorithms that keep no events have
// nth 0.
type place struct {
	entry
	nth int
}

func (a place) compare(b place) int {
	return cmp.Or(a.entry.compare(b.entry), cmp.Compare(a.nth, b.nth))
}

// exceedance is an event at which the window holds more than the limit.
type exceedance struct {
	place
	count int64 // a lower bound of what the window holds
	how   precision
}

// precision is how well an algorithm knows which event is over.
type precision uint8

const (
	overEvent  precision = iota // the event named is over
	overWindow                  // one more event of the named event's window is over; which one is not known
	overNear                    // an event less than a slice or a window after the time named is over
)

// judge compares the count of the event's window with the limit. The event is the newest of the window, and counted in it.
func (ev *event) judge(count int64) { ev.judgeAt(ev.time, count, overEvent) }

func (ev *event) judgeAt(at traffic.Time, count int64, how precision) {
	ev.count = count
	if count > ev.limit {
		ev.exceed(at, count, how)
	}
}

// judgeLate is judgeAt where a late event may have put another one over, of which the limit is not known: it has at most the
// greatest one.
func (ev *event) judgeLate(at traffic.Time, count int64, how precision) {
	if count > ev.most {
		ev.exceed(at, count, how)
	}
}

func (ev *event) exceed(at traffic.Time, count int64, how precision) {
	ev.exceedances = append(ev.exceedances, exceedance{place{entry{at, ev.limit}, 0}, count, how})
}

// leave says that the event is counted nowhere: it came too late for the state of its key.
func (ev *event) leave() { ev.left, ev.behind = ev.units, true }

// algorithm counts and judges events in the cells of a lineage's keys. It must be a function of the events that it is given
// and of nothing else.
type algorithm interface {
	// add counts ev in the cell and judges it.
	add(c *cell, ev *event)
	// countAt is the count of the window that an event at an instant, under a limit, would fall into, without that event. It
	// changes nothing. The cell may be an empty one.
	countAt(c *cell, at traffic.Time, limit int64) int64
	// dead reports whether the cell can be forgotten: no event from the instant at on, all of which may still be on time,
	// is judged by anything that it holds.
	dead(c *cell, at traffic.Time) bool
	// gauge is how many units the cell holds and the time of its newest event, by which keys to evict are chosen.
	gauge(c *cell) (count int64, newest traffic.Time)
	// outOfSlotBytes is the charge for the cell's state out of its slot.
	outOfSlotBytes(c *cell) int64
	// release gives that state back, and its charge.
	release(c *cell)
	// append writes the cell for a snapshot of a format; restore reads it into an empty one. Equal states give equal bytes.
	append(dst []byte, c *cell, format int) []byte
	restore(c *cell, r *reader)
}

// inSlot is part of algorithms whose state is the cell alone.
type inSlot struct{}

func (inSlot) outOfSlotBytes(*cell) int64 { return 0 }

func (inSlot) release(*cell) {}

// rangeCounter is implemented by algorithms that keep events, and so can count those between two, until they are trimmed.
type rangeCounter interface {
	// trim drops entries that no decision needs, after an event that was over. It returns the newest entry dropped and how
	// many entries equal to it were, itself included; 0 when nothing was dropped.
	trim(c *cell, ev *event) (given entry, equals int)
	// between counts the entries x with a < x <= b that are not trimmed.
	between(c *cell, a, b place) int64
}

// compacter is an algorithm whose cells have blocks in the arena.
type compacter interface {
	// compact moves the cell's block out of a sparsely used page, if there is reason to. Where a block lies is no part of
	// the state.
	compact(c *cell)
}

// remainder is implemented by buckets, whose remaining units are not the limit less the count.
type remainder interface {
	// remaining is how many whole units would fit at an instant; negative when more is in the bucket than it can hold,
	// because its capacity was lowered.
	remaining(c *cell, at traffic.Time, limit, burst int64) int64
}

// maxCount is where counts of one window saturate: far above every limit, so no decision depends on it.
const maxCount = 1<<30 - 1

// plus is a+b, saturated at maxCount.
func plus(a, b int64) int64 { return min(a+min(b, maxCount), maxCount) }

// floorDiv is the number of the window of length w that t lies in.
func floorDiv(t, w traffic.Time) int64 {
	n := int64(t / w)
	if t < 0 && t%w != 0 {
		n--
	}
	return n
}

// startOf is when window n begins, saturated at the ends of time.
func startOf(n int64, w traffic.Time) traffic.Time {
	if high, low := bits.Mul64(uint64(max(n, -n)), uint64(w)); high == 0 && low < 1<<63 {
		return traffic.Time(n) * w
	}
	if n > 0 {
		return traffic.EndOfTime
	}
	return traffic.BeforeTime
}

// later is t+d, saturated at the end of time; d is not negative.
func later(t, d traffic.Time) traffic.Time {
	if t > traffic.EndOfTime-d {
		return traffic.EndOfTime
	}
	return t + d
}

// earlier is t-d, saturated at the beginning of time; d is not negative.
func earlier(t, d traffic.Time) traffic.Time {
	if t < traffic.BeforeTime+d {
		return traffic.BeforeTime
	}
	return t - d
}

// capacity is what a rule's bucket holds.
func capacity(v *rules.Version) int64 {
	if v.Burst > 0 {
		return int64(v.Burst)
	}
	return int64(v.Limit)
}

// kind is the algorithm of a lineage and what it counts, as snapshots write it.
type kind struct {
	algorithm uint8 // one of the constants below
	count     uint8
}

const (
	kindFixed = iota
	kindFirstSeen
	kindSlidingCounter
	kindSlidingLog
	kindTokenBucket
	kindLeakyBucket
	kindSlices
	numAlgorithms
)

const (
	countEvents = iota
	countDistinct
	countSum
	numCounts
)

// kindOf is the kind of a rule's windows; `sliding` is resolved by the greatest limit of their events.
func kindOf(v *rules.Version, limit int64) kind {
	k := kind{}
	switch {
	case v.Count.Kind() == rules.CountDistinct:
		k.count = countDistinct
	case v.Count.Sum != "":
		k.count = countSum
	}
	switch v.Algorithm {
	case rules.AlgorithmFixed:
		k.algorithm = kindFixed
	case rules.AlgorithmFirstSeen:
		k.algorithm = kindFirstSeen
	case rules.AlgorithmSlidingCounter:
		k.algorithm = kindSlidingCounter
	case rules.AlgorithmSlidingLog:
		k.algorithm = kindSlidingLog
	case rules.AlgorithmTokenBucket:
		k.algorithm = kindTokenBucket
	case rules.AlgorithmLeakyBucket:
		k.algorithm = kindLeakyBucket
	default:
		k.algorithm = pickSliding(limit, k.count)
	}
	return k
}

// newAlgorithm makes the algorithm of a lineage that has started.
func newAlgorithm(l *lineage) algorithm {
	if l.kind.count == countDistinct {
		return newDistinct(l)
	}
	switch l.kind.algorithm {
	case kindFixed:
		return &fixed{lineage: l}
	case kindFirstSeen:
		return newFirstSeen(l)
	case kindSlidingCounter:
		return &slidingCounter{window: l.window}
	case kindSlices:
		return newSlices(l)
	case kindTokenBucket:
		return &tokenBucket{newBucket(l)}
	case kindLeakyBucket:
		return &leakyBucket{newBucket(l)}
	}
	return newSlidingLog(l)
}
