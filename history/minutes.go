package history

import (
	"strings"

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
