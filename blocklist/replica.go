package blocklist

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// DefaultReload is how often a Replica loads everything though no number was missing.
const DefaultReload = 10 * time.Minute

// ReplicaOptions configure a Replica. All but NeverBlock and Reload are required.
type ReplicaOptions struct {
	Store      *Store
	NeverBlock []netip.Prefix
	// Reload bounds how long a change that was lost between Redis and its delta stays unknown; default 10 min.
	Reload     time.Duration
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Replica is the whole blocklist in the memory of a process, for gates: a look-up does no network I/O. It fails static:
// with Redis away, known blocks hold until they expire and new ones wait.
type Replica struct {
	o       ReplicaOptions
	from    source
	never   NeverBlock
	metrics *replicaMetrics
	table   *table
	loads   *loader

	loaded  atomic.Bool
	contact atomic.Int64 // traffic.Time when the streams were last answered for
	level   atomic.Int64 // traffic.Time of which everything is known
}

// NewReplica makes an empty Replica; Run fills it and keeps it up to date.
func NewReplica(o ReplicaOptions) (*Replica, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Store", o.Store != nil}, {"Clock", o.Clock != nil}, {"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("replica: %s is missing", p.name)
		}
	}
	if o.Reload < 0 {
		return nil, fmt.Errorf("replica: Reload is %s, allowed: a positive duration, or 0 for the default, %s", o.Reload, DefaultReload)
	}
	if o.Reload == 0 {
		o.Reload = DefaultReload
	}
	r := &Replica{o: o, from: o.Store, never: NewNeverBlock(o.NeverBlock), table: newTable()}
	r.loads = newLoader(r)
	r.touch()
	r.level.Store(int64(o.Clock()))
	metrics, err := newReplicaMetrics(o.Registerer, r)
	if err != nil {
		return nil, fmt.Errorf("replica: %w", err)
	}
	r.metrics = metrics
	return r, nil
}

// Find returns the block that holds a request of id, and false when there is none. Of several, the one that lasts longest
// counts. It takes about 100 ns, allocates nothing, and may be called by any number of goroutines at any time.
//
// id is taken by value: behind an interface a pointer would put it on the heap.
func (r *Replica) Find(id traffic.Identity, method, path string, now traffic.Time) (Block, bool) {
	b, ok := r.table.find(&id, method, path, now)
	if ok && r.never.HoldsAddr(id.IP) {
		r.metrics.spared.Inc() // blocked by another field than its address, which may never be refused
		return Block{}, false
	}
	return b, ok
}

// Ready reports whether the blocklist has been loaded once, from every server that answered. Missing is what it lacks.
func (r *Replica) Ready() bool { return r.loaded.Load() }

// Missing is how many hash slots of Redis have not been read since the start, or since changes were missed: 16,384 before
// the first load, 0 when nothing can be missing. Blocks that have been written since hold all the same.
func (r *Replica) Missing() int { return r.loads.missingSlots() }

// Staleness is how long ago Redis last answered; before it has, how old the Replica is.
func (r *Replica) Staleness() time.Duration {
	return max(0, r.o.Clock().Sub(traffic.Time(r.contact.Load())))
}

// Len is how many blocks are held, those that have just expired included.
func (r *Replica) Len() int { return int(r.table.blocks.Load()) }

// Retries of Redis, and how a Run sweeps.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	sweepEvery = 100 * time.Millisecond // one shard each time: a whole round takes half a minute
)

// Run keeps the Replica up to date until ctx is done, and then returns nil, within a second. Failures are logged when
// they begin and end, and tried again for ever.
func (r *Replica) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.sweep(ctx) })
	beside.Go(func() { r.loads.run(ctx) })

	f := follower{r: r}
	failing := false
	for wait := retryFirst; ctx.Err() == nil; {
		err := f.step(ctx)
		switch {
		case err == nil:
			if failing {
				r.o.Logger.InfoContext(ctx, "blocklist follows Redis again")
			}
			failing, wait = false, retryFirst
		case ctx.Err() != nil:
		default:
			r.metrics.failures.Inc()
			if !failing {
				r.o.Logger.WarnContext(ctx, "blocklist cannot follow Redis; known blocks hold until they expire", "error", err)
			}
			failing = true
			pause(ctx, wait)
			wait = min(2*wait, retryMost)
		}
	}
	return nil
}

// touch notes that Redis answered.
func (r *Replica) touch() { r.contact.Store(int64(r.o.Clock())) }

func (r *Replica) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for i := 0; ; i = (i + 1) % tableShards {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.table.sweep(i, r.o.Clock())
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

type replicaMetrics struct {
	reloads  *prometheus.CounterVec // reason
	deltas   *prometheus.CounterVec // op
	rejected *prometheus.CounterVec // reason
	failures prometheus.Counter
	spared   prometheus.Counter
}

func newReplicaMetrics(to prometheus.Registerer, r *Replica) (*replicaMetrics, error) {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, read func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, read)
	}
	m := &replicaMetrics{
		reloads:  counter("weir_blocklist_reloads_total", "Reasons to load the whole blocklist again, as they came up.", "reason"),
		deltas:   counter("weir_blocklist_deltas_total", "Changes read from the delta streams.", "op"),
		rejected: counter("weir_blocklist_rejected_total", "Blocks in Redis that were not taken over.", "reason"),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_blocklist_failures_total", Help: "Times that Redis did not answer a replica."}),
		spared: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_blocklist_spared_total", Help: "Requests of the never-block list that a block by another field would have held."}),
	}
	return m, register(to, m.reloads, m.deltas, m.rejected, m.failures, m.spared,
		gauge("weir_blocklist_blocks", "Blocks held in memory.", func() float64 { return float64(r.Len()) }),
		gauge("weir_blocklist_staleness_seconds", "Time since Redis last answered.", func() float64 { return r.Staleness().Seconds() }),
		gauge("weir_blocklist_behind_seconds", "Age of the newest moment of which every change is known.", func() float64 { return r.Behind().Seconds() }),
		gauge("weir_blocklist_missing_slots", "Hash slots of Redis not read since the start, or since changes were missed.",
			func() float64 { return float64(r.Missing()) }),
		gauge("weir_blocklist_ready", "1 when the blocklist has been loaded.", func() float64 {
			if r.Ready() {
				return 1
			}
			return 0
		}))
}
