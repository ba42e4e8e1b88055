package detectors

import (
	"encoding/binary"
	"math/bits"

	"github.com/weirhq/weir/traffic"
)

// bucket is the arithmetic that tokenBucket and leakyBucket share, in whole numbers: the level is measured in units of
// 1/window of an event, so an event adds window (microseconds) and each microsecond takes limit away. A level is at most
// capacity x window, which fits 20 bits and those of the window: nothing is ever rounded.
//
// A bucket that has not been empty since an event's time has the same level now whenever in that stretch the event was
// poured. So an event that comes late is poured in full if it lies in the stretch since the bucket was last empty. One
// that lies before it is poured as far as it cannot have leaked until then, and left out for the rest. Either way
// the level is never above that of the events in order of time, and neither is a source over that is not so in that order: the
// first event that does not fit, does not fit with more before it. Missed is a source that was over between two of its
// events alone, or by what was left out.
//
// The beginning of the stretch is rounded, as finely as the rest of the cell's second word allows: to 2^-15 of a window of a
// minute, 2^-4 of one of a day; for windows above 18 days it is not known at all. An event is left out as far as it may lie
// before the stretch.
type bucket struct {
	inSlot
	lineage *lineage
	levels  int // bits of a level
	grain   int // the stretch's beginning is rounded to 2^grain microseconds
}

var _ remainder = (*bucket)(nil)

const (
	bucketBits   = 62 // of b: flags are above
	capacityBits = 20 // of what a bucket can hold, in events: rules.MaxLimit
)

func newBucket(l *lineage) bucket {
	b := bucket{lineage: l, levels: capacityBits + bits.Len64(uint64(l.window))}
	// The mark has to tell apart instants that are up to two windows old.
	b.grain = max(0, bits.Len64(2*uint64(l.window))-b.marks())
	return b
}

// marks is how many bits the beginning of the stretch has.
func (b *bucket) marks() int { return max(0, bucketBits-b.levels) }

// The cell: a is the key's newest time; b has the level in its lowest bits, and above it how many grains before that time's
// the stretch began: the lowest bits of the number of the first grain that lies within it.
func (b *bucket) read(c *cell) (at traffic.Time, level int64, began traffic.Time) {
	at = traffic.Time(c.a)
	return at, int64(c.b & (1<<b.levels - 1)), traffic.Time((b.grainOf(at) - b.back(c)) << b.grain)
}

// back is how many grains the newest time's comes after the first of the stretch.
func (b *bucket) back(c *cell) int64 {
	return (b.grainOf(traffic.Time(c.a)) - int64(c.b>>b.levels)) & (1<<b.marks() - 1)
}

// grainOf is the number of the first grain that does not begin before the instant.
func (b *bucket) grainOf(at traffic.Time) int64 { return int64(at-1)>>b.grain + 1 }

// write makes the cell. Where a stretch began longer ago than the bits can say, it is taken to have begun later.
func (b *bucket) write(c *cell, at traffic.Time, level, first int64) {
	span := int64(1) << b.marks()
	first = max(first, b.grainOf(at)-(span-1))
	*c = cell{a: uint64(at), b: cellUsed | uint64(level) | uint64(first&(span-1))<<b.levels}
}

// pour counts ev in the bucket. An event that does not fit is over and adds nothing. One of no units only moves the key's
// time, and is never late: a value that is known is poured so, and the key's time may be newer than anything that a snapshot
// of format 2 has kept of its values.
func (b *bucket) pour(c *cell, ev *event) {
	at, level, first := ev.time, int64(0), b.grainOf(ev.time)
	w := int64(b.lineage.window)
	if c.b != 0 {
		newest, held, _ := b.read(c)
		if ev.time < newest && ev.units > 0 {
			b.pourLate(c, ev)
			return
		}
		at = max(at, newest)
		if level = leak(held, at-newest, ev.limit); level > 0 {
			first = b.grainOf(newest) - b.back(c)
		}
	}
	if ev.units > ev.burst || level > (ev.burst-ev.units)*w {
		ev.exceed(at, max(plus((level+w-1)/w, ev.units), ev.limit+1), overEvent)
	} else {
		level += ev.units * w
		if 2*level >= ev.burst*w {
			ev.count = (level + w - 1) / w
		}
	}
	b.write(c, at, level, first)
}

// pourLate counts an event older than its key's newest, as far as it adds to the level at the newest.
func (b *bucket) pourLate(c *cell, ev *event) {
	at, level, began := b.read(c)
	w := int64(b.lineage.window)
	adds := min(ev.units, ev.burst+1) * w
	if ev.time < began {
		adds = leak(adds, began-ev.time, max(ev.limit, b.lineage.greatest))
	}
	if ev.behind = true; adds == 0 {
		ev.leave()
		return
	}
	ev.left = ev.units - min(ev.units, (adds+w-1)/w)
	if level+adds > ev.burst*w { // the newest event does not fit any more
		ev.exceed(at, max(min((level+adds+w-1)/w, maxCount), ev.limit+1), overEvent)
		return
	}
	b.write(c, at, level+adds, b.grainOf(at)-b.back(c))
}

// leak is the level that remains after a time.
func leak(level int64, elapsed traffic.Time, limit int64) int64 {
	if limit == 0 || level == 0 {
		return level
	}
	if elapsed < 0 || int64(elapsed) > level/limit { // negative: more than 2^63 have passed
		return 0
	}
	return level - int64(elapsed)*limit
}

// levelAt is the level at an instant, not before the key's newest event.
func (b *bucket) levelAt(c *cell, at traffic.Time, limit int64) int64 {
	if c.b == 0 {
		return 0
	}
	newest, level, _ := b.read(c)
	return leak(level, max(0, at-newest), limit)
}

func (b *bucket) countAt(c *cell, at traffic.Time, limit int64) int64 {
	w := int64(b.lineage.window)
	return (b.levelAt(c, at, limit) + w - 1) / w
}

func (b *bucket) remaining(c *cell, at traffic.Time, limit, burst int64) int64 {
	w := int64(b.lineage.window)
	return floorDiv(traffic.Time(burst*w-b.levelAt(c, at, limit)), b.lineage.window)
}

// dead: a bucket that is empty is as good as none. The limit is the newest that the lineage has seen.
func (b *bucket) dead(c *cell, at traffic.Time) bool {
	_, level, _ := b.read(c)
	limit := b.lineage.limit
	if level > 0 && limit == 0 {
		return at == traffic.EndOfTime
	}
	if level > 0 {
		level = level/limit + 1
	}
	return later(traffic.Time(c.a), traffic.Time(level)) <= at
}

func (b *bucket) gauge(c *cell) (count int64, newest traffic.Time) {
	w := int64(b.lineage.window)
	at, level, _ := b.read(c)
	return (level + w - 1) / w, at
}

func (b *bucket) append(dst []byte, c *cell, format int) []byte {
	at, level, _ := b.read(c)
	dst = binary.AppendVarint(dst, int64(at))
	dst = binary.AppendUvarint(dst, uint64(level))
	if format < 3 {
		return dst
	}
	return binary.AppendUvarint(dst, uint64(b.back(c)))
}

func (b *bucket) restore(c *cell, r *reader) {
	at, level, back := traffic.Time(r.varint()), r.upTo(1<<b.levels-1, "level"), uint64(0)
	if r.format > 2 {
		back = r.upTo(1<<b.marks()-1, "stretch of a bucket")
	}
	b.write(c, at, int64(level), b.grainOf(at)-int64(back))
}
