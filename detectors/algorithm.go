package detectors

import (
	"cmp"
	"math"
	"math/bits"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// cell is the state of one key: two words whose meaning is the algorithm's, save the flags at the top of b.
// A cell of which b is 0 is that of a key which has seen nothing.
type cell struct{ a, b uint64 }

const (
	cellOffender = 1 << 63 // in a table only: the cell itself lies with the key's episodes, at the index in the low 32 bits
	cellUsed     = 1 << 62 // always set
	cellOverflow = 1 << 61 // the state lies beside, at the index in the low 32 bits; not of buckets
	cellBlock    = 1 << 60 // sliding log only: the entries are in a block of the arena

	cellIndex = math.MaxUint32
)

// overflowCell refers to state that lies beside, at index.
func overflowCell(index uint32) cell { return cell{b: cellUsed | cellOverflow | uint64(index)} }

// event is an arrival as an algorithm sees it, and what the algorithm answers.
type event struct {
	time  traffic.Time
	units int64  // at least 1
	value uint64 // hash of what is counted, when distinct values are
	limit int64  // the event's own limit: that of its record's routing version
	burst int64  // capacity of a bucket
	dead  traffic.Time
	// dead is the instant whose past is of no use any more: no event on time lies before it.

	// Answers.
	count       int64        // of the window that the event is in
	nth         int          // of the events of its time and limit that were there before it; of logs
	exceedances []exceedance // events that this one put over the limit, ascending
	// left is how many of the units are counted nowhere, because the event came too late for what is kept of its key.
	left int64
	// behind says that the key has had a newer event.
	behind bool
	// settles is when the overs become certain: an event on time may still come that makes them none, until no event before
	// that instant can. BeforeTime: they are.
	settles traffic.Time
	// withdraw says that overs of before, which were not certain, may have been none.
	withdraw bool
}

// begin makes ev an arrival of one unit. Field by field: a whole event would be cleared, filled and copied.
func (ev *event) begin(at traffic.Time, limit, burst int64) {
	ev.time, ev.units, ev.limit, ev.burst = at, 1, limit, burst
	ev.value, ev.nth, ev.exceedances = 0, 0, ev.exceedances[:0]
	ev.left, ev.behind, ev.settles, ev.withdraw = 0, false, traffic.BeforeTime, false
}

// entry is one event in the order of its key's time. Events of one time are ordered by their limits, so that what is
// over depends on nothing but times and limits, whatever the order of arrival.
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
	case e.limit < o.limit:
		return -1
	case e.limit > o.limit:
		return 1
	}
	return 0
}

// place is where an event stands among those of its key: nth of its equals stand before it. Of algorithms that keep no
// events, nth is 0.
type place struct {
	entry
	nth int
}

func (a place) compare(b place) int {
	return cmp.Or(a.entry.compare(b.entry), cmp.Compare(a.nth, b.nth))
}

// over is an event at which the window holds more than the limit.
type exceedance struct {
	place
	count int64 // what is known of the window: never more than it holds
	how   precision
}

// precision is how well an algorithm knows which event is over.
type precision uint8

const (
	overEvent  precision = iota // this event is
	overWindow                  // one more event of the window that this one lies in is, whichever
	overNear                    // an event is that comes after the time given, less than a slice or a window
)

// judge says that the event's window holds so many, the event included and the newest of it.
func (ev *event) judge(count int64) { ev.judgeAt(ev.time, count, overEvent) }

func (ev *event) judgeAt(at traffic.Time, count int64, how precision) {
	if count > ev.limit {
		ev.exceed(at, count, how)
	}
}

func (ev *event) exceed(at traffic.Time, count int64, how precision) {
	ev.exceedances = append(ev.exceedances, exceedance{place{entry{at, ev.limit}, 0}, count, how})
}

// leave says that the event is counted nowhere: it came too late for what is kept of its key.
func (ev *event) leave() { ev.left, ev.behind = ev.units, true }

// algorithm is what all windows of a lineage have in common: it moves their cells. It must be a function of the events
// it is given and of nothing else.
type algorithm interface {
	// add counts ev in the cell and judges it.
	add(c *cell, ev *event)
	// countAt is what the window of an event at an instant, under a limit, holds by now. The cell may be an empty one. It
	// changes nothing.
	countAt(c *cell, at traffic.Time, limit int64) int64
	// dead reports whether no event that is on time at the instant can meet anything that the cell holds.
	dead(c *cell, at traffic.Time) bool
	// gauge says how much the cell holds and how new it is, for choosing what to forget.
	gauge(c *cell) (count int64, newest traffic.Time)
	// beside is what the ledger is charged for what lies beside the cell, in bytes.
	outOfSlotBytes(c *cell) int64
	// release gives that back.
	release(c *cell)
	// append writes the cell for a snapshot of a format; restore reads it into an empty one. Equal states give equal bytes.
	append(dst []byte, c *cell, format int) []byte
	restore(c *cell, r *reader)
}

// inSlot is part of algorithms that hold nothing beside the cell.
type inSlot struct{}

func (inSlot) outOfSlotBytes(*cell) int64 { return 0 }

func (inSlot) release(*cell) {}

// rangeCounter is an algorithm that keeps events, and so knows how many lie between two, until it is told to trim.
type rangeCounter interface {
	// trim gives up entries that no decision needs, after an event that was over, and returns the newest of them and how
	// many equals of it went, itself included; 0 when none did.
	trim(c *cell, ev *event) (given entry, equals int)
	// between counts the events x with a < x <= b, of those that are kept.
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

// kindOf is what v asks for, sliding resolved.
func kindOf(v *rules.Version) kind {
	k := kind{}
	switch {
	case v.Count.Distinct != nil:
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
		k.algorithm = pickSliding(v.Limit, k.count)
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
