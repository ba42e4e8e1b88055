package evidence

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Grown is of how many sources over the limit of a version more was told between two times, and how many events that
// were. Both are of the points of their episodes, and 0 where the time is older than those are kept.
func (s *Store) Grown(ctx context.Context, rule string, version int, since, until traffic.Time) (sources, events int64,
	err error) {
	r, err := s.rules.Find(ctx, rule)
	if err != nil {
		return 0, 0, err
	}
	a, err := choose(&r, &Question{Rule: rule, Version: version, Since: since, Until: until})
	if err != nil {
		return 0, 0, fmt.Errorf("rule %s: %w", rule, err)
	}
	view, kind := "hits_all", ""
	if a.told() != detectors.KindHit {
		view, kind = "hits_beside_all", " AND h.kind = 'candidate'"
	}
	// Each row of an episode that leads to several blocks has all of its events.
	const day = 24 * time.Hour
	err = s.db.QueryRow(ctx, `SELECT count(DISTINCT subject), coalesce(sum(more), 0)::bigint FROM (
		SELECT h.subject, h.first, max(p.now - p.before) AS more
		FROM (SELECT id, max(events) AS now, coalesce(max(events) FILTER (WHERE minute < $4), 0) AS before
			FROM hit_points
			WHERE rule = $2 AND minute < $5 AND id IN (SELECT id FROM hit_points WHERE rule = $2 AND minute >= $4
				AND minute < $5) GROUP BY id) p
		JOIN `+view+` h USING (id)
		WHERE h.stream = $1 AND h.lineage = $3 AND p.now > p.before AND h.day BETWEEN $6::date AND $7::date`+kind+`
		GROUP BY h.subject, h.first) e`,
		a.stream, rule, a.version.Lineage, postgres.Timestamp(since), postgres.Timestamp(until),
		since.Add(-2*day).Std(), until.Add(day).Std()).Scan(&sources, &events)
	if err != nil {
		return 0, 0, s.db.Fail("reading what has come since", err)
	}
	return sources, events, nil
}
