package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// distinctWindows counts the distinct values of a field in windows that begin and end as a whole: those of fixed (aligned
// to the clock, every one that is open by the watermark is kept) and of first-seen (one at a time). Each window has a set
// of its own; an event is over when its window's set holds more than its limit.
//
// Exact up to DistinctExact values a window, then the standard error of valueSet. Order matters as for the algorithm that
// the windows are of: not at all for fixed.
//
// Memory: 8 bytes a value up to DistinctExact, then 2 KiB a window.
type distinctWindows struct {
	lineage *lineage
	aligned bool // fixed, else first-seen
	far     pool[valueWindows]
}

type valueWindows struct{ list []valueWindow } // ascending, at least one once used

// valueWindow is a window and its values; start is when it begins.
type valueWindow struct {
	start traffic.Time
	set   valueSet
}

var _ algorithm = (*distinctWindows)(nil)

func (d *distinctWindows) add(c *cell, ev *event) {
	if c.b == 0 {
		if ev.units == 0 {
			ev.at, ev.count = ev.time, 0
			return
		}
		holdValues(&d.far, d.lineage, c)
	}
	w := d.far.at(c)
	was := w.bytes()
	i := d.find(w, ev)
	if ev.units == 0 {
		ev.at, ev.count = ev.time, w.count(i)
		return
	}
	if i < 0 {
		i = d.open(w, ev)
	}
	w.list[i].set.add(ev.value)
	ev.judge(max(ev.time, w.list[i].start), w.list[i].set.n)
	d.lineage.ledger.bytes += w.bytes() - was
}

// find is the index of the window that the event falls into, or -1.
func (d *distinctWindows) find(w *valueWindows, ev *event) int {
	for i := range w.list {
		s := w.list[i].start
		if ev.time < later(s, d.lineage.window) && (ev.time >= s || !d.aligned) {
			return i
		}
	}
	return -1
}

// open begins the window of the event and forgets those that are closed.
func (d *distinctWindows) open(w *valueWindows, ev *event) int {
	if !d.aligned {
		w.list = []valueWindow{{start: ev.time}}
		return 0
	}
	var kept []valueWindow
	next := valueWindow{start: startOf(floorDiv(ev.time, d.lineage.window), d.lineage.window)}
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
	w.list = kept
	return at
}

const valueBytes = 96

func (w *valueWindows) bytes() int64 {
	n := int64(0)
	for i := range w.list {
		n += 48 + w.list[i].set.bytes()
	}
	return n
}

func (w *valueWindows) count(i int) int64 {
	if i < 0 {
		return 0
	}
	return w.list[i].set.n
}

func (d *distinctWindows) dead(c *cell, at traffic.Time) bool {
	list := d.far.at(c).list
	return later(list[len(list)-1].start, d.lineage.window) <= at
}

func (d *distinctWindows) gauge(c *cell) (count int64, newest traffic.Time) {
	list := d.far.at(c).list
	for i := range list {
		count = max(count, list[i].set.n)
	}
	return count, list[len(list)-1].start
}

func (d *distinctWindows) beside(c *cell) int64 {
	return valueBytes + d.far.at(c).bytes()
}

func (d *distinctWindows) release(c *cell) {
	d.lineage.ledger.bytes -= d.beside(c)
	d.far.give(c)
}

func (d *distinctWindows) append(dst []byte, c *cell) []byte {
	list := d.far.at(c).list
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for i := range list {
		dst = binary.AppendVarint(dst, int64(list[i].start))
		dst = list[i].set.append(dst)
	}
	return dst
}

func (d *distinctWindows) restore(c *cell, r *reader) {
	list := make([]valueWindow, r.length(2, "windows"))
	for i := range list {
		list[i].start = traffic.Time(r.varint())
		list[i].set.restore(r)
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
	w := holdValues(&d.far, d.lineage, c)
	w.list = list
	d.lineage.ledger.bytes += w.bytes()
}

// holdValues gives an empty cell a T of its own for its values, and charges for the T.
func holdValues[T any](far *pool[T], l *lineage, c *cell) *T {
	l.ledger.bytes += valueBytes
	return far.hold(c)
}

// newDistinct is newAlgorithm for lineages that count distinct values.
func newDistinct(l *lineage) algorithm {
	switch l.kind.algorithm {
	case kindFixed, kindFirstSeen:
		return &distinctWindows{lineage: l, aligned: l.kind.algorithm == kindFixed}
	case kindTokenBucket, kindLeakyBucket:
		return &distinctBucket{bucket: bucket{lineage: l}}
	case kindSlidingCounter:
		return &distinctRotating{lineage: l}
	}
	return &distinctLog{lineage: l}
}
