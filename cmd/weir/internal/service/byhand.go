package service

import (
	"context"

	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/blocklist/reconcile"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/rules"
)

// ordered has what people ordered carried out at once: the rule of a new match is one that neither the stage nor gates know.
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

var (
	_ enforce.Modes   = allModes{}
	_ reconcile.Modes = allModes{}
	_ enforce.Orders  = (*orders.Store)(nil)
)
