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
	shown    traffic.Time // progress when advance last looked; not part of the state
}

// IdleMargin is what an idle partition's clock stays behind, so that an event on its way is not late when it arrives. One that is
// older than this and its rule's lateness together is.
const (
	IdleMargin = 60 * time.Second
	idleMargin = traffic.Time(IdleMargin / time.Microsecond)
)

// maxSilence is the most that one gap between neighbouring records adds to the stall clock: an outage of everything
// must not stall anybody.
const maxSilence = traffic.Time(10 * time.Second / time.Microsecond)

// restart begins a generation of the requests topic: its offsets start anew. Windows live on, and so do the
// watermark and what is known to be missing.
func (p *Partition) restart(generation int64) {
	before := p.sources
	p.generation = generation
	p.sources = make([]source, p.cfg.Sources)
	p.ahead = ahead{}
	for i := range p.sources {
		p.sources[i] = source{fence: NoOffset, progress: traffic.BeforeTime, ticked: p.clock}
		p.sources[i].rebase = i < len(before) && before[i].rebase
	}
}

// MaxSources bounds the partitions of a requests topic.
const MaxSources = 1 << 16

// grow takes in a source partition that was added to the requests topic after its generation had begun. It counts from
// the first record that names it, and not from when a process hears of it: what the watermark waits for must be the same
// for every owner of the log.
func (p *Partition) grow(to int) {
	if to < len(p.sources) {
		return
	}
	for len(p.sources) <= to {
		p.sources = append(p.sources, source{fence: NoOffset, progress: traffic.BeforeTime, ticked: p.clock})
	}
	p.ahead = ahead{}
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
	p.ahead = ahead{}
	out = p.advance(s, out)
	p.sweepDead()
	return out
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
		h := p.loss(k, s.fence+1, k.Prev, "hole in the keyed log accepted")
		h.ID = p.ownLossID(h)
		out = append(out, h)
		s.fence = k.Prev
	}
	return out
}

// Rebase says that the keyed records from one offset up to another will not be folded: why says what became of them. Fences
// take the next record of each source partition as it comes; the returned loss record says so.
func (p *Partition) Rebase(from, to int64, why string) Hit {
	for i := range p.sources {
		p.sources[i].rebase = true
	}
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: p.cfg.Keyed, Generation: p.generation, Source: -1, Offset: to,
		Count: to - from, Seen: p.appended, First: p.watermark, Last: p.watermark,
		Reason: fmt.Sprintf("keyed offsets %d to %d %s", from, to-1, why),
	}
	h.ID = p.ownLossID(h)
	return h
}

// ownLossID is the id of a loss of this keyed partition alone. A gap in requests, which all of them meet, is one loss.
func (p *Partition) ownLossID(h Hit) string {
	h.Source = -1 - p.cfg.Keyed
	return p.cfg.Secret.hitID(&h, 0)
}

func (p *Partition) loss(k *Keyed, from, to int64, why string) Hit {
	h := Hit{
		Format: HitFormat, Kind: KindLoss, Keyed: p.cfg.Keyed, Generation: k.Generation, Source: k.Source, Offset: k.Offset,
		Count: to - from + 1, Seen: p.appended, First: p.watermark, Last: p.watermark,
		Reason: fmt.Sprintf("%s: offsets %d to %d of source partition %d", why, from, to, k.Source),
	}
	h.ID = p.cfg.Secret.hitID(&h, 0)
	return h
}

// ahead is what advance found, so that most records need not look at all source partitions again.
type ahead struct {
	known bool
	ended bool         // all that live have ended
	live  bool         // any is
	least traffic.Time // progress of those that are not stalled
	until traffic.Time // the stall clock at which another one stalls
}

// survey looks at all source partitions.
func (p *Partition) survey() {
	stall := traffic.Time(p.cfg.Stall.Microseconds())
	a := ahead{known: true, least: traffic.EndOfTime, until: traffic.EndOfTime}
	for i := range p.sources {
		s := &p.sources[i]
		s.stalled, s.shown = p.clock-s.ticked > stall, s.progress
		if !s.stalled {
			a.least, a.live = min(a.least, s.progress), true
			a.until = min(a.until, s.ticked+stall)
		}
	}
	a.ended = a.live && a.least == traffic.EndOfTime
	p.ahead = a
}

// advance moves the watermark to the least progress of all source partitions that are not stalled, and lets die what it
// passes. It never goes back: a stalled partition that speaks again finds its old events late. moved is the source
// partition whose progress was shown.
func (p *Partition) advance(moved *source, out []Hit) []Hit {
	if a := &p.ahead; !a.known || p.clock > a.until || !moved.stalled && moved.shown <= a.least {
		p.survey()
	}
	moved.shown = moved.progress
	out = p.flushUncounted(out, p.ahead.ended)
	if !p.ahead.live || p.ahead.least <= p.watermark {
		return out
	}
	p.watermark = p.ahead.least
	return p.expire(out)
}

// expire closes the episodes that are due by the watermark, in (deadline, key) order, and at the end of the stream forgets
// everything.
func (p *Partition) expire(out []Hit) []Hit {
	for {
		k := p.timers.first()
		if k == nil || k.due > p.watermark {
			break
		}
		// The deadline kept may be earlier than the real one; only the real one is acted on, which keeps the order.
		if due := k.next(); due > k.due {
			p.timers.set(k, due)
			continue
		}
		k.lineage.cells.get(k.key) // what a snapshot under way needs of it is written before it changes
		res := p.outcome.empty()
		k.expire(p.watermark, res)
		p.settle(k)
		out = p.report(res, 0, out)
	}
	if p.watermark == traffic.EndOfTime {
		p.sweepAll()
	}
	return out
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

// Skew is how far the progress of the source partitions lies apart: the greatest less the least, of those that are not
// stalled, have shown any, and have not ended.
func (p *Partition) Skew() time.Duration {
	least, greatest := traffic.EndOfTime, traffic.BeforeTime
	for i := range p.sources {
		if s := &p.sources[i]; !s.stalled && s.progress != traffic.BeforeTime && s.progress != traffic.EndOfTime {
			least, greatest = min(least, s.progress), max(greatest, s.progress)
		}
	}
	return max(greatest.Sub(least), 0)
}
