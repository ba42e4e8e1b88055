package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
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

	saved      int64                      // offset of the newest snapshot given to the writer
	again      bool                       // the store did not take it
	encoder    *detectors.SnapshotEncoder // the last one that was begun by slices; nil once another snapshot was begun
	nextSave   time.Time
	soonest    time.Time          // before nextSave, for a partition whose log runs away
	size       int64              // of the newest snapshot
	folded     int64              // bytes of records, in all
	savedAt    int64              // what folded was at saved
	records    []detectors.Record // memory of foldMessages
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
// fold. The logs' bounds are asked for after the claims: until then the owner before may still write snapshots, and one
// that stands beyond bounds which are older looks like a log that was cut.
func (d *Detector) takeAll(ctx context.Context, partitions []int) error {
	accepted, err := retry(ctx, d, "acceptances", func(ctx context.Context) ([]Acceptance, error) {
		return d.opt.Partitions.Accepted(ctx, d.opt.Stream)
	})
	if err != nil {
		return err
	}
	taken, err := d.rememberAll(ctx, partitions)
	if err != nil {
		return err
	}
	bounds, err := retry(ctx, d, "bounds", func(ctx context.Context) (map[int]Bounds, error) {
		return d.opt.Log.Bounds(ctx, partitions)
	})
	if err != nil {
		return err
	}
	for _, o := range taken {
		o.halt = nil // whatever it was is found again
		o.accept(accepted)
		d.memory[o.partition] = o
		if err := d.checkBounds(ctx, o, bounds[o.partition]); err != nil {
			return err
		}
	}
	return nil
}

// rememberAll claims partitions and restores them, several at once: while one waits for the store a piece of another one's
// snapshot is decoded, and let go before the next one comes.
func (d *Detector) rememberAll(ctx context.Context, partitions []int) ([]*owned, error) {
	var wg sync.WaitGroup
	slots := make(chan struct{}, d.opt.Workers)
	taken, errs := make([]*owned, len(partitions)), make([]error, len(partitions))
	for i, p := range partitions {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			claim, err := d.claim(ctx, p)
			if err == nil {
				taken[i], err = d.remember(ctx, p, claim)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return taken, errors.Join(errs...)
}

// claim takes a partition, under the epoch of what is remembered of it.
func (d *Detector) claim(ctx context.Context, partition int) (Claim, error) {
	held := int64(0)
	if o := d.memory[partition]; o != nil {
		held = o.epoch
	}
	return retry(ctx, d, "take", func(ctx context.Context) (Claim, error) {
		return d.opt.Checkpoints.Take(ctx, d.opt.Stream, partition, d.opt.Owner, held)
	})
}

// remember gives what is known of a claimed partition: memory that is still right is kept, else the newest snapshot that
// is whole is restored.
func (d *Detector) remember(ctx context.Context, partition int, claim Claim) (*owned, error) {
	if o := d.memory[partition]; claim.Kept && o != nil {
		d.metrics.restores.WithLabelValues("warm").Inc()
		return o, nil
	}
	return d.restore(ctx, partition, claim)
}

// accept tells the state which gaps an operator lets pass.
func (o *owned) accept(all []Acceptance) {
	for _, a := range all {
		if a.Side == SideKeyed && a.Partition == o.partition {
			o.state.AcceptGap(a.GapSource, a.GapOffset)
		}
	}
}

// checkBounds compares where memory stands with what the log still holds. Kafka would skip silently to the first
// offset that it has.
//
// It begins anew at the log's start, or stops, only while the partition is still its own. An owner that slept for longer
// than the log is kept, and was replaced meanwhile, would tell of a loss that never was, and go on with windows that lack
// what its successor has counted.
func (d *Detector) checkBounds(ctx context.Context, o *owned, b Bounds) error {
	o.end = b.End
	if b.Start <= o.offset && o.offset <= b.End || len(o.pending) > 0 {
		return nil // with hits not yet sent, no snapshot may be written: the next fetch says the same again
	}
	mine, err := d.stillMine(ctx, o)
	switch {
	case err != nil:
		return err
	case !mine:
		return fmt.Errorf("keyed partition %d: %w", o.partition, ErrFenced)
	case o.offset > b.End:
		d.stop(o, halt{reason: fmt.Sprintf("the log ends at %d, the snapshot stands at %d: the keyed topic was truncated or recreated; "+
			"restore it, or delete this partition's checkpoints to begin anew", b.End, o.offset)})
	default:
		d.log.Error("keyed records were deleted before they were read", "partition", o.partition, "from", o.offset, "to", b.Start)
		o.pending = append(o.pending, o.state.Rebase(o.offset, b.Start))
		o.offset = b.Start
	}
	return nil
}

// stillMine asks the store whether o's epoch stands, by writing a snapshot under it. To take the partition would not do:
// it would be taken away from whoever has it.
func (d *Detector) stillMine(ctx context.Context, o *owned) (bool, error) {
	err := d.snapshot(o, func(cp Checkpoint, piece Piece) error {
		_, err := retry(ctx, d, "ownership", func(ctx context.Context) (struct{}, error) {
			return struct{}{}, d.opt.Checkpoints.Write(ctx, d.opt.Stream, o.partition, cp, piece)
		})
		return err
	})
	if errors.Is(err, ErrFenced) {
		return false, nil
	}
	return err == nil, err
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
			return d.checkBounds(ctx, o, bounds[o.partition])
		}
		d.metrics.errors.WithLabelValues("fetch").Inc()
		return nil
	}
	o.end = f.HighWatermark
	for i := range f.Messages {
		o.folded += int64(len(f.Messages[i].Value))
	}
	// Whole batches are answered, with records below what was asked for.
	if done, err := d.foldMessages(ctx, o, messagesFrom(f.Messages, o.offset)); done || err != nil {
		return err
	}
	o.offset = max(o.offset, f.Next)
	return nil
}

// stop halts a partition, loudly and once.
func (d *Detector) stop(o *owned, h halt) {
	o.halt = &h
	d.log.Error("keyed partition stopped", "partition", o.partition, "offset", o.offset, "reason", h.reason)
}
