package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// sliceCount is how many slices a window has.
const sliceCount = 64

// slidingSlices counts by slices of the window, which are addressed by event time: slice n has the events of
// [n x width, (n+1) x width), whatever order they come in. Its window at a slice is that slice and the ones before it, as
// many as fit into the rule's window together. It is `sliding` above the limit SlidingExact.
//
// Error: a source is over only if it truly is: the events of a window of slices lie less than the rule's window apart, so
// the exact window of the last of them holds them all. And it is over whenever more than the limit lie within the rule's
// window less one slice, a 64th part: they touch no more slices than a window has. Which sources are over depends on
// no order, and no event is left out.
//
// Memory: nothing beside the slot for two slices; more cost 8 bytes each and a head of 72, for slices that an event on time
// can still meet. Once the newest slice's window is over, only the newest ones are kept. Counts saturate at 2^20-1 a
// slice in the cell, and at 2^24-1 out of the slot: above every limit.
//
// Sub-windows are usual in stream processing (Li et al., "No pane, no gain", 2005); judging only by whole panes, so
// that the error has one direction, is weir's own.
type slidingSlices struct {
	lineage   *lineage
	width     traffic.Time
	span      int64 // slices in a window
	overflows pool[overflowSlices]
}

const (
	sliceBits  = 24
	sliceMost  = 1<<sliceBits - 1
	sliceReach = 1<<40 - 1

	cellSliceMost = 1<<20 - 1
	cellGap       = 1<<20 - 1
)

var _ algorithm = (*slidingSlices)(nil)

func newSlices(l *lineage) *slidingSlices {
	width := max(1, l.window/sliceCount)
	return &slidingSlices{lineage: l, width: width, span: int64(l.window / width)}
}

// The cell: a is the newest event; b has the count of its slice in bits 0-19, the count of another, older slice in bits 20-39,
// and in bits 40-59 how many slices before the newest the other is; 0: there is none.
func (s *slidingSlices) add(c *cell, ev *event) {
	n := floorDiv(ev.time, s.width)
	if c.b&cellOverflow != 0 {
		s.addOverflow(c, ev, n)
		return
	}
	at, top := traffic.Time(c.a), n
	if c.b != 0 && (at < startOf(n, s.width) || at >= startOf(n+1, s.width)) {
		top = floorDiv(at, s.width)
	}
	newest, other, gap := int64(c.b&cellSliceMost), int64(c.b>>20&cellSliceMost), int64(c.b>>40&cellGap)
	units := min(ev.units, cellSliceMost)
	switch d := n - top; {
	case c.b == 0:
		at, newest = ev.time, units
	case d == 0:
		newest = min(newest+units, cellSliceMost)
	case gap != 0 && d == -gap:
		other = min(other+units, cellSliceMost)
	case d > 0 && d <= cellGap && (gap == 0 || s.isDead(top-gap, ev.dead)):
		top, newest, other, gap = n, units, newest, d
	case d < 0 && -d <= cellGap && gap == 0:
		other, gap = units, -d
	default:
		s.overflow(c)
		s.addOverflow(c, ev, n)
		return
	}
	ev.behind = ev.time < at
	at = max(at, ev.time)
	*c = cell{a: uint64(at), b: cellUsed | uint64(newest) | uint64(other)<<20 | uint64(gap)<<40}
	together := newest
	if gap < s.span {
		together += other
	}
	if n < top {
		ev.judgeLate(ev.time, other, overNear)
	}
	s.judgeNewest(ev, at, together)
}

// judgeNewest judges the window of the newest slice. at is the key's newest event, which lies in it.
func (s *slidingSlices) judgeNewest(ev *event, at traffic.Time, count int64) {
	ev.count = count
	limit := ev.limit
	if ev.behind {
		limit = s.strictest(ev)
	}
	if count > limit {
		ev.exceed(at, count, overNear)
	}
}

// strictest is the limit by which a late event's effect on windows of other events is judged: at least the limit of each of
// those events.
func (s *slidingSlices) strictest(ev *event) int64 { return max(ev.limit, s.lineage.greatest) }

// isDead reports whether no event that is on time at the instant can share a window with slice n.
func (s *slidingSlices) isDead(n int64, dead traffic.Time) bool {
	return startOf(n+s.span, s.width) <= dead
}

func (s *slidingSlices) countAt(c *cell, at traffic.Time, _ int64) (count int64) {
	n := floorDiv(at, s.width)
	var few [2]uint64
	list, base := s.slices(c, &few)
	for _, v := range list {
		if number := base + int64(v>>sliceBits); number <= n && number > n-s.span {
			count += int64(v & sliceMost)
		}
	}
	return count
}

// slices lists the slices of a key; few is where they are put when they lie in the cell.
func (s *slidingSlices) slices(c *cell, few *[2]uint64) (list []uint64, base int64) {
	if c.b&cellOverflow != 0 {
		f := s.overflows.at(c)
		return f.list, f.base
	}
	if c.b == 0 {
		return nil, 0
	}
	newest, other, gap := c.b&cellSliceMost, c.b>>20&cellSliceMost, c.b>>40&cellGap
	top := floorDiv(traffic.Time(c.a), s.width)
	if gap == 0 {
		few[0] = newest
		return few[:1], top
	}
	few[0], few[1] = other, gap<<sliceBits|newest
	return few[:2], top - int64(gap)
}

// newest is the key's newest event.
func (s *slidingSlices) newest(c *cell) traffic.Time {
	if c.b&cellOverflow != 0 {
		return s.overflows.at(c).newest
	}
	return traffic.Time(c.a)
}

func (s *slidingSlices) dead(c *cell, at traffic.Time) bool {
	newest := s.newest(c)
	return later(newest, s.lineage.window) <= at && s.isDead(floorDiv(newest, s.width), at)
}

func (s *slidingSlices) gauge(c *cell) (count int64, newest traffic.Time) {
	var few [2]uint64
	list, _ := s.slices(c, &few)
	for _, v := range list {
		count += int64(v & sliceMost)
	}
	return count, s.newest(c)
}

func (s *slidingSlices) outOfSlotBytes(c *cell) int64 {
	if c.b&cellOverflow == 0 {
		return 0
	}
	return s.overflows.at(c).bytes()
}

func (s *slidingSlices) release(c *cell) {
	if c.b&cellOverflow != 0 {
		s.lineage.ledger.bytes -= s.outOfSlotBytes(c)
		s.overflows.give(c)
	}
}

func (s *slidingSlices) append(dst []byte, c *cell, format int) []byte {
	var few [2]uint64
	list, base := s.slices(c, &few)
	if format < 3 {
		return s.appendCounter(dst, c, list, base)
	}
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	last := int64(0)
	for _, v := range list {
		number := base + int64(v>>sliceBits)
		dst = binary.AppendVarint(dst, number-last)
		dst = binary.AppendUvarint(dst, v&sliceMost)
		last = number
	}
	return binary.AppendUvarint(dst, uint64(s.newest(c)-startOf(last, s.width)))
}

// appendCounter writes the two windows of a slidingCounter, which builds that know no slices count instead.
func (s *slidingSlices) appendCounter(dst []byte, c *cell, list []uint64, base int64) []byte {
	number := floorDiv(s.newest(c), s.lineage.window)
	newest, before := int64(0), int64(0)
	for _, v := range list {
		switch floorDiv(startOf(base+int64(v>>sliceBits), s.width), s.lineage.window) {
		case number:
			newest = plus(newest, int64(v&sliceMost))
		case number - 1:
			before = plus(before, int64(v&sliceMost))
		}
	}
	dst = binary.AppendVarint(dst, int64(s.newest(c)))
	return binary.AppendUvarint(binary.AppendUvarint(dst, uint64(newest)), uint64(before))
}

func (s *slidingSlices) restore(c *cell, r *reader) {
	type counted struct {
		number int64
		count  uint64
	}
	list := make([]counted, r.length(2, "slices"))
	last := int64(0)
	for i := range list {
		step := r.varint()
		if r.err == nil && i > 0 && (step <= 0 || last+step < last) {
			r.fail("slices of a key are not ascending")
		}
		last += step
		list[i] = counted{last, r.upTo(sliceMost, "count")}
		if r.err == nil && list[i].count == 0 {
			r.fail("a slice without events")
		}
	}
	after := r.upTo(uint64(s.width)-1, "newest event")
	if r.err == nil && (len(list) == 0 || list[len(list)-1].number-list[0].number > sliceReach || list[len(list)-1].number < list[0].number) {
		r.fail("%d slices of a key, allowed: at least one, none more than %d before the newest", len(list), sliceReach)
	}
	if r.err != nil {
		return
	}
	f := overflowSlices{base: list[0].number, newest: later(startOf(last, s.width), traffic.Time(after))}
	for _, v := range list {
		f.list = append(f.list, uint64(v.number-f.base)<<sliceBits|v.count)
		f.total += int64(v.count)
	}
	f.list = fitted(f.list)
	var ok bool
	if *c, ok = foldSlices(&f); !ok {
		*s.overflows.hold(c) = f
		s.lineage.ledger.bytes += f.bytes()
	}
}
