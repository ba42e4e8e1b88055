package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// distinctBucket is a leaky bucket of distinct values: each value is poured once per life of the bucket, a value that it
// has had already adds nothing and is never over. A life ends after (capacity+1) x leak speed without a value that was
// poured: by then the bucket has been empty for one leak. A value that does not fit is over and is not remembered.
//
// Exact up to DistinctExact values a life; beyond, the sketch of valueSet takes a new value for a known one the more
// often the fuller it is, so the bucket fills slower. It depends on order: a key's clock never goes back.
//
// Memory: 8 bytes a value of this life up to DistinctExact, then 2 KiB.
//
// As CrowdSec's leaky scenarios with `distinct` do.
type distinctBucket struct {
	bucket
	far pool[valueBucket]
}

type valueBucket struct {
	level  cell
	poured traffic.Time // the newest value that was poured
	set    valueSet
}

var _ algorithm = (*distinctBucket)(nil)

func (d *distinctBucket) add(c *cell, ev *event) {
	if c.b == 0 {
		if ev.units == 0 {
			d.pour(&cell{}, ev)
			return
		}
		holdValues(&d.far, d.lineage, c).poured = ev.time
	}
	v := d.far.at(c)
	was := v.set.bytes()
	if life, ends := d.life(ev.limit, ev.burst); ends && ev.time > later(v.poured, life) {
		v.level, v.set = cell{}, valueSet{}
	}
	ev.units = min(ev.units, 1)
	known := ev.units > 0 && v.set.has(ev.value)
	if known {
		ev.units = 0
	}
	before := len(ev.overs)
	d.pourInto(&v.level, ev, known || ev.units > 0)
	switch {
	case known:
		ev.overs = ev.overs[:before]
	case ev.units > 0 && len(ev.overs) == before:
		v.set.add(ev.value)
		v.poured = max(v.poured, ev.at)
	case ev.units > 0 && v.set.n == 0:
		v.poured = max(v.poured, ev.at) // nothing fits this bucket: it lives by what it refused
	}
	d.lineage.ledger.bytes += v.set.bytes() - was
}

// life is how long a bucket lives without a new value; it ends unless nothing ever leaks.
func (d *distinctBucket) life(limit, burst int64) (traffic.Time, bool) {
	if limit == 0 {
		return 0, burst == 0
	}
	w := int64(d.lineage.window)
	return traffic.Time((burst + 1) * w / limit), true
}

func (d *distinctBucket) room(c *cell, ev *event) int64 {
	if c.b == 0 {
		return d.bucket.room(c, ev)
	}
	return d.bucket.room(&d.far.at(c).level, ev)
}

func (d *distinctBucket) dead(c *cell, at traffic.Time) bool {
	life, ends := d.life(d.lineage.limit, d.lineage.burst)
	return at == traffic.EndOfTime || ends && later(d.far.at(c).poured, life) < at
}

func (d *distinctBucket) gauge(c *cell) (count int64, newest traffic.Time) {
	v := d.far.at(c)
	return v.set.n, v.poured
}

func (d *distinctBucket) beside(c *cell) int64 {
	return valueBytes + d.far.at(c).set.bytes()
}

func (d *distinctBucket) release(c *cell) {
	d.lineage.ledger.bytes -= d.beside(c)
	d.far.give(c)
}

func (d *distinctBucket) append(dst []byte, c *cell) []byte {
	v := d.far.at(c)
	dst = binary.AppendVarint(dst, int64(v.poured))
	dst = d.bucket.append(dst, &v.level)
	return v.set.append(dst)
}

func (d *distinctBucket) restore(c *cell, r *reader) {
	v := valueBucket{poured: traffic.Time(r.varint())}
	d.bucket.restore(&v.level, r)
	v.set.restore(r)
	if r.err != nil {
		return
	}
	*holdValues(&d.far, d.lineage, c) = v
	d.lineage.ledger.bytes += v.set.bytes()
}
