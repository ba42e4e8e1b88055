// Package history is what weir keeps in PostgreSQL. Its recorders are the RECORD stage, which stores hits and block decisions,
// and its queries are what analysts ask of both. Rules, streams and the partitions' snapshots are in the packages below it.
//
// Whatever comes from a client is made Printable before it is stored, so that PostgreSQL takes it; a row that it still
// refuses becomes a dead letter and never holds up its batch.
package history

import (
	"context"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/history/streams"
)

// Live is ingest.Live as rows and queries have it.
const Live = streams.Live

// Store is what one installation keeps in PostgreSQL. Its own methods are about hits, decisions and events that were not
// counted; all parts share the connections of DB. It is safe for concurrent use.
type Store struct {
	*postgres.DB
	Streams    *streams.Store
	Rules      *rulestore.Store
	Partitions *partitions.Store
	Audit      *audit.Trail
	Orders     *orders.Store
}

// Open checks the configuration and prepares connections; it makes none. WaitReady does.
func Open(ctx context.Context, c postgres.Config) (*Store, error) {
	db, err := postgres.Open(ctx, c)
	if err != nil {
		return nil, err
	}
	return &Store{
		DB: db, Streams: streams.New(db), Rules: rulestore.New(db), Partitions: partitions.New(db), Audit: audit.NewTrail(db),
		Orders: orders.New(db),
	}, nil
}
