package detect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
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
	readable  ingest.Readable           // whether the log can be read at offset
	accepted  map[gap]ingest.Acceptance // what operators let pass
	wants     int64                     // the routing version that the next record needs and that is not loaded; 0: none
	checked   time.Time                 // when the log's bounds were last asked for, since a fetch fell outside

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
	reason string
	gap    *gap // what an operator may accept; nil: nothing
}

// gap names what is missing, as reports and acceptances do: see PartitionState.
type gap struct {
	source int
	offset int64
}

// takeAll claims the partitions of a generation. It waits as long as a store is away, since without a claim nobody may
// fold. The logs' bounds are asked for after the claims: until then the owner before may still write snapshots, and one
// that stands beyond bounds which are older looks like a log that was cut.
func (d *Detector) takeAll(ctx context.Context, partitions []int) error {
	accepted, err := retryUntilDone(ctx, d, "acceptances", func(ctx context.Context) ([]ingest.Acceptance, error) {
		return d.opt.Partitions.Accepted(ctx, d.opt.Stream)
	})
	if err != nil {
		return err
	}
	taken, err := d.rememberAll(ctx, partitions)
	if err != nil {
		return err
	}
	bounds, _ := ingest.BoundsOfEach(ctx, d.opt.Log, partitions)
	for _, o := range taken {
		o.halt, o.wants, o.readable = nil, 0, ingest.Readable{} // whatever it was is found again
		o.accept(accepted)
		d.memory[o.partition] = o
		b, known := bounds[o.partition]
		if !known {
			continue // its leader is away: the first fetch that it answers says whether it stands outside its log
		}
		if err := d.checkBounds(ctx, o, b); err != nil {
			return err
		}
	}
	return ctx.Err()
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
func (d *Detector) claim(ctx context.Context, partition int) (ingest.Claim, error) {
	held := int64(0)
	if o := d.memory[partition]; o != nil {
		held = o.epoch
	}
	return retryUntilDone(ctx, d, "take", func(ctx context.Context) (ingest.Claim, error) {
		return d.opt.Checkpoints.Take(ctx, d.opt.Stream, partition, d.opt.Owner, held)
	})
}

// remember gives what is known of a claimed partition: memory that is still right is kept, else the newest snapshot that
// is whole is restored.
func (d *Detector) remember(ctx context.Context, partition int, claim ingest.Claim) (*owned, error) {
	if o := d.memory[partition]; claim.Kept && o != nil {
		d.metrics.restores.WithLabelValues("warm").Inc()
		return o, nil
	}
	return d.restore(ctx, partition, claim)
}

// accept notes which gaps an operator lets pass.
func (o *owned) accept(all []ingest.Acceptance) {
	o.accepted = map[gap]ingest.Acceptance{}
	for _, a := range all {
		if a.Side != ingest.SideKeyed || a.Partition != o.partition {
			continue
		}
		o.accepted[gap{a.GapSource, a.GapOffset}] = a
		if a.GapSource != ingest.GapInKeyed {
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
func (d *Detector) checkBounds(ctx context.Context, o *owned, b ingest.Bounds) error {
	o.end = b.End
	if b.Start <= o.offset && o.offset <= b.End || len(o.pending) > 0 {
		return nil // with hits not yet sent, no snapshot may be written: the next fetch says the same again
	}
	switch err := d.stillMine(ctx, o); {
	case errors.Is(err, ingest.ErrFenced):
		return fmt.Errorf("keyed partition %d: %w", o.partition, err)
	case err != nil:
		d.unread(o, fmt.Errorf("offset %d is outside the log, and whose the partition is cannot be asked: %w", o.offset, err))
	case o.offset > b.End:
		d.stop(o, halt{reason: fmt.Sprintf("the log ends at %d, the snapshot stands at %d: the keyed topic was truncated or recreated; "+
			"restore it, or delete this partition's checkpoints to begin anew", b.End, o.offset)})
	default:
		d.log.Error("keyed records were deleted before they were read", "partition", o.partition, "from", o.offset, "to", b.Start)
		o.pending = append(o.pending, o.state.Rebase(o.offset, b.Start, "were deleted before they were read"))
		o.offset = b.Start
	}
	return nil
}

// stillMine asks the store whether o's epoch stands, by writing a snapshot under it; ErrFenced says that it does not. To
// take the partition would not do: it would be taken away from whoever has it. Each piece is tried once: a store that is
// away is asked when the log's bounds are looked at again.
func (d *Detector) stillMine(ctx context.Context, o *owned) error {
	return d.snapshot(o, func(cp ingest.Checkpoint, piece ingest.Piece) error {
		ctx, cancel := context.WithTimeout(ctx, attemptPatience)
		defer cancel()
		err := d.opt.Checkpoints.Write(ctx, d.opt.Stream, o.partition, cp, piece)
		if err != nil && !errors.Is(err, ingest.ErrFenced) {
			d.metrics.errors.WithLabelValues("ownership").Inc()
		}
		return err
	})
}

// stop halts a partition, loudly and once.
func (d *Detector) stop(o *owned, h halt) {
	o.halt = &h
	d.log.Error("keyed partition stopped", "partition", o.partition, "offset", o.offset, "reason", h.reason)
}
