package history

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// OpenHits are the live episodes of a rule that go on and were over the limit at since or later, at most so many, those with the most
// events first. They have what ENFORCE needs of a hit.
func (s *Store) OpenHits(ctx context.Context, rule string, since traffic.Time, most int) ([]detectors.Hit, error) {
	rows, err := s.Query(ctx, `SELECT id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, events, peak, first, last, seen_last
		FROM hits_v WHERE stream = 'live' AND rule = $1 AND last >= $2 AND phase IN ('open', 'update') AND block_subject <> ''
		ORDER BY events DESC, id LIMIT $3`, rule, postgres.Timestamp(since), most)
	if err == nil {
		var hits []detectors.Hit
		hits, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (h detectors.Hit, err error) {
			h.Format, h.Kind = detectors.HitFormat, detectors.KindHit
			err = row.Scan(&h.ID, &h.Rule, &h.RuleVersion, &h.Lineage, &h.Phase, &h.Subject, &h.BlockSubject, &h.Grouped, &h.Limit, &h.Count, &h.Peak,
				postgres.ScanTime(&h.First), postgres.ScanTime(&h.Last), postgres.ScanTime(&h.Seen))
			return h, err
		})
		if err == nil {
			return hits, nil
		}
	}
	return nil, s.Fail(fmt.Sprintf("reading who is over the limit of rule %q", rule), err)
}
