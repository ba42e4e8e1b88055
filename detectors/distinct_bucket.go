package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// distinctBucket is a leaky bucket of distinct values: each value is poured once per life of the bucket, a value that it
// has had already adds nothing and is never over. A life ends after (capacity+1) x leak speed without a value that was
// poured: by then the bucket has been empty for one leak. A value that does not fit is over and is not remembered.
//
// Exact up to DistinctExact values a life for events in order; beyond, the sketch of valueSet takes new values for known
// ones, the more often the fuller it is, so the bucket fills slower.
//
// Order matters more than to any other algorithm. A late event may be the one that should have poured its value, which would
// have leaked earlier then; and a value that was over may have been a known one. So an exceedance is certain only once no
// event on time can come before it (event.settles), and withdrawn when an event comes late. The late event itself pours
// nothing: its value is known from then on, and if it was before, the bucket is taken to be emptier by it. Before the life's
// first event it is left out, and nothing is over for the rest of that life, up to a pause of a life's length.
//
// Memory: 8 bytes a value of this life up to DistinctExact, with up to half as much room, then 2 KiB.
//
// As CrowdSec's leaky scenarios with `distinct` do.
type distinctBucket struct {
	bucket
	overflows pool[valueBucket]
}

type valueBucket struct {
	level  cell
	began  traffic.Time // the life's first event
	poured traffic.Time // the newest value that was poured
	newest traffic.Time // event
	unsure bool         // an event came from before the life
	set    valueSet
}

var _ algorithm = (*distinctBucket)(nil)

func (d *distinctBucket) add(c *cell, ev *event) {
	if c.b == 0 {
		life, ends := d.life(ev.limit, ev.burst)
		*holdValues(&d.overflows, d.lineage, c, setBytes) = valueBucket{
			began: ev.time, poured: ev.time, newest: ev.time,
			// The key may have been evicted, and its values forgotten.
			unsure: d.lineage.evicted != traffic.BeforeTime && !(ends && ev.time > later(d.lineage.evicted, life)),
		}
	}
	v := d.overflows.at(c)
	was := v.set.bytes()
	ev.units = min(ev.units, 1)
	if ev.time < v.newest {
		d.addLate(v, ev)
	} else {
		d.addNewest(v, ev)
	}
	d.lineage.ledger.bytes += v.set.bytes() - was
}

func (d *distinctBucket) addNewest(v *valueBucket, ev *event) {
	life, ends := d.life(ev.limit, ev.burst)
	if ends && ev.time > later(v.poured, life) && (!v.unsure || ev.time > later(v.newest, life)) {
		v.level, v.set, v.unsure, v.began = cell{}, valueSet{}, false, ev.time
	}
	known := v.set.has(ev.value)
	if known {
		ev.units = 0
	}
	before := len(ev.exceedances)
	d.pour(&v.level, ev)
	over := len(ev.exceedances) > before
	switch {
	case known:
		ev.exceedances = ev.exceedances[:before]
		ev.units = 1
	case !over:
		v.set.add(ev.value)
		v.poured = max(v.poured, ev.time)
	case v.set.n == 0:
		v.poured = max(v.poured, ev.time) // nothing fits this bucket: it lives by what it refused
	}
	v.newest = max(v.newest, ev.time)
	switch {
	case v.unsure:
		ev.exceedances = ev.exceedances[:before]
	case ev.time > ev.dead:
		ev.settles = ev.time
	}
}

// addLate takes note of an event that is older than the newest.
func (d *distinctBucket) addLate(v *valueBucket, ev *event) {
	ev.leave()
	ev.withdraw = true
	switch {
	case ev.time < v.began:
		v.unsure = true
	case v.set.has(ev.value):
		at, level, _ := d.read(&v.level)
		d.write(&v.level, at, max(0, level-int64(d.lineage.window)), d.grainOf(at)-d.back(&v.level))
	default:
		v.set.add(ev.value)
		v.poured = max(v.poured, ev.time)
	}
}

// life is how long a bucket lives without a new value; it ends unless nothing ever leaks.
func (d *distinctBucket) life(limit, burst int64) (traffic.Time, bool) {
	if limit == 0 {
		return 0, burst == 0
	}
	w := int64(d.lineage.window)
	return traffic.Time((burst + 1) * w / limit), true
}

func (d *distinctBucket) countAt(c *cell, at traffic.Time, limit int64) int64 {
	return d.bucket.countAt(d.level(c), at, limit)
}

func (d *distinctBucket) remaining(c *cell, at traffic.Time, limit, burst int64) int64 {
	return d.bucket.remaining(d.level(c), at, limit, burst)
}

// level is the cell of the key's bucket. A life ends after its bucket has run empty, so its level is right then, too.
func (d *distinctBucket) level(c *cell) *cell {
	if c.b == 0 {
		return c
	}
	return &d.overflows.at(c).level
}

func (d *distinctBucket) dead(c *cell, at traffic.Time) bool {
	life, ends := d.life(d.lineage.limit, d.lineage.burst)
	v := d.overflows.at(c)
	last := v.poured
	if v.unsure {
		last = v.newest
	}
	return at == traffic.EndOfTime || ends && later(last, life) < at
}

func (d *distinctBucket) gauge(c *cell) (count int64, newest traffic.Time) {
	v := d.overflows.at(c)
	return v.set.n, v.poured
}

func (d *distinctBucket) outOfSlotBytes(c *cell) int64 {
	return setBytes + d.overflows.at(c).set.bytes()
}

func (d *distinctBucket) release(c *cell) {
	d.lineage.ledger.bytes -= d.outOfSlotBytes(c)
	d.overflows.give(c)
}

func (d *distinctBucket) append(dst []byte, c *cell, format int) []byte {
	v := d.overflows.at(c)
	dst = binary.AppendVarint(dst, int64(v.poured))
	if format > 2 {
		dst = binary.AppendVarint(binary.AppendVarint(dst, int64(v.began)), int64(v.newest))
		dst = append(dst, byte(bit(v.unsure)))
	}
	dst = d.bucket.append(dst, &v.level, format)
	return v.set.append(dst)
}

func (d *distinctBucket) restore(c *cell, r *reader) {
	v := valueBucket{poured: traffic.Time(r.varint())}
	if v.began, v.newest = v.poured, v.poured; r.format > 2 {
		v.began, v.newest = traffic.Time(r.varint()), traffic.Time(r.varint())
		v.unsure = r.upTo(1, "unsure flag") != 0
	}
	d.bucket.restore(&v.level, r)
	v.set.restore(r)
	if r.err != nil {
		return
	}
	*holdValues(&d.overflows, d.lineage, c, setBytes) = v
	d.lineage.ledger.bytes += v.set.bytes()
}
