// Package detect is the stage DETECT: it owns partitions of the keyed topic, folds their records into the windows of package
// detectors, sends what comes out to the hits topic, and keeps snapshots.
package detect

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Options is what a DETECT stage needs. All ports are required.
type Options struct {
	Stream     string
	Owner      string // names this process among all; different at every start
	Address    string // where this process answers what it counts (Detector.Look), http://host:port; may be empty
	Generation int64  // of the requests topic
	Sources    int    // partitions of the requests topic
	Keyed      int    // partitions of the keyed topic
	Secret     detectors.Secret
	Budget     int64 // bytes that the windows of one keyed partition may take; default detectors.DefaultBudget
	// IdleMargin is how far the progress of an idle source partition stays behind the clock, the same in all processes of the
	// stream; default detectors.DefaultIdleMargin.
	IdleMargin time.Duration

	Log         ingest.Log // of the keyed topic
	Hits        ingest.Appender
	HitsCount   int // partitions of the hits topic
	Group       ingest.Group
	Routings    ingest.Routings
	Checkpoints ingest.Checkpoints
	Partitions  ingest.Partitions

	// Holding is told how many partitions' windows this process is to hold, before they are loaded; it may be nil.
	Holding func(partitions int)

	Clock func() traffic.Time
	// Workers, Stall, Checkpoint and Piece are left to their defaults by the program; tests and simulations set them.
	Workers    int              // partitions folded at once; default GOMAXPROCS
	Stall      time.Duration    // default detectors.DefaultStall
	Checkpoint time.Duration    // least time between two snapshots of a partition; default 5 s
	Piece      int              // bytes of a snapshot that are stored at a time, about; default 4 MiB
	Retention  ingest.Retention // of the keyed topic: what it keeps bounds the time between two snapshots
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) setDefaults() error {
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.Checkpoint <= 0 {
		o.Checkpoint = 5 * time.Second
	}
	if o.Piece <= 0 {
		o.Piece = 4 << 20
	}
	if o.Budget <= 0 {
		o.Budget = detectors.DefaultBudget
	}
	if o.IdleMargin <= 0 {
		o.IdleMargin = detectors.DefaultIdleMargin
	}
	if o.Keyed < 1 || o.Sources < 1 || o.HitsCount < 1 {
		return fmt.Errorf("detect: %d source, %d keyed and %d hits partitions; each must be at least 1", o.Sources, o.Keyed, o.HitsCount)
	}
	return nil
}

// Detector is the DETECT stage: it owns partitions of the keyed topic, folds their records into windows, sends what
// comes out to the hits topic, and keeps snapshots.
//
//	      ┌ fetch all owned partitions at once, a step ahead
//	      ▼
//	fold, a partition a worker ──▶ pending hits ──▶ append to hits, until acknowledged ──▶ take what was fetched
//	                                                      │
//	                          nothing pending, time is due ▼
//	                        encode by slices, a piece at a time ──▶ writer ──▶ checkpoint store
//
// The memory of a partition outlives a group generation: when the partition comes back under the same epoch, it is still
// right.
type Detector struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics
	tally   tally

	memory   map[int]*owned // by keyed partition; touched by one session at a time
	routings *routingShelf
	attempts atomic.Int64 // snapshots that were begun
	looks    chan *look   // what is asked about counts

	fetching, sending, waiting retry.Trouble

	ended     chan struct{}
	endedOnce sync.Once
}

// New checks the options and registers the stage's metrics.
func New(opt Options) (*Detector, error) {
	if err := opt.setDefaults(); err != nil {
		return nil, err
	}
	metrics, err := newMetrics(&opt)
	if err != nil {
		return nil, err
	}
	d := &Detector{
		opt: opt, log: opt.Logger.With("stage", ingest.StageDetect, "stream", opt.Stream), metrics: metrics,
		memory: map[int]*owned{}, ended: make(chan struct{}), looks: make(chan *look, maxLooks),
	}
	d.routings = newRoutingShelf(d)
	return d, nil
}

// Ended is closed when this process owns all keyed partitions and the watermark of each has reached the end of time,
// with every hit acknowledged: a replay is over.
func (d *Detector) Ended() <-chan struct{} { return d.ended }

// Run works until ctx is done. It returns an error only for what no retry mends.
func (d *Detector) Run(ctx context.Context) error {
	defer d.metrics.partitions.assign(nil)
	if err := d.metrics.lags.Run(ctx, ingest.StageDetect, d.opt.Group, d.session); err != nil {
		return fmt.Errorf("detect: %w", err)
	}
	return nil
}

// session is one group generation.
func (d *Detector) session(ctx context.Context, a ingest.Assignment) error {
	maps.DeleteFunc(d.memory, func(p int, _ *owned) bool { return !slices.Contains(a.Partitions, p) })
	if d.opt.Holding != nil {
		d.opt.Holding(len(a.Partitions))
	}
	d.metrics.partitions.assign(a.Partitions)
	defer d.metrics.forget(a.Partitions)
	loading, endLoading := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer endLoading()
	beside.Go(func() { d.routings.run(loading) })
	r := newReporter(d, a)
	if err := d.takeAll(ctx, a); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		r.leaving(ctx, err)
		return err
	}
	d.log.Info("keyed partitions taken", "generation", a.Generation, "partitions", len(a.Partitions))
	working, cancel := context.WithCancel(ctx)
	w := startWriter(working, d)
	err := d.work(working, a, w, r)
	cancel()
	w.stop()
	r.stop()
	d.lastCheckpoints()
	for _, o := range d.memory {
		if o.stored() { // what is not, whoever goes on from the snapshot before counts again
			o.tellCounts()
		}
	}
	d.tally.forget(a.Partitions)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		r.leaving(ctx, err)
	}
	return err
}

// maxWait is how long one fetch waits for something to happen.
const maxWait = 250 * time.Millisecond

// work fetches and folds until the generation ends. The next fetch is under way while records are folded; snapshots are
// encoded between foldings, a slice at least, and more while there is nothing to fold.
func (d *Detector) work(ctx context.Context, a ingest.Assignment, w *snapshotWriter, reports *reporter) error {
	next := newReadAhead(d.opt.Log)
	defer next.stop()
	for ctx.Err() == nil {
		if err := d.send(ctx); err != nil {
			return err
		}
		d.checkEnded(a)
		if err := w.offer(); err != nil {
			return err
		}
		reports.due(ctx)
		d.answerLooks()
		if !next.ask(ctx, d.positions()) { // no partition is this member's, or all have stopped
			if !w.slice() {
				d.awaitRouting(ctx)
			}
			continue
		}
		for w.slice() && !next.ready() {
			continue
		}
		fetched, err := next.take(ctx)
		if err != nil {
			if ctx.Err() == nil {
				d.metrics.errors.WithLabelValues(callFetch).Inc()
				d.fetching.Failed(d.log, "keyed topic cannot be read, trying again", err)
				for _, p := range d.positions() {
					d.memory[p.Partition].unread(err)
				}
				_ = retry.Sleep(ctx, maxWait) // its error is ctx's, which ends the loop
			}
			continue
		}
		d.fetching.Over(d.log, "keyed topic can be read again")
		next.ask(ctx, d.beyond(fetched))
		if err := d.foldAll(ctx, fetched); err != nil {
			return err
		}
	}
	return nil
}

// beyond returns where the partitions will stand once fetched is folded. An answer that begins beyond a partition's offset
// does not move it.
func (d *Detector) beyond(fetched []keyedFetch) []ingest.Position {
	out := d.positions()
	for i := range out {
		for _, f := range fetched {
			if f.Partition == out[i].Partition && f.Err == nil && f.asked <= out[i].Offset {
				out[i].Offset = max(out[i].Offset, f.Next)
			}
		}
	}
	return out
}

func (d *Detector) positions() []ingest.Position {
	var out []ingest.Position
	for _, p := range slices.Sorted(maps.Keys(d.memory)) {
		if o := d.memory[p]; o.halt == nil && !o.waits() {
			out = append(out, ingest.Position{Partition: p, Offset: o.offset})
		}
	}
	return out
}

// awaitRouting waits for a routing version, for as long as a fetch would.
func (d *Detector) awaitRouting(ctx context.Context) {
	timer := time.NewTimer(maxWait)
	defer timer.Stop()
	select {
	case <-d.routings.loaded:
	case <-timer.C:
	case <-ctx.Done():
	}
}

// send appends what is pending to the hits topic and waits until it is acknowledged. Nothing more is folded, and no
// snapshot is taken, before that: a snapshot's past must have happened.
func (d *Detector) send(ctx context.Context) error {
	for {
		batches, taken, err := d.nextHits()
		if err != nil || len(batches) == 0 {
			return err
		}
		for wait := retry.NewBackoff(50*time.Millisecond, 5*time.Second); ; {
			err := d.opt.Hits.Append(ctx, batches)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return nil // they stay pending, for the next generation or for whoever folds the log again
			}
			d.metrics.errors.WithLabelValues(callAppend).Inc()
			d.sending.Failed(d.log, "hits topic does not take hits, trying again", err)
			_ = wait.Wait(ctx) // its error is ctx's, which the next Append meets
		}
		d.sending.Over(d.log, "hits topic takes hits again")
		for o, n := range taken {
			o.acknowledged(n)
		}
	}
}

// maxSend bounds the hits of one append.
const maxSend = 1000

// nextHits encodes up to maxSend pending hits into one batch per hits partition.
func (d *Detector) nextHits() ([]ingest.Batch, map[*owned]int, error) {
	values := map[int][][]byte{}
	taken := map[*owned]int{}
	left := maxSend
	for _, p := range slices.Sorted(maps.Keys(d.memory)) {
		o := d.memory[p]
		n := min(left, len(o.pending))
		for i := range o.pending[:n] {
			h := &o.pending[i]
			raw, err := detectors.EncodeHit(h)
			if err != nil {
				return nil, nil, err
			}
			to := h.Partition(d.opt.HitsCount)
			values[to] = append(values[to], raw)
		}
		if n > 0 {
			taken[o] = n
			left -= n
		}
	}
	var out []ingest.Batch
	for _, p := range slices.Sorted(maps.Keys(values)) {
		out = append(out, ingest.Batch{Partition: p, Values: values[p]})
	}
	return out, taken, nil
}

// checkEnded closes Ended when every keyed partition is here and at the end of time.
func (d *Detector) checkEnded(a ingest.Assignment) {
	if len(a.Partitions) != d.opt.Keyed {
		return
	}
	for _, o := range d.memory {
		if o.halt != nil || len(o.pending) > 0 || o.state.Watermark() != traffic.EndOfTime {
			return
		}
	}
	d.endedOnce.Do(func() { close(d.ended) })
}
