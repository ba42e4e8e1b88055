package detectors

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/weirhq/weir/traffic"
)

// distinctLog counts the distinct values of a field in the window (t-window, t] of an event at t: it keeps the times of
// each value. It is `sliding` with count: distinct, up to the limit SlidingExact.
//
// Exact for events in any order (two values are taken for one with a chance below 2^-47): a late event is put in its place,
// and every window that it lies in is judged again; windows of other events by the greatest limit that the lineage has had.
// A time of a value is not kept when the ones before and after it lie no more than a window apart: whatever window holds it
// holds one of them, or ends before another value comes.
//
// Memory: 16 bytes for each time that is kept and that an event on time can still meet, with up to half as much room: of
// one value at most two in a window's length. Once the newest event is over, only the times of the newest limit+1 values are
// kept, or the newest leastKept times, trimmed at twice as many.
type distinctLog struct {
	lineage   *lineage
	overflows pool[valueLog]
	seen      map[uint64]int // scratch: where a value comes next
	steps     []int64        // scratch
}

type valueLog struct{ list []valueTime } // ascending by time, at least one once used

// valueTime is a time at which a value was seen: above its lowest bit, which says that it is the value's newest.
type valueTime struct {
	at    int64
	value uint64
}

const newestTime = 1

func seenAt(at traffic.Time, value uint64) valueTime {
	return valueTime{int64(at)<<1 | newestTime, value}
}

func (v valueTime) time() traffic.Time { return traffic.Time(v.at >> 1) }

func (v valueTime) newest() bool { return v.at&newestTime != 0 }

var _ algorithm = (*distinctLog)(nil)

func (d *distinctLog) add(c *cell, ev *event) {
	if c.b == 0 {
		holdValues(&d.overflows, d.lineage, c, listBytes)
	}
	log := d.overflows.at(c)
	was := log.bytes()
	log.expire(earlier(ev.dead, d.lineage.window))
	x := seenAt(ev.time, ev.value)
	if n := len(log.list); n == 0 || log.list[n-1].time() <= ev.time {
		log.put(x, d.lineage.window)
		ev.judge(log.distinct(earlier(ev.time, d.lineage.window)))
		if len(ev.exceedances) > 0 {
			log.saturate(int(ev.most) + 1)
		}
	} else {
		ev.behind = true
		d.judgeLate(log, log.insert(x, d.lineage.window), ev)
	}
	d.lineage.ledger.bytes += log.bytes() - was
}

func (d *distinctLog) countAt(c *cell, at traffic.Time, _ int64) int64 {
	if c.b == 0 {
		return 0
	}
	return d.overflows.at(c).distinct(earlier(at, d.lineage.window))
}

// put adds a time that is not before any other.
func (l *valueLog) put(x valueTime, window traffic.Time) {
	last := -1 // the value's newest so far
	for i := len(l.list) - 1; i >= 0 && last < 0; i-- {
		if l.list[i].value == x.value && l.list[i].newest() {
			last = i
		}
	}
	if last >= 0 {
		if l.list[last].at == x.at {
			return
		}
		l.list[last].at &^= newestTime
		if before := l.before(last); before >= 0 && x.time()-l.list[before].time() <= window {
			l.list = slices.Delete(l.list, last, last+1)
		}
	}
	l.list = append(reserve(l.list, len(l.list)+1), x)
}

// before is the index of the time before the one at i, of the same value; -1 if there is none.
func (l *valueLog) before(i int) int {
	value := l.list[i].value
	for i--; i >= 0 && l.list[i].value != value; i-- {
		continue
	}
	return i
}

// after is the index of the time after the one at i, of the same value; -1 if there is none.
func (l *valueLog) after(i int) int {
	value := l.list[i].value
	for i++; i < len(l.list); i++ {
		if l.list[i].value == value {
			return i
		}
	}
	return -1
}

// insert adds a time before others that are newer, and returns its index; if it need not be kept, the index where it would
// stand.
func (l *valueLog) insert(x valueTime, window traffic.Time) int {
	at := len(l.list)
	for ; at > 0 && l.list[at-1].time() >= x.time(); at-- {
		if same := l.list[at-1]; same.time() == x.time() && same.value == x.value {
			return at - 1
		}
	}
	l.list = slices.Insert(reserve(l.list, len(l.list)+1), at, x)
	before, after := l.before(at), l.after(at)
	if after >= 0 {
		l.list[at].at &^= newestTime
	}
	if before >= 0 {
		l.list[before].at &^= newestTime
	}
	// At most one of the three, or the two beside it, need not be kept any more; later ones first, so indexes hold.
	if after >= 0 {
		if next := l.after(after); next >= 0 && l.list[next].time()-l.list[at].time() <= window {
			l.list = slices.Delete(l.list, after, after+1)
		}
	}
	switch {
	case before >= 0 && after >= 0 && l.list[l.after(at)].time()-l.list[before].time() <= window:
		l.list = slices.Delete(l.list, at, at+1)
	case before >= 0:
		if first := l.before(before); first >= 0 && l.list[at].time()-l.list[first].time() <= window {
			l.list = slices.Delete(l.list, before, before+1)
			at--
		}
	}
	l.list = fitted(l.list)
	return at
}

// judgeLate judges the windows that end at index at or later and hold the late event. A time counts from its own index until
// the value comes again or the window has passed; the number of times that count at an index is the count of the window that
// ends there.
func (d *distinctLog) judgeLate(log *valueLog, at int, ev *event) {
	n, window := len(log.list), d.lineage.window
	if d.seen == nil {
		d.seen = map[uint64]int{}
	}
	clear(d.seen)
	d.steps = append(d.steps[:0], make([]int64, n+1)...)
	passed := n
	for i := n - 1; i >= 0; i-- {
		v := log.list[i]
		for passed > 0 && log.list[passed-1].time() >= later(v.time(), window) {
			passed--
		}
		end := passed
		if next, ok := d.seen[v.value]; ok {
			end = min(end, next)
		}
		d.steps[i]++
		d.steps[end]--
		d.seen[v.value] = i
	}
	count := int64(0)
	for i, v := range log.list {
		count += d.steps[i]
		if i < at || v.time() < ev.time || v.time() >= later(ev.time, window) {
			continue
		}
		limit := ev.limit
		if v.time() != ev.time {
			limit = max(limit, d.lineage.greatest)
		}
		if count > limit {
			ev.exceed(v.time(), count, overEvent)
		}
	}
}

// expire drops what no event on time can meet any more, once that is a quarter.
func (l *valueLog) expire(start traffic.Time) {
	n := 0
	for n < len(l.list) && l.list[n].time() <= start {
		n++
	}
	if n > len(l.list)/4 {
		l.list = fitted(slices.Delete(l.list, 0, n))
	}
}

// saturate drops times older than the newest ones of so many values, once the list is more than twice as long.
func (l *valueLog) saturate(values int) {
	if len(l.list) <= 2*max(values, leastKept) {
		return
	}
	at, kept := len(l.list), 0
	for at > 0 && (kept < values || len(l.list)-at < leastKept) {
		at--
		if l.list[at].newest() {
			kept++
		}
	}
	l.list = fitted(slices.Delete(l.list, 0, at))
}

// distinct counts the values whose newest time is after start.
func (l *valueLog) distinct(start traffic.Time) (count int64) {
	for i := len(l.list) - 1; i >= 0 && l.list[i].time() > start; i-- {
		if l.list[i].newest() {
			count++
		}
	}
	return count
}

// bytes is what the times take, without the log's head.
func (l *valueLog) bytes() int64 {
	if len(l.list) == 0 {
		return 0
	}
	return 16 * int64(roomFor(len(l.list)))
}

func (d *distinctLog) dead(c *cell, at traffic.Time) bool {
	list := d.overflows.at(c).list
	return later(list[len(list)-1].time(), d.lineage.window) <= at
}

func (d *distinctLog) gauge(c *cell) (count int64, newest traffic.Time) {
	log := d.overflows.at(c)
	return log.distinct(traffic.BeforeTime), log.list[len(log.list)-1].time()
}

func (d *distinctLog) outOfSlotBytes(c *cell) int64 {
	return listBytes + d.overflows.at(c).bytes()
}

func (d *distinctLog) release(c *cell) {
	d.lineage.ledger.bytes -= d.outOfSlotBytes(c)
	d.overflows.give(c)
}

func (d *distinctLog) append(dst []byte, c *cell, format int) []byte {
	list := d.overflows.at(c).list
	if format < 3 {
		return appendNewest(dst, list)
	}
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendVarint(dst, v.at)
		dst = binary.BigEndian.AppendUint64(dst, v.value)
	}
	return dst
}

// appendNewest writes the form of format 2: the newest time of each value, by time and value.
func appendNewest(dst []byte, list []valueTime) []byte {
	list = slices.DeleteFunc(slices.Clone(list), func(v valueTime) bool { return !v.newest() })
	slices.SortFunc(list, func(a, b valueTime) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.value, b.value)) })
	dst = binary.AppendUvarint(dst, uint64(len(list)))
	for _, v := range list {
		dst = binary.AppendVarint(dst, int64(v.time()))
		dst = binary.BigEndian.AppendUint64(dst, v.value)
	}
	return dst
}

func (d *distinctLog) restore(c *cell, r *reader) {
	list := make([]valueTime, r.length(9, "values"))
	for i := range list {
		at := r.varint()
		if list[i] = (valueTime{at, r.fixed64()}); r.format < 3 {
			list[i] = seenAt(traffic.Time(at), list[i].value)
		}
		if r.err == nil && i > 0 && list[i-1].time() > list[i].time() {
			r.fail("values of a key are not ascending")
		}
	}
	if r.err == nil && len(list) == 0 {
		r.fail("a key without values")
	}
	if r.err != nil {
		return
	}
	log := holdValues(&d.overflows, d.lineage, c, listBytes)
	log.list = fitted(list)
	d.lineage.ledger.bytes += log.bytes()
}
