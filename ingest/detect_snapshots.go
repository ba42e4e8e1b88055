package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/detectors"
)

// snapshotRate is the most that one process writes into the checkpoint store, in bytes a second: with more state the
// interval grows.
const snapshotRate = 10 << 20

// A snapshot is encoded in slices between the folding, so that no record waits long for it.
const (
	sliceTime  = 2 * time.Millisecond // after so long a slice ends; the last step may take it a little further
	sliceBytes = 32 << 10             // of one step
)

// snapshotWriter writes checkpoints beside the folding, one at a time: a store that is slow or away costs the stream
// nothing but older snapshots. What it writes is the state at one offset, encoded by slice while later records are
// folded, put together and stored by a goroutine of its own.
//
//	offer: a partition is due, nothing of it pending ──▶ slice, slice, … ──▶ run: put together, store
type snapshotWriter struct {
	d      *Detector
	ctx    context.Context
	now    *snapshotJob // being encoded
	jobs   chan snapshotJob
	busy   atomic.Bool // a job is under way, or given
	done   chan struct{}
	fenced atomic.Int64          // partition+1 that another owner has taken
	failed atomic.Pointer[owned] // whose snapshot was not stored
}

type snapshotJob struct {
	partition int
	cp        Checkpoint // without Data until encoder has put it together
	owned     *owned
	encoder   *detectors.SnapshotEncoder
}

func startWriter(ctx context.Context, d *Detector) *snapshotWriter {
	w := &snapshotWriter{d: d, ctx: ctx, jobs: make(chan snapshotJob, 1), done: make(chan struct{})}
	go w.run()
	return w
}

func (w *snapshotWriter) run() {
	defer close(w.done)
	for job := range w.jobs {
		job.cp.Data = job.encoder.Append(nil)
		switch err := w.d.write(w.ctx, job); {
		case errors.Is(err, ErrFenced):
			w.fenced.Store(int64(job.partition) + 1)
		case err != nil:
			w.failed.Store(job.owned)
		}
		w.busy.Store(false)
	}
}

func (w *snapshotWriter) stop() {
	w.giveUp()
	close(w.jobs)
	<-w.done
	w.recall()
}

// giveUp drops the snapshot that is being encoded.
func (w *snapshotWriter) giveUp() {
	if w.now != nil {
		w.now.encoder.GiveUp()
		w.now = nil
	}
}

// offer begins a snapshot of a partition whose time has come, unless one is under way or the writer is not free. Only a
// partition with nothing pending may be taken: a snapshot may not claim a past whose hits nobody has.
func (w *snapshotWriter) offer() error {
	if p := w.fenced.Load(); p != 0 {
		w.giveUp()
		delete(w.d.memory, int(p-1))
		return fmt.Errorf("keyed partition %d: %w", p-1, ErrFenced)
	}
	if w.now != nil || w.busy.Load() {
		return nil // encoding costs the stream time: not for a writer that could not take it
	}
	w.recall()
	if o := w.longestDue(w.d.opt.Clock().Std()); o != nil {
		o.encoder = o.state.BeginSnapshot()
		w.now = &snapshotJob{partition: o.partition, cp: Checkpoint{Epoch: o.epoch, Offset: o.offset}, owned: o, encoder: o.encoder}
	}
	return nil
}

// longestDue is the partition whose snapshot has been due for longest: a store that is slow serves all of them in turn.
func (w *snapshotWriter) longestDue(now time.Time) (due *owned) {
	for _, p := range slices.Sorted(maps.Keys(w.d.memory)) {
		o := w.d.memory[p]
		if o.stored() || len(o.pending) > 0 || now.Before(o.nextSave) {
			continue
		}
		if o.nextSave.IsZero() { // spread the partitions over the interval
			o.nextSave = now.Add(w.d.opt.Checkpoint * time.Duration(o.partition%16) / 16)
			continue
		}
		if due == nil || o.nextSave.Before(due.nextSave) {
			due = o
		}
	}
	return due
}

// stored reports whether no snapshot would say more than the newest one.
func (o *owned) stored() bool { return o.offset == o.saved && !o.again }

// recall notes that a snapshot was not stored, so that the partition's next one is taken though nothing may have come since.
func (w *snapshotWriter) recall() {
	if o := w.failed.Swap(nil); o != nil {
		o.again = true
	}
}

// slice encodes a little more of the snapshot under way, and gives it to the writer when it is whole. It reports whether
// there is more to encode. Nothing may be folding meanwhile.
func (w *snapshotWriter) slice() (more bool) {
	if w.now != nil && w.now.owned.encoder != w.now.encoder {
		w.now = nil // given up for another one: half of a snapshot must not be taken for a whole one
	}
	if w.now == nil {
		return false
	}
	start := time.Now()
	done := w.now.encoder.Next(sliceBytes)
	for !done && time.Since(start) < sliceTime {
		done = w.now.encoder.Next(sliceBytes)
	}
	w.d.metrics.snapshotPause.Observe(time.Since(start).Seconds())
	if !done {
		return true
	}
	job := *w.now
	w.now = nil
	w.busy.Store(true)
	job.owned.encoder = nil
	job.owned.saved, job.owned.again = job.cp.Offset, false
	job.owned.nextSave = w.d.opt.Clock().Std().Add(w.d.interval(job.encoder.Size()))
	w.jobs <- job // never waits: there is room for the one job of a writer that is not busy
	return false
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
	for _, p := range slices.Sorted(maps.Keys(d.memory)) {
		o := d.memory[p]
		if ctx.Err() != nil {
			return
		}
		if len(o.pending) > 0 || o.stored() {
			continue
		}
		cp := Checkpoint{Epoch: o.epoch, Offset: o.offset, Data: o.snapshot()}
		switch err := d.write(ctx, snapshotJob{partition: p, cp: cp}); {
		case err == nil:
			o.saved, o.again = o.offset, false
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
