package service

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
)

// ordered has what people ordered carried out at once: the rule of a new match is one that neither the stage nor gates
// know.
func (e *enforcement) ordered() {
	e.modesChanged()
	e.carrier.Ordered()
}

// allModes are the modes of rules, and of the blocks that people order.
type allModes struct{ from *history.Store }

// Modes gives both.
func (m allModes) Modes(ctx context.Context) ([]rules.ModeState, error) {
	all, err := m.from.Rules.Modes(ctx)
	if err != nil {
		return nil, err
	}
	byHand, err := m.from.Orders.Modes(ctx)
	return append(all, byHand...), err
}

// watching is a part that hears of changes until it is stopped.
func watching(watch func(ctx context.Context, onChange func()), onChange func()) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		watch(ctx, onChange)
		return nil
	}
}

// neverWatch keeps the never-block list of ENFORCE as people have it, and tells gates.
type neverWatch struct {
	in      *Installation
	list    *blocklist.NeverList
	changed chan struct{} // holds one
}

// neverEvery is how often it looks without having been told of a change; a Redis that has forgotten is told again by
// that.
const neverEvery = 2 * time.Second

// neverTimeout bounds one look.
const neverTimeout = 5 * time.Second

// newNeverWatch reads the list, so that ENFORCE blocks nobody before it knows who is on it.
func (in *Installation) newNeverWatch(ctx context.Context) (*neverWatch, error) {
	w := &neverWatch{in: in, list: blocklist.NewNeverList(in.Config.NeverBlock, Now), changed: make(chan struct{}, 1)}
	told, err := in.lookups.Orders.NeverEntries(ctx)
	w.list.Set(told)
	return w, err
}

// tell has run look at once. It never waits.
func (w *neverWatch) tell() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// run reads and publishes until ctx is done. What fails is logged, and tried again.
func (w *neverWatch) run(ctx context.Context) error {
	ticker := time.NewTicker(neverEvery)
	defer ticker.Stop()
	var trouble retry.Trouble
	for {
		switch err := w.look(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			trouble.Failed(w.in.Log, "entries of the never-block list are not told to gates; trying again", err)
		default:
			trouble.Over(w.in.Log, "entries of the never-block list are told to gates again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		case <-w.changed:
		}
	}
}

func (w *neverWatch) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, neverTimeout)
	defer cancel()
	told, err := w.in.lookups.Orders.NeverEntries(ctx)
	if err != nil {
		return err
	}
	w.list.Set(told)
	if _, err := w.in.Redis.SyncNever(ctx, Now(), told); err != nil {
		return fmt.Errorf("never-block list: %w", err)
	}
	return nil
}

var (
	_ enforce.Modes   = allModes{}
	_ reconcile.Modes = allModes{}
	_ enforce.Orders  = (*orders.Store)(nil)
)
