package detect

import (
	"errors"
	"fmt"

	"github.com/weirhq/weir/detectors"
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
