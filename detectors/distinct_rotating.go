package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// distinctRotating counts the distinct values of a field as slidingCounter counts events: the values of this aligned window,
// plus a share of the values that only the window before has: the share of that window which still lies within the sliding
// window, rounded down.
// It is `sliding` with count: distinct, above the limit SlidingExact.
//
// Error: that of slidingCounter for the values that only the window before has; and beyond DistinctExact values a window,
// that of valueSet's lower bound. Late events are treated as by slidingCounter.
//
// Memory: two sets, of 8 bytes a value up to DistinctExact, with up to half as much room, then 2 KiB each.
type distinctRotating struct {
	lineage   *lineage
	overflows pool[valuePair]
}

type valuePair struct {
	newest      traffic.Time
	now, before valueSet
	only        int64 // values that before has and now has not
}

var _ algorithm = (*distinctRotating)(nil)

func (d *distinctRotating) add(c *cell, ev *event) {
	if c.b == 0 {
		holdValues(&d.overflows, d.lineage, c, setBytes).newest = ev.time
	}
	w := d.lineage.window
	p := d.overflows.at(c)
	was := p.now.bytes() + p.before.bytes()
	switch steps := floorDiv(ev.time, w) - floorDiv(p.newest, w); {
	case steps < -1:
		ev.leave()
		return
	case steps == -1:
		if p.before.add(ev.value) {
			p.compare()
		}
		ev.judgeLate(ev.time, p.before.least(), overNear)
	case steps == 0:
		p.add(ev.value)
	case steps == 1:
		p.before, p.now = p.now, valueSet{}
		p.add(ev.value)
		p.compare()
	default:
		p.before, p.now, p.only = valueSet{}, valueSet{}, 0
		p.add(ev.value)
	}
	ev.behind = ev.time < p.newest
	p.newest = max(p.newest, ev.time)
	if ev.behind {
		ev.judgeLate(p.newest, d.weighted(p), overNear)
	} else {
		ev.judgeAt(p.newest, d.weighted(p), overNear)
	}
	d.lineage.ledger.bytes += p.now.bytes() + p.before.bytes() - was
}

// countAt is that of the key's newest event, for less than a window after it.
func (d *distinctRotating) countAt(c *cell, at traffic.Time, _ int64) int64 {
	if c.b == 0 {
		return 0
	}
	p := d.overflows.at(c)
	if at >= later(p.newest, d.lineage.window) {
		return 0
	}
	return d.weighted(p)
}

// weighted is the count at the key's newest time.
func (d *distinctRotating) weighted(p *valuePair) int64 {
	w := d.lineage.window
	number := floorDiv(p.newest, w)
	return p.now.least() + weigh(p.only, startOf(number+1, w)-p.newest, w)
}

// add puts a value into the newest window.
func (p *valuePair) add(value uint64) {
	if p.now.add(value) {
		p.compare()
	}
}

// compare counts what only the window before has.
func (p *valuePair) compare() {
	both := least(union(&p.now, &p.before), p.now.sketch != nil || p.before.sketch != nil)
	p.only = max(0, both-p.now.least())
}

func (d *distinctRotating) dead(c *cell, at traffic.Time) bool {
	w := d.lineage.window
	return startOf(floorDiv(d.overflows.at(c).newest, w)+2, w) <= at
}

func (d *distinctRotating) gauge(c *cell) (count int64, newest traffic.Time) {
	p := d.overflows.at(c)
	return max(p.now.n, p.before.n), p.newest
}

func (d *distinctRotating) outOfSlotBytes(c *cell) int64 {
	p := d.overflows.at(c)
	return setBytes + p.now.bytes() + p.before.bytes()
}

func (d *distinctRotating) release(c *cell) {
	d.lineage.ledger.bytes -= d.outOfSlotBytes(c)
	d.overflows.give(c)
}

func (d *distinctRotating) append(dst []byte, c *cell, _ int) []byte {
	p := d.overflows.at(c)
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
	*holdValues(&d.overflows, d.lineage, c, setBytes) = p
	d.lineage.ledger.bytes += p.now.bytes() + p.before.bytes()
}
