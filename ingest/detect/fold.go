package detect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// foldTogether is how many records are decoded before they are folded: the memory that they need is loaded together.
const foldTogether = 64

// foldMessages folds records in order. done says that the partition is not to go on: o.halt or o.wants says why, or err.
func (d *Detector) foldMessages(o *owned, messages []traffic.Message) (done bool, err error) {
	for len(messages) > 0 {
		records, unread := o.decode(messages)
		if done, err := d.foldRecords(o, messages[:len(records)], records); done || err != nil {
			return true, err
		}
		messages = messages[len(records):]
		if unread != nil {
			return true, d.unreadable(o, &messages[0], unread)
		}
	}
	return false, nil
}

// decode reads records up to the first that cannot be read. They lie in memory that the next call uses again.
func (o *owned) decode(messages []traffic.Message) ([]detectors.Record, error) {
	if o.records == nil {
		o.records = make([]detectors.Record, foldTogether)
	}
	n := min(len(messages), len(o.records))
	for i := range n {
		r := &o.records[i]
		r.Appended = messages[i].Appended
		if err := detectors.DecodeKeyed(messages[i].Value, &r.Keyed); err != nil {
			return o.records[:i], err
		}
	}
	return o.records[:n], nil
}

// foldRecords folds what messages hold, learning the routing versions that records name. o.offset moves on with each record
// that is folded. done says that the partition is not to go on.
func (d *Detector) foldRecords(o *owned, messages []traffic.Message, records []detectors.Record) (done bool, err error) {
	for len(records) > 0 {
		var n int
		n, o.pending, err = o.state.FoldAll(records, o.pending)
		if n > 0 {
			o.offset = messages[n-1].Offset + 1
			for i := range messages[:n] {
				o.folded += int64(len(messages[i].Value))
			}
			messages, records = messages[n:], records[n:]
		}
		var unknown *detectors.UnknownVersionError
		var hole *detectors.HoleError
		var generation *detectors.GenerationError
		switch {
		case err == nil:
		case errors.As(err, &unknown):
			if known, err := d.learn(o, unknown.Version); !known {
				return true, err
			}
		case errors.As(err, &hole):
			d.stop(o, halt{reason: hole.Error(), gap: &gap{hole.Source, hole.Offset}})
			return true, nil
		case errors.As(err, &generation):
			return true, err
		default:
			d.stop(o, halt{reason: fmt.Sprintf("keyed offset %d: %v", messages[0].Offset, err)})
			return true, nil
		}
	}
	return false, nil
}

// unreadable handles a record that does not decode: one of a newer format is not this process's to touch, a damaged one
// stops the partition, since what it said is unknown.
func (d *Detector) unreadable(o *owned, m *traffic.Message, err error) error {
	if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
		return fmt.Errorf("keyed partition %d offset %d: %w", o.partition, m.Offset, err)
	}
	d.stop(o, halt{reason: fmt.Sprintf("keyed offset %d cannot be read: %v", m.Offset, err)})
	return nil
}

// learn gives the state a routing version. known is false while it is not loaded: then this partition waits for it, and no
// other.
func (d *Detector) learn(o *owned, version int64) (known bool, err error) {
	r, err := d.routings.get(version)
	if err != nil {
		return false, err
	}
	if r == nil {
		o.wants = version
		return false, nil
	}
	o.state.Learn(r)
	d.metrics.watch(r)
	return true, nil
}

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
