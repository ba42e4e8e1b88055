package evidence

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// maxAsked bounds the sources of which it is asked whether other rules held them.
const maxAsked = 2000

// readHeld finds the sources that a block of another rule held while they were over the limit: one for the same values, or for some of them.
func (f *found) readHeld(ctx context.Context, tx pgx.Tx, a *asked) error {
	// A block ends at most so long after it was decided upon.
	var longest time.Duration
	if err := tx.QueryRow(ctx, `SELECT coalesce(max((document::json #>> '{block,ttl}')::bigint), 0) FROM rule_versions WHERE rule <> $1`, a.Rule).Scan(&longest); err != nil {
		return fmt.Errorf("how long other rules block: %w", err)
	}
	longest = min(longest, rules.MaxTTL)
	const day = 24 * time.Hour
	var places []int
	var forms []string
	var first, last []postgres.Timestamp
	var begins []time.Time // of each source the first day of which a decision may matter: the tables of those before are not looked into
	for _, i := range f.ask(maxAsked) {
		s := &f.sources[i]
		for _, form := range wider(s.subject) {
			places, forms = append(places, i), append(forms, form)
			first, last = append(first, postgres.Timestamp(s.first)), append(last, postgres.Timestamp(s.last))
			begins = append(begins, max(s.first, a.Since).Add(-longest-day).Std())
		}
	}
	if len(places) == 0 {
		return nil
	}
	held, err := collect(ctx, tx, `SELECT q.place, d.rule
		FROM unnest($1::bigint[], $2::text[], $3::timestamptz[], $4::timestamptz[], $9::date[]) AS q (place, subject, first, last, begins)
		JOIN block_decisions_v d ON d.subject = q.subject
		WHERE d.stream = $5 AND d.rule <> $6 AND d.action IN ('written', 'extended') AND d.day BETWEEN $7::date AND $8::date AND d.day >= q.begins
			AND d.since <= q.last AND d.until > q.first
		GROUP BY q.place, d.rule ORDER BY q.place, d.rule`,
		func(row pgx.CollectableRow) (h heldRow, err error) { return h, row.Scan(&h.source, &h.rule) },
		places, forms, first, last, a.stream, a.Rule, a.Since.Add(-longest-day).Std(), a.Until.Add(day).Std(), begins)
	if err != nil {
		return fmt.Errorf("blocks of other rules: %w", err)
	}
	f.held = held
	return nil
}

// wider are the subjects, as blocks are stored, whose blocks hold a source whole: its own, and those of a part of its values.
func wider(s traffic.Subject) []string {
	values, err := s.Stored().Values()
	if err != nil || len(values) == 0 || len(values) > traffic.MaxKeyFields {
		return []string{string(s.Stored())}
	}
	var out []string
	for set := 1; set < 1<<len(values); set++ {
		var some []traffic.SubjectValue
		for i, v := range values {
			if set&(1<<i) != 0 {
				some = append(some, v)
			}
		}
		out = append(out, string(traffic.SubjectOf(some)))
	}
	return out
}
