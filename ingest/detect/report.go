package detect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// reportEvery is how often a session tells the store and the metrics how its partitions are, and looks for gaps that
// operators have accepted.
const reportEvery = 2 * time.Second

// blindAfter is how long a partition may see nothing but duplicates before the next one is an alarm. Only an accepted
// event ends that time, so that it does not matter how often one comes.
const blindAfter = 10 * time.Second

// reporter says how the partitions of a session are. The store is asked beside the folding: it may be away.
type reporter struct {
	d    *Detector
	a    ingest.Assignment
	next time.Time
	busy chan struct{}   // holds a token while a report is under way
	got  chan reportNews // what the last report found
}

// reportNews is what a report has found out beside the folding.
type reportNews struct {
	accepted []ingest.Acceptance
	bounds   map[int]ingest.Bounds // of the logs that nobody fetches from, since their partitions stand
}

func newReporter(d *Detector, a ingest.Assignment) *reporter {
	return &reporter{d: d, a: a, busy: make(chan struct{}, 1), got: make(chan reportNews, 1)}
}

// stop waits for a report under way; its context is over.
func (r *reporter) stop() { r.busy <- struct{}{} }

// due reports when it is time, and lets partitions go on whose gap was accepted.
func (r *reporter) due(ctx context.Context) {
	r.resume()
	if ctx.Err() != nil {
		return // hits may be pending: what is counted now may be counted again by another process
	}
	now := r.d.opt.Clock().Std()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(reportEvery)
	var states []ingest.PartitionStatus
	var standing []int
	commits := map[int]ingest.Commit{}
	open := map[string]int64{}
	for p, o := range r.d.memory {
		o.observe(now)
		o.state.OpenEpisodes(func(rule string, n int64) { open[rule] += n })
		states = append(states, o.describe())
		if o.halt != nil || o.wants != 0 {
			standing = append(standing, p)
		}
		commits[p] = o.commit(now)
	}
	r.d.metrics.rules.open(open)
	select {
	case r.busy <- struct{}{}:
	default:
		return // the last report is still under way
	}
	go func() {
		defer func() { <-r.busy }()
		r.send(ctx, states, standing, commits)
	}()
}

func (r *reporter) send(
	ctx context.Context, states []ingest.PartitionStatus, standing []int, commits map[int]ingest.Commit,
) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	var news reportNews
	if len(standing) > 0 {
		news.bounds, _ = ingest.BoundsOfEach(ctx, r.d.opt.Log, standing) // what is away ends where it was last seen to
	}
	for i := range states {
		states[i].End = max(states[i].End, news.bounds[states[i].Partition].End)
	}
	if err := r.a.Commits.Commit(ctx, commits); err != nil {
		r.d.metrics.errors.WithLabelValues(callCommit).Inc()
	}
	if err := r.d.opt.Partitions.Report(ctx, r.d.opt.Stream, states); err != nil {
		r.d.metrics.errors.WithLabelValues(callReport).Inc()
		return
	}
	var err error
	if news.accepted, err = r.d.opt.Partitions.Accepted(ctx, r.d.opt.Stream); err != nil {
		r.d.metrics.errors.WithLabelValues(callAcceptances).Inc()
		return
	}
	select {
	case r.got <- news:
	default:
	}
}

// resume gives partitions what was found: halted ones the acceptances, and how far their logs have grown.
func (r *reporter) resume() {
	select {
	case news := <-r.got:
		for p, o := range r.d.memory {
			o.end = max(o.end, news.bounds[p].End)
			o.accept(news.accepted)
			if o.halt == nil || o.halt.gap == nil {
				continue
			}
			a, ok := o.accepted[*o.halt.gap]
			switch {
			case !ok:
				continue
			case o.halt.gap.source == ingest.KeyedAnew:
				b, known := news.bounds[p]
				if !known {
					continue
				}
				o.end = b.End
				o.beginAnew(b.Start, a)
			case o.halt.gap.source == ingest.GapInKeyed:
				o.giveUp(o.halt.gap.offset, a)
			default:
				r.d.log.Warn("gap accepted, keyed partition goes on", "partition", o.partition, "by", a.By, "reason", a.Reason)
			}
			o.halt = nil
		}
	default:
	}
}

// leaving tells operators, as far as the store can be reached, that this process gives its partitions up, and why. The
// error itself is the session's outcome.
func (r *reporter) leaving(ctx context.Context, why error) {
	d := r.d
	if errors.Is(why, ingest.ErrFenced) {
		return // they are at work elsewhere
	}
	ctx, cancel := context.WithTimeout(ctx, leavingTimeout)
	defer cancel()
	states := make([]ingest.PartitionStatus, 0, len(r.a.Partitions))
	for _, p := range r.a.Partitions {
		s := ingest.PartitionStatus{
			Side: ingest.SideKeyed, Partition: p, Owner: d.opt.Owner, Address: d.opt.Address,
			Watermark: traffic.BeforeTime,
		}
		if o := d.memory[p]; o != nil {
			s = o.describe()
		}
		s.State, s.Reason = ingest.Halted, fmt.Sprintf("its process has left the consumer group of keyed: %v", why)
		s.GapSource, s.GapOffset = ingest.GapInKeyed, ingest.NoOffset
		states = append(states, s)
	}
	if err := d.opt.Partitions.Report(ctx, d.opt.Stream, states); err != nil {
		d.metrics.errors.WithLabelValues(callReport).Inc()
	}
}

// leavingTimeout bounds how long a process that leaves its group tries to say so: others wait for its partitions.
const leavingTimeout = 2 * time.Second

// describe says how a partition is: one that stands still says why.
func (o *owned) describe() ingest.PartitionStatus {
	s := ingest.PartitionStatus{
		Side: ingest.SideKeyed, Partition: o.partition, Owner: o.d.opt.Owner, Address: o.d.opt.Address, State: ingest.Running, Offset: o.offset, End: o.end, Epoch: o.epoch,
		Watermark: o.state.Watermark(), GapSource: ingest.GapInKeyed, GapOffset: ingest.NoOffset,
	}
	if h := o.standstill(); h != nil {
		s.State, s.Reason = ingest.Halted, h.reason
		if h.gap != nil {
			s.GapSource, s.GapOffset = h.gap.source, h.gap.offset
		}
	}
	return s
}

// standstill is why a partition does not go on, for good or for now; nil while it does.
func (o *owned) standstill() *halt {
	if o.halt != nil {
		return o.halt
	}
	if b := o.readable.Blocked; b != nil {
		h := &halt{reason: b.Reason}
		if b.Next != ingest.NoOffset {
			h.gap = &gap{ingest.GapInKeyed, b.Next}
		}
		return h
	}
	if o.wants != 0 {
		if err := o.d.routings.trouble(o.wants); err != nil {
			return &halt{reason: fmt.Sprintf("waits at offset %d for what it is to be counted by: %v", o.offset, err)}
		}
	}
	return nil
}

// observe moves the metrics of one partition, and raises the alarm of one that looks healthy but is blind.
func (o *owned) observe(now time.Time) {
	c, last := o.state.Counts(), o.lastCounts
	o.lastCounts = c
	o.tellCounts()
	switch dropped := c.Duplicates > last.Duplicates; {
	case c.Events > last.Events:
		o.blindSince, o.blind = time.Time{}, false
	case !dropped: // nothing came, which says nothing
	case o.blindSince.IsZero():
		o.blindSince = now
	case now.Sub(o.blindSince) >= blindAfter && !o.blind:
		o.blind = true
		o.d.log.Error("the fence drops every record of a keyed partition: its routers repeat the past", "partition", o.partition)
	}
	halted := o.standstill() != nil
	o.d.tally.observe(o.partition, int64(c.Events-last.Events), max(0, o.end-o.offset), halted)
	o.lag.Halt(halted)
	if behind := o.end - o.offset; behind > 0 { // that there is nothing left only an answer of the log says, see fold
		o.lag.Behind(behind, o.since)
	}
	o.d.metrics.partitions.observe(o.partition, partitionShown{
		keys: o.state.Keys(), bytes: o.state.Bytes(), stalled: len(o.state.Stalled()), skew: o.state.Skew(),
		watermark: o.state.Watermark(), blind: o.blind, offset: o.offset, began: o.began,
	})
}
