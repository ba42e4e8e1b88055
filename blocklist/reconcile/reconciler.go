// Package reconcile keeps Redis as the decisions of ENFORCE and the rule store say: a Reconciler puts back blocks and tombstones that
// Redis has lost, a Publisher publishes the modes of rules. A Reader tells who counts blocks what stands, and leaves Redis alone.
package reconcile

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Modes gives the modes of all rules, as promote, demote and disable left them.
type Modes interface {
	Modes(ctx context.Context) ([]rules.ModeState, error)
}

// ActiveBlocks is the source from which Redis is rebuilt: every written, extended and released decision whose Until is still
// ahead. Further decisions do no harm.
type ActiveBlocks interface {
	// ActiveBlocks returns the next page, in descending order of Until and then of ID. A page with fewer decisions than the
	// limit is the last.
	ActiveBlocks(ctx context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error)
}

// Interval is how often Redis is asked whether it has forgotten.
const Interval = 2 * time.Second

// sweepInterval is how often all blocks are asserted though nothing seems lost: a failover may lose a second of writes and keep
// the marker. Of all reconcilers, one does each sweep.
const sweepInterval = time.Minute

// Options configure a Reconciler. All but NeverBlock and Never are required.
type Options struct {
	Store      *blocklist.Store
	Modes      Modes
	Active     ActiveBlocks
	NeverBlock []netip.Prefix
	// Never is instead of NeverBlock where entries are made at run time; nil: NeverBlock alone.
	Never      *blocklist.NeverList
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) validate() error {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Store", o.Store != nil}, {"Modes", o.Modes != nil}, {"Active", o.Active != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return fmt.Errorf("reconciler: %s is missing", p.name)
		}
	}
	return nil
}

// Reconciler keeps Redis as the decisions of ENFORCE and the rule store say: after a flush or a failover, and every
// minute, it asserts modes, tombstones and blocks anew. It never reads hits. Any number may run. Changes of modes are the Publisher's
// work, not its own, since a sweep of many blocks takes long.
type Reconciler struct {
	o       Options
	writer  *blocklist.Writer
	never   *blocklist.NeverList
	id      string
	metrics *reconcilerMetrics
	// interval is the time between two looks, sweep that between two sweeps; tests set others.
	interval, sweep time.Duration

	masters map[string]string // run id of each master when it last answered, by address; nil: never asked
	found   situation         // what the last look found
	owed    string            // why everything is to be asserted anew, until all of it has been
	swept   traffic.Time      // when this one last swept
	untold  bool              // something was put back of which gates are told by a reload, and have not been
	trouble retry.Trouble

	// After a round in which Redis did not take everything:
	left    error         // what it left out
	backoff time.Duration // until it is tried again, if Redis stays as it was found
	retryAt traffic.Time  // when that is over
}

// situation is what a look finds Redis in.
type situation struct {
	masters   string // each with its run id, or without one where it does not answer
	returns   int    // how many had come back
	forgotten bool   // the marker is gone
}

// New makes a Reconciler; Run does its work.
func New(o Options) (*Reconciler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("reconciler: %w", err)
	}
	metrics, err := newReconcilerMetrics(o.Registerer)
	if err != nil {
		return nil, fmt.Errorf("reconciler: %w", err)
	}
	return &Reconciler{
		o: o, writer: blocklist.NewWriter(o.Store), never: cmp.Or(o.Never, blocklist.NewNeverList(o.NeverBlock,
			o.Clock)), id: hex.EncodeToString(id[:]), metrics: metrics,
		interval: Interval, sweep: sweepInterval,
	}, nil
}

// Run works until ctx is done, and then returns nil. Failures are logged, and tried again.
func (r *Reconciler) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.interval)
	defer ticker.Stop()
	for {
		r.note(ctx, r.Check(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

func (r *Reconciler) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.metrics.failures.Inc()
		r.trouble.Failed(r.o.Logger, "reconciling blocks fails; it is tried again", err)
		return
	}
	r.trouble.Over(r.o.Logger, "reconciling blocks works again")
}

// Check does one round: find out whether Redis has forgotten, assert what it should hold. Run calls it; it must not be
// called beside Run.
func (r *Reconciler) Check(ctx context.Context) error {
	servers, err := r.o.Store.Masters(ctx)
	if err != nil {
		return err
	}
	if r.meet(servers) {
		r.owe(causeFailover)
	}
	now := situation{returns: r.o.Store.Returns()}
	if now.returns != r.found.returns {
		// While it was away, ENFORCE may have told gates of releases that it has not heard of: before this look, or between two.
		r.owe(causeReturn)
	}
	if now.masters, err = listMasters(servers); err != nil {
		return fmt.Errorf("%s: %w", r.o.Store.Address(), err)
	}
	var due bool
	if now.forgotten, due, err = r.look(ctx); err != nil {
		return err
	}
	if now.forgotten {
		r.owe(causeFlush)
	}
	if due {
		r.owe(causeSweep)
	}
	// What a round left out may wait; what Redis has lost since is no part of that, and does not wait behind it.
	if now != r.found {
		r.found, r.backoff, r.retryAt = now, 0, 0
	}
	if due {
		r.retryAt = 0
	}
	if r.owed == "" {
		return nil
	}
	untold := r.reload(ctx) // of earlier rounds; what is not told here, the round tells at its end
	if r.o.Clock() < r.retryAt {
		return errors.Join(r.left, untold)
	}
	return r.settle(ctx)
}

// settle asserts what is owed.
func (r *Reconciler) settle(ctx context.Context) error {
	modes, err := bounded(ctx, r.o.Modes.Modes)
	if err != nil {
		return fmt.Errorf("modes of rules: %w", err)
	}
	// Asked before anything is put back: a flush in the middle of this takes a marker that is there along, and the next
	// round finds it gone. Written again afterwards, it would hide that what came first is missing.
	marked, markerErr := r.o.Store.HasMarker(ctx)
	_, modesErr := r.o.Store.SyncModes(ctx, r.o.Clock(), modes)
	if ahead := (*blocklist.ModesAheadError)(nil); errors.As(modesErr, &ahead) {
		modesErr = nil // blocks are asserted all the same, each under its own generation; a Publisher sees to modes
	}
	a := r.newAssertion(r.owed, modes)
	err = errors.Join(modesErr, a.run(ctx), markerErr)
	r.metrics.unasserted.Set(float64(a.missing))
	if err != nil {
		err = fmt.Errorf("assert blocks anew (%s): %w", r.owed, err)
		if errors.Join(modesErr, a.first, markerErr) != nil {
			r.postpone(err)
		}
		return err
	}
	if !marked {
		if err := r.o.Store.SetMarker(ctx, r.id); err != nil {
			r.postpone(err)
			return err
		}
	}
	r.metrics.runs.WithLabelValues(r.owed).Inc()
	if r.owed != causeSweep || a.changes > 0 {
		r.o.Logger.InfoContext(ctx, "asserted blocks anew in Redis", "cause", r.owed, "compared", a.compared, "changes", a.changes)
	}
	r.owed, r.left, r.backoff, r.retryAt = "", nil, 0, 0
	return nil
}

// postpone delays the repetition of a round in which Redis did not take everything. The round is repeated when a look finds
// another situation, and otherwise after a backoff that doubles up to the interval of sweeps.
func (r *Reconciler) postpone(left error) {
	r.left = left
	r.backoff = min(max(2*r.backoff, r.interval), r.sweep)
	r.retryAt = r.o.Clock().Add(r.backoff)
}

// rulesTimeout bounds one question to the rule store, which may take it and never answer: the reconciler must go on to
// look at Redis, and say so.
const rulesTimeout = 30 * time.Second

func bounded[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, rulesTimeout)
	defer cancel()
	return ask(ctx)
}

// Causes of asserting everything anew.
const (
	causeFlush    = "flush"    // the marker is gone
	causeFailover = "failover" // the masters are not those of before
	causeReturn   = "return"   // a master that did not answer does again, and is the one it was
	causeSweep    = "sweep"    // it was time
)

// owe keeps cause until everything has been asserted. One that gates only hear the changes of gives way.
func (r *Reconciler) owe(cause string) {
	if cause != "" && (r.owed == "" || tellsChanges(r.owed)) {
		r.owed = cause
	}
}

// tellsChanges reports whether gates are told of the single changes of a round that was made for cause: then they have missed
// nothing else. After any other cause they are told to load everything.
func tellsChanges(cause string) bool {
	return cause == causeSweep || cause == causeReturn
}

// meet remembers the masters' run ids and reports whether any differs from before. A master that does not answer counts as
// unchanged until it answers.
func (r *Reconciler) meet(servers map[string]blocklist.Master) bool {
	others := len(servers) != len(r.masters)
	now := make(map[string]string, len(servers))
	for address, m := range servers {
		before, known := r.masters[address]
		now[address] = m.Run
		if m.Err != nil {
			now[address] = before
		}
		others = others || !known || before != now[address]
	}
	first := r.masters == nil
	r.masters = now
	return others && !first
}

// listMasters names the masters, each with its run id, or without one where it does not answer. That none does is an error.
func listMasters(servers map[string]blocklist.Master) (string, error) {
	var names []string
	var why error
	silent := 0
	for address, m := range servers {
		if m.Err != nil {
			silent, why = silent+1, m.Err
			names = append(names, address)
		} else {
			names = append(names, address+" "+m.Run)
		}
	}
	if silent == len(servers) {
		return "", fmt.Errorf("no master answers: %w", why)
	}
	slices.Sort(names)
	return strings.Join(names, ","), nil
}

// look finds out whether Redis has forgotten, and takes the lease of a sweep that is due. Keys on a master that does not answer
// count as not known, and keep nothing else from being found out. The lease is also taken where the marker is gone and a round
// is owed already: a flush deletes the lease too, so a missing lease shows a second flush before the first one is repaired.
func (r *Reconciler) look(ctx context.Context) (forgotten, due bool, err error) {
	known, err := r.o.Store.HasMarker(ctx)
	forgotten = err == nil && !known
	mine, err := r.o.Store.TakeLease(ctx, r.id, r.sweep)
	if ctx.Err() != nil {
		return false, false, ctx.Err()
	}
	if now := r.o.Clock(); mine || err != nil && now.Sub(r.swept) >= r.sweep {
		// Without an answer about the lease each reconciler sweeps by its own clock: twice is better than never.
		r.swept, due = now, true
	}
	return forgotten, due, nil
}
