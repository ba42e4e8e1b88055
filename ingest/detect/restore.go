package detect

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// restore builds memory from the stored generations. The newest alone is loaded; a torn one is passed over for the older;
// with none, it begins before the log's first record.
func (d *Detector) restore(ctx context.Context, partition int, claim ingest.Claim) (*owned, error) {
	cfg := detectors.Config{
		Keyed: partition, Sources: d.opt.Sources, Generation: d.opt.Generation, Secret: d.opt.Secret, Stall: d.opt.Stall,
		Budget: d.opt.Budget,
	}
	for _, cp := range claim.Generations {
		state, err := detectors.RestoreFrom(cfg, cp.Size, d.pieces(ctx, partition, claim.Epoch, cp))
		if err == nil {
			d.metrics.restores.WithLabelValues("restored").Inc()
			return &owned{partition: partition, epoch: claim.Epoch, state: state, offset: cp.Offset, saved: cp.Offset, size: cp.Size}, nil
		}
		if !errors.Is(err, detectors.ErrSnapshot) {
			return nil, fmt.Errorf("keyed partition %d: %w", partition, err)
		}
		d.metrics.restores.WithLabelValues("torn").Inc()
		d.log.Error("snapshot is damaged, using the one before it", "partition", partition, "offset", cp.Offset, "error", err)
	}
	d.metrics.restores.WithLabelValues("fresh").Inc()
	return &owned{partition: partition, epoch: claim.Epoch, state: detectors.NewPartition(cfg)}, nil
}

// pieces gives a stored snapshot piece by piece. Each is asked for until it is there: however long all of them take, what
// has come is not loaded again.
func (d *Detector) pieces(ctx context.Context, partition int, epoch int64, cp ingest.Checkpoint) func() ([]byte, error) {
	number := 0
	return func() ([]byte, error) {
		piece, err := retryUntilDone(ctx, d, "load", func(ctx context.Context) ([]byte, error) {
			return d.opt.Checkpoints.Load(ctx, d.opt.Stream, partition, epoch, cp, number)
		})
		number++
		return piece, err
	}
}

// attemptPatience bounds one attempt of retryUntilDone: a store that has taken the question and gives no answer, because it is
// frozen or its machine is gone, is asked again over another connection, and the operator hears of it.
const attemptPatience = 30 * time.Second

// retryUntilDone does f until it works or ctx is done, or the store answers that the partition is another owner's or its snapshot
// damaged. It is for what nothing can be done without.
func retryUntilDone[T any](ctx context.Context, d *Detector, what string, f func(ctx context.Context) (T, error)) (T, error) {
	for wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second); ; {
		attempt, cancel := context.WithTimeout(ctx, attemptPatience)
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
