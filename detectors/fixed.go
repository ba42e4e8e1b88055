package detectors

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// fixed is the fixed window: time is cut into windows of the rule's length, aligned to the Unix epoch, and each has its
// own count. An event is over when it makes the count of its window greater than its limit.
//
// Exact per window, and in any order within the lateness: every window that is still open by the watermark is kept, and
// an event that comes late adds to its own. As a limit on a rate it is loose at the boundary: up to twice the limit
// passes in a span as long as a window. Where versions with different limits meet in one window, an event is judged by
// the count at its arrival.
//
// Memory: nothing beside the slot for the newest window and the one before it, which is all that is open with the default
// lateness; further windows that are open at once cost 16 bytes each, with up to half as much room. Counts saturate at 2^30-1.
//
// This is the "fixed window counter" of the rate-limiting literature, as in Envoy's rate limit service.
type fixed struct {
	lineage *lineage
	spans   pool[spans]

	asked, start traffic.Time // the instant of the last call of dead, and when its window begins
}

// spans are the open windows of one key, ascending, at least one, and the newest event.
type spans struct {
	list   []span
	newest traffic.Time
}

type span struct{ number, count int64 }

var _ algorithm = (*fixed)(nil)

// The cell: a is the key's newest event, b has the count of its window in bits 0-29 and that of the window before in 30-59.
func fixedCell(at traffic.Time, newest, before int64) cell {
	return cell{a: uint64(at), b: cellUsed | uint64(newest) | uint64(before)<<30}
}

func (c *cell) counts() (newest, before int64) {
	return int64(c.b & maxCount), int64(c.b >> 30 & maxCount)
}

func (f *fixed) add(c *cell, ev *event) {
	w := f.lineage.window
	n := floorDiv(ev.time, w)
	start := startOf(n, w)
	if c.b&cellOverflow != 0 || c.b != 0 && ev.time < traffic.Time(c.a) || start-w > ev.dead {
		f.addOdd(c, ev, n)
		return
	}
	// All before the window before is closed. No branch here depends on the cell: see table.
	newest, before := c.counts()
	last := traffic.Time(c.a)
	if last < start {
		before = newest
	}
	if last < start-w {
		before = 0
	}
	if last < start {
		newest = 0
	}
	newest = plus(newest, ev.units)
	*c = fixedCell(ev.time, newest, before)
	ev.judge(newest)
}

// addOdd is add where an event comes late, or windows before the one before may be open.
func (f *fixed) addOdd(c *cell, ev *event, n int64) {
	if c.b&cellOverflow != 0 {
		f.addOverflow(c, ev, n)
		return
	}
	newest, before := c.counts()
	at := max(ev.time, traffic.Time(c.a))
	top := floorDiv(traffic.Time(c.a), f.lineage.window)
	switch d := n - top; {
	case c.b == 0:
		at, newest, before = ev.time, plus(0, ev.units), 0
		ev.judge(newest)
	case d == 0:
		newest = plus(newest, ev.units)
		ev.behind = ev.time < at
		if ev.behind {
			ev.judgeLate(at, newest, overEvent) // the newest of the window is over if any is
		} else {
			ev.judge(newest)
		}
	case d == -1:
		before = plus(before, ev.units)
		ev.behind = true
		ev.judgeLate(ev.time, before, f.late())
	case d == 1 && (before == 0 || !f.open(n-2, ev.dead)):
		newest, before = plus(0, ev.units), newest
		ev.judge(newest)
	case d > 1 && !f.open(top, ev.dead):
		newest, before = plus(0, ev.units), 0
		ev.judge(newest)
	default:
		f.overflow(c)
		f.addOverflow(c, ev, n)
		return
	}
	*c = fixedCell(at, newest, before)
}

// late is how well the over event is known when a late event falls into an older window: of counted events, one more of
// that window is over.
func (f *fixed) late() precision {
	if f.lineage.kind.count == countEvents {
		return overWindow
	}
	return overNear
}

// open reports whether an event on time may still fall into window n.
func (f *fixed) open(n int64, dead traffic.Time) bool { return startOf(n+1, f.lineage.window) > dead }

func (f *fixed) countAt(c *cell, at traffic.Time, _ int64) (count int64) {
	n := floorDiv(at, f.lineage.window)
	for _, s := range f.windows(c, nil) {
		if s.number == n {
			count = s.count
		}
	}
	return count
}

// windows lists the windows that the cell holds, ascending.
func (f *fixed) windows(c *cell, out []span) []span {
	if c.b&cellOverflow != 0 {
		return append(out, f.spans.at(c).list...)
	}
	newest, before := c.counts()
	number := floorDiv(traffic.Time(c.a), f.lineage.window)
	if before > 0 {
		out = append(out, span{number - 1, before})
	}
	if c.b != 0 {
		out = append(out, span{number, newest})
	}
	return out
}

// newest is the key's newest event.
func (f *fixed) newest(c *cell) traffic.Time {
	if c.b&cellOverflow != 0 {
		return f.spans.at(c).newest
	}
	return traffic.Time(c.a)
}

// overflow moves the cell's windows out of the slot.
func (f *fixed) overflow(c *cell) {
	s := spans{list: fitted(f.windows(c, nil)), newest: traffic.Time(c.a)}
	*f.spans.hold(c) = s
	f.lineage.ledger.bytes += spanBytes(len(s.list))
}

func spanBytes(n int) int64 { return 56 + 16*int64(roomFor(n)) }

func (f *fixed) addOverflow(c *cell, ev *event, n int64) {
	s := f.spans.at(c)
	was := len(s.list)
	at, found := slices.BinarySearchFunc(s.list, n, func(s span, n int64) int { return cmp.Compare(s.number, n) })
	if !found {
		s.list = slices.Insert(reserve(s.list, len(s.list)+1), at, span{number: n})
	}
	s.list[at].count = plus(s.list[at].count, ev.units)
	ev.behind = ev.time < s.newest
	s.newest = max(s.newest, ev.time)
	switch {
	case at < len(s.list)-1:
		ev.judgeLate(ev.time, s.list[at].count, f.late())
	case ev.behind:
		ev.judgeLate(s.newest, s.list[at].count, overEvent)
	default:
		ev.judge(s.list[at].count)
	}
	closed := 0
	for closed < len(s.list)-1 && !f.open(s.list[closed].number, ev.dead) {
		closed++
	}
	s.list = fitted(slices.Delete(s.list, 0, closed))
	f.lineage.ledger.bytes += spanBytes(len(s.list)) - spanBytes(was)
	if folded, ok := foldSpans(s.list, s.newest); ok {
		f.release(c)
		*c = folded
	}
}

// foldSpans packs windows into a cell if they fit. They must lie there then: where state lies is a function of the windows
// alone.
func foldSpans(list []span, newest traffic.Time) (cell, bool) {
	switch n := len(list); {
	case n == 1:
		return fixedCell(newest, list[0].count, 0), true
	case n == 2 && list[0].number+1 == list[1].number:
		return fixedCell(newest, list[1].count, list[0].count), true
	}
	return cell{}, false
}

func (f *fixed) dead(c *cell, at traffic.Time) bool {
	if at != f.asked {
		f.asked, f.start = at, startOf(floorDiv(at, f.lineage.window), f.lineage.window)
	}
	return f.newest(c) < f.start // the window of the newest event ends by then
}

func (f *fixed) gauge(c *cell) (count int64, newest traffic.Time) {
	if c.b&cellOverflow == 0 {
		a, b := c.counts()
		return max(a, b), traffic.Time(c.a)
	}
	s := f.spans.at(c)
	for _, x := range s.list {
		count = max(count, x.count)
	}
	return count, s.newest
}

func (f *fixed) outOfSlotBytes(c *cell) int64 {
	if c.b&cellOverflow == 0 {
		return 0
	}
	return spanBytes(len(f.spans.at(c).list))
}

func (f *fixed) release(c *cell) {
	if c.b&cellOverflow != 0 {
		f.lineage.ledger.bytes -= f.outOfSlotBytes(c)
		f.spans.give(c)
	}
}

func (f *fixed) append(dst []byte, c *cell, format int) []byte {
	var few [4]span
	list := f.windows(c, few[:0])
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	last := int64(0)
	for _, s := range list {
		dst = binary.AppendVarint(dst, s.number-last)
		dst = binary.AppendUvarint(dst, uint64(s.count))
		last = s.number
	}
	if format < 3 {
		return dst
	}
	return binary.AppendUvarint(dst, uint64(f.newest(c)-startOf(last, f.lineage.window)))
}

func (f *fixed) restore(c *cell, r *reader) {
	list := make([]span, r.length(2, "windows"))
	last := int64(0)
	for i := range list {
		step := r.varint()
		if r.err == nil && i > 0 && (step <= 0 || last+step < last) {
			r.fail("windows of a key are not ascending")
		}
		list[i] = span{last + step, int64(r.upTo(maxCount, "count"))}
		last = list[i].number
		if r.err == nil && list[i].count == 0 {
			r.fail("a window without events")
		}
	}
	after := uint64(0) // format 2 does not tell: as if the newest event were the window's first
	if r.format > 2 {
		after = r.upTo(uint64(f.lineage.window)-1, "newest event")
	}
	if r.err == nil && len(list) == 0 {
		r.fail("a key without windows")
	}
	if r.err != nil {
		return
	}
	newest := later(startOf(last, f.lineage.window), traffic.Time(after))
	var ok bool
	if *c, ok = foldSpans(list, newest); !ok {
		*f.spans.hold(c) = spans{list: fitted(list), newest: newest}
		f.lineage.ledger.bytes += spanBytes(len(list))
	}
}
