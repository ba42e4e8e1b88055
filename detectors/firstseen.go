package detectors

import (
	"encoding/binary"
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// firstSeen is the window that opens with a key's first event and lasts the rule's length; the first event after it
// opens the next. An event is over when it makes the window's count greater than its limit.
//
// Exact per window for events in order, and for late events of a window that is open. A late event from before the window is
// left out: the window that it should have opened is not made after the fact. That window would have moved all windows after
// it, up to the next pause of a window's length, and with other windows nothing might have been over. Hence three rules, by
// which a source is over only if a window of the events in order of time is:
//
//   - an exceedance is certain once no event on time can come before the start of its window; a hit waits until then
//     (event.settles)
//   - a window before which an event was left out, and those after it up to a pause, are unsure; so is the first of a key
//     that may have been evicted less than a window ago. More than twice the limit in a window is certain all the same: of
//     all the ways to lay windows, none puts what lies within a window's length into more than two
//   - exceedances that are not certain yet are withdrawn when a window becomes unsure
//
// Memory: nothing beside the slot. Counts saturate at 2^30-1. The newest event's time is rounded up to 2^-30 of a window.
//
// This is the published flexible-TTL scheme (INCR, and EXPIRE when the counter was new), without its race.
type firstSeen struct {
	inSlot
	lineage *lineage
	window  traffic.Time
	grain   int // the newest event's time is held in units of 2^grain microseconds after the start
}

var _ algorithm = (*firstSeen)(nil)

func newFirstSeen(l *lineage) *firstSeen {
	return &firstSeen{lineage: l, window: l.window, grain: max(0, bits.Len64(uint64(l.window))-30)}
}

// The cell: a is the start, b has the count in bits 0-29, in bits 30-59 how long after the start the newest event was,
// in grains and rounded up, and cellUnsure.
const cellUnsure = 1 << 61

func (f *firstSeen) add(c *cell, ev *event) {
	start, count := traffic.Time(c.a), int64(c.b&maxCount)
	fresh := c.b == 0 || ev.time >= later(start, f.window)
	unsure := c.b & cellUnsure
	newest := f.newest(c)
	switch {
	case fresh:
		if c.b == 0 {
			newest = f.lineage.evicted
		}
		unsure = 0
		if ev.time < later(newest, f.window) && (c.b == 0 || c.b&cellUnsure != 0) {
			unsure = cellUnsure
		}
		start, newest, count = ev.time, ev.time, 0
	case ev.time < start:
		ev.leave()
		ev.withdraw = count <= 2*ev.most
		c.b |= cellUnsure
		return
	}
	ev.behind = ev.time < newest
	newest = max(newest, ev.time)
	count = plus(count, ev.units)
	after := uint64(newest-start+1<<f.grain-1) >> f.grain
	*c = cell{a: uint64(start), b: cellUsed | unsure | uint64(count) | after<<30}
	judgeFirstSeen(ev, start, newest, count, unsure != 0)
}

// judgeFirstSeen judges a window by its count, as far as that is certain. The newest event is over if any is.
func judgeFirstSeen(ev *event, start, newest traffic.Time, count int64, unsure bool) {
	ev.count = count
	limit := ev.limit
	if ev.behind {
		limit = ev.most // the newest event's is not known
	}
	switch {
	case count <= limit || unsure && count <= 2*ev.most:
		return
	case count <= 2*ev.most && start > ev.dead:
		ev.settles = start
	}
	ev.exceed(newest, count, overNear)
}

func (f *firstSeen) countAt(c *cell, at traffic.Time, _ int64) int64 {
	if c.b == 0 || at >= later(traffic.Time(c.a), f.window) {
		return 0
	}
	return int64(c.b & maxCount)
}

func (f *firstSeen) newest(c *cell) traffic.Time {
	return traffic.Time(c.a) + traffic.Time(c.b>>30&maxCount)<<f.grain
}

// dead: after a window that was sure, the next event opens the next one whatever is known; after an unsure one it must come
// after a pause.
func (f *firstSeen) dead(c *cell, at traffic.Time) bool {
	if c.b&cellUnsure != 0 {
		return later(f.newest(c), f.window) <= at
	}
	return later(traffic.Time(c.a), f.window) <= at
}

func (f *firstSeen) gauge(c *cell) (count int64, newest traffic.Time) {
	return int64(c.b & maxCount), f.newest(c)
}

func (f *firstSeen) append(dst []byte, c *cell, format int) []byte {
	dst = binary.AppendVarint(dst, int64(c.a))
	dst = binary.AppendUvarint(dst, c.b&maxCount)
	if format < 3 {
		return dst
	}
	dst = binary.AppendUvarint(dst, c.b>>30&maxCount)
	return append(dst, byte(c.b&cellUnsure>>61))
}

func (f *firstSeen) restore(c *cell, r *reader) {
	c.a = uint64(r.varint())
	c.b = cellUsed | r.upTo(maxCount, "count")
	if r.format > 2 {
		c.b |= r.upTo(uint64(f.window)>>f.grain+1, "newest event") << 30
		c.b |= r.upTo(1, "unsure flag") << 61
		return
	}
	c.b |= (uint64(f.window-1) >> f.grain) << 30 // unknown: taken to be as late as it can be
}
