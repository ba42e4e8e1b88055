package detectors

import (
	"encoding/binary"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// distinctLog counts the distinct values of a field in the window (t-window, t], t the key's newest time: it keeps the
// newest time of each value. It is `sliding` with count: distinct, up to the limit SlidingExact.
//
// Exact for events in order (two values are taken for one with a chance below 2^-48). An event that comes late brings its
// value into the window that ends now, if it is of that window; windows that ended before are not judged again: with
// disorder the count is wrong by at most the number of values that were late.
//
// Memory: 16 bytes a value, of the newest limit+1 values once the limit is passed.
type distinctLog struct {
	lineage *lineage
	far     pool[valueLog]
}

type valueLog struct{ list []valueTime } // ascending by (time, value), at least one once used

type valueTime struct {
	time  traffic.Time
	value uint64
}

func (a valueTime) compare(b valueTime) int {
	switch {
	case a.time < b.time || a.time == b.time && a.value < b.value:
		return -1
	case a == b:
		return 0
	}
	return 1
}

var _ algorithm = (*distinctLog)(nil)

func (d *distinctLog) add(c *cell, ev *event) {
	if c.b == 0 {
		if ev.units == 0 {
			ev.at, ev.count = ev.time, 0
			return
		}
		holdValues(&d.far, d.lineage, c)
	}
	log := d.far.at(c)
	was := len(log.list)
	at := ev.time
	if was > 0 {
		at = max(at, log.list[was-1].time)
	}
	if ev.units > 0 {
		log.put(valueTime{ev.time, ev.value})
		log.expire(earlier(at, d.lineage.window))
	}
	count := log.after(earlier(at, d.lineage.window))
	if ev.units == 0 {
		ev.at, ev.count = at, count
		return
	}
	ev.judge(at, count)
	if n := int(ev.limit) + 1; count > ev.limit && len(log.list) > n {
		log.list = slices.Delete(log.list, 0, len(log.list)-n)
	}
	log.list = fitted(log.list)
	d.lineage.ledger.bytes += 16 * int64(len(log.list)-was)
}

// put notes that a value was seen.
func (l *valueLog) put(v valueTime) {
	if i := slices.IndexFunc(l.list, func(x valueTime) bool { return x.value == v.value }); i >= 0 {
		if l.list[i].time >= v.time {
			return
		}
		l.list = slices.Delete(l.list, i, i+1)
	}
	at, _ := slices.BinarySearchFunc(l.list, v, valueTime.compare)
	l.list = slices.Insert(l.list, at, v)
}

// expire drops what lies in no window any more: the key's newest time never goes back.
func (l *valueLog) expire(start traffic.Time) {
	n := 0
	for n < len(l.list) && l.list[n].time <= start {
		n++
	}
	l.list = slices.Delete(l.list, 0, n)
}

// after counts the values whose newest time is after start.
func (l *valueLog) after(start traffic.Time) int64 {
	n := len(l.list)
	for n > 0 && l.list[n-1].time > start {
		n--
	}
	return int64(len(l.list) - n)
}

func (d *distinctLog) dead(c *cell, at traffic.Time) bool {
	list := d.far.at(c).list
	return later(list[len(list)-1].time, d.lineage.window) <= at
}

func (d *distinctLog) gauge(c *cell) (count int64, newest traffic.Time) {
	list := d.far.at(c).list
	return int64(len(list)), list[len(list)-1].time
}

func (d *distinctLog) beside(c *cell) int64 {
	return valueBytes + 16*int64(len(d.far.at(c).list))
}

func (d *distinctLog) release(c *cell) {
	d.lineage.ledger.bytes -= d.beside(c)
	d.far.give(c)
}

func (d *distinctLog) append(dst []byte, c *cell) []byte {
	list := d.far.at(c).list
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendVarint(dst, int64(v.time))
		dst = binary.BigEndian.AppendUint64(dst, v.value)
	}
	return dst
}

func (d *distinctLog) restore(c *cell, r *reader) {
	list := make([]valueTime, r.length(9, "values"))
	for i := range list {
		list[i] = valueTime{traffic.Time(r.varint()), r.fixed64()}
		if r.err == nil && i > 0 && list[i-1].compare(list[i]) >= 0 {
			r.fail("values of a key are not ascending")
		}
	}
	if r.err == nil && len(list) == 0 {
		r.fail("a key without values")
	}
	if r.err != nil {
		return
	}
	holdValues(&d.far, d.lineage, c).list = list
	d.lineage.ledger.bytes += 16 * int64(len(list))
}

// distinctRotating counts the distinct values of a field as slidingCounter counts events: those of this aligned window,
// and of those that only the window before has, the share by which it still lies within the sliding window, rounded down.
// It is `sliding` with count: distinct, above the limit SlidingExact.
//
// Error: that of slidingCounter for the values that only the window before has, and beyond DistinctExact values a window
// the standard error of valueSet. It depends on order: an event that comes late counts at its key's newest time.
//
// Memory: two sets, of 8 bytes a value up to DistinctExact, then 2 KiB each.
type distinctRotating struct {
	lineage *lineage
	far     pool[valuePair]
}

type valuePair struct {
	newest      traffic.Time
	now, before valueSet
	only        int64 // values that before has and now has not
}

var _ algorithm = (*distinctRotating)(nil)

func (d *distinctRotating) add(c *cell, ev *event) {
	if c.b == 0 {
		if ev.units == 0 {
			ev.at, ev.count = ev.time, 0
			return
		}
		holdValues(&d.far, d.lineage, c).newest = ev.time
	}
	w := d.lineage.window
	p := d.far.at(c)
	was := p.now.bytes() + p.before.bytes()
	at := max(ev.time, p.newest)
	number := floorDiv(at, w)
	switch number - floorDiv(p.newest, w) {
	case 0:
	case 1:
		p.before, p.now = p.now, valueSet{}
		p.only = p.before.n
	default:
		p.before, p.now, p.only = valueSet{}, valueSet{}, 0
	}
	p.newest = at
	if ev.units > 0 && p.now.add(ev.value) {
		p.only = max(0, union(&p.now, &p.before)-p.now.n)
	}
	count := p.now.n + weigh(p.only, startOf(number+1, w)-at, w)
	d.lineage.ledger.bytes += p.now.bytes() + p.before.bytes() - was
	if ev.units == 0 {
		ev.at, ev.count = at, count
		return
	}
	ev.judge(at, count)
}

func (d *distinctRotating) dead(c *cell, at traffic.Time) bool {
	w := d.lineage.window
	return startOf(floorDiv(d.far.at(c).newest, w)+2, w) <= at
}

func (d *distinctRotating) gauge(c *cell) (count int64, newest traffic.Time) {
	p := d.far.at(c)
	return max(p.now.n, p.before.n), p.newest
}

func (d *distinctRotating) beside(c *cell) int64 {
	p := d.far.at(c)
	return valueBytes + p.now.bytes() + p.before.bytes()
}

func (d *distinctRotating) release(c *cell) {
	d.lineage.ledger.bytes -= d.beside(c)
	d.far.give(c)
}

func (d *distinctRotating) append(dst []byte, c *cell) []byte {
	p := d.far.at(c)
	dst = binary.AppendVarint(dst, int64(p.newest))
	dst = binary.AppendUvarint(dst, uint64(p.only))
	return p.before.append(p.now.append(dst))
}

func (d *distinctRotating) restore(c *cell, r *reader) {
	p := valuePair{newest: traffic.Time(r.varint()), only: r.count()}
	p.now.restore(r)
	p.before.restore(r)
	if r.err != nil {
		return
	}
	*holdValues(&d.far, d.lineage, c) = p
	d.lineage.ledger.bytes += p.now.bytes() + p.before.bytes()
}
