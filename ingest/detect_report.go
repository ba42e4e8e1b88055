package ingest

import (
	"context"
	"strconv"
	"time"

	"github.com/weirhq/weir/traffic"
)

// reportEvery is how often a session tells the store and the metrics how its partitions are, and looks for gaps that
// operators have accepted.
const reportEvery = 2 * time.Second

// blindAfter is how long a partition may see nothing but duplicates before that is an alarm.
const blindAfter = 10 * time.Second

// reporter says how the partitions of a session are. The store is asked beside the folding: it may be away.
type reporter struct {
	d    *Detector
	a    Assignment
	next time.Time
	busy chan struct{}     // holds a token while a report is under way
	got  chan []Acceptance // what the last report found
}

func newReporter(d *Detector, a Assignment) *reporter {
	return &reporter{d: d, a: a, busy: make(chan struct{}, 1), got: make(chan []Acceptance, 1)}
}

// stop waits for a report under way; its context is over.
func (r *reporter) stop() { r.busy <- struct{}{} }

// due reports when it is time, and lets partitions go on whose gap was accepted.
func (r *reporter) due(ctx context.Context) {
	r.resume()
	now := r.d.opt.Clock().Std()
	if now.Before(r.next) {
		return
	}
	r.next = now.Add(reportEvery)
	var states []PartitionState
	commits := map[int]Commit{}
	for p, o := range r.d.memory {
		r.d.observe(o, now)
		states = append(states, o.describe(r.d.opt.Owner))
		commits[p] = Commit{Offset: o.saved}
	}
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

func (r *reporter) send(ctx context.Context, states []PartitionState, commits map[int]Commit) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	// The commit is for tools that show lag. Where to begin, the checkpoint says.
	if err := r.a.Commits.Commit(ctx, commits); err != nil {
		r.d.metrics.errors.WithLabelValues("commit").Inc()
	}
	if err := r.d.opt.Partitions.Report(ctx, r.d.opt.Stream, states); err != nil {
		r.d.metrics.errors.WithLabelValues("report").Inc()
		return
	}
	accepted, err := r.d.opt.Partitions.Accepted(ctx, r.d.opt.Stream)
	if err != nil {
		r.d.metrics.errors.WithLabelValues("acceptances").Inc()
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
			if o.halt == nil || !o.halt.gap {
				continue
			}
			for _, a := range accepted {
				if a.Side == SideKeyed && a.Partition == o.partition && a.GapSource == o.halt.gapSource && a.GapOffset == o.halt.gapOffset {
					o.state.AcceptGap(a.GapSource, a.GapOffset)
					o.halt = nil
					r.d.log.Warn("gap accepted, keyed partition goes on", "partition", o.partition, "by", a.By, "reason", a.Reason)
					break
				}
			}
		}
	default:
	}
}

func (o *owned) describe(owner string) PartitionState {
	s := PartitionState{
		Side: SideKeyed, Partition: o.partition, Owner: owner, State: "running", Offset: o.offset, End: o.end, Epoch: o.epoch,
		Watermark: o.state.Watermark(),
	}
	if o.halt != nil {
		s.State, s.Reason, s.GapSource, s.GapOffset = "halted", o.halt.reason, o.halt.gapSource, o.halt.gapOffset
	}
	return s
}

// observe moves the metrics of one partition, and raises the alarm of one that looks healthy but is blind.
func (d *Detector) observe(o *owned, now time.Time) {
	c, last, p := o.state.Counts(), o.lastCounts, label(o.partition)
	d.metrics.add(c, last, o.state.TakeUncounted(nil))
	o.lastCounts = c
	switch {
	case c.Events > last.Events || c.Duplicates == last.Duplicates:
		o.blindSince, o.blind = time.Time{}, false
	case o.blindSince.IsZero():
		o.blindSince = now
	case now.Sub(o.blindSince) >= blindAfter && !o.blind:
		o.blind = true
		d.log.Error("the fence drops every record of a keyed partition: its routers repeat the past", "partition", o.partition)
	}
	d.metrics.blind.WithLabelValues(p).Set(truth(o.blind))
	d.metrics.halted.WithLabelValues(p).Set(truth(o.halt != nil))
	d.metrics.lag.WithLabelValues(p).Set(float64(max(0, o.end-o.offset)))
	d.metrics.keys.WithLabelValues(p).Set(float64(o.state.Keys()))
	d.metrics.bytes.WithLabelValues(p).Set(float64(o.state.Bytes()))
	d.metrics.skew.WithLabelValues(p).Set(o.state.Skew().Seconds())
	d.metrics.stalled.WithLabelValues(p).Set(float64(len(o.state.Stalled())))
	if w := o.state.Watermark(); w != traffic.BeforeTime && w != traffic.EndOfTime {
		d.metrics.watermark.WithLabelValues(p).Set(float64(w) / 1e6)
	}
}

func truth(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func label(partition int) string { return strconv.Itoa(partition) }
