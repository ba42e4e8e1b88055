// Package replica is the whole blocklist in the memory of a process, for gates: a loader reads all keys of Redis, a follower applies
// the streams of changes, and both put what they read into one table, which a look-up asks without network I/O.
package replica

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/signing"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// defaultReload is how often a Replica loads everything though no number was missing.
const defaultReload = 10 * time.Minute

// Options configure a Replica. All but NeverBlock, Never, Signed, Installation and Reload are
// required.
type Options struct {
	Store      *blocklist.Store
	NeverBlock []netip.Prefix
	// Never is instead of NeverBlock where entries are made at run time; nil: NeverBlock alone.
	Never *blocklist.NeverList
	// Signed is whose signature modes need to be acted on; nil: they need none.
	Signed *signing.Trust
	// Installation is whose Redis may be read; "": the one whose it is when the Replica first looks.
	Installation string
	// Reload bounds how long a change that was lost between Redis and its delta stays unknown; 0: 10 min. Programs leave it at 0; a
	// simulation, whose days last seconds, and tests set it.
	Reload     time.Duration
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Replica is the whole blocklist in the memory of a process, for gates: a look-up does no network I/O. It fails static:
// with Redis away, known blocks hold until they expire and new ones wait.
type Replica struct {
	o       Options
	from    source
	never   *blocklist.NeverList
	metrics *replicaMetrics
	table   *table
	loads   *loader
	vouched *vouched
	owner   *owner

	loaded  atomic.Bool
	epoch   atomic.Int32 // epochState
	written atomic.Bool  // Redis has modes or delta streams of the namespace
	contact atomic.Int64 // traffic.Time when the streams were last answered for
	level   atomic.Int64 // traffic.Time of which everything is known
}

// New makes an empty Replica; Run fills it and keeps it up to date.
func New(o Options) (*Replica, error) {
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
		return nil, fmt.Errorf("replica: Reload is %s, allowed: a positive duration, or 0 for the default, %s", o.Reload, defaultReload)
	}
	if o.Reload == 0 {
		o.Reload = defaultReload
	}
	r := &Replica{o: o, from: newRedisSource(o.Store), never: cmp.Or(o.Never, blocklist.NewNeverList(o.NeverBlock,
		o.Clock)), table: newTable(), vouched: newVouched(o.Signed),
		owner: &owner{mine: o.Installation}}
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
// id and request are taken by value: behind an interface a pointer would put them on the heap.
func (r *Replica) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	b, ok := r.table.find(&id, &request, now)
	if ok && r.never.Now().HoldsAddr(id.IP) {
		r.metrics.spared.Inc() // blocked by another field than its address, which may never be refused
		return blocklist.Block{}, false
	}
	return b, ok
}

// Ready reports whether there is anything to judge by: the blocklist has been loaded once, from every server that
// answered, and somebody has written something of the namespace. Missing is what it lacks, Unready says whether it is
// to be relied on.
func (r *Replica) Ready() bool {
	return r.loaded.Load() && (r.written.Load() || epochState(r.epoch.Load()) == epochFound)
}

// Rules are the rules that block, in any order.
func (r *Replica) Rules() []string { return r.table.blocking() }

// Missing is how many hash slots of Redis have not been read since the start, or since changes were missed: 16,384 before
// the first load, 0 when nothing can be missing. Blocks that have been written since hold all the same.
func (r *Replica) Missing() int { return r.loads.missingSlots() }

// Staleness is how long ago Redis last answered; before it has, how old the Replica is.
func (r *Replica) Staleness() time.Duration {
	return max(0, r.o.Clock().Sub(traffic.Time(r.contact.Load())))
}

// Behind is the age of the newest moment up to which the Replica certainly has every change; before Redis has answered, the age
// of the Replica. Loads do not change it.
func (r *Replica) Behind() time.Duration {
	return max(0, r.o.Clock().Sub(traffic.Time(r.level.Load())))
}

// Len is how many blocks are held, those that have just expired included.
func (r *Replica) Len() int { return int(r.table.blocks.Load()) }

// How long Run waits before it asks Redis again, and how it sweeps.
const (
	retryFirst = 50 * time.Millisecond
	retryMost  = time.Second
	sweepEvery = 100 * time.Millisecond // one shard each time: a whole round takes half a minute
)

// Run keeps the Replica up to date until ctx is done, and then returns nil, within a second. Failures are logged, and
// tried again for ever.
func (r *Replica) Run(ctx context.Context) error {
	var beside sync.WaitGroup
	defer beside.Wait()
	beside.Go(func() { r.sweep(ctx) })
	beside.Go(func() { r.loads.run(ctx) })
	beside.Go(func() { r.findEpoch(ctx) })

	f := follower{r: r}
	backoff := retry.NewBackoff(retryFirst, retryMost)
	var trouble retry.Trouble
	for ctx.Err() == nil {
		err := f.step(ctx)
		switch {
		case err == nil:
			trouble.Over(r.o.Logger, "blocklist follows Redis again")
			backoff.Reset()
		case ctx.Err() != nil:
		default:
			r.metrics.failures.Inc()
			trouble.Failed(r.o.Logger, "blocklist cannot follow Redis; known blocks hold until they expire", err)
			_ = backoff.Wait(ctx) // its error is ctx's, which ends the loop
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

// takeValue puts what a key holds into the table.
func (r *Replica) takeValue(h blocklist.Name, tombstone bool, value string) {
	if tombstone {
		tomb, err := blocklist.DecodeTombstone([]byte(value))
		r.takeTombstone(h, tomb, err)
		return
	}
	b, err := blocklist.DecodeBlock([]byte(value))
	r.takeBlock(h, &b, err)
}

func (r *Replica) takeUnreadable() { r.metrics.rejected.WithLabelValues(rejectedUnreadable).Inc() }

// takeBlock puts a block into the table unless it may not hold anybody.
func (r *Replica) takeBlock(h blocklist.Name, b *blocklist.Block, err error) {
	if err == nil && b.Rule != h.Rule {
		err = fmt.Errorf("block of rule %q under the key of rule %q", b.Rule, h.Rule)
	}
	p, parseErr := blocklist.ParseSubject(h.Subject)
	switch {
	case err != nil || parseErr != nil:
		r.takeUnreadable()
	case r.never.Now().HoldsParsed(&p):
		r.metrics.rejected.WithLabelValues(rejectedNeverBlock).Inc()
	default:
		r.table.put(h.Subject, &p, b)
	}
}

func (r *Replica) takeTombstone(h blocklist.Name, tomb blocklist.Tombstone, err error) {
	p, parseErr := blocklist.ParseSubject(h.Subject)
	if err != nil || parseErr != nil || tomb.Rule != h.Rule {
		r.takeUnreadable()
		return
	}
	r.table.release(h.Subject, &p, tomb)
}
