package detectors

import (
	"github.com/weirhq/weir/traffic"
)

// tried is a key under trial.
type tried struct {
	key    Fingerprint
	stands []*stand // by step; nil: nothing of the key was refused, so the rule's own windows are the trial's
	tall   bool     // the two windows below are kept
	log    cell     // the newest events, more than the rule's limit needs
	slices cell
	kept   *kept
}

// stand is what the trial has of a key at one limit.
type stand struct {
	held    *offender    // window and episodes of what was not refused
	refused traffic.Time // the newest event that was refused and would have counted; BeforeTime: none
}

// What keys and blocks under trial are charged beside their windows and episodes.
const (
	triedBytes   = 200
	stepBytes    = 8
	standBytes   = 170
	blockedBytes = 260
	holdBytes    = 16
)

// tallKept is how many events of a key under trial are kept at least: one more than the greatest limit that they judge.
const tallKept = SlidingExact + 1

// add puts a key under trial.
func (t *trials) add(r *ruleTrial, key Fingerprint) *tried {
	x := &tried{key: key, stands: make([]*stand, len(r.limits))}
	t.p.keys.tried.bytes += triedBytes + stepBytes*int64(len(x.stands))
	r.keys[key] = x
	t.made++
	x.kept = &kept{trial: r, made: t.made, key: x}
	t.kept = append(t.kept, x.kept)
	return x
}

func (x *tried) resize(r *ruleTrial, n int) {
	r.ledger().bytes += stepBytes * int64(n-len(x.stands))
	stands := make([]*stand, n)
	copy(stands, x.stands)
	x.stands = stands
}

// newStand gives a key windows of its own at a step.
func (r *ruleTrial) newStand(x *tried, step int) *stand {
	s := &stand{refused: traffic.BeforeTime, held: &offender{
		key: x.key, lineage: r.rungs[step].lineage, heap: -1, trimmed: place{entry: entry{time: traffic.BeforeTime}},
	}}
	r.ledger().bytes += standBytes
	x.stands[step] = s
	return s
}

// lift gives a key windows of its own at a step, which hold what the rule's own hold.
func (t *trials) lift(r *ruleTrial, x *tried, step int) {
	s := r.newStand(x, step)
	to := &s.held.cell
	switch {
	case step > 0 && x.tall && r.limits[step] <= SlidingExact:
		r.copyLog(to, x, step)
	case step > 0 && x.tall:
		t.copyCell(r.rungs[step].lineage, to, r.slices, &x.slices)
	default:
		at := r.lineage.cells.get(x.key)
		if at == nil {
			return
		}
		from, _ := r.lineage.contents(at)
		if step == 0 || !r.logs() {
			t.copyCell(r.rungs[step].lineage, to, r.lineage, from)
		}
	}
}

// copyLog makes the entries of a key's long log those of a window at another limit.
func (r *ruleTrial) copyLog(to *cell, x *tried, step int) {
	from, _ := r.tall.algorithm.(*slidingLog)
	into, _ := r.rungs[step].lineage.algorithm.(*slidingLog)
	log, _ := from.entries(&x.log)
	entries := make([]logEntry, 0, len(log))
	for i := range log {
		entries = append(entries, logEntry{entry{log[i].time, int64(r.limits[step])}, int64(i) + 1})
	}
	if len(entries) > 0 {
		into.take(to, entries)
	}
}

// copyCell copies the state of a key between lineages of one kind.
func (t *trials) copyCell(into *lineage, to *cell, from *lineage, c *cell) {
	if c.b == 0 {
		return
	}
	t.scratch = from.algorithm.append(t.scratch[:0], c, SnapshotFormat)
	into.algorithm.restore(to, &reader{b: t.scratch, format: SnapshotFormat})
}

// drop forgets a key. What it did stays in the sums.
func (r *ruleTrial) drop(x *tried) {
	for step := range x.stands {
		r.dropStand(x, step)
	}
	if x.tall {
		releaseCell(r.tall, &x.log)
		releaseCell(r.slices, &x.slices)
	}
	r.ledger().bytes -= triedBytes + stepBytes*int64(len(x.stands))
	x.kept.key = nil
	delete(r.keys, x.key)
}

func (r *ruleTrial) dropStand(x *tried, step int) {
	s := x.stands[step]
	if s == nil {
		return
	}
	s.held.episodes = nil
	r.all.p.keys.update(s.held)
	releaseCell(s.held.lineage, &s.held.cell)
	r.ledger().bytes -= standBytes
	x.stands[step] = nil
}

func releaseCell(l *lineage, c *cell) {
	if c.b != 0 {
		l.algorithm.release(c)
		*c = cell{}
	}
}

func (r *ruleTrial) dropKeys() {
	for _, x := range r.keys {
		r.drop(x)
	}
}

// forget is what a reset of the key does: it is as if the key had never come. Blocks stand.
func (r *ruleTrial) forget(key Fingerprint) {
	if r == nil || r.keys[key] == nil {
		return
	}
	r.drop(r.keys[key])
}

// retire forgets of a key what is no different from the rule's own windows any more, and the key when that is all.
func (r *ruleTrial) retire(x *tried, watermark traffic.Time) {
	left := false
	for step, s := range x.stands {
		if s == nil {
			continue
		}
		l := s.held.lineage
		passed := later(later(s.refused, 2*l.window), l.lateness) <= watermark
		if !windowed(l.kind) { // its past may show as long as events follow each other
			l.limit, l.burst = r.lineage.limit, r.lineage.burst // a bucket drains by them, and a snapshot has only these
			passed = passed && (s.held.cell.b == 0 || l.algorithm.dead(&s.held.cell, l.dead(watermark)))
		}
		if len(s.held.episodes) == 0 && passed {
			r.dropStand(x, step)
			continue
		}
		left = true
		if l.compacter != nil && r.ledger().arena.sparse() && s.held.cell.b != 0 {
			l.compacter.compact(&s.held.cell)
		}
	}
	if at := r.lineage.cells.get(x.key); !left && (at == nil || at.b&cellOffender == 0) {
		r.drop(x)
	}
}

// windowed reports whether windows of a kind forget an event for good two windows after it.
func windowed(k kind) bool {
	switch k.algorithm {
	case kindFirstSeen, kindTokenBucket, kindLeakyBucket:
		return false
	}
	return true
}

// tallWindows count, of keys under trial, what is above the rule's own limit: a log of the newest events, which is exact up to
// SlidingExact, and slices. They judge each event of such a key by the rule's limit, so that all counts above it are known.
type tallWindows struct {
	scratch     event
	nth         int
	log, slices []exceedance
}

func (w *tallWindows) none() { w.log, w.slices = w.log[:0], w.slices[:0] }

// over are the windows in which the event was over the rule's limit, as the windows that judge a higher one count them.
func (w *tallWindows) over(limit int64) []exceedance {
	if limit <= SlidingExact {
		return w.log
	}
	return w.slices
}

// start begins to count above the limit: from holds what the rule's own log does, the event included.
func (w *tallWindows) start(r *ruleTrial, x *tried, c *cell, ev *event) {
	from, _ := r.lineage.algorithm.(*slidingLog)
	into, _ := r.tall.algorithm.(*slidingLog)
	log, _ := from.entries(c)
	entries := make([]logEntry, 0, len(log))
	for i := range log {
		entries = append(entries, logEntry{log[i].entry, int64(i) + 1})
	}
	into.take(&x.log, entries)
	for i := range entries {
		w.count(r.slices, &x.slices, ev, entries[i].time)
	}
	x.tall = true
	w.nth = ev.nth
	w.log, w.slices = append(w.log[:0], ev.exceedances...), w.slices[:0]
}

// add counts an event above the limit, and raises what the rule's own window has said of it.
func (w *tallWindows) add(r *ruleTrial, x *tried, ev *event) {
	w.none()
	if ev.left > 0 {
		return
	}
	w.count(r.tall, &x.log, ev, ev.time)
	w.nth, w.log = w.scratch.nth, append(w.log, w.scratch.exceedances...)
	log, _ := r.tall.algorithm.(*slidingLog)
	log.keepNewest(&x.log, tallKept)
	w.count(r.slices, &x.slices, ev, ev.time)
	w.slices = append(w.slices, w.scratch.exceedances...)
	for i := range ev.exceedances {
		at := &ev.exceedances[i]
		at.count = max(at.count, countNear(w.log, at.time), countNear(w.slices, at.time))
	}
}

// countNear is the greatest count of windows that end at an instant.
func countNear(in []exceedance, at traffic.Time) (count int64) {
	for i := len(in) - 1; i >= 0 && in[i].time >= at; i-- {
		if in[i].time == at {
			count = max(count, in[i].count)
		}
	}
	return count
}

// count gives an event at an instant, of ev's limit, to a window.
func (w *tallWindows) count(l *lineage, c *cell, ev *event, at traffic.Time) {
	w.scratch.begin(at, ev.limit, ev.burst)
	w.scratch.most, w.scratch.dead = ev.most, ev.dead
	l.greatest = max(l.greatest, ev.most)
	l.algorithm.add(c, &w.scratch)
}

// keepNewest drops all but the newest n entries of a log once it has almost twice as many.
func (s *slidingLog) keepNewest(c *cell, n int) {
	if have, _ := s.newest(c); have < 2*n-10 {
		return
	}
	if c.b&cellOverflow == 0 {
		v := s.packed.view(c, nil)
		s.packed.words = append(s.packed.words[:0], v[len(v)-n:]...)
		s.packed.store(c, s.packed.words)
		return
	}
	log := s.overflows.at(c)
	was := log.bytes()
	log.drop(len(log.entries) - n)
	s.lineage.ledger.bytes += log.bytes() - was
}
