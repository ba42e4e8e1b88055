package rulestore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Newest is the number of the newest routing version of stream; 0 when there is none yet.
func (s *Store) Newest(ctx context.Context, stream string) (int64, error) {
	var number int64
	err := s.db.QueryRow(ctx, "SELECT coalesce(max(number), 0) FROM routing_versions WHERE stream = $1", stream).Scan(&number)
	if err != nil {
		return 0, s.db.Fail("reading the newest routing version of "+stream, err)
	}
	return number, nil
}

// Routing loads one routing version; postgres.ErrNotFound is wrapped where there is none, rules.ErrRouting where this build cannot
// read it. Versions never change.
func (s *Store) Routing(ctx context.Context, stream string, number int64) (*rules.Routing, error) {
	r, err := loadRouting(ctx, s.db, "number = $2", stream, number)
	if err != nil {
		return nil, s.db.Fail(fmt.Sprintf("reading routing version %d of %s", number, stream), err)
	}
	return r, nil
}

// loadRouting loads the version that the condition selects. In the condition, $1 is the stream.
func loadRouting(ctx context.Context, q postgres.Querier, where string, args ...any) (*rules.Routing, error) {
	var document string
	err := q.QueryRow(ctx, "SELECT document FROM routing_versions WHERE stream = $1 AND "+where, args...).Scan(&document)
	if err != nil {
		return nil, postgres.NoRows(err)
	}
	return rules.DecodeRouting([]byte(document))
}

// newestRouting is nil without an error where the stream has no version yet.
func newestRouting(ctx context.Context, q postgres.Querier, stream string) (*rules.Routing, error) {
	r, err := loadRouting(ctx, q, "number = (SELECT max(number) FROM routing_versions WHERE stream = $1)", stream)
	if errors.Is(err, postgres.ErrNotFound) {
		return nil, nil
	}
	return r, err
}

// RoutingBuilder makes the next routing version from the newest one, prev, which is nil when there is none. It must not change
// prev.
type RoutingBuilder = func(prev *rules.Routing) (rules.Routing, error)

// PublishRouting makes the next routing version of stream from the newest. Stream, Number and the order of the rules are
// set here, whatever build says. Where build changes nothing, no version is stored: number is the newest one's and changed is
// false. Publishers of one stream wait for each other; running stages hear of a version through WatchRoutings. The rules of the live
// stream are those that were applied and promoted, and build must leave them as they are: ErrLiveRules.
func (s *Store) PublishRouting(ctx context.Context, stream string, build RoutingBuilder) (number int64, changed bool, err error) {
	err = s.db.Transact(ctx, "publishing a routing version of "+stream, func(tx pgx.Tx) error {
		lock := func() error { return streams.Lock(ctx, tx, stream) }
		if stream == streams.Live {
			build = keepingRules(build)
			lock = func() error { _, err := begin(ctx, tx); return err }
		}
		if err := lock(); err != nil {
			return err
		}
		number, changed, err = publish(ctx, s, tx, stream, build)
		return err
	})
	if err != nil {
		return 0, false, err
	}
	return number, changed, nil
}

// ErrLiveRules says that a routing version of the live stream was to have other rules than the one before.
var ErrLiveRules = errors.New("rules and allow lists of the live stream change by applying and promoting only, and counts are reset by weir counters reset only")

// keepingRules is build, refused where it changes the rules, the allow lists that they name, or the resets of their counts.
func keepingRules(build RoutingBuilder) RoutingBuilder {
	return func(prev *rules.Routing) (rules.Routing, error) {
		next, err := build(prev)
		if err != nil {
			return next, err
		}
		var before rules.Routing
		if prev != nil {
			before.Rules, before.Allow, before.Resets = prev.Rules, prev.Allow, prev.Resets
		}
		same, err := sameContent(before, rules.Routing{Rules: next.Rules, Allow: next.Allow, Resets: next.Resets})
		if err == nil && !same && len(before.Rules)+len(next.Rules)+len(before.Allow)+len(next.Allow)+len(before.Resets)+len(next.Resets) > 0 {
			err = ErrLiveRules
		}
		return next, err
	}
}

func publish(ctx context.Context, s *Store, tx pgx.Tx, stream string, build RoutingBuilder) (number int64,
	changed bool, err error) {
	prev, err := newestRouting(ctx, tx, stream)
	if err != nil {
		return 0, false, err
	}
	next, err := build(prev)
	if err != nil {
		return 0, false, err
	}
	next.Stream = stream
	next.Rules = slices.Clone(next.Rules)
	slices.SortStableFunc(next.Rules, func(a, b rules.Version) int { return strings.Compare(a.ID, b.ID) }) // a pending one stays after its own
	if prev != nil {
		same, err := sameContent(*prev, next)
		if err != nil {
			return 0, false, err
		}
		if same {
			return prev.Number, false, nil
		}
		number = prev.Number
	}
	if number, err = nextRouting(ctx, tx, stream, number); err != nil {
		return 0, false, err
	}
	if len(next.Resets) > 0 {
		now, err := clock(ctx, tx)
		if err != nil {
			return 0, false, err
		}
		next.KeepResets(traffic.At(now))
	}
	next.Number = number
	return number, true, insertRouting(ctx, s, tx, &next)
}

// nextRouting is the number of the routing version after newest. Those of replays have no floor: each replay is a
// stream of its own.
func nextRouting(ctx context.Context, tx pgx.Tx, stream string, newest int64) (number int64, err error) {
	if stream != streams.Live {
		return newest + 1, nil
	}
	err = tx.QueryRow(ctx, "SELECT greatest(floor, $1::bigint) + 1 FROM rule_numbers", newest).Scan(&number)
	return number, err
}

func insertRouting(ctx context.Context, s *Store, tx pgx.Tx, r *rules.Routing) error {
	// A version that ROUTE would refuse must not be stored: the stream would stand still at it.
	document, err := r.Encode()
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO routing_versions (stream, number, document) VALUES ($1, $2, $3)", r.Stream,
		r.Number, string(document))
	if err != nil {
		return err
	}
	return s.db.Notify(ctx, tx, routingTopic(), r.Stream)
}

// sameContent compares two routing versions without their numbers.
func sameContent(a, b rules.Routing) (bool, error) {
	a.Number, b.Number = 0, 0
	x, err := json.Marshal(a)
	if err != nil {
		return false, err
	}
	y, err := json.Marshal(b)
	return err == nil && bytes.Equal(x, y), err
}
