package history

import (
	"context"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// minuteRow is a part of what a rule's block would have done in one minute. All records of one id say the same; should they
// not, the greater figures stand.
type minuteRow struct{ hit detectors.Hit }

func (r *minuteRow) merge(o *minuteRow) {
	a, b := &r.hit, &o.hit
	a.Seen = max(a.Seen, b.Seen)
	if a.Trial.Reached < b.Trial.Reached {
		seen := a.Seen
		*a = *b
		a.Seen = seen
	}
}

func (r *minuteRow) values(stream string) []any {
	h, t := &r.hit, r.hit.Trial
	return []any{stream, h.ID, traffic.Printable(h.Rule), h.RuleVersion, h.Lineage, string(t.Of), postgres.Timestamp(h.First), h.Keyed,
		h.Count, t.Reached, t.Refused, t.RefusedGood, wide(t.Limits), append([]int64{}, t.RefusedAt...), h.AtLeast, postgres.Timestamp(h.Seen)}
}

// wide are numbers as an array of PostgreSQL, never NULL.
func wide(numbers []int) []int64 {
	out := make([]int64, len(numbers))
	for i, n := range numbers {
		out[i] = int64(n)
	}
	return out
}

// minutesTable takes what a record says that adds to its row. A part is one figure of all columns, so they are taken together.
func minutesTable() *upsert {
	return &upsert{
		table: "rule_minutes",
		columns: strings.Fields(`stream id rule rule_version lineage kind minute keyed_partition
			events reached refused refused_good limits refused_at at_least seen`),
		update: `DO UPDATE SET events = excluded.events, reached = excluded.reached, refused = excluded.refused,
			refused_good = excluded.refused_good, limits = excluded.limits, refused_at = excluded.refused_at,
			at_least = h.at_least OR excluded.at_least,
			seen = greatest(h.seen, excluded.seen)
		WHERE excluded.reached > h.reached`,
	}
}

// WouldRefuse is how many requests the blocks of rules would have refused within a step of time.
type WouldRefuse struct {
	At     traffic.Time // the step's beginning
	Events int64
}

// WouldRefuse sums up, in steps of so long since 1970 (UTC), of whole minutes, what the blocks of rules would have
// refused in the minutes in which they refused nobody: those that began while the rule was neither in block nor in
// canary, as the audit trail says. What gates refused in the others is of RefusedBy. Of q, Stream, Rule, Rules, Since
// and Until count.
func (s *Store) WouldRefuse(ctx context.Context, q RefusalQuery, step time.Duration) ([]WouldRefuse, error) {
	const doing = "summing up what blocks would have refused"
	of := RefusalQuery{Stream: q.Stream, Rule: q.Rule, Rules: q.Rules, Since: q.Since, Until: q.Until}
	w := of.where()
	w.Add("kind = 'hit'")
	rows, err := s.Query(ctx, `
		WITH changes AS (
			SELECT substr(object, 6) AS rule, action, at AS since, lead(at, 1, 'infinity') OVER (PARTITION BY object
				ORDER BY seq) AS until
			FROM audit WHERE object LIKE 'rule %'
				AND action IN ('promote', 'canary', 'demote', 'fall-back', 'disable', 'enable', 'remove'))
		SELECT date_bin(make_interval(secs => `+w.Arg(int64(step/time.Second))+`::bigint), minute, to_timestamp(0)), sum(refused)::bigint
		FROM rule_minutes m`+w.String()+` AND NOT EXISTS (SELECT FROM changes c
			WHERE c.rule = m.rule AND c.action IN ('promote', 'canary') AND m.minute >= c.since AND m.minute < c.until)
		GROUP BY 1 HAVING sum(refused) > 0`, w.Args...)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r WouldRefuse, err error) {
		return r, row.Scan(postgres.ScanTime(&r.At), &r.Events)
	})
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	return all, nil
}
