package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// distinctWindows counts the distinct values of a field in windows that begin and end as a whole: those of fixed (aligned
// to the clock, every one that is open by the watermark is kept) and of first-seen (one at a time). Each window has a set
// of its own; an event is over when its window's set holds more than its limit.
//
// Exact up to DistinctExact values a window; beyond, the count is valueSet's lower bound. Order matters as for the algorithm that
// the windows are of: not at all for fixed; for first-seen see firstSeen.
//
// Memory: 8 bytes a value up to DistinctExact, with up to half as much room, then 2 KiB a window.
type distinctWindows struct {
	lineage   *lineage
	aligned   bool // fixed, else first-seen
	overflows pool[valueWindows]
}

type valueWindows struct{ list []valueWindow } // ascending, at least one once used

// valueWindow is a window and its values; start is when it begins.
type valueWindow struct {
	start  traffic.Time
	newest traffic.Time // event
	unsure bool         // of first-seen
	set    valueSet
}

var _ algorithm = (*distinctWindows)(nil)

func (d *distinctWindows) add(c *cell, ev *event) {
	if c.b == 0 {
		holdValues(&d.overflows, d.lineage, c, listBytes)
	}
	w := d.overflows.at(c)
	i := d.find(w, ev.time)
	was := w.bytes()
	if i < 0 {
		i = d.open(w, ev)
	}
	v := &w.list[i]
	if ev.time < v.start {
		ev.leave()
		ev.withdraw = v.set.least() <= 2*ev.most
		v.unsure = true
		return
	}
	v.set.add(ev.value)
	ev.behind = ev.time < v.newest || i < len(w.list)-1
	v.newest = max(v.newest, ev.time)
	if d.aligned {
		if ev.behind {
			ev.judgeLate(ev.time, v.set.least(), overNear)
		} else {
			ev.judge(v.set.least())
		}
	} else {
		judgeFirstSeen(ev, v.start, v.newest, v.set.least(), v.unsure)
	}
	d.lineage.ledger.bytes += w.bytes() - was
}

func (d *distinctWindows) countAt(c *cell, at traffic.Time, _ int64) int64 {
	if c.b == 0 {
		return 0
	}
	w := d.overflows.at(c)
	i := d.find(w, at)
	if i < 0 {
		return 0
	}
	return w.list[i].set.least()
}

// find is the index of the window that an instant falls into, or -1.
func (d *distinctWindows) find(w *valueWindows, at traffic.Time) int {
	for i := range w.list {
		s := w.list[i].start
		if at < later(s, d.lineage.window) && (at >= s || !d.aligned) {
			return i
		}
	}
	return -1
}

// open begins the window of the event and forgets closed windows.
func (d *distinctWindows) open(w *valueWindows, ev *event) int {
	if !d.aligned {
		next, newest, unsure := valueWindow{start: ev.time, newest: ev.time}, d.lineage.evicted, true
		if len(w.list) > 0 {
			newest, unsure = w.list[0].newest, w.list[0].unsure
		}
		next.unsure = unsure && ev.time < later(newest, d.lineage.window)
		w.list = append(w.list[:0], next)
		return 0
	}
	var kept []valueWindow
	next := valueWindow{start: startOf(floorDiv(ev.time, d.lineage.window), d.lineage.window), newest: ev.time}
	at := -1
	for _, v := range w.list {
		if later(v.start, d.lineage.window) <= ev.dead {
			continue
		}
		if at < 0 && v.start > next.start {
			at = len(kept)
			kept = append(kept, next)
		}
		kept = append(kept, v)
	}
	if at < 0 {
		at = len(kept)
		kept = append(kept, next)
	}
	w.list = append(make([]valueWindow, 0, len(kept)), kept...)
	return at
}

// Out-of-slot bytes of a cell without its lists: the head of a list, and of one or two sets.
const (
	listBytes = 48
	setBytes  = 152
)

func (w *valueWindows) bytes() int64 {
	n := int64(0)
	for i := range w.list {
		n += 80 + w.list[i].set.bytes()
	}
	return n
}

func (d *distinctWindows) dead(c *cell, at traffic.Time) bool {
	list := d.overflows.at(c).list
	last := &list[len(list)-1]
	if last.unsure {
		return later(last.newest, d.lineage.window) <= at
	}
	return later(last.start, d.lineage.window) <= at
}

func (d *distinctWindows) gauge(c *cell) (count int64, newest traffic.Time) {
	list := d.overflows.at(c).list
	for i := range list {
		count = max(count, list[i].set.n)
	}
	return count, list[len(list)-1].start
}

func (d *distinctWindows) outOfSlotBytes(c *cell) int64 {
	return listBytes + d.overflows.at(c).bytes()
}

func (d *distinctWindows) release(c *cell) {
	d.lineage.ledger.bytes -= d.outOfSlotBytes(c)
	d.overflows.give(c)
}

func (d *distinctWindows) append(dst []byte, c *cell, format int) []byte {
	list := d.overflows.at(c).list
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		v := &list[i]
		dst = binary.AppendVarint(dst, int64(v.start))
		if format > 2 {
			dst = binary.AppendUvarint(dst, uint64(v.newest-v.start)<<1|bit(v.unsure))
		}
		dst = v.set.append(dst)
	}
	return dst
}

func (d *distinctWindows) restore(c *cell, r *reader) {
	list := make([]valueWindow, r.length(2, "windows"))
	for i := range list {
		v := &list[i]
		v.start = traffic.Time(r.varint())
		after := uint64(d.lineage.window-1) << 1 // format 2 does not tell: as late as it can be
		if r.format > 2 {
			after = r.upTo(uint64(d.lineage.window)<<1-1, "newest event")
		}
		v.newest, v.unsure = v.start+traffic.Time(after>>1), after&1 != 0
		v.set.restore(r)
		if r.err == nil && i > 0 && list[i].start <= list[i-1].start {
			r.fail("windows of a key are not ascending")
		}
	}
	if r.err == nil && (len(list) == 0 || !d.aligned && len(list) > 1) {
		r.fail("%d windows of a key", len(list))
	}
	if r.err != nil {
		return
	}
	w := holdValues(&d.overflows, d.lineage, c, listBytes)
	w.list = list
	d.lineage.ledger.bytes += w.bytes()
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// holdValues gives an empty cell a T of its own for its values, and charges for the T.
func holdValues[T any](p *pool[T], l *lineage, c *cell, charge int64) *T {
	l.ledger.bytes += charge
	return p.hold(c)
}

// newDistinct is newAlgorithm for lineages that count distinct values.
func newDistinct(l *lineage) algorithm {
	switch l.kind.algorithm {
	case kindFixed, kindFirstSeen:
		return &distinctWindows{lineage: l, aligned: l.kind.algorithm == kindFixed}
	case kindTokenBucket, kindLeakyBucket:
		return &distinctBucket{bucket: newBucket(l)}
	case kindSlidingCounter:
		return &distinctRotating{lineage: l}
	}
	return &distinctLog{lineage: l}
}
