package ingest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// owned is one keyed partition as this process remembers it.
type owned struct {
	partition int
	epoch     int64
	state     *detectors.Partition
	offset    int64           // the next keyed offset to fold
	end       int64           // end of the log when last seen
	pending   []detectors.Hit // caused by records below offset, not yet acknowledged by the hits topic
	halt      *halt

	saved      int64 // offset of the newest snapshot given to the writer
	nextSave   time.Time
	lastCounts detectors.Counts
	blindSince time.Time // since when the fence has dropped every event record
	blind      bool
}

// halt says why a partition does not go on.
type halt struct {
	reason    string
	gapSource int
	gapOffset int64
	gap       bool // an operator may accept it
}

// takeAll claims the partitions of a generation. It waits as long as a store is away, since without a claim nobody may
// fold.
func (d *Detector) takeAll(ctx context.Context, partitions []int) error {
	accepted, err := retry(ctx, d, "acceptances", func(ctx context.Context) ([]Acceptance, error) {
		return d.opt.Partitions.Accepted(ctx, d.opt.Stream)
	})
	if err != nil {
		return err
	}
	bounds, err := retry(ctx, d, "bounds", func(ctx context.Context) (map[int]Bounds, error) {
		return d.opt.Log.Bounds(ctx, partitions)
	})
	if err != nil {
		return err
	}
	for _, p := range partitions {
		o, err := d.take(ctx, p, bounds[p])
		if err != nil {
			return err
		}
		o.halt = nil // whatever it was is found again
		o.accept(accepted)
		d.memory[p] = o
		d.checkBounds(o, bounds[p])
	}
	return nil
}

// take claims a partition: memory that is still right is kept, else the newest snapshot that is whole is restored.
func (d *Detector) take(ctx context.Context, partition int, b Bounds) (*owned, error) {
	o := d.memory[partition]
	var held int64
	if o != nil {
		held = o.epoch
	}
	claim, err := retry(ctx, d, "take", func(ctx context.Context) (Claim, error) {
		return d.opt.Checkpoints.Take(ctx, d.opt.Stream, partition, d.opt.Owner, held)
	})
	if err != nil {
		return nil, err
	}
	if claim.Kept && o != nil {
		d.metrics.restores.WithLabelValues("warm").Inc()
		return o, nil
	}
	return d.restore(partition, claim, b)
}

// accept tells the state which gaps an operator lets pass.
func (o *owned) accept(all []Acceptance) {
	for _, a := range all {
		if a.Side == SideKeyed && a.Partition == o.partition {
			o.state.AcceptGap(a.GapSource, a.GapOffset)
		}
	}
}

// restore builds memory from the stored generations, newest first. A torn one is passed over for the older.
func (d *Detector) restore(partition int, claim Claim, b Bounds) (*owned, error) {
	cfg := detectors.Config{
		Keyed: partition, Sources: d.opt.Sources, Generation: d.opt.Generation, Secret: d.opt.Secret, Stall: d.opt.Stall,
	}
	for _, cp := range claim.Generations {
		state, err := detectors.Restore(cfg, cp.Data)
		if err == nil {
			d.metrics.restores.WithLabelValues("restored").Inc()
			return &owned{partition: partition, epoch: claim.Epoch, state: state, offset: cp.Offset, saved: cp.Offset}, nil
		}
		if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
			return nil, fmt.Errorf("keyed partition %d: %w", partition, err)
		}
		d.metrics.restores.WithLabelValues("torn").Inc()
		d.log.Error("snapshot is damaged, using the one before it", "partition", partition, "offset", cp.Offset, "error", err)
	}
	d.metrics.restores.WithLabelValues("fresh").Inc()
	o := &owned{partition: partition, epoch: claim.Epoch, state: detectors.NewPartition(cfg), offset: b.Start}
	if o.offset > 0 {
		o.pending = append(o.pending, o.state.Rebase(0, o.offset))
	}
	return o, nil
}

// checkBounds compares where memory stands with what the log still holds. Kafka would skip silently to the first
// offset that it has.
func (d *Detector) checkBounds(o *owned, b Bounds) {
	switch {
	case o.offset > b.End:
		d.stop(o, halt{reason: fmt.Sprintf("the log ends at %d, the snapshot stands at %d: the keyed topic was truncated or recreated; "+
			"restore it, or delete this partition's checkpoints to begin anew", b.End, o.offset)})
	case o.offset < b.Start:
		d.log.Error("keyed records were deleted before they were read", "partition", o.partition, "from", o.offset, "to", b.Start)
		o.pending = append(o.pending, o.state.Rebase(o.offset, b.Start))
		o.offset = b.Start
	}
	o.end = b.End
}

// fold gives one partition's fetched records to its state. What stops only this partition is noted in o.halt; an error
// ends the session.
func (d *Detector) fold(ctx context.Context, o *owned, f *Fetched) error {
	if f.Err != nil {
		if errors.Is(f.Err, ErrOutOfRange) {
			bounds, err := retry(ctx, d, "bounds", func(ctx context.Context) (map[int]Bounds, error) {
				return d.opt.Log.Bounds(ctx, []int{o.partition})
			})
			if err != nil {
				return err
			}
			d.checkBounds(o, bounds[o.partition])
			return nil
		}
		d.metrics.errors.WithLabelValues("fetch").Inc()
		return nil
	}
	o.end = f.HighWatermark
	var k detectors.Keyed
	for i := range f.Messages {
		m := &f.Messages[i]
		if m.Offset < o.offset {
			continue // whole batches are answered, with records below what was asked for
		}
		if err := detectors.DecodeKeyed(m.Value, &k); err != nil {
			return d.unreadable(o, m, err)
		}
		if done, err := d.foldRecord(ctx, o, m, &k); done || err != nil {
			return err
		}
		o.offset = m.Offset + 1
	}
	o.offset = max(o.offset, f.Next)
	return nil
}

// foldRecord folds one record, loading the routing version that it names if need be. done says that the partition is
// not to go on.
func (d *Detector) foldRecord(ctx context.Context, o *owned, m *traffic.Message, k *detectors.Keyed) (done bool, err error) {
	for {
		o.pending, err = o.state.Fold(m.Appended, k, o.pending)
		var unknown *detectors.UnknownVersionError
		var hole *detectors.HoleError
		var generation *detectors.GenerationError
		switch {
		case err == nil:
			return false, nil
		case errors.As(err, &unknown):
			if err := d.learn(ctx, o, unknown.Version); err != nil {
				return true, err
			}
		case errors.As(err, &hole):
			d.stop(o, halt{reason: hole.Error(), gap: true, gapSource: hole.Source, gapOffset: hole.Offset})
			return true, nil
		case errors.As(err, &generation):
			return true, err
		default:
			d.stop(o, halt{reason: fmt.Sprintf("keyed offset %d: %v", m.Offset, err)})
			return true, nil
		}
	}
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

// learn gives the state a routing version, from memory or from the store. Versions are immutable, so it is loaded once.
func (d *Detector) learn(ctx context.Context, o *owned, version int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r, ok := d.routings[version]
	if !ok {
		var err error
		r, err = retryRouting(ctx, d, version)
		if err != nil {
			return err
		}
		if r.RecordFormat > detectors.RecordFormat {
			return &detectors.UnknownFormatError{
				What: fmt.Sprintf("routing version %d", version), Got: fmt.Sprint(r.RecordFormat), Known: fmt.Sprint(detectors.RecordFormat),
			}
		}
		d.routings[version] = r
		detectors.ForgetOldest(d.routings, version)
	}
	o.state.Learn(r)
	return nil
}

// stop halts a partition, loudly and once.
func (d *Detector) stop(o *owned, h halt) {
	o.halt = &h
	d.log.Error("keyed partition stopped", "partition", o.partition, "offset", o.offset, "reason", h.reason)
}
