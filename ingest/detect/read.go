package detect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/ingest"
)

// outsideCheck is the least time between two looks at the bounds of a log outside of which a partition stands.
const outsideCheck = 5 * time.Second

// fold gives one partition's answer to its state. What stops only this partition is noted in it; an error ends the session.
func (d *Detector) fold(ctx context.Context, o *owned, f *keyedFetch) error {
	switch {
	case f.Err == nil:
		o.end = f.HighWatermark
		d.readAgain(o)
		// Whole batches are answered, with records below what was asked for.
		if done, err := d.foldMessages(o, ingest.MessagesFrom(f.Messages, o.offset)); done || err != nil {
			return err
		}
		o.offset = max(o.offset, f.Next)
		return nil
	case f.asked != o.offset:
		return nil // asked for before the partition went on: it says nothing of where it stands now
	case errors.Is(f.Err, ingest.ErrOutOfRange):
		return d.outside(ctx, o)
	}
	o.end = max(o.end, f.HighWatermark)
	d.unread(o, f.Err)
	d.passUnreadable(o)
	return nil
}

// outside handles a partition that stands outside its log.
func (d *Detector) outside(ctx context.Context, o *owned) error {
	now := time.Now()
	if now.Sub(o.checked) < outsideCheck {
		return nil
	}
	o.checked = now
	bounds, away := ingest.BoundsOfEach(ctx, d.opt.Log, []int{o.partition})
	if err := away[o.partition]; err != nil {
		d.unread(o, fmt.Errorf("offset %d is outside the log, whose bounds cannot be asked for: %w", o.offset, err))
		return nil
	}
	return d.checkBounds(ctx, o, bounds[o.partition])
}

// unread notes an attempt to read a partition that brought nothing. One that is blocked is asked for again and again, and
// goes on by itself when it can be read.
func (d *Detector) unread(o *owned, err error) {
	if errors.Is(err, ingest.ErrSilent) {
		err = nil // the lack of an answer, and not an error of a call
	} else {
		d.metrics.errors.WithLabelValues("fetch").Inc()
	}
	before := o.readable.Blocked
	o.readable.Failed(time.Now(), o.offset, err)
	if b := o.readable.Blocked; !b.Same(before) {
		d.log.Error("keyed partition cannot be read on", "partition", o.partition, "offset", o.offset, "reason", b.Reason, "gap_offset", b.Next)
	}
}

func (d *Detector) readAgain(o *owned) {
	if o.readable.Blocked != nil {
		d.log.Info("keyed partition can be read again", "partition", o.partition, "offset", o.offset)
	}
	o.readable.Answered()
}

// passUnreadable goes on behind what cannot be read, if an operator has accepted exactly that: as where retention was
// faster than reading, nobody knows whose records were in it.
func (d *Detector) passUnreadable(o *owned) {
	b := o.readable.Blocked
	if b == nil || b.Next == ingest.NoOffset {
		return
	}
	a, ok := o.accepted[gap{ingest.GapInKeyed, b.Next}]
	if !ok {
		return
	}
	d.log.Warn("gap accepted, keyed partition goes on behind what cannot be read", "partition", o.partition, "from", o.offset,
		"to", b.Next, "by", a.By, "reason", a.Reason)
	o.pending = append(o.pending, o.state.Rebase(o.offset, b.Next, "could not be read, and were given up"))
	o.offset = b.Next
	o.readable.Answered()
}
