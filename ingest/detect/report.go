package detect

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
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
	busy chan struct{}            // holds a token while a report is under way
	got  chan []ingest.Acceptance // what the last report found
}

func newReporter(d *Detector, a ingest.Assignment) *reporter {
	return &reporter{d: d, a: a, busy: make(chan struct{}, 1), got: make(chan []ingest.Acceptance, 1)}
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
	commits := map[int]ingest.Commit{}
	open := map[string]int64{}
	for p, o := range r.d.memory {
		o.observe(now)
		o.state.OpenEpisodes(func(rule string, n int64) { open[rule] += n })
		states = append(states, o.describe())
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
		r.send(ctx, states, commits)
	}()
}

func (r *reporter) send(ctx context.Context, states []ingest.PartitionStatus, commits map[int]ingest.Commit) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := r.a.Commits.Commit(ctx, commits); err != nil {
		r.d.metrics.errors.WithLabelValues(callCommit).Inc()
	}
	if err := r.d.opt.Partitions.Report(ctx, r.d.opt.Stream, states); err != nil {
		r.d.metrics.errors.WithLabelValues(callReport).Inc()
		return
	}
	accepted, err := r.d.opt.Partitions.Accepted(ctx, r.d.opt.Stream)
	if err != nil {
		r.d.metrics.errors.WithLabelValues(callAcceptances).Inc()
		return
	}
	select {
	case r.got <- accepted:
	default:
	}
}

// resume gives halted partitions the acceptances that were found.
func (r *reporter) resume() {
	select {
	case accepted := <-r.got:
		for _, o := range r.d.memory {
			o.accept(accepted)
			if o.halt == nil || o.halt.gap == nil {
				continue
			}
			if a, ok := o.accepted[*o.halt.gap]; ok {
				o.halt = nil
				r.d.log.Warn("gap accepted, keyed partition goes on", "partition", o.partition, "by", a.By, "reason", a.Reason)
			}
		}
	default:
	}
}

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
