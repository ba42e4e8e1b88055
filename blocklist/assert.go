package blocklist

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

type reconcilerMetrics struct {
	runs     *prometheus.CounterVec // cause
	changes  *prometheus.CounterVec // outcome
	failures prometheus.Counter
}

func newReconcilerMetrics(to prometheus.Registerer) (*reconcilerMetrics, error) {
	m := &reconcilerMetrics{
		runs: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reconcile_runs_total", Help: "Times that all blocks were asserted anew in Redis."}, []string{"cause"}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_reconcile_changes_total", Help: "Blocks and tombstones that Redis had lost, by what was done."}, []string{"outcome"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_reconcile_failures_total", Help: "Rounds of the reconciler that failed."}),
	}
	return m, register(to, m.runs, m.changes, m.failures)
}

// deltasWorthTelling is how many changes go out one by one. Beyond it gates are told to load everything instead.
const deltasWorthTelling = 1000

// assert puts back into Redis what decisions say and returns how much was missing. Tombstones go first, so that a block
// which was released never stands in between.
func (r *Reconciler) assert(ctx context.Context, modes []rules.ModeState, cause string) (int, error) {
	decisions, err := bounded(ctx, r.o.Active.ActiveBlocks)
	if err != nil {
		return 0, err
	}
	releases, raises := r.wanted(decisions, modes)
	keys := make([]held, len(raises))
	for i := range raises {
		keys[i] = raises[i].held
	}
	if err := r.o.Store.addShapes(ctx, keys); err != nil {
		return 0, err
	}
	var deltas []delta
	answers, err := r.o.Store.releaseAll(ctx, releases)
	if err != nil {
		return 0, err
	}
	for i := range answers {
		if answers[i].outcome == outcomeReleased {
			releases[i].tombstone.Hit = answers[i].hit
			deltas = append(deltas, delta{op: opRelease, held: releases[i].held, value: encode(&releases[i].tombstone)})
			r.metrics.changes.WithLabelValues(string(outcomeReleased)).Inc()
		}
	}
	outcomes, err := r.o.Store.raiseAll(ctx, raises)
	if err != nil {
		return 0, err
	}
	for i, o := range outcomes {
		if o == outcomeWritten || o == outcomeExtended {
			raises[i].block.Extended = o == outcomeExtended
			deltas = append(deltas, delta{op: opBlock, held: raises[i].held, value: encode(&raises[i].block)})
			r.metrics.changes.WithLabelValues(string(o)).Inc()
		}
	}
	if cause != causeSweep || len(deltas) > deltasWorthTelling {
		// Also when nothing was missing: another round may have put it back and died before it told anybody.
		return len(deltas), r.o.Store.appendDeltas(ctx, streamReconcile, r.o.Clock(), []delta{{op: opReload}})
	}
	return len(deltas), r.o.Store.appendDeltas(ctx, streamReconcile, r.o.Clock(), deltas)
}

// wanted reduces decisions to one tombstone and one block per key: the newest release, and of what it does not cover the
// greatest expiry under the rule's generation of now.
func (r *Reconciler) wanted(decisions []Decision, modes []rules.ModeState) ([]release, []raise) {
	now := r.o.Clock()
	generation := make(map[string]int64, len(modes))
	for _, m := range modes {
		if m.Mode == rules.ModeBlock {
			generation[m.Rule] = m.Generation
		}
	}
	tombstones, blocks := map[held]Tombstone{}, map[held]Block{}
	for i := range decisions {
		if key, t, ok := tombstoneOf(&decisions[i], now); ok && tombstones[key].Released < t.Released {
			tombstones[key] = t
		}
	}
	for i := range decisions {
		d := &decisions[i]
		key, b, ok := blockOf(d, now)
		gen, blocking := generation[d.Rule]
		if !ok || !blocking || b.Generation != gen || blocks[key].Until >= b.Until || r.never.Holds(d.Subject) {
			continue
		}
		if t, ok := tombstones[key]; !ok || !t.Covers(b.Hit, b.Since) {
			blocks[key] = b
		}
	}
	releases := make([]release, 0, len(tombstones))
	for key, t := range tombstones {
		releases = append(releases, release{held: key, tombstone: t, covered: true})
	}
	raises := make([]raise, 0, len(blocks))
	for key, b := range blocks {
		raises = append(raises, raise{held: key, block: b})
	}
	return releases, raises
}

// tombstoneOf is what a released decision left behind; false for any other decision, and for one that is over.
func tombstoneOf(d *Decision, now traffic.Time) (held, Tombstone, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	t := Tombstone{
		Format: ValueFormat, Action: actionRelease, Rule: d.Rule, Released: d.Since, Until: d.Until, Hit: d.Hit,
		By: cutText(d.By, maxByBytes),
	}
	return key, t, d.Action == ActionReleased && assertable(d, key, now)
}

// blockOf is the block that a decision wrote or extended; false for any other decision, and for one that is over.
func blockOf(d *Decision, now traffic.Time) (held, Block, bool) {
	key := held{subject: d.Subject.Stored(), rule: d.Rule}
	b := Block{
		Format: ValueFormat, Action: actionBlock, Scope: scopeMatch, Rule: d.Rule, Generation: d.Generation,
		Hit: d.Hit, Since: d.Since, Until: d.Until,
	}
	return key, b, (d.Action == ActionWritten || d.Action == ActionExtended) && assertable(d, key, now)
}

func assertable(d *Decision, key held, now traffic.Time) bool {
	return d.Until > now && storable(d.Since) && storable(d.Until) && key.check() == nil
}
