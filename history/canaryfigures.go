package history

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/rules/promotion"
)

// figuresFresh is how new what RECORD has stored of a rule must be for its figures to be those of now.
const figuresFresh = 10 * time.Minute

// CanaryFigures are what a canary has done since it began, as RECORD has stored it by now. None is known where RECORD has stored nothing of the
// rule of late: it may be away, and what it has not stored may be anything. The share of traffic is that of the rule's virtual block, as in dossiers.
func (s *Store) CanaryFigures(ctx context.Context, rule string, generation int64, since, now time.Time) (promotion.Observed, error) {
	var blocks, good, released, refused, requests int64
	var fresh bool
	err := s.QueryRow(ctx, `
		WITH written AS (
			SELECT DISTINCT hit, subject FROM block_decisions_v
			WHERE stream = 'live' AND rule = $1 AND generation = $2 AND action = 'written' AND at >= $3)
		SELECT (SELECT count(*) FROM written),
			(SELECT count(*) FROM written w WHERE EXISTS (SELECT FROM hits_v h WHERE h.stream = 'live' AND h.id = w.hit AND h.known_good = 2)),
			(SELECT count(*) FROM written w WHERE EXISTS (
				SELECT FROM block_decisions_v r WHERE r.stream = 'live' AND r.action = 'released' AND r.rule = $1 AND r.hit = w.hit AND r.at >= $3)),
			(SELECT coalesce(sum(refused), 0)::bigint FROM rule_minutes WHERE stream = 'live' AND rule = $1 AND kind = 'hit' AND minute >= date_trunc('minute', $3::timestamptz)),
			(SELECT coalesce(sum(events), 0)::bigint FROM event_minutes_v WHERE stream = 'live' AND minute >= date_trunc('minute', $3::timestamptz)),
			EXISTS (SELECT FROM rule_minutes WHERE stream = 'live' AND rule = $1 AND minute >= $4::timestamptz - $5 * interval '1 second' AND recorded_at >= $4::timestamptz - $5 * interval '1 second')`,
		rule, generation, since, now, figuresFresh.Seconds()).Scan(&blocks, &good, &released, &refused, &requests, &fresh)
	if err != nil {
		return promotion.Observed{}, s.Fail(fmt.Sprintf("reading what the canary of rule %q does", rule), err)
	}
	seen := promotion.Observed{Traffic: &promotion.Part{Some: refused, All: requests}}
	if fresh || good+released > 0 { // what speaks against the canary does so however long ago it was stored
		seen.Blocks, seen.Good, seen.Released = &blocks, &good, &released
	}
	return seen, nil
}
