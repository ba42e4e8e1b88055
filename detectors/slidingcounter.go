package detectors

import (
	"encoding/binary"
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// slidingCounter approximates a sliding window by two fixed ones: at the instant t, a share f into its aligned window,
// the count is that of this window plus (1-f) of the one before, rounded down. An event is over when that is greater
// than its limit.
//
// Error: the true count of (t-window, t] and the approximation both lie between the count of this window and the sum of
// both, and differ by at most the greater of f and 1-f times the count of the window before; not at all if that was
// evenly spread.
//
// An event that comes late is counted in its own window while that is this one or the one before, and left out when it is
// older. Then the windows of two instants are judged again: of the key's newest event, and of the end of the window
// before. So a source is over only if one of its events is over in order of time; one is missed whose count was over
// between those instants alone, or by what was left out.
//
// Memory: nothing beside the slot. Counts saturate at 2^30-1.
//
// As published by Cloudflare ("How we built rate limiting capable of scaling to millions of domains", 2017).
type slidingCounter struct {
	inSlot
	window traffic.Time
}

var _ algorithm = (*slidingCounter)(nil)

// The cell: a is the key's newest time, b has the count of its window in bits 0-29 and of the one before in 30-59.
func (s *slidingCounter) add(c *cell, ev *event) {
	at := ev.time
	newest, before := c.counts()
	number := floorDiv(at, s.window)
	if c.b != 0 {
		last := traffic.Time(c.a)
		if at < last {
			s.addLate(c, ev, floorDiv(last, s.window)-number)
			return
		}
		newest, before = turn(newest, before, number-floorDiv(last, s.window))
	}
	newest = plus(newest, ev.units)
	*c = cell{a: uint64(at), b: cellUsed | uint64(newest) | uint64(before)<<30}
	ev.judge(s.weighted(newest, before, at))
}

// countAt of an instant before the key's newest event is that of the newest event.
func (s *slidingCounter) countAt(c *cell, at traffic.Time, _ int64) int64 {
	if c.b == 0 {
		return 0
	}
	last := traffic.Time(c.a)
	at = max(at, last)
	newest, before := c.counts()
	newest, before = turn(newest, before, floorDiv(at, s.window)-floorDiv(last, s.window))
	return s.weighted(newest, before, at)
}

// addLate counts an event older than its key's newest. back is how many windows lie between the two.
func (s *slidingCounter) addLate(c *cell, ev *event, back int64) {
	newest, before := c.counts()
	at := traffic.Time(c.a)
	switch back {
	case 0:
		newest = plus(newest, ev.units)
	case 1:
		before = plus(before, ev.units)
		ev.judgeLate(ev.time, before, overNear)
	default:
		ev.leave()
		return
	}
	ev.behind = true
	*c = cell{a: uint64(at), b: cellUsed | uint64(newest) | uint64(before)<<30}
	ev.judgeLate(at, s.weighted(newest, before, at), overNear)
}

// weighted is the approximate count at an instant of the newest window.
func (s *slidingCounter) weighted(newest, before int64, at traffic.Time) int64 {
	number := floorDiv(at, s.window)
	return newest + weigh(before, startOf(number+1, s.window)-at, s.window)
}

// turn moves two counts on by a number of windows.
func turn(newest, before, steps int64) (int64, int64) {
	switch steps {
	case 0:
		return newest, before
	case 1:
		return 0, newest
	}
	return 0, 0
}

// weigh is count x part / whole, rounded down. part lies within whole.
func weigh(count int64, part, whole traffic.Time) int64 {
	if count == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(count), uint64(part))
	q, _ := bits.Div64(hi, lo, uint64(whole))
	return int64(q)
}

func (s *slidingCounter) dead(c *cell, at traffic.Time) bool {
	return startOf(floorDiv(traffic.Time(c.a), s.window)+2, s.window) <= at
}

func (s *slidingCounter) gauge(c *cell) (count int64, newest traffic.Time) {
	a, b := c.counts()
	return max(a, b), traffic.Time(c.a)
}

func (s *slidingCounter) append(dst []byte, c *cell, _ int) []byte {
	newest, before := c.counts()
	dst = binary.AppendVarint(dst, int64(c.a))
	dst = binary.AppendUvarint(dst, uint64(newest))
	return binary.AppendUvarint(dst, uint64(before))
}

func (s *slidingCounter) restore(c *cell, r *reader) {
	c.a = uint64(r.varint())
	newest, before := r.upTo(maxCount, "count"), r.upTo(maxCount, "count")
	c.b = cellUsed | newest | before<<30
}
