package blocklist

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ActiveBlocks gives the decisions from which Redis can be rebuilt: every written, extended and released one whose Until
// is still ahead, in any order. More than that does no harm.
type ActiveBlocks interface {
	ActiveBlocks(ctx context.Context) ([]Decision, error)
}

// Defaults of ReconcilerOptions.
const (
	DefaultReconcileInterval = 2 * time.Second
	DefaultReconcileSweep    = time.Minute
)

// ReconcilerOptions configure a Reconciler. All but NeverBlock, Interval and Sweep are required.
type ReconcilerOptions struct {
	Store      *Store
	Modes      Modes
	Active     ActiveBlocks
	NeverBlock []netip.Prefix
	// Interval is how often modes are compared and Redis is asked whether it has forgotten; default 2 s.
	Interval time.Duration
	// Sweep is how often everything is asserted anew though nothing seems lost: a failover may lose a second of writes
	// and keep the marker. One reconciler of all does it each time. Default 1 min.
	Sweep      time.Duration
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *ReconcilerOptions) validate() error {
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
	if o.Interval < 0 || o.Sweep < 0 {
		return errors.New("reconciler: Interval and Sweep are positive durations, or 0 for their defaults")
	}
	return nil
}

// Reconciler keeps Redis as the decisions of ENFORCE and the rule store say: it publishes modes, and after a flush or a
// failover asserts modes, tombstones and blocks anew. It never reads hits. Any number may run.
type Reconciler struct {
	o       ReconcilerOptions
	never   NeverBlock
	id      string
	changed chan struct{}
	metrics *reconcilerMetrics

	published map[string]string // mode as JSON by rule, as last published
	masters   string            // run ids of the masters when they were last asked
	owed      string            // why everything is to be asserted anew, until it has been
	failing   bool
}

// NewReconciler makes a Reconciler; Run does its work.
func NewReconciler(o ReconcilerOptions) (*Reconciler, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Interval == 0 {
		o.Interval = DefaultReconcileInterval
	}
	if o.Sweep == 0 {
		o.Sweep = DefaultReconcileSweep
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
		o: o, never: NewNeverBlock(o.NeverBlock), id: hex.EncodeToString(id[:]), changed: make(chan struct{}, 1), metrics: metrics,
	}, nil
}

// ModesChanged makes Run publish the modes at once. It never waits.
func (r *Reconciler) ModesChanged() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

// Run works until ctx is done, and then returns nil. Failures are logged when they begin and end, and tried again.
func (r *Reconciler) Run(ctx context.Context) error {
	ticker := time.NewTicker(r.o.Interval)
	defer ticker.Stop()
	for {
		r.note(ctx, r.Check(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-r.changed:
		}
	}
}

func (r *Reconciler) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		r.metrics.failures.Inc()
		if !r.failing {
			r.o.Logger.WarnContext(ctx, "reconciling blocks fails; it is tried again", "error", err)
		}
	} else if r.failing {
		r.o.Logger.InfoContext(ctx, "reconciling blocks works again")
	}
	r.failing = err != nil
}

// Check does one round: publish modes that changed, find out whether Redis has forgotten, assert what it should hold.
// Run calls it; it must not be called beside Run.
func (r *Reconciler) Check(ctx context.Context) error {
	cause, err := r.cause(ctx)
	if err != nil {
		return err
	}
	if cause != "" && (r.owed == "" || r.owed == causeSweep) {
		r.owed = cause
	}
	modes, err := bounded(ctx, r.o.Modes.Modes)
	if err != nil {
		return fmt.Errorf("modes of rules: %w", err)
	}
	if r.owed != "" {
		r.published = nil // what was published may be gone with the rest
	}
	if err := r.publish(ctx, modes); err != nil {
		return err
	}
	if r.owed == "" {
		return nil
	}
	// Asked before anything is put back: a flush in the middle of this takes a marker that is there along, and the next
	// round finds it gone. Written again afterwards, it would hide that what came first is missing.
	marked, err := r.o.Store.remembers(ctx)
	if err != nil {
		return err
	}
	changes, err := r.assert(ctx, modes, r.owed)
	if err != nil {
		return fmt.Errorf("assert blocks anew (%s): %w", r.owed, err)
	}
	if !marked {
		if err := r.mark(ctx); err != nil {
			return err
		}
	}
	r.metrics.runs.WithLabelValues(r.owed).Inc()
	if r.owed != causeSweep || changes > 0 {
		r.o.Logger.InfoContext(ctx, "asserted blocks anew in Redis", "cause", r.owed, "changes", changes)
	}
	r.owed = ""
	return nil
}

// rulesPatience bounds one question to the rule store, which may take it and never answer: the reconciler must go on to
// look at Redis, and say so.
const rulesPatience = 30 * time.Second

func bounded[T any](ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, rulesPatience)
	defer cancel()
	return ask(ctx)
}

func (r *Reconciler) publish(ctx context.Context, modes []rules.ModeState) error {
	next := make(map[string]string, len(modes))
	var differ []rules.ModeState
	for _, m := range modes {
		text, err := json.Marshal(m)
		if err != nil {
			return fmt.Errorf("mode of rule %s: %w", m.Rule, err)
		}
		next[m.Rule] = string(text)
		if r.published[m.Rule] != string(text) {
			differ = append(differ, m)
		}
	}
	if err := r.o.Store.PublishModes(ctx, r.o.Clock(), differ); err != nil {
		return err
	}
	r.published = next
	return nil
}

// Causes of asserting everything anew.
const (
	causeFlush    = "flush"    // the marker is gone
	causeFailover = "failover" // the masters are not those of before
	causeSweep    = "sweep"    // it was time
)

// cause says why everything should be asserted anew, or "".
func (r *Reconciler) cause(ctx context.Context) (string, error) {
	masters, err := r.o.Store.masters(ctx)
	if err != nil {
		return "", err
	}
	failover := r.masters != "" && masters != r.masters
	known, err := r.o.Store.remembers(ctx)
	if err != nil {
		return "", err
	}
	r.masters = masters
	switch {
	case !known:
		return causeFlush, nil
	case failover:
		return causeFailover, nil
	}
	mine, err := r.o.Store.client.SetNX(ctx, r.o.Store.keys.Lease(), r.id, r.o.Sweep).Result()
	if err != nil {
		return "", fmt.Errorf("%s: %w", r.o.Store.address, err)
	}
	if mine {
		return causeSweep, nil
	}
	return "", nil
}

// remembers reports whether the marker is there.
func (s *Store) remembers(ctx context.Context) (bool, error) {
	n, err := s.client.Exists(ctx, s.keys.Epoch()).Result()
	if err != nil {
		return false, fmt.Errorf("%s: %w", s.address, err)
	}
	return n > 0, nil
}

// mark says that Redis holds what it should. It comes after everything else: a crash before it asserts once more.
func (r *Reconciler) mark(ctx context.Context) error {
	if err := r.o.Store.client.Set(ctx, r.o.Store.keys.Epoch(), r.id, 0).Err(); err != nil {
		return fmt.Errorf("%s: %w", r.o.Store.address, err)
	}
	return nil
}
