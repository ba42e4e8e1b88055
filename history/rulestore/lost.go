package rulestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
)

// StageRoutings are the routing versions that stages route and count by: those of the store, and a mark in the place of
// one that it has lost.
type StageRoutings struct{ *Store }

// Routing is Store.Routing, but for a version that the store does not have and that is below its newest: the numbers of
// a stream ascend, and none is given twice, so that PostgreSQL has come back older than somebody who routed by it
// (docs/adr/0014). That one is the newest without its rules, and Lost.
func (s StageRoutings) Routing(ctx context.Context, stream string, number int64) (*rules.Routing, error) {
	r, err := s.Store.Routing(ctx, stream, number)
	if !errors.Is(err, postgres.ErrNotFound) {
		return r, err
	}
	newest, nerr := newestRouting(ctx, s.db, stream)
	switch {
	case nerr != nil:
		return nil, s.db.Fail(fmt.Sprintf("reading what came after routing version %d of %s", number, stream), nerr)
	case newest == nil || newest.Number <= number:
		return nil, err
	}
	lost := *newest
	lost.Number, lost.Lost, lost.Rules, lost.Allow, lost.Resets, lost.KnownGood = number, true, nil, nil, nil, ""
	return &lost, nil
}
