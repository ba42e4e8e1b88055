package detect

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// owned is one keyed partition as this process remembers it. Its fields belong to the goroutine of the session; while foldAll
// runs, to the one worker that folds this partition.
type owned struct {
	d         *Detector
	partition int
	epoch     int64

	// What folding reads and moves (fold.go).
	state    *detectors.Partition
	offset   int64                     // the next keyed offset to fold
	end      int64                     // end of the log when last seen
	since    traffic.Time              // nothing from offset on was appended before this, as far as is known
	lag      *ingest.Lag               // shows the two
	pending  []detectors.Hit           // caused by records below offset, not yet acknowledged by the hits topic
	readable ingest.Readable           // whether the log can be read at offset
	accepted map[gap]ingest.Acceptance // what operators let pass; from the reports
	halt     *halt                     // why it does not go on, set by folding; an acceptance clears it (reporter.resume)
	wants    int64                     // the routing version that the next record needs and that is not loaded; 0: none
	checked  time.Time                 // when the log's bounds were last asked for, since a fetch fell outside
	records  []detectors.Record        // memory of foldMessages
	folded   int64                     // bytes of records, in all
	began    traffic.Time              // when the first record was appended that was folded; 0: none

	// What snapshotWriter keeps of it (snapshots.go).
	saved    int64                      // offset of the newest snapshot given to the writer
	savedAt  int64                      // what folded was at saved
	size     int64                      // bytes of the newest snapshot
	again    bool                       // the store did not take the newest snapshot
	encoder  *detectors.SnapshotEncoder // the last one that was begun by slices; nil once another snapshot was begun
	nextSave time.Time
	soonest  time.Time // before nextSave, for a partition whose log runs away

	// What metrics were told (told.go).
	asked    bool  // the commits were asked how far, or there is nothing to ask: what is in memory was counted here
	told     int64 // keyed offset below which records were counted, by this process or one before it
	scraped  int64 // what told was when whoever scrapes had time to read it since
	marked   int64 // what told was at markedAt
	markedAt time.Time
	counted  detectors.Counts // of what was folded, as much as the counters have, here or there
	repeated int              // of pending, the first ones: their records were counted before

	// What observe has seen (report.go).
	lastCounts detectors.Counts
	blindSince time.Time // since when the fence has dropped every event record
	blind      bool
}

// halt says why a partition does not go on.
type halt struct {
	reason string
	gap    *gap // what an operator may accept; nil: nothing
}

// gap names what is missing, as reports and acceptances do: see PartitionStatus.
type gap struct {
	source int
	offset int64
}

// takeAll claims the partitions of a generation. While a store is away it waits, since without a claim nobody may fold. It
// asks for the logs' bounds after the claims: until then the previous owner may still write snapshots, and against bounds
// that are older than a snapshot the log would look cut.
func (d *Detector) takeAll(ctx context.Context, a ingest.Assignment) error {
	accepted, err := retryUntilDone(ctx, d, callAcceptances, func(ctx context.Context) ([]ingest.Acceptance, error) {
		return d.opt.Partitions.Accepted(ctx, d.opt.Stream)
	})
	if err != nil {
		return err
	}
	taken, err := d.rememberAll(ctx, a.Partitions)
	if err != nil {
		return err
	}
	var restored []int // what is warm knows what was counted, and what is fresh begins anew
	for _, o := range taken {
		if !o.asked && o.size > 0 {
			restored = append(restored, o.partition)
		}
	}
	var before map[int]int64 // up to where each of them was counted
	var beside sync.WaitGroup
	beside.Go(func() { before = d.toldBefore(ctx, a.Commits, restored) })
	bounds, _ := ingest.BoundsOfEach(ctx, d.opt.Log, a.Partitions)
	beside.Wait()
	asked := ctx.Err() == nil // else the generation has ended meanwhile, and the next one asks again
	for _, o := range taken {
		o.asked = o.asked || asked
		o.halt, o.wants, o.readable = nil, 0, ingest.Readable{} // whatever it was is found again
		o.since, o.lag = d.opt.Clock(), d.metrics.lags.Of(ingest.StageDetect, o.partition)
		o.accept(accepted)
		d.memory[o.partition] = o
		b, known := bounds[o.partition]
		if at, counted := before[o.partition]; counted && (!known || at <= b.End) { // else it is of a log before this one
			o.told, o.scraped, o.marked = at, at, at
		}
		if !known {
			continue // its leader is away: the first fetch that it answers says whether it stands outside its log
		}
		if err := o.checkBounds(ctx, b); err != nil {
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
			claim, err := d.take(ctx, p)
			if err == nil {
				taken[i], err = d.remember(ctx, p, claim)
			}
			errs[i] = err
		})
	}
	wg.Wait()
	return taken, errors.Join(errs...)
}

// take takes a partition, under the epoch of what is remembered of it.
func (d *Detector) take(ctx context.Context, partition int) (ingest.Claim, error) {
	held := int64(0)
	if o := d.memory[partition]; o != nil {
		held = o.epoch
	}
	return retryUntilDone(ctx, d, callTake, func(ctx context.Context) (ingest.Claim, error) {
		return d.opt.Checkpoints.Take(ctx, d.opt.Stream, partition, d.opt.Owner, held)
	})
}

// remember returns the state of a claimed partition: the one in memory if it is still right, else the newest whole snapshot.
func (d *Detector) remember(ctx context.Context, partition int, claim ingest.Claim) (*owned, error) {
	if o := d.memory[partition]; claim.Kept && o != nil {
		d.metrics.restores.WithLabelValues(restoreWarm).Inc()
		return o, nil
	}
	return d.restore(ctx, partition, claim)
}

// forget drops what is remembered of a partition that another process has taken.
func (d *Detector) forget(partition int) { delete(d.memory, partition) }

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
func (o *owned) checkBounds(ctx context.Context, b ingest.Bounds) error {
	o.end = b.End
	if a, ok := o.accepted[gap{ingest.KeyedAnew, o.offset}]; ok && len(o.pending) == 0 {
		o.beginAnew(b.Start, a)
		return nil
	}
	if b.Start <= o.offset && o.offset <= b.End || len(o.pending) > 0 {
		return nil // with hits not yet sent, no snapshot may be written: the next fetch says the same again
	}
	switch err := o.stillMine(ctx); {
	case errors.Is(err, ingest.ErrFenced):
		return fmt.Errorf("keyed partition %d: %w", o.partition, err)
	case err != nil:
		o.unread(fmt.Errorf("offset %d is outside the log, and whose the partition is cannot be asked: %w", o.offset, err))
	case o.offset > b.End:
		o.stop(halt{reason: fmt.Sprintf("the log ends at %d, up to offset %d it was read: the keyed topic was made "+
			"anew, or lost its end: restore it, or have the partition go on at the start of the log", b.End, o.offset),
			gap: &gap{ingest.KeyedAnew, o.offset}})
	default:
		o.d.log.Error("keyed records were deleted before they were read", "partition", o.partition, "from", o.offset, "to", b.Start)
		o.pending = append(o.pending, o.state.Rebase(detectors.Unfolded{
			From: o.offset, To: b.Start, Why: "were deleted before they were read"}))
		o.offset = b.Start
	}
	return nil
}

// beginAnew goes on at the start of a log that was made anew, as an operator has accepted. The acceptance holds for
// this stop: the log may have grown beyond where the partition stood. A snapshot is due at once, so that no successor
// stands there again.
func (o *owned) beginAnew(start int64, a ingest.Acceptance) {
	o.d.log.Warn("gap accepted, keyed partition goes on at the start of its log", "partition", o.partition,
		"from", o.offset, "to", start, "by", a.By, "reason", a.Reason)
	delete(o.accepted, gap{ingest.KeyedAnew, o.offset})
	o.pending = append(o.pending, o.state.Rebase(detectors.Unfolded{From: o.offset, Anew: true,
		Why: "are of a log that was made anew, or lost its end: what was not read of them is not counted"}))
	o.offset, o.nextSave = start, o.d.opt.Clock().Std()
	o.told, o.scraped, o.marked = min(o.told, start), min(o.scraped, start), min(o.marked, start)
}

// stillMine asks the store whether o's epoch stands, by writing a snapshot under it; ErrFenced says that it does not. To
// take the partition would not do: it would be taken away from whoever has it. Each piece is tried once: a store that is
// away is asked when the log's bounds are looked at again.
func (o *owned) stillMine(ctx context.Context) error {
	return o.snapshot(func(cp ingest.Checkpoint, piece ingest.Piece) error {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		err := o.d.opt.Checkpoints.Write(ctx, o.d.opt.Stream, o.partition, cp, piece)
		if err != nil && !errors.Is(err, ingest.ErrFenced) {
			o.d.metrics.errors.WithLabelValues(callOwnership).Inc()
		}
		return err
	})
}

// stop halts a partition, loudly and once.
func (o *owned) stop(h halt) {
	o.halt = &h
	o.d.log.Error("keyed partition stopped", "partition", o.partition, "offset", o.offset, "reason", h.reason)
}

// restore builds memory from the stored generations. The newest alone is loaded; a torn one is passed over for the older;
// with none, it begins before the log's first record.
func (d *Detector) restore(ctx context.Context, partition int, claim ingest.Claim) (*owned, error) {
	cfg := detectors.Config{
		Keyed: partition, Sources: d.opt.Sources, Generation: d.opt.Generation, Secret: d.opt.Secret, Stall: d.opt.Stall,
		IdleMargin: d.opt.IdleMargin, Budget: d.opt.Budget,
	}
	for _, cp := range claim.Generations {
		state, err := detectors.RestoreFrom(cfg, cp.Size, d.pieces(ctx, partition, claim.Epoch, cp))
		if err == nil {
			d.metrics.restores.WithLabelValues(restoreRestored).Inc()
			d.metrics.partitions.took(partition, storedSnapshot{cp.Offset, cp.Written})
			return &owned{d: d, partition: partition, epoch: claim.Epoch, state: state, offset: cp.Offset, saved: cp.Offset, size: cp.Size}, nil
		}
		if !errors.Is(err, detectors.ErrSnapshot) {
			return nil, fmt.Errorf("keyed partition %d: %w", partition, err)
		}
		d.metrics.restores.WithLabelValues(restoreTorn).Inc()
		d.log.Error("snapshot is damaged, using the one before it", "partition", partition, "offset", cp.Offset, "error", err)
	}
	d.metrics.restores.WithLabelValues(restoreFresh).Inc()
	d.metrics.partitions.took(partition, storedSnapshot{})
	return &owned{d: d, partition: partition, epoch: claim.Epoch, state: detectors.NewPartition(cfg)}, nil
}

// pieces gives a stored snapshot piece by piece. Each is asked for until it is there: however long all of them take, what
// has come is not loaded again.
func (d *Detector) pieces(ctx context.Context, partition int, epoch int64, cp ingest.Checkpoint) func() ([]byte, error) {
	number := 0
	return func() ([]byte, error) {
		piece, err := retryUntilDone(ctx, d, callLoad, func(ctx context.Context) ([]byte, error) {
			return d.opt.Checkpoints.Load(ctx, d.opt.Stream, partition, epoch, cp, number)
		})
		number++
		return piece, err
	}
}

// attemptTimeout bounds one attempt of retryUntilDone: a store that has taken the question and gives no answer, because it is
// frozen or its machine is gone, is asked again over another connection, and the operator hears of it.
const attemptTimeout = 30 * time.Second

// retryUntilDone repeats f until it works, ctx is done, or the store answers that the partition is another owner's or its
// snapshot damaged. It is for calls without which the stage cannot go on.
func retryUntilDone[T any](ctx context.Context, d *Detector, what string, f func(ctx context.Context) (T, error)) (T, error) {
	for wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second); ; {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		v, err := f(attempt)
		cancel()
		if err == nil || errors.Is(err, ingest.ErrFenced) || errors.Is(err, detectors.ErrSnapshot) {
			d.waiting.Over(d.log, "DETECT goes on")
			return v, err
		}
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		d.metrics.errors.WithLabelValues(what).Inc()
		d.waiting.Failed(d.log, "DETECT waits, keyed partitions are not read", err, "for", what)
		if err := wait.Wait(ctx); err != nil {
			return v, err
		}
	}
}
