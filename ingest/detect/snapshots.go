package detect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// A snapshot is encoded in slices between the folding, so that no record waits long for it.
const (
	sliceTime  = 2 * time.Millisecond // after so long a slice ends; the last step may take it a little further
	sliceBytes = 32 << 10             // of one step
)

// snapshotWriter writes checkpoints beside the folding, one at a time: a store that is slow or away costs the stream
// nothing but older snapshots. What it writes is the state at one offset, encoded by slice while later records are
// folded; each piece of it is stored by a goroutine of its own while the next one is encoded, and then let go.
//
//	offer: a partition is due, nothing of it pending ──▶ slice, slice, … ──▶ run: store a piece
//	                                                          ▲                     │
//	                                                          └──── its memory ─────┘
type snapshotWriter struct {
	d      *Detector
	ctx    context.Context
	now    *snapshotJob // being encoded
	given  *snapshotJob // the last one that was given whole
	pieces chan snapshotPiece
	spare  chan []byte // memory of pieces that were stored
	done   chan struct{}
	fenced atomic.Int64          // partition+1 that another owner has taken
	failed atomic.Pointer[owned] // whose snapshot was not stored
}

// snapshotJob is one snapshot from its beginning to its last piece.
type snapshotJob struct {
	partition int
	cp        ingest.Checkpoint
	owned     *owned
	encoder   *detectors.SnapshotEncoder
	whole     bool        // all is encoded
	next      int         // number of the next piece
	size      int64       // bytes of those before it
	folded    int64       // what owned.folded was
	began     time.Time   // when its first piece was to be stored; the writer's goroutine alone uses it
	over      atomic.Bool // nothing more of it will be stored
}

type snapshotPiece struct {
	job *snapshotJob
	ingest.Piece
}

func startWriter(ctx context.Context, d *Detector) *snapshotWriter {
	w := &snapshotWriter{
		d: d, ctx: ctx, pieces: make(chan snapshotPiece, 1), spare: make(chan []byte, 2), done: make(chan struct{}),
	}
	go w.run()
	return w
}

func (w *snapshotWriter) run() {
	defer close(w.done)
	for piece := range w.pieces {
		w.store(piece)
		select {
		case w.spare <- piece.Data:
		default:
		}
	}
}

func (w *snapshotWriter) store(piece snapshotPiece) {
	job := piece.job
	if job.over.Load() {
		return
	}
	if piece.Number == 0 {
		job.began = time.Now()
	}
	err := w.d.writeRetrying(w.ctx, job.partition, job.cp, piece.Piece)
	switch {
	case errors.Is(err, ingest.ErrFenced):
		w.fenced.Store(int64(job.partition) + 1)
	case err != nil:
		w.failed.Store(job.owned)
	case piece.Last:
		w.d.metrics.snapshotSeconds.Observe(time.Since(job.began).Seconds())
	}
	if err != nil || piece.Last {
		job.over.Store(true)
	}
}

func (w *snapshotWriter) stop() {
	w.giveUp()
	close(w.pieces)
	<-w.done
	w.recall()
}

// giveUp drops the snapshot that is being encoded.
func (w *snapshotWriter) giveUp() {
	if w.now != nil {
		w.now.over.Store(true)
		w.now.encoder.GiveUp()
		w.now = nil
	}
}

// offer begins a snapshot of a partition whose time has come, unless one is under way. Only a partition with nothing pending
// may be taken: a snapshot may not claim a past whose hits nobody has.
func (w *snapshotWriter) offer() error {
	if p := w.fenced.Load(); p != 0 {
		w.giveUp()
		w.d.forget(int(p - 1))
		return fmt.Errorf("keyed partition %d: %w", p-1, ingest.ErrFenced)
	}
	if w.now != nil || w.given != nil && !w.given.over.Load() {
		return nil // encoding costs the stream time: not for a writer that could not take it
	}
	w.recall()
	now := w.d.opt.Clock().Std()
	if o := w.longestDue(now); o != nil {
		o.encoder = o.state.BeginSnapshot()
		o.soonest, o.nextSave = now.Add(w.d.opt.Checkpoint), now.Add(w.d.interval(o.size))
		w.now = &snapshotJob{partition: o.partition, cp: o.checkpoint(), owned: o, encoder: o.encoder, folded: o.folded}
	}
	return nil
}

// checkpoint names a snapshot of the state as it is.
func (o *owned) checkpoint() ingest.Checkpoint {
	return ingest.Checkpoint{Epoch: o.epoch, Offset: o.offset, Attempt: o.d.attempts.Add(1)}
}

// longestDue is the partition whose snapshot has been due for longest: a store that is slow serves all of them in turn.
func (w *snapshotWriter) longestDue(now time.Time) (due *owned) {
	var since time.Time
	for _, p := range slices.Sorted(maps.Keys(w.d.memory)) {
		o := w.d.memory[p]
		if o.nextSave.IsZero() && !o.stored() { // spread the partitions over the interval
			o.nextSave = now.Add(w.d.opt.Checkpoint * time.Duration(o.partition%16) / 16)
			o.soonest = o.nextSave
			continue
		}
		at := o.nextSave
		if o.runsAway() {
			at = o.soonest
		}
		if o.stored() || len(o.pending) > 0 || now.Before(at) {
			continue
		}
		if due == nil || at.Before(since) {
			due, since = o, at
		}
	}
	return due
}

// stored reports whether the newest snapshot says all that another one would.
func (o *owned) stored() bool { return o.offset == o.saved && !o.again }

// recall notes that a snapshot was not stored, so that the partition's next one is taken soon, even if no record has come
// since.
func (w *snapshotWriter) recall() {
	if o := w.failed.Swap(nil); o != nil {
		o.again = true
		o.nextSave = w.d.opt.Clock().Std().Add(w.d.opt.Checkpoint)
	}
}

// slice encodes a little more of the snapshot under way, and gives the writer each piece that is whole. It reports whether
// there is more to encode now. Nothing may be folding meanwhile.
func (w *snapshotWriter) slice() (more bool) {
	if w.now != nil && (w.now.owned.encoder != w.now.encoder || w.now.over.Load()) {
		w.giveUp() // for another one, or because it cannot be stored
	}
	job := w.now
	if job == nil {
		return false
	}
	if !w.full() {
		start := time.Now()
		for !w.full() && time.Since(start) < sliceTime {
			job.whole = job.encoder.Next(sliceBytes)
		}
		w.d.metrics.snapshotPause.Observe(time.Since(start).Seconds())
	}
	if !w.full() {
		return true
	}
	if len(w.pieces) > 0 {
		return false // the writer is behind by a piece
	}
	w.give()
	return w.now != nil
}

// full reports whether there is a piece to give.
func (w *snapshotWriter) full() bool {
	return w.now.whole || w.now.encoder.Written() >= w.d.opt.Piece
}

// give hands the writer a piece. It never waits: the writer is not behind.
func (w *snapshotWriter) give() {
	job := w.now
	var into []byte
	select {
	case into = <-w.spare:
	default:
	}
	piece := ingest.Piece{Number: job.next, Last: job.whole, Data: job.encoder.Take(into)}
	job.next++
	job.size += int64(len(piece.Data))
	if job.whole {
		o := job.owned
		w.now, w.given = nil, job
		o.encoder = nil
		o.saved, o.savedAt, o.again = job.cp.Offset, job.folded, false
		o.size = job.size
		o.nextSave = w.d.opt.Clock().Std().Add(w.d.interval(o.size))
	}
	w.pieces <- snapshotPiece{job, piece}
}

// stallTimeout bounds how long a snapshot may make no progress: then it fails, and the partition's next one is due.
const stallTimeout = 2 * attemptTimeout

// writeRetrying stores a piece, trying again while a store that is away may come back. A failure is no reason to stop
// folding: the next snapshot will say the same and more.
func (d *Detector) writeRetrying(parent context.Context, partition int, cp ingest.Checkpoint, piece ingest.Piece) error {
	ctx, cancel := context.WithTimeout(parent, stallTimeout)
	defer cancel()
	for wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second); ; {
		attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
		err := d.write(attempt, partition, cp, piece)
		cancel()
		if err == nil || errors.Is(err, ingest.ErrFenced) {
			return err
		}
		if wait.Wait(ctx) != nil {
			if parent.Err() == nil {
				d.notStored(partition, err)
			}
			return err
		}
	}
}

// write stores a piece of a checkpoint.
func (d *Detector) write(ctx context.Context, partition int, cp ingest.Checkpoint, piece ingest.Piece) error {
	err := d.opt.Checkpoints.Write(ctx, d.opt.Stream, partition, cp, piece)
	switch {
	case err == nil:
		d.metrics.snapshotBytes.Add(float64(len(piece.Data)))
		if piece.Last {
			d.metrics.partitions.stored(partition, cp.Offset)
		}
	case errors.Is(err, ingest.ErrFenced):
		d.metrics.errors.WithLabelValues(callFenced).Inc()
		d.log.Warn("another owner has taken a keyed partition", "partition", partition, "epoch", cp.Epoch)
	case !errors.Is(ctx.Err(), context.Canceled):
		d.metrics.errors.WithLabelValues(callSnapshot).Inc()
	}
	return err
}

func (d *Detector) notStored(partition int, err error) {
	d.log.Warn("snapshot not stored, the next one will be", "partition", partition, "error", err)
}

// snapshot encodes the state as it is, at once, and gives it piece by piece. A snapshot that is being encoded by slices is
// given up.
func (o *owned) snapshot(give func(ingest.Checkpoint, ingest.Piece) error) error {
	o.encoder = nil
	encoder := o.state.BeginSnapshot()
	defer encoder.GiveUp()
	var spare []byte
	cp := o.checkpoint()
	for number, whole := 0, false; !whole; number++ {
		for !whole && encoder.Written() < o.d.opt.Piece {
			whole = encoder.Next(sliceBytes)
		}
		piece := ingest.Piece{Number: number, Last: whole, Data: encoder.Take(spare)}
		if err := give(cp, piece); err != nil {
			return err
		}
		spare = piece.Data
	}
	return nil
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
		err := o.snapshot(func(cp ingest.Checkpoint, piece ingest.Piece) error { return d.write(ctx, p, cp, piece) })
		switch {
		case err == nil:
			o.saved, o.savedAt, o.again = o.offset, o.folded, false
		case errors.Is(err, ingest.ErrFenced):
			d.forget(p)
		default:
			d.notStored(p, err)
			return
		}
	}
}
