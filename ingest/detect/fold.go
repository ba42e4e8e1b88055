package detect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// foldTogether is how many records are decoded before they are folded: the memory that they need is loaded together.
const foldTogether = 64

// outsideCheck is the least time between two looks at a log's bounds while the partition's offset lies outside of them.
const outsideCheck = 5 * time.Second

// foldAll gives each partition's records to its state, several partitions at once. Partitions share nothing, so the
// number of workers does not show in the hits.
func (d *Detector) foldAll(ctx context.Context, fetched []keyedFetch) error {
	var wg sync.WaitGroup
	slots := make(chan struct{}, d.opt.Workers)
	errs := make([]error, len(fetched))
	for i := range fetched {
		o, ok := d.memory[fetched[i].Partition]
		if !ok || o.halt != nil || o.wants != 0 || fetched[i].asked > o.offset {
			continue // it was asked for when the partition was thought to come this far
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = o.fold(ctx, &fetched[i])
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// fold gives one partition's answer to its state. A fault that stops this partition alone is noted in it; an error ends the
// session.
func (o *owned) fold(ctx context.Context, f *keyedFetch) error {
	switch {
	case f.Err == nil:
		o.end = f.HighWatermark
		o.readAgain()
		// Whole batches are answered, with records below what was asked for.
		if done, err := o.foldFetched(ingest.MessagesFrom(f.Messages, o.offset)); done || err != nil {
			return err
		}
		o.offset = max(o.offset, f.Next)
		if at := f.NotBefore(); at != traffic.BeforeTime {
			o.since = at
		}
		o.lag.Behind(o.end-o.offset, o.since)
		return nil
	case f.asked != o.offset:
		return nil // of an offset that the partition has left since
	case errors.Is(f.Err, ingest.ErrOutOfRange):
		return o.outside(ctx)
	}
	o.end = max(o.end, f.HighWatermark)
	o.unread(f.Err)
	o.passUnreadable()
	return nil
}

// foldMessages folds records in order. done says that the partition is not to go on: o.halt or o.wants says why, or err.
func (o *owned) foldMessages(messages []traffic.Message) (done bool, err error) {
	for len(messages) > 0 {
		records, unread := o.decode(messages)
		if done, err := o.foldRecords(messages[:len(records)], records); done || err != nil {
			return true, err
		}
		messages = messages[len(records):]
		if unread != nil {
			given, err := o.damaged(messages, unread)
			if given == 0 {
				return true, err
			}
			messages = messages[given:]
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
		r.Appended, r.Place = messages[i].Appended, messages[i].Offset+1
		if err := detectors.DecodeKeyed(messages[i].Value, &r.Keyed); err != nil {
			return o.records[:i], err
		}
	}
	return o.records[:n], nil
}

// foldRecords folds what messages hold, learning the routing versions that records name. o.offset moves on with each record
// that is folded. done says that the partition is not to go on.
func (o *owned) foldRecords(messages []traffic.Message, records []detectors.Record) (done bool, err error) {
	for len(records) > 0 {
		var n int
		n, o.pending, err = o.state.FoldAll(records, o.pending)
		if n > 0 {
			if o.began == 0 {
				o.began = messages[0].Appended
			}
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
			if known, err := o.learn(unknown.Version); !known {
				return true, err
			}
		case errors.As(err, &hole):
			o.stop(halt{reason: hole.Error(), gap: &gap{hole.Source, hole.Offset}})
			return true, nil
		case errors.As(err, &generation):
			return true, err
		default:
			given, err := o.damaged(messages[:1], err)
			if given == 0 {
				return true, err
			}
			messages, records = messages[given:], records[given:]
		}
	}
	return false, nil
}

// damaged handles records that came whole and say nothing that can be folded, of which messages begins with one: err
// says what is wrong with it. What they said is unknown, so they stop the partition, as one gap, until an operator
// gives them up; given is how many of them he has. One of a newer format is not this process's to touch.
func (o *owned) damaged(messages []traffic.Message, err error) (given int, _ error) {
	if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
		return 0, fmt.Errorf("keyed partition %d offset %d: %w", o.partition, messages[0].Offset, err)
	}
	stretch := 1 + undecodable(messages[1:])
	for n := stretch; n > 0; n-- { // he may have been shown less, where less of it had been fetched
		next := messages[n-1].Offset + 1
		if a, ok := o.accepted[gap{ingest.GapInKeyed, next}]; ok {
			o.giveUp(next, a)
			return n, nil
		}
	}
	next := messages[stretch-1].Offset + 1
	reason := fmt.Sprintf("keyed offset %d cannot be read: %v", messages[0].Offset, err)
	if stretch > 1 {
		reason = fmt.Sprintf("keyed offsets %d to %d cannot be read; the first: %v", messages[0].Offset, next-1, err)
	}
	o.stop(halt{reason: reason, gap: &gap{ingest.GapInKeyed, next}})
	return 0, nil
}

// undecodable counts the records, from the first on, that do not decode, and whose format is known here.
func undecodable(messages []traffic.Message) int {
	for n := range messages {
		var k detectors.Keyed
		err := detectors.DecodeKeyed(messages[n].Value, &k)
		if unknown := (*detectors.UnknownFormatError)(nil); err == nil || errors.As(err, &unknown) {
			return n
		}
	}
	return len(messages)
}

// learn gives the state a routing version. known is false while it is not loaded: then this partition waits for it, and no
// other.
func (o *owned) learn(version int64) (known bool, err error) {
	plan, err := o.d.routings.get(version)
	if err != nil {
		return false, err
	}
	if plan == nil {
		o.wants = version
		return false, nil
	}
	o.state.Learn(plan)
	return true, nil
}

// waits reports whether a partition waits for a routing version that is not loaded yet.
func (o *owned) waits() bool {
	if o.wants != 0 && o.d.routings.has(o.wants) {
		o.wants = 0
	}
	return o.wants != 0
}

// outside handles a partition that stands outside its log.
func (o *owned) outside(ctx context.Context) error {
	now := time.Now()
	if now.Sub(o.checked) < outsideCheck {
		return nil
	}
	o.checked = now
	bounds, away := ingest.BoundsOfEach(ctx, o.d.opt.Log, []int{o.partition})
	if err := away[o.partition]; err != nil {
		o.unread(fmt.Errorf("offset %d is outside the log, whose bounds cannot be asked for: %w", o.offset, err))
		return nil
	}
	return o.checkBounds(ctx, bounds[o.partition])
}

// unread notes that an attempt to read a partition brought nothing. A blocked partition is asked for again and again, and
// goes on by itself once it can be read.
func (o *owned) unread(err error) {
	if errors.Is(err, ingest.ErrSilent) {
		err = nil // the lack of an answer, and not an error of a call
	} else {
		o.d.metrics.errors.WithLabelValues(callFetch).Inc()
	}
	before := o.readable.Blocked
	o.readable.Failed(time.Now(), o.offset, err)
	if b := o.readable.Blocked; !b.Same(before) {
		o.d.log.Error("keyed partition cannot be read on", "partition", o.partition, "offset", o.offset, "reason", b.Reason, "gap_offset", b.Next)
	}
}

func (o *owned) readAgain() {
	if o.readable.Blocked != nil {
		o.d.log.Info("keyed partition can be read again", "partition", o.partition, "offset", o.offset)
	}
	o.readable.Answered()
}

// passUnreadable goes on behind a stretch that cannot be read, if an operator has accepted exactly this gap. As after a loss
// by retention, nobody knows which source partitions had records in it.
func (o *owned) passUnreadable() {
	b := o.readable.Blocked
	if b == nil || b.Next == ingest.NoOffset {
		return
	}
	a, ok := o.accepted[gap{ingest.GapInKeyed, b.Next}]
	if !ok {
		return
	}
	o.giveUp(b.Next, a)
	o.readable.Answered()
}

// giveUp goes on at next, as an operator has accepted, without the records before it.
func (o *owned) giveUp(next int64, a ingest.Acceptance) {
	o.d.log.Warn("gap accepted, keyed partition goes on behind what cannot be read", "partition", o.partition,
		"from", o.offset, "to", next, "by", a.By, "reason", a.Reason)
	o.pending = append(o.pending, o.state.Rebase(detectors.Unfolded{
		From: o.offset, To: next, Why: "could not be read, and were given up"}))
	o.offset = next
}
