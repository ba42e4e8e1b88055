package ingest

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/rules"
)

// snapshotRate is the most that one process writes into the checkpoint store, in bytes a second: with more state the
// interval grows.
const snapshotRate = 10 << 20

// snapshotWriter writes checkpoints beside the folding, one at a time: a store that is slow or away costs the stream
// nothing but older snapshots.
type snapshotWriter struct {
	d      *Detector
	ctx    context.Context
	jobs   chan snapshotJob
	busy   atomic.Bool // a job is under way, or given
	done   chan struct{}
	fenced atomic.Int64 // partition+1 that another owner has taken
}

type snapshotJob struct {
	partition int
	cp        Checkpoint
}

func startWriter(ctx context.Context, d *Detector) *snapshotWriter {
	w := &snapshotWriter{d: d, ctx: ctx, jobs: make(chan snapshotJob, 1), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *snapshotWriter) run() {
	defer close(w.done)
	for job := range w.jobs {
		if err := w.d.write(w.ctx, job); errors.Is(err, ErrFenced) {
			w.fenced.Store(int64(job.partition) + 1)
		}
		w.busy.Store(false)
	}
}

func (w *snapshotWriter) stop() {
	close(w.jobs)
	<-w.done
}

// offer encodes the partitions whose time has come, as long as the writer is free to take them. It must be called only
// when nothing is pending: a snapshot may not claim a past whose hits nobody has.
func (w *snapshotWriter) offer() error {
	if p := w.fenced.Load(); p != 0 {
		delete(w.d.memory, int(p-1))
		return fmt.Errorf("keyed partition %d: %w", p-1, ErrFenced)
	}
	if w.busy.Load() {
		return nil // encoding costs the stream time: not for a writer that could not take it
	}
	now := w.d.opt.Clock().Std()
	for _, o := range w.d.memory {
		if o.offset == o.saved || len(o.pending) > 0 || now.Before(o.nextSave) {
			continue
		}
		if o.nextSave.IsZero() { // spread the partitions over the interval
			o.nextSave = now.Add(w.d.opt.Checkpoint * time.Duration(o.partition%16) / 16)
			continue
		}
		job := snapshotJob{partition: o.partition, cp: Checkpoint{Epoch: o.epoch, Offset: o.offset, Data: o.state.Snapshot(nil)}}
		w.busy.Store(true)
		w.jobs <- job // never waits: there is room for the one job of a writer that is not busy
		o.saved = o.offset
		o.nextSave = now.Add(w.d.interval(len(job.cp.Data)))
		return nil
	}
	return nil
}

// interval is the time until the next snapshot of a partition whose last one was size bytes, if all are like it.
func (d *Detector) interval(size int) time.Duration {
	all := time.Duration(size) * time.Duration(len(d.memory)) * time.Second / snapshotRate
	return max(d.opt.Checkpoint, all)
}

// write stores one checkpoint. A failure is no reason to stop folding: the next one will say the same and more.
func (d *Detector) write(ctx context.Context, job snapshotJob) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	start := time.Now()
	err := d.opt.Checkpoints.Write(ctx, d.opt.Stream, job.partition, job.cp)
	switch {
	case err == nil:
		d.metrics.snapshotBytes.Add(float64(len(job.cp.Data)))
		d.metrics.snapshotSeconds.Observe(time.Since(start).Seconds())
		d.metrics.snapshotAge.WithLabelValues(label(job.partition)).SetToCurrentTime()
	case errors.Is(err, ErrFenced):
		d.metrics.errors.WithLabelValues("fenced").Inc()
		d.log.Warn("another owner has taken a keyed partition", "partition", job.partition, "epoch", job.cp.Epoch)
	case ctx.Err() == nil || errors.Is(ctx.Err(), context.DeadlineExceeded):
		d.metrics.errors.WithLabelValues("snapshot").Inc()
		d.log.Warn("snapshot not stored, the next one will be", "partition", job.partition, "error", err)
	}
	return err
}

// lastCheckpoints stores what can be stored when a session ends, so that the next owner has little to fold again. It is
// a courtesy, bounded in time: without it nothing is lost.
func (d *Detector) lastCheckpoints() {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	for p, o := range d.memory {
		if ctx.Err() != nil {
			return
		}
		if len(o.pending) > 0 || o.offset == o.saved {
			continue
		}
		cp := Checkpoint{Epoch: o.epoch, Offset: o.offset, Data: o.state.Snapshot(nil)}
		switch err := d.write(ctx, snapshotJob{partition: p, cp: cp}); {
		case err == nil:
			o.saved = o.offset
		case errors.Is(err, ErrFenced):
			delete(d.memory, p)
		default:
			return
		}
	}
}

// attemptPatience bounds one attempt of retry: a store that has taken the question and gives no answer, because it is
// frozen or its machine is gone, is asked again over another connection, and the operator hears of it.
const attemptPatience = 30 * time.Second

// retry does f until it works or ctx is done. It is for what nothing can be done without.
func retry[T any](ctx context.Context, d *Detector, what string, f func(ctx context.Context) (T, error)) (T, error) {
	for wait := newPause(100*time.Millisecond, 5*time.Second); ; {
		attempt, cancel := context.WithTimeout(ctx, attemptPatience)
		v, err := f(attempt)
		cancel()
		if err == nil {
			d.waiting.over(d.log, "DETECT goes on")
			return v, nil
		}
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		d.metrics.errors.WithLabelValues(what).Inc()
		d.waiting.trouble(d.log, "DETECT waits, keyed partitions are not read", err, "for", what)
		if err := wait.sleep(ctx); err != nil {
			return v, err
		}
	}
}

func retryRouting(ctx context.Context, d *Detector, version int64) (*rules.Routing, error) {
	return retry(ctx, d, "routing", func(ctx context.Context) (*rules.Routing, error) {
		return d.opt.Routings.Routing(ctx, d.opt.Stream, version)
	})
}
