package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// firstSeen is the window that opens with a key's first event and lasts the rule's length; the first event after it
// opens the next. An event is over when it makes the window's count greater than its limit.
//
// Exact per window for events in order. It depends on order by nature: an event that comes late counts in the window
// that is open now, and the window of which it would have been the first is not made after the fact. A key's count is
// wrong by at most the number of its late events.
//
// Memory: nothing beside the key. Counts saturate at 2^30-1.
//
// This is the published flexible-TTL scheme (INCR, and EXPIRE when the counter was new), without its race.
type firstSeen struct {
	inCell
	window traffic.Time
}

var _ algorithm = (*firstSeen)(nil)

// The cell: a is the start, b has the count in bits 0-29.
func (f *firstSeen) add(c *cell, ev *event) {
	start, count := traffic.Time(c.a), int64(c.b&maxCount)
	fresh := c.b == 0 || ev.time >= later(start, f.window)
	switch {
	case ev.units == 0:
		if fresh {
			count = 0
		}
		ev.at, ev.count = ev.time, count
		return
	case fresh:
		start, count = ev.time, 0
	}
	count = plus(count, ev.units)
	*c = cell{a: uint64(start), b: cellUsed | uint64(count)}
	ev.judge(max(ev.time, start), count)
}

func (f *firstSeen) dead(c *cell, at traffic.Time) bool {
	return later(traffic.Time(c.a), f.window) <= at
}

func (f *firstSeen) gauge(c *cell) (count int64, newest traffic.Time) {
	return int64(c.b & maxCount), traffic.Time(c.a)
}

func (f *firstSeen) append(dst []byte, c *cell) []byte {
	dst = binary.AppendVarint(dst, int64(c.a))
	return binary.AppendUvarint(dst, c.b&maxCount)
}

func (f *firstSeen) restore(c *cell, r *reader) {
	c.a = uint64(r.varint())
	c.b = cellUsed | r.upTo(maxCount, "count")
}
