package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// overflowSlices are the slices of one key that do not fit its cell: ascending, more than two or far apart.
type overflowSlices struct {
	list   []uint64 // number - base in the upper 40 bits, count in the lower 24
	base   int64
	total  int64
	newest traffic.Time // event
}

// overflow moves the cell's slices out of the slot.
func (s *slidingSlices) overflow(c *cell) {
	var few [2]uint64
	list, base := s.slices(c, &few)
	f := overflowSlices{list: fitted(list), base: base, newest: traffic.Time(c.a)}
	for _, v := range list {
		f.total += int64(v & sliceMost)
	}
	*s.overflows.hold(c) = f
	s.lineage.ledger.bytes += f.bytes()
}

func (f *overflowSlices) bytes() int64 { return 72 + 8*int64(roomFor(len(f.list))) }

func (s *slidingSlices) addOverflow(c *cell, ev *event, n int64) {
	f := s.overflows.at(c)
	was := f.bytes()
	at, ok := f.put(n, min(ev.units, sliceMost))
	if !ok {
		ev.leave()
		return
	}
	ev.behind = ev.time < f.newest
	f.newest = max(f.newest, ev.time)
	if f.total > ev.limit {
		s.judgeOverflow(f, ev, at)
	}
	s.forget(f, ev)
	s.lineage.ledger.bytes += f.bytes() - was
	s.fold(c, f)
}

// put counts units in slice n and returns its index; false when the slice is hundreds of years away from the others, farther
// than the list can express.
func (f *overflowSlices) put(n, units int64) (at int, ok bool) {
	oldest := f.base + int64(f.list[0]>>sliceBits)
	if n < f.base && !f.rebase(n) || n-f.base > sliceReach && (n-oldest > sliceReach || !f.rebase(oldest)) {
		return 0, false
	}
	key := uint64(n-f.base) << sliceBits
	at = len(f.list)
	for at > 0 && f.list[at-1] >= key {
		at--
	}
	if at == len(f.list) || f.list[at]>>sliceBits != key>>sliceBits {
		f.list = slices.Insert(reserve(f.list, len(f.list)+1), at, key)
	}
	more := min(units, sliceMost-int64(f.list[at]&sliceMost))
	f.list[at] += uint64(more)
	f.total += more
	return at, true
}

// rebase makes base the number from which the slices are counted; false when the newest would be out of reach.
func (f *overflowSlices) rebase(base int64) bool {
	newest := f.base + int64(f.list[len(f.list)-1]>>sliceBits)
	if base > newest || newest-base > sliceReach {
		return false
	}
	for i, v := range f.list {
		number := f.base + int64(v>>sliceBits)
		f.list[i] = uint64(number-base)<<sliceBits | v&sliceMost
	}
	f.base = base
	return true
}

// judgeOverflow judges the window of every slice that the event's own lies in. Of the newest slice the newest event is known,
// of others only that they have one.
func (s *slidingSlices) judgeOverflow(f *overflowSlices, ev *event, at int) {
	number := func(i int) int64 { return int64(f.list[i] >> sliceBits) }
	newest := len(f.list) - 1
	first, sum := at, int64(0)
	for first >= 0 && number(first) > number(at)-s.span {
		sum += int64(f.list[first] & sliceMost)
		first--
	}
	first++
	if at < newest {
		ev.judgeLate(ev.time, min(sum, maxCount), overNear)
	}
	for i := at; i <= newest && number(i) < number(at)+s.span; i++ {
		if i > at {
			sum += int64(f.list[i] & sliceMost)
		}
		for number(first) <= number(i)-s.span {
			sum -= int64(f.list[first] & sliceMost)
			first++
		}
		switch count := min(sum, maxCount); {
		case i == newest:
			s.judgeNewest(ev, f.newest, count)
		case i > at && count > s.strictest(ev):
			ev.exceed(startOf(f.base+number(i), s.width), count, overNear)
		}
	}
}

// forget drops the slices that no event on time can meet any more, once that is half of them, so that a busy key does not
// move its list for each; and of a key that is over at its newest slice those before two windows.
func (s *slidingSlices) forget(f *overflowSlices, ev *event) {
	over := len(ev.exceedances) > 0 && !ev.behind
	newest := f.base + int64(f.list[len(f.list)-1]>>sliceBits)
	n, given := 0, int64(0)
	for n < len(f.list)-1 {
		number := f.base + int64(f.list[n]>>sliceBits)
		if !s.isDead(number, ev.dead) && !(over && number <= newest-2*s.span) {
			break
		}
		given += int64(f.list[n] & sliceMost)
		n++
	}
	if n > len(f.list)/2 {
		f.total -= given
		f.list = fitted(slices.Delete(f.list, 0, n))
	}
}

// fold moves slices that fit the cell again back into it. They must lie there then: where state lies is a function of the
// slices alone.
func (s *slidingSlices) fold(c *cell, f *overflowSlices) {
	if folded, ok := foldSlices(f); ok {
		s.release(c)
		*c = folded
	}
}

func foldSlices(f *overflowSlices) (cell, bool) {
	list := f.list
	n := len(list)
	if n > 2 {
		return cell{}, false
	}
	count := min(list[n-1]&sliceMost, cellSliceMost)
	if n == 1 {
		return cell{a: uint64(f.newest), b: cellUsed | count}, true
	}
	gap := list[1]>>sliceBits - list[0]>>sliceBits
	if gap > cellGap {
		return cell{}, false
	}
	other := min(list[0]&sliceMost, cellSliceMost)
	return cell{a: uint64(f.newest), b: cellUsed | count | other<<20 | gap<<40}, true
}
