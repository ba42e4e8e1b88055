package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// RefusalQuery selects sums of requests that gates refused.
type RefusalQuery struct {
	Stream string
	Rule   string
	Blocks []string     // as refused clients are told them; nil: all
	Since  traffic.Time // minutes not before it; 0: no bound
	Until  traffic.Time // minutes before it; 0: no bound
	After  *Place       // only what comes after it; nil: from the newest on
	Limit  int          // 0: no limit
}

// refusalKey orders the sums of a minute.
const refusalKey = "r.rule || '/' || r.block"

func (q *RefusalQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, nil)
	if q.Blocks != nil {
		w.Add("block = ANY (?::text[])", q.Blocks)
	}
	if q.Since != 0 {
		w.Add("minute >= ?", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("minute < ?", postgres.Timestamp(q.Until))
	}
	return w
}

// RefusedSum is the number of requests that gates refused by one block, by the minute of the requests' own time.
type RefusedSum struct {
	Stream  string          `json:"stream"`
	Rule    string          `json:"rule"`
	Block   string          `json:"block"`             // as refused clients are told it; empty: of blocks that were too many to be told apart
	Hit     string          `json:"hit,omitempty"`     // that led to it; empty: history has none
	Subject traffic.Subject `json:"subject,omitempty"` // whom the block held; empty where history has no such hit
	Minute  traffic.Time    `json:"minute"`
	Latest  traffic.Time    `json:"latest"` // time of the newest of them
	Events  int64           `json:"events"`
	Known   int64           `json:"known_good"` // of Events, those for which the deployment's known_good holds

	key string
}

// Refused returns sums of requests that gates refused, newest minute first.
func (s *Store) Refused(ctx context.Context, q RefusalQuery) ([]RefusedSum, error) {
	const doing = "reading refused requests"
	w := q.where()
	w.behind(refusalKey, q.After)
	// A block is named by the first digits of its hit. With the stream named, the primary key is a range; g comes after all hex digits.
	rows, err := s.Query(ctx, `
		SELECT r.stream, r.rule, r.block, coalesce(h.id, ''), coalesce(h.block_subject, ''), r.minute, r.latest, r.events, r.known_good, `+refusalKey+`
		FROM (SELECT * FROM refusals_v r`+w.String()+" ORDER BY minute DESC, "+refusalKey+" LIMIT NULLIF("+w.Arg(q.Limit)+`::bigint, 0)) r
		LEFT JOIN LATERAL (SELECT id, block_subject FROM `+allHits+` WHERE stream = r.stream AND id >= r.block AND id < r.block || 'g' AND r.block <> '' AND rule = r.rule
			ORDER BY id LIMIT 1) h ON true
		ORDER BY r.minute DESC, `+refusalKey, w.Args...)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r RefusedSum, err error) {
		return r, row.Scan(&r.Stream, &r.Rule, &r.Block, &r.Hit, &r.Subject, postgres.ScanTime(&r.Minute), postgres.ScanTime(&r.Latest), &r.Events, &r.Known, &r.key)
	})
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	return sums, nil
}

// Place is where the sum lies in Refused.
func (r *RefusedSum) Place() *Place { return &Place{At: r.Minute, ID: r.key} }

// CountRefused is the number of sums that q selects without its place and limit, CountCap at most.
func (s *Store) CountRefused(ctx context.Context, q RefusalQuery) (int64, error) {
	return s.count(ctx, "refusals_v", q.where(), CountCap)
}

// RefusedTotal is how much gates refused.
type RefusedTotal struct {
	Events int64 `json:"events"`     // requests
	Known  int64 `json:"known_good"` // of Events, those for which the deployment's known_good holds
	Blocks int64 `json:"blocks"`     // that refused one
	// Latest is the time of the newest request; 0: there is none.
	Latest traffic.Time `json:"latest,omitempty"`
}

// RefusedIn sums up all that q selects, without its place and limit.
func (s *Store) RefusedIn(ctx context.Context, q RefusalQuery) (sum RefusedTotal, err error) {
	w := q.where()
	err = s.QueryRow(ctx, "SELECT coalesce(sum(events), 0)::bigint, coalesce(sum(known_good), 0)::bigint, count(DISTINCT block), coalesce(max(latest), to_timestamp(0)) FROM refusals r"+w.String(),
		w.Args...).Scan(&sum.Events, &sum.Known, &sum.Blocks, postgres.ScanTime(&sum.Latest))
	if err != nil {
		return sum, s.Fail("summing up refused requests", err)
	}
	return sum, nil
}
