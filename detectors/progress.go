package detectors

import (
	"fmt"
	"time"

	"github.com/weirhq/weir/traffic"
)

// source is what a keyed partition knows of one source partition.
type source struct {
	fence    int64        // greatest event offset accepted, or NoOffset
	rebase   bool         // the log before is gone: the next record is believed without its prev
	progress traffic.Time // greatest event time shown, or what an idle tick vouches for
	ticked   traffic.Time // stall clock at its last tick
	stalled  bool
}

// idleMargin is what an idle partition's clock stays behind, so that an event on its way is not late when it arrives.
const idleMargin = traffic.Time(60 * time.Second / time.Microsecond)

// maxSilence is the most that one gap between neighbouring records adds to the stall clock: an outage of everything
// must not stall anybody.
const maxSilence = traffic.Time(10 * time.Second / time.Microsecond)

// restart begins a generation of the requests topic: its offsets start anew. Windows live on, and so do the
// watermark and what is known to be missing.
func (p *Partition) restart(generation int64) {
	before := p.sources
	p.generation = generation
	p.sources = make([]source, p.cfg.Sources)
	for i := range p.sources {
		p.sources[i] = source{fence: NoOffset, progress: traffic.BeforeTime, ticked: p.clock}
		p.sources[i].rebase = i < len(before) && before[i].rebase
	}
}

// pass moves the stall clock to a record's append time.
func (p *Partition) pass(appended traffic.Time) {
	if p.appended != traffic.BeforeTime {
		p.clock += min(max(appended-p.appended, 0), maxSilence)
	}
	p.appended = appended
}

// foldTick takes a router's word on a source partition. It never moves or creates the fence: a tick says that all
// before its offset is acknowledged, not that this keyed partition got some of it.
func (p *Partition) foldTick(k *Keyed, out []Hit) []Hit {
	out = p.mendGap(k, out)
	p.counts.Ticks++
	s := &p.sources[k.Source]
	progress := k.Time
	if k.Idle {
		// Read to its end: time passes there too. Both clocks must agree that it did, the router's from before the
		// fetch that found the end and the broker's.
		progress = max(progress, min(p.appended, k.Clock)-idleMargin)
	}
	s.progress = max(s.progress, progress)
	s.ticked = p.clock
	return p.advance(out)
}

// foldLoss passes a gap that an operator accepted on the requests side: what lies before k.Offset will never come.
func (p *Partition) foldLoss(k *Keyed, out []Hit) []Hit {
	s := &p.sources[k.Source]
	if k.Offset-1 <= s.fence {
		return out // given again
	}
	out = append(out, p.loss(k, s.fence+1, k.Offset-1, "gap in requests accepted"))
	s.fence, s.rebase = k.Offset-1, false
	return out
}

// mendGap rebases the fence of k's source partition where the record is believed in spite of a hole.
func (p *Partition) mendGap(k *Keyed, out []Hit) []Hit {
	s := &p.sources[k.Source]
	switch {
	case s.rebase:
		// Only an event ends the rebase (foldEvent): the first record may be an old tick of a zombie, whose prev is low.
		s.fence = max(s.fence, k.Prev)
	case k.Prev > s.fence:
		out = append(out, p.loss(k, s.fence+1, k.Prev, "hole in the keyed log accepted"))
		s.fence = k.Prev
	}
	return out
}

// Rebase says that keyed records before the next one to be folded are gone: retention was faster than this partition's
// checkpoints. Fences take the next record of each source partition as it comes; the returned loss record says so.
func (p *Partition) Rebase(from, to int64) Hit {
	for i := range p.sources {
		p.sources[i].rebase = true
	}
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: p.cfg.Keyed, Generation: p.generation, Source: -1, Offset: to,
		Count: to - from, Seen: p.appended, First: p.watermark, Last: p.watermark,
		Reason: fmt.Sprintf("keyed offsets %d to %d were deleted before they were read", from, to-1),
	}
	h.ID = p.cfg.Secret.hitID(&h)
	return h
}

func (p *Partition) loss(k *Keyed, from, to int64, why string) Hit {
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: p.cfg.Keyed, Generation: k.Generation, Source: k.Source, Offset: k.Offset,
		Count: to - from + 1, Seen: p.appended, First: p.watermark, Last: p.watermark,
		Reason: fmt.Sprintf("%s: offsets %d to %d of source partition %d", why, from, to, k.Source),
	}
	h.ID = p.cfg.Secret.hitID(&h)
	return h
}

// advance moves the watermark to the least progress of all source partitions that are not stalled, and lets die what it
// passes. It never goes back: a stalled partition that speaks again finds its old events late.
func (p *Partition) advance(out []Hit) []Hit {
	least, live := traffic.EndOfTime, false
	stall := traffic.Time(p.cfg.Stall.Microseconds())
	for i := range p.sources {
		s := &p.sources[i]
		s.stalled = p.clock-s.ticked > stall
		if !s.stalled {
			least, live = min(least, s.progress), true
		}
	}
	out = p.flushLate(out, live && least == traffic.EndOfTime)
	if !live || least <= p.watermark {
		return out
	}
	p.watermark = least
	return p.expire(out)
}

// expire handles everything that is due by the watermark, in (deadline, key) order.
func (p *Partition) expire(out []Hit) []Hit {
	for {
		w := p.timers.first()
		if w == nil || w.due > p.watermark {
			return out
		}
		// The deadline kept may be earlier than the real one; only the real one is acted on, which keeps the order.
		if due := w.next(); due > w.due {
			p.timers.set(w, due)
			continue
		}
		res := p.outcome.empty()
		if w.expire(p.watermark, res) {
			p.timers.remove(w)
			delete(p.windows, w.key)
		} else {
			p.timers.set(w, w.next())
		}
		out = p.report(res, out)
	}
}

// tooLate reports whether the event lies more than lateness behind the progress of its own source partition, or behind
// the watermark (which can be ahead of a partition that had stalled).
func (p *Partition) tooLate(k *Keyed, lateness traffic.Time) bool {
	return k.Time < p.sources[k.Source].progress-lateness || p.watermark != traffic.BeforeTime && k.Time < p.watermark-lateness
}

// Stalled lists the source partitions that the watermark does not wait for.
func (p *Partition) Stalled() []int {
	var out []int
	for i := range p.sources {
		if p.sources[i].stalled {
			out = append(out, i)
		}
	}
	return out
}
