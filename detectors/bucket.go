package detectors

import (
	"encoding/binary"

	"github.com/weirhq/weir/traffic"
)

// bucket is the arithmetic that tokenBucket and leakyBucket share, in whole numbers: the level is measured in units of
// 1/window of an event, so an event adds window (microseconds) and each microsecond takes limit away. A level is at most
// capacity x window, 2.7e18 for the greatest of both, which fits 62 bits: nothing is ever rounded.
type bucket struct {
	inCell
	lineage *lineage
}

var _ roomy = (*bucket)(nil)

// The cell: a is the key's time, b has the level in bits 0-61.
const levelBits = 1<<62 - 1

// pour counts ev in the bucket. A key's time never goes back: an event that comes late counts at the newest. An event
// that does not fit is over and adds nothing.
func (b *bucket) pour(c *cell, ev *event) {
	b.pourInto(c, ev, ev.units > 0)
}

// pourInto is pour; an event of no units moves the key's clock only if told to.
func (b *bucket) pourInto(c *cell, ev *event, keep bool) {
	at, level := ev.time, int64(0)
	if c.b != 0 {
		at = max(at, traffic.Time(c.a))
		level = leak(int64(c.b&levelBits), at-traffic.Time(c.a), ev.limit)
	}
	w := int64(b.lineage.window)
	ev.at, ev.count = at, min(plus((level+w-1)/w, ev.units), maxCount)
	if ev.units > ev.burst || level > (ev.burst-ev.units)*w {
		ev.over(at, max(ev.count, ev.limit+1))
	} else {
		level += ev.units * w
		ev.count = (level + w - 1) / w
	}
	if keep {
		*c = cell{a: uint64(at), b: cellUsed | uint64(level)}
	}
}

// leak is what is left of a level after a time.
func leak(level int64, elapsed traffic.Time, limit int64) int64 {
	if limit == 0 || level == 0 {
		return level
	}
	if elapsed < 0 || int64(elapsed) > level/limit { // negative: more than 2^63 have passed
		return 0
	}
	return level - int64(elapsed)*limit
}

func (b *bucket) room(c *cell, ev *event) int64 {
	level := int64(0)
	if c.b != 0 {
		level = leak(int64(c.b&levelBits), max(0, ev.at-traffic.Time(c.a)), ev.limit)
	}
	return max(0, (ev.burst*int64(b.lineage.window)-level)/int64(b.lineage.window))
}

// dead: a bucket that is empty is as good as none. The limit is the newest that the lineage has seen.
func (b *bucket) dead(c *cell, at traffic.Time) bool {
	level, limit := int64(c.b&levelBits), b.lineage.limit
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
	return (int64(c.b&levelBits) + w - 1) / w, traffic.Time(c.a)
}

func (b *bucket) append(dst []byte, c *cell) []byte {
	dst = binary.AppendVarint(dst, int64(c.a))
	return binary.AppendUvarint(dst, c.b&levelBits)
}

func (b *bucket) restore(c *cell, r *reader) {
	c.a = uint64(r.varint())
	c.b = cellUsed | r.upTo(levelBits, "level")
}
