package backtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	// blockBytes of messages are decoded together.
	blockBytes = 64 << 10
	// liveRoom is how many bytes of one partition are asked for at once.
	liveRoom = 1 << 20
	// liveHeld is how many bytes of one partition are waited with at least before more are asked for.
	liveHeld = 256 << 10
	// liveSilence is how long Kafka may give nothing of what it has before the run ends with an error.
	liveSilence = time.Minute
	// liveTick is the append time between two ticks: far below a stall, and what routers do every second.
	liveTick = 10 * time.Second
	// idleFor is how long a partition must have shown nothing to be idle, as for routers: a fetch that waited in vain.
	idleFor = ingest.DefaultFetchWait
)

// RunLive runs what the requests topic of an installation holds through the rules, as Run does with files: from o.Since on, up
// to o.Until or to where the log ended when the run began. Events are taken in the order in which Kafka took them.
//
// o.Format, Fields, MaxEventBytes, Identity, Secret and Generation are to be those of the live stream, and o.Partitions is the
// number of the topic's partitions. What Kafka has no more, and what it cannot give, is in Result.Gaps. The error is
// that of the options, of Kafka, or ctx's, or says that nothing at all could be read.
func RunLive(ctx context.Context, o Options, from Live, progress func(Progress)) (*Result, error) {
	p, err := newPlan(o)
	if err != nil {
		return nil, err
	}
	if from.Rate == 0 {
		from.Rate = DefaultLiveRate
	}
	p.idleMargin = from.IdleMargin
	r := newRun(p, nil, &from, progress)
	r.size = -1
	in := &liveReader{run: r, live: &from, begun: time.Now()}
	if err := in.open(ctx); err != nil {
		return nil, err
	}
	out, err := r.finish(ctx, in.all)
	if out != nil {
		out.Gaps = in.gaps
	}
	return out, err
}

// liveReader reads the partitions of a topic side by side and brings their events into one order.
type liveReader struct {
	run   *run
	live  *Live
	begun time.Time
	parts []*livePart
	gaps  []Gap
	block *block // under way
	bytes int    // in it
}

// livePart is one partition: the stretch that is still to be read, and what was read and not yet passed on.
type livePart struct {
	partition int
	next, end int64
	held      []traffic.Message
	bytes     int
	begins    bool  // it begins where the log does, although something older was asked for
	last      error // of the last answer
}

func (p *livePart) done() bool { return p.next >= p.end }

// open finds out where each partition's stretch begins and ends.
func (r *liveReader) open(ctx context.Context) error {
	o := &r.run.plan.Options
	partitions := ingest.AllPartitions(o.Partitions)
	bounds, err := r.live.Log.Bounds(ctx, partitions)
	if err != nil {
		return err
	}
	since, until := map[int]int64{}, map[int]int64{}
	if o.Since != 0 {
		if since, err = r.live.Log.OffsetsAt(ctx, partitions, o.Since); err != nil {
			return err
		}
	}
	if o.Until != 0 {
		if until, err = r.live.Log.OffsetsAt(ctx, partitions, o.Until); err != nil {
			return err
		}
	}
	for _, n := range partitions {
		b := bounds[n]
		p := &livePart{partition: n, next: b.Start, end: b.End}
		if at, asked := until[n]; asked && at != ingest.NoOffset {
			p.end = min(p.end, at)
		}
		if at, asked := since[n]; asked && at == ingest.NoOffset {
			p.next = p.end // nothing is that new
		} else if asked {
			p.next = max(p.next, at)
			p.begins = b.Start > 0 && at <= b.Start
		}
		r.parts = append(r.parts, p)
	}
	return nil
}

// all reads every partition to its end and passes the events on in the order of their append times.
func (r *liveReader) all(ctx context.Context) error {
	heard := time.Now()
	for {
		if err := r.merge(ctx); err != nil {
			return err
		}
		positions := r.wanted()
		if len(positions) == 0 {
			return r.pass(ctx)
		}
		if err := r.keepRate(ctx); err != nil {
			return err
		}
		answers, err := r.live.Log.Fetch(ctx, positions, ingest.DefaultFetchWait)
		if err != nil {
			return err
		}
		moved, err := r.take(ctx, answers)
		if err != nil {
			return err
		}
		if moved {
			heard = time.Now()
		}
		if time.Since(heard) > liveSilence {
			return r.silence(positions)
		}
	}
}

// wanted are the partitions of which too little is held.
func (r *liveReader) wanted() []ingest.Position {
	var out []ingest.Position
	for _, p := range r.parts {
		if !p.done() && p.bytes < liveHeld {
			out = append(out, ingest.Position{Partition: p.partition, Offset: p.next, Room: liveRoom})
		}
	}
	return out
}

// keepRate waits as long as more was read than the rate allows.
func (r *liveReader) keepRate(ctx context.Context) error {
	if r.live.Rate < 0 {
		return nil
	}
	due := r.begun.Add(time.Duration(float64(r.run.read.Load()) / float64(r.live.Rate) * float64(time.Second)))
	return retry.Sleep(ctx, time.Until(due))
}

// silence is the error when Kafka gives nothing.
func (r *liveReader) silence(positions []ingest.Position) error {
	var silent []int
	var errs []error
	for _, at := range positions {
		silent = append(silent, at.Partition)
		errs = append(errs, r.parts[at.Partition].last)
	}
	err := fmt.Errorf("topic %s: nothing was to be read of partitions %v for %s", r.live.Topic, silent, liveSilence)
	if why := errors.Join(errs...); why != nil {
		err = fmt.Errorf("%w: %w", err, why)
	}
	return err
}

// take notes what was answered, and reports whether any partition came further.
func (r *liveReader) take(ctx context.Context, answers []ingest.Fetched) (moved bool, err error) {
	for i := range answers {
		f := &answers[i]
		p := r.parts[f.Partition]
		was := p.next
		p.last = f.Err
		switch unreadable := (*ingest.UnreadableError)(nil); {
		case errors.Is(f.Err, ingest.ErrOutOfRange):
			err = r.outOfRange(ctx, p)
		case errors.As(f.Err, &unreadable):
			next := p.end
			if unreadable.Next != ingest.NoOffset {
				next = min(p.end, unreadable.Next)
			}
			r.gap(p, p.next, next, unreadable.Error())
		case f.Err == nil:
			r.answered(p, f)
		}
		if err != nil {
			return false, err
		}
		moved = moved || p.next > was
	}
	return moved, nil
}

// answered takes messages in.
func (r *liveReader) answered(p *livePart, f *ingest.Fetched) {
	for _, m := range f.Messages {
		if m.Offset < p.next || m.Offset >= p.end {
			continue
		}
		if p.begins {
			p.begins = false
			if m.Appended > r.run.plan.Since {
				r.gaps = append(r.gaps, Gap{Partition: p.partition, From: ingest.NoOffset, To: m.Offset,
					Why: fmt.Sprintf("expired: Kafka keeps this partition from %s on", m.Appended)})
			}
		}
		p.held = append(p.held, m)
		p.bytes += ingest.HeldBytes(&m)
		r.run.read.Add(int64(len(m.Value)))
	}
	p.next = max(p.next, f.Next)
	if f.Held && f.Readable <= p.next { // an open transaction stands there: it had not ended when the run began
		p.end = min(p.end, p.next)
	}
}

// outOfRange goes on where the log begins now: retention has passed over what was asked for. A log that ends before that was cut.
func (r *liveReader) outOfRange(ctx context.Context, p *livePart) error {
	bounds, err := r.live.Log.Bounds(ctx, []int{p.partition})
	if err != nil {
		return err
	}
	switch b := bounds[p.partition]; {
	case b.End < p.next:
		r.gap(p, p.next, p.end, fmt.Sprintf("cut off: the log ends at offset %d now", b.End))
	case b.Start > p.next:
		r.gap(p, p.next, min(b.Start, p.end), "expired while it was read")
	}
	return nil
}

func (r *liveReader) gap(p *livePart, from, to int64, why string) {
	r.gaps = append(r.gaps, Gap{Partition: p.partition, From: from, To: to, Why: why})
	p.next = to
}

// merge passes on what is held, the oldest first, as long as it is known what is the oldest.
func (r *liveReader) merge(ctx context.Context) error {
	for {
		var least, second *livePart
		for _, p := range r.parts {
			switch {
			case len(p.held) == 0 && !p.done():
				return nil
			case len(p.held) == 0:
			case least == nil || p.held[0].Appended < least.held[0].Appended:
				least, second = p, least
			case second == nil || p.held[0].Appended < second.held[0].Appended:
				second = p
			}
		}
		if least == nil {
			return nil
		}
		n := 1
		for n < len(least.held) && (second == nil || least.held[n].Appended <= second.held[0].Appended) {
			n++
		}
		for i := range least.held[:n] {
			if err := r.add(ctx, &least.held[i]); err != nil {
				return err
			}
			least.bytes -= ingest.HeldBytes(&least.held[i])
		}
		clear(least.held[:n])
		least.held = least.held[n:]
	}
}

// add puts a message into the block under way.
func (r *liveReader) add(ctx context.Context, m *traffic.Message) error {
	if r.block != nil && (r.bytes >= blockBytes || m.Appended.Sub(r.block.messages[0].Appended) >= liveTick) {
		if err := r.pass(ctx); err != nil {
			return err
		}
	}
	if r.block == nil {
		select {
		case r.block = <-r.run.free:
			clear(r.block.messages)
			r.block.messages, r.bytes = r.block.messages[:0], 0
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	r.block.messages = append(r.block.messages, *m)
	r.bytes += ingest.HeldBytes(m)
	return nil
}

// pass hands the block under way on.
func (r *liveReader) pass(ctx context.Context) error {
	if r.block != nil {
		r.run.give(r.block)
		r.block = nil
	}
	return ctx.Err()
}

// messages takes a block of a live topic in.
func (s *sequence) messages(b *block) {
	refused := b.refusals
	for i := range b.events {
		s.place(&b.events[i])
	}
	for i := range refused {
		m := &b.messages[refused[i].line-1]
		s.out.Refused[refused[i].reason]++
		s.example(fmt.Sprintf("%s, partition %d, offset %d: %s: %s", s.live.Topic, m.Partition, m.Offset, refused[i].reason, refused[i].detail))
	}
	for i := range b.messages {
		m := &b.messages[i]
		src := &s.sources[m.Partition]
		src.next, src.came = m.Offset+1, max(src.came, m.Appended)
		s.clock = max(s.clock, m.Appended)
	}
	s.out.Lines += b.decoding.lines
}

// tickDue reports whether partitions are to be told how far the sources have come.
func (s *sequence) tickDue() bool {
	if s.live == nil {
		return s.taken%tickEvery == 0
	}
	if s.clock.Sub(s.ticked) < liveTick {
		return false
	}
	s.ticked = s.clock
	return true
}
