package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/recent"
	"github.com/weirhq/weir/rules"
)

const (
	// sliceSize is how many decisions are read, compared and put back at a time.
	sliceSize = 1000
	// deltasWorthTelling is how many changes of a sweep go out one by one. Beyond it gates are told to load everything.
	deltasWorthTelling = 1000
	// progressEvery is how often a long assertion says how far it is.
	progressEvery = 10 * time.Second
)

// assertion is one round of comparing Redis with the decisions and putting back what it lacks, slice by slice. A master
// that does not answer keeps its own blocks from being asserted, and no others.
type assertion struct {
	selection
	r          *Reconciler
	cause      string
	unreleased map[blocklist.Name]bool // of those that were released, the ones that could not be asserted: their blocks are left alone
	raised     *recent.Set             // the blocks that have been asserted, or tried

	compared, changes, missing int
	first                      error // the first thing that could not be done
	shapeless                  bool  // the set of shapes does not take anything
	said                       time.Time
}

func (r *Reconciler) newAssertion(cause string, modes []rules.ModeState) *assertion {
	return &assertion{
		selection: newSelection(modes, *r.never.Now()), r: r, cause: cause, unreleased: map[blocklist.Name]bool{},
		raised: recent.NewSet(seenBlocks), said: time.Now(),
	}
}

// run asserts tombstones before blocks, so that a released block never stands in between. Gates are told of the changes also
// when an error ends the round.
func (a *assertion) run(ctx context.Context) error {
	err := a.releases(ctx)
	if err == nil {
		err = a.blocks(ctx)
	}
	if err == nil && a.first != nil {
		err = &unassertedError{missing: a.missing, all: a.compared + a.missing, why: a.first}
	}
	// Also when nothing was missing: another round may have put it back and died before it told anybody.
	if err == nil && !tellsChanges(a.cause) {
		a.r.untold = true
	}
	return errors.Join(err, a.r.reload(ctx))
}

// reload tells gates to load everything, if there is something that they have not been told of.
func (r *Reconciler) reload(ctx context.Context) error {
	if !r.untold {
		return nil
	}
	err := r.writer.Tell(ctx, blocklist.StreamReconcile, r.o.Clock(), []blocklist.Delta{blocklist.ReloadDelta()})
	r.untold = err != nil
	return err
}

// unassertedError says how much of what Redis should hold could not be looked at or put back.
type unassertedError struct {
	missing, all int
	why          error
}

func (e *unassertedError) Error() string {
	return fmt.Sprintf("%d of %d blocks and releases could not be asserted, the others are: %v", e.missing, e.all, e.why)
}

func (e *unassertedError) Unwrap() error { return e.why }

// releases reads all releases and asserts their tombstones.
func (a *assertion) releases(ctx context.Context) error {
	now := a.r.o.Clock()
	err := eachPage(ctx, a.r.o.Active, true, func(page []blocklist.Decision) error {
		a.progress(ctx)
		a.release(page, now)
		return nil
	})
	if err != nil {
		return err
	}
	for keys := range slices.Chunk(slices.Collect(maps.Keys(a.released)), sliceSize) {
		if err := a.releaseSlice(ctx, keys); err != nil {
			return err
		}
	}
	return nil
}

// blocks asserts the blocks, page by page.
func (a *assertion) blocks(ctx context.Context) error {
	return eachPage(ctx, a.r.o.Active, false, func(page []blocklist.Decision) error {
		a.progress(ctx)
		return a.raiseSlice(ctx, a.wanted(page))
	})
}

// eachPage reads the decisions that hold, a slice at a time.
func eachPage(ctx context.Context, from ActiveBlocks, released bool, visit func(page []blocklist.Decision) error) error {
	q := blocklist.ActiveQuery{Released: released, Limit: sliceSize}
	for {
		page, err := bounded(ctx, func(ctx context.Context) ([]blocklist.Decision, error) { return from.ActiveBlocks(ctx, q) })
		if err != nil {
			return err
		}
		if err := visit(page); err != nil {
			return err
		}
		if len(page) < sliceSize {
			return nil
		}
		last := page[len(page)-1]
		q.After = &last
	}
}

func (a *assertion) releaseSlice(ctx context.Context, keys []blocklist.Name) error {
	found, err := a.look(ctx, keys, func(h blocklist.Name) { a.unreleased[h] = true })
	if err != nil {
		return err
	}
	var lacking []blocklist.Release
	now := a.r.o.Clock()
	for i, key := range keys {
		if t := a.released[key]; found[i].Err == nil && t.Until > now && lacksRelease(&found[i], &t) {
			lacking = append(lacking, blocklist.Release{Name: key, Tombstone: t, Covered: true})
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	answers, err := a.r.writer.Release(ctx, lacking)
	if err != nil {
		return a.interrupted(err)
	}
	var deltas []blocklist.Delta
	for i := range answers {
		switch answers[i].Outcome {
		case blocklist.OutcomeReleased:
			lacking[i].Tombstone.Hit = answers[i].Hit
			deltas = append(deltas, blocklist.ReleaseDelta(lacking[i].Name, &lacking[i].Tombstone))
			a.r.metrics.changes.WithLabelValues(string(blocklist.OutcomeReleased)).Inc()
		case blocklist.OutcomeUnreached:
			if err := a.unreached(ctx, lacking[i].Name); err != nil {
				return err
			}
		}
	}
	return a.tell(ctx, deltas)
}

func (a *assertion) raiseSlice(ctx context.Context, raises []blocklist.Raise) error {
	keys := make([]blocklist.Name, len(raises))
	for i := range raises {
		keys[i] = raises[i].Name
	}
	if err := a.shapes(ctx, keys); err != nil {
		return err
	}
	found, err := a.look(ctx, keys, func(blocklist.Name) {})
	if err != nil {
		return err
	}
	var lacking []blocklist.Raise
	// What came to its end before Redis had answered is no loss: put back, it would be told to every gate and counted as one.
	now := a.r.o.Clock()
	for i := range raises {
		if b := &raises[i].Block; found[i].Err == nil && b.Until > now && lacks(&found[i], b) {
			lacking = append(lacking, raises[i])
		}
	}
	if len(lacking) == 0 {
		return nil
	}
	outcomes, err := a.r.writer.Raise(ctx, lacking)
	if err != nil {
		return a.interrupted(err)
	}
	var deltas []blocklist.Delta
	for i, o := range outcomes {
		switch o {
		case blocklist.OutcomeWritten, blocklist.OutcomeExtended:
			lacking[i].Block.Extended = o == blocklist.OutcomeExtended
			deltas = append(deltas, blocklist.BlockDelta(lacking[i].Name, &lacking[i].Block))
			a.r.metrics.changes.WithLabelValues(string(o)).Inc()
		case blocklist.OutcomeUnreached:
			if err := a.unreached(ctx, lacking[i].Name); err != nil {
				return err
			}
		case blocklist.OutcomeFull:
			if err := a.undone(ctx, errors.New("at maxmemory, Redis takes no new block")); err != nil {
				return err
			}
		}
	}
	return a.tell(ctx, deltas)
}

// interrupted ends a round whose writes may be done in part: gates are owed a reload, and the next round looks again.
func (a *assertion) interrupted(err error) error {
	a.r.untold = true
	return err
}

// unreached gives h up: its master ceased to answer after h was compared, and it is not known whether h was written.
func (a *assertion) unreached(ctx context.Context, h blocklist.Name) error {
	a.unreleased[h] = true
	a.r.untold = true
	return a.undone(ctx, fmt.Errorf("%s: a master has ceased to answer", a.r.o.Store.Address()))
}

// undone counts as missing one that has been counted as compared.
func (a *assertion) undone(ctx context.Context, why error) error {
	a.compared--
	return a.failed(ctx, 1, why)
}

// shapes names the shapes of what may be about to be written. Where the set's master is away, the round goes on without.
func (a *assertion) shapes(ctx context.Context, keys []blocklist.Name) error {
	if a.shapeless {
		return nil
	}
	err := a.r.writer.AddShapes(ctx, keys)
	if err == nil {
		return nil
	}
	a.shapeless = true
	return a.failed(ctx, 0, err)
}

// look reads what stands under keys. What cannot be read is counted as missing and given to lost.
func (a *assertion) look(ctx context.Context, keys []blocklist.Name, lost func(h blocklist.Name)) ([]blocklist.Standing, error) {
	found := a.r.writer.Standing(ctx, keys)
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	read := 0
	for i := range found {
		if found[i].Err == nil {
			read++
			continue
		}
		lost(keys[i])
		if err := a.failed(ctx, 1, fmt.Errorf("%s: %w", a.r.o.Store.Address(), found[i].Err)); err != nil {
			return nil, err
		}
	}
	a.compared += read
	a.r.metrics.compared.Add(float64(read))
	return found, nil
}

// failed counts n that could not be asserted. It is an error only when the round itself is to end.
func (a *assertion) failed(ctx context.Context, n int, err error) error {
	a.missing += n
	if a.first == nil {
		a.first = err
	}
	return ctx.Err()
}

// tell makes a slice's changes known. What is not told now is owed as a reload, by this round or by one of the next.
func (a *assertion) tell(ctx context.Context, deltas []blocklist.Delta) error {
	a.changes += len(deltas)
	if len(deltas) == 0 || a.r.untold {
		return nil
	}
	if !tellsChanges(a.cause) || a.changes > deltasWorthTelling {
		a.r.untold = true
		return nil
	}
	if err := a.r.writer.Tell(ctx, blocklist.StreamReconcile, a.r.o.Clock(), deltas); err != nil {
		a.r.untold = true
		return a.failed(ctx, 0, fmt.Errorf("tell gates: %w", err))
	}
	return nil
}

func (a *assertion) progress(ctx context.Context) {
	if time.Since(a.said) < progressEvery {
		return
	}
	a.said = time.Now()
	a.r.o.Logger.InfoContext(ctx, "asserting blocks in Redis goes on", "cause", a.cause, "compared", a.compared, "changes", a.changes,
		"missing", a.missing)
}
