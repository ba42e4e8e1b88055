package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// RefusalQuery selects sums of requests that gates refused.
type RefusalQuery struct {
	Stream string
	Rule   string
	Rules  []string     // one of these; nil: all
	Blocks []string     // as refused clients are told them; nil: all
	Source *Source      // only by blocks of episodes of this source; nil: all
	Field  string       // only by blocks of episodes whose source has this field of an identity; empty: all
	State  State        // only by blocks of episodes that are in it; empty: all
	Since  traffic.Time // minutes not before it; 0: no bound
	Until  traffic.Time // minutes before it; 0: no bound
	After  *Place       // only what comes after it; nil: from the newest on
	Limit  int          // 0: no limit
}

// refusalKey orders the sums of a minute. What stands between the two is in neither: history stores what can be
// printed.
const refusalKey = "r.rule || chr(1) || r.block"

func (q *RefusalQuery) where() *where {
	w := new(where)
	q.add(w)
	return w
}

// add adds the conditions of q, without its place, to w.
func (q *RefusalQuery) add(w *where) {
	w.selectRows(q.Stream, q.Rule, nil)
	if q.Rules != nil {
		w.Add("rule = ANY (?::text[])", q.Rules)
	}
	if q.Blocks != nil {
		w.Add("block = ANY (?::text[])", q.Blocks)
	}
	if q.Since != 0 {
		w.Add("minute >= ?", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("minute < ?", postgres.Timestamp(q.Until))
	}
	if q.Source != nil || q.Field != "" || q.State != "" {
		of := HitQuery{Stream: q.Stream, Rule: q.Rule, Rules: q.Rules, Source: q.Source, Field: q.Field,
			State: q.State, Merged: true}
		behind := where{postgres.Where{Args: w.Args}}
		of.add(&behind)
		w.Args = behind.Args
		w.Conditions = append(w.Conditions, "(rule, block) IN (SELECT rule, left(id, 16) FROM "+allHits+
			behind.String()+")")
	}
}

// RefusedSum is the number of requests that gates refused by one block, by the minute of the requests' own time.
type RefusedSum struct {
	Stream string `json:"stream" mask:"name"`
	Rule   string `json:"rule" mask:"name"`
	// Block is as refused clients are told it; empty: of blocks that were too many to be told apart
	Block   string          `json:"block" mask:"-"`
	Hit     string          `json:"hit,omitempty" mask:"-"` // that led to it; empty: history has none
	Subject traffic.Subject `json:"subject,omitempty"`      // whom the block held; empty where history has no such hit
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
	rows, err := s.Query(ctx, `
		SELECT r.stream, r.rule, r.block, coalesce(h.id, ''), coalesce(h.block_subject, ''), r.minute, r.latest, r.events, r.known_good, `+refusalKey+`
		FROM (SELECT * FROM refusals_v r`+w.String()+" ORDER BY minute DESC, "+refusalKey+" LIMIT NULLIF("+w.Arg(q.Limit)+`::bigint, 0)) r
		LEFT JOIN LATERAL (`+behindBlock("id, block_subject")+`) h ON true
		ORDER BY r.minute DESC, `+refusalKey, w.Args...)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r RefusedSum, err error) {
		return r, row.Scan(&r.Stream, &r.Rule, &r.Block, &r.Hit, &r.Subject, postgres.ScanTime(&r.Minute),
			postgres.ScanTime(&r.Latest), &r.Events, &r.Known, &r.key)
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
	// Untold: what gates refuse does not come back to the log, or is not told by the stages. Then 0 requests are not
	// known to be none.
	Untold bool `json:"untold,omitempty"`
}

// RefusedBy is by what refused requests are summed up.
type RefusedBy struct {
	Rule bool
	// Source has sums by rule and source of the episode behind the block. What was refused by a block whose episode
	// history does not have, or by one of too many to be told apart, is in no sum.
	Source bool
	// Step has sums by the requests' own time, in steps of so long since 1970 (UTC), of whole minutes; 0: by no time.
	Step time.Duration
}

// RefusedPart is one of the sums of RefusedSums.
type RefusedPart struct {
	Rule   string          // by rule and source
	Source traffic.Subject // by source: as the rule counts it
	At     traffic.Time    // by time: the step's beginning
	Events int64           // requests that gates refused
	Known  int64           // of Events, those for which the deployment's known_good holds
	First  traffic.Time    // minute of the first of them
	Last   traffic.Time    // time of the newest
}

// RefusedSums is the query of the sums of q, without its place and limit, with the columns rule, subject, at, gated,
// gated_good, gated_first and gated_last: what is no part of a group is empty, and 1970. Its arguments are added to
// those of w.
func (q *RefusalQuery) RefusedSums(w *postgres.Where, by RefusedBy) string {
	selects := where{postgres.Where{Args: w.Args}}
	q.add(&selects)
	w.Args = selects.Args
	rule, subject, at, join := "''", "''", "to_timestamp(0)", ""
	if by.Rule || by.Source {
		rule = "r.rule"
	}
	if by.Source {
		subject, join = "h.subject", " JOIN LATERAL ("+behindBlock("subject")+") h ON true"
	}
	if by.Step > 0 {
		at = "date_bin(make_interval(secs => " + w.Arg(int64(by.Step/time.Second)) +
			"::bigint), minute, to_timestamp(0))"
	}
	// Each block is looked for once, however many minutes it has.
	return "SELECT " + rule + " AS rule, " + subject + ` AS subject, r.at, sum(r.events)::bigint AS gated,
			sum(r.known_good)::bigint AS gated_good, min(r.minute) AS gated_first, max(r.latest) AS gated_last
		FROM (SELECT stream, rule, block, ` + at + ` AS at, sum(events) AS events, sum(known_good) AS known_good,
				min(minute) AS minute, max(latest) AS latest
			FROM refusals` + selects.String() + ` GROUP BY 1, 2, 3, 4) r` + join + `
		GROUP BY 1, 2, 3`
}

// AnyRefused is the query whether q selects anything, without its place and limit. Its arguments are added to those of
// w.
func (q *RefusalQuery) AnyRefused(w *postgres.Where) string {
	selects := where{postgres.Where{Args: w.Args}}
	q.add(&selects)
	w.Args = selects.Args
	return "SELECT EXISTS (SELECT FROM refusals" + selects.String() + ")"
}

// behindBlock selects columns of the hit behind a block of r, which the block names by its first 16 digits: fewer name
// nobody. With the stream named, the primary key is a range; g comes after all hex digits.
func behindBlock(columns string) string {
	return "SELECT " + columns + " FROM " + allHits +
		` WHERE stream = r.stream AND id >= r.block AND id < r.block || 'g'
		AND length(r.block) = 16 AND rule = r.rule ORDER BY id LIMIT 1`
}

// ScanRefused reads a row of RefusedSums.
func ScanRefused(row pgx.CollectableRow) (p RefusedPart, err error) {
	return p, row.Scan(&p.Rule, &p.Source, postgres.ScanTime(&p.At), &p.Events, &p.Known,
		postgres.ScanTime(&p.First), postgres.ScanTime(&p.Last))
}

// RefusedBy sums up what q selects, without its place and limit, in no order.
func (s *Store) RefusedBy(ctx context.Context, q RefusalQuery, by RefusedBy) ([]RefusedPart, error) {
	const doing = "summing up refused requests"
	var w postgres.Where
	rows, err := s.Query(ctx, q.RefusedSums(&w, by), w.Args...)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	parts, err := pgx.CollectRows(rows, ScanRefused)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	return parts, nil
}

// RefusedIn sums up all that q selects, without its place and limit.
func (s *Store) RefusedIn(ctx context.Context, q RefusalQuery) (sum RefusedTotal, err error) {
	w := q.where()
	err = s.QueryRow(ctx, "SELECT coalesce(sum(events), 0)::bigint, coalesce(sum(known_good), 0)::bigint, count(DISTINCT block), coalesce(max(latest), to_timestamp(0)) FROM refusals r"+w.String(),
		w.Args...).Scan(&sum.Events, &sum.Known, &sum.Blocks, postgres.ScanTime(&sum.Latest))
	if err != nil {
		return sum, s.Fail("summing up refused requests", err)
	}
	if sum.Events == 0 {
		told, err := s.Rules.TellsRefusals(ctx)
		sum.Untold = !told
		return sum, err
	}
	return sum, nil
}
