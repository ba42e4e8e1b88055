package history

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

const (
	// figuresFresh is how new what RECORD has stored of a rule must be for its figures to be those of now.
	figuresFresh = 10 * time.Minute
	// figuresSettle is how far behind now the minutes end of which all is told: the stages tell of a minute when it is
	// over.
	figuresSettle = 2 * time.Minute
)

// CanaryFigures are what a canary has done since it began, as RECORD has stored it by now. None is known where RECORD has stored nothing of the
// rule of late: it may be away, and what it has not stored may be anything. The share of traffic is what its own blocks
// refused, in the minutes that are told of from the second whole one on: in the first, whoever was over the limit
// already met the block all at once. It is known only where refused requests come back to the log.
//
// A block is of a known-good source where its episode is, or where one of the requests that it refused was: once
// a block holds, its episode has no more requests to be known by. Gates name a block by the first 16 digits of its hit
// (gate.BlockID).
func (s *Store) CanaryFigures(ctx context.Context, rule string, generation int64, since, now time.Time) (promotion.Observed, error) {
	var blocks, good, released int64
	var fresh bool
	var traffic promotion.Part
	const written = `SELECT DISTINCT hit, subject FROM block_decisions_v
			WHERE stream = 'live' AND rule = $1 AND generation = $2 AND action = 'written' AND at >= $3`
	from, until := since.UTC().Truncate(time.Minute).Add(2*time.Minute),
		now.UTC().Truncate(time.Minute).Add(-figuresSettle)
	err := s.Transact(ctx, fmt.Sprintf("reading what the canary of rule %q does", rule), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, `
			WITH written AS (`+written+`)
			SELECT (SELECT count(*) FROM written),
				(SELECT count(*) FROM written w WHERE EXISTS (SELECT FROM hits_v h WHERE h.stream = 'live'
					AND h.id = w.hit AND h.known_good = 2)
					OR EXISTS (SELECT FROM refusals f WHERE f.stream = 'live' AND f.rule = $1
						AND f.block = left(w.hit, 16) AND f.known_good > 0)),
				(SELECT count(*) FROM written w WHERE EXISTS (
					SELECT FROM block_decisions_v r WHERE r.stream = 'live' AND r.action = 'released' AND r.rule = $1
						AND r.hit = w.hit AND r.at >= $3)),
				EXISTS (SELECT FROM rule_minutes WHERE stream = 'live' AND rule = $1
					AND minute >= $4::timestamptz - $5 * interval '1 second'
					AND recorded_at >= $4::timestamptz - $5 * interval '1 second')`,
			rule, generation, since, now, figuresFresh.Seconds()).Scan(&blocks, &good, &released, &fresh)
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, `
			WITH written AS (`+written+`)
			SELECT (SELECT coalesce(sum(events), 0)::bigint FROM refusals
					WHERE stream = 'live' AND rule = $1 AND minute >= $4 AND minute < $5
						AND block IN (SELECT left(hit, 16) FROM written)),
				(SELECT coalesce(sum(events), 0)::bigint FROM event_minutes WHERE stream = 'live' AND minute >= $4 AND minute < $5)`,
			rule, generation, since, from, until).Scan(&traffic.Some, &traffic.All)
	})
	if err != nil {
		return promotion.Observed{}, err
	}
	var seen promotion.Observed
	if told, err := s.Rules.TellsRefusals(ctx); err != nil {
		return seen, err
	} else if told {
		seen.Traffic = &traffic
	}
	if fresh || good+released > 0 { // what speaks against the canary does so however long ago it was stored
		seen.Blocks, seen.Good, seen.Released = &blocks, &good, &released
	}
	return seen, nil
}

// FalsePositives is what speaks for it that a rule holds the wrong ones, in a period. Both parts are lower bounds: not
// everybody who is wrongly held calls, and not everybody who is good is known to be.
type FalsePositives struct {
	// Released is, of the blocks that ENFORCE wrote in the period, those that were released by now.
	Released  Share `json:"released"`
	KnownGood Share `json:"known_good"` // of the requests that gates refused, those for which known_good holds
}

// Share is a part of a whole. Where it is not known, Why says why, and Some and All are null.
type Share struct {
	Some Figure `json:"some"`
	All  Figure `json:"all"`
	Why  string `json:"why,omitempty" mask:"line"` // it is not known; empty: it is
}

// Known reports whether there is a share: of nothing there is none.
func (s Share) Known() bool { return s.Why == "" && s.All > 0 }

// Rate is the share, from 0 to 1, where it is known.
func (s Share) Rate() float64 {
	if !s.Known() {
		return 0
	}
	return float64(s.Some) / float64(s.All)
}

// String words the share: 2 of 84 (2.4 %), or why it is not known.
func (s Share) String() string {
	if !s.Known() {
		return "not known: " + s.Why
	}
	return fmt.Sprintf("%s of %s (%s)", s.Some, s.All, s.Percent())
}

// Percent words the rate, where it is known: 2.4 %.
func (s Share) Percent() string { return fmt.Sprintf("%.1f %%", 100*s.Rate()) }

// FalsePositives are those of a rule of the live stream, between two times; 0: no bound.
func (s *Store) FalsePositives(ctx context.Context, rule string, since, until traffic.Time) (found FalsePositives,
	err error) {
	doing := fmt.Sprintf("reading whom rule %q held wrongly", rule)
	refused, err := s.RefusedIn(ctx, RefusalQuery{Stream: Live, Rule: rule, Since: since, Until: until})
	if err != nil {
		return found, err
	}
	if until == 0 {
		until = traffic.EndOfTime
	}
	var judged bool
	err = s.QueryRow(ctx, `
		WITH written AS (SELECT DISTINCT hit, subject FROM block_decisions_v
			WHERE stream = 'live' AND rule = $1 AND action = 'written' AND at >= $2 AND at < $3)
		SELECT (SELECT count(*) FROM written),
			(SELECT count(*) FROM written w WHERE EXISTS (SELECT FROM block_decisions_v r
				WHERE r.stream = 'live' AND r.action = 'released' AND r.rule = $1 AND r.subject = w.subject
					AND r.hit = w.hit)),
			EXISTS (SELECT FROM event_minutes WHERE stream = 'live' AND minute >= $2 AND minute < $3 AND events - refused > unjudged)`,
		traffic.Printable(rule), postgres.Timestamp(since), postgres.Timestamp(until)).Scan(&found.Released.All,
		&found.Released.Some, &judged)
	if err != nil {
		return found, s.Fail(doing, err)
	}
	if found.Released.All == 0 {
		found.Released.Why = "no block was written"
	}
	found.KnownGood = Share{Some: Figure(refused.Known), All: Figure(refused.Events)}
	switch {
	case refused.Untold:
		found.KnownGood = Share{Some: UnknownFigure, All: UnknownFigure,
			Why: "what gates refuse does not come back to the log"}
	case refused.Events == 0:
		found.KnownGood.Why = "gates refused nothing"
	case refused.Known == 0 && !judged:
		found.KnownGood.Some, found.KnownGood.Why = UnknownFigure, "no event could be judged by known_good"
	}
	return found, nil
}
