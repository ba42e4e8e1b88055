package history

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// minuteColumns are rows of event_minutes and rule_event_minutes, column by column.
type minuteColumns struct {
	routers, rules                                    []string
	parts                                             []int64
	minutes, seen                                     []postgres.Timestamp
	events, refused, unwatched, good, unjudged, match []int64
}

func (c *minuteColumns) add(m *detectors.RoutedMinute) {
	c.routers, c.parts = append(c.routers, traffic.Printable(m.Router)), append(c.parts, m.Part)
	c.minutes, c.seen = append(c.minutes, postgres.Timestamp(m.Minute)), append(c.seen, postgres.Timestamp(m.Seen))
}

// StoreMinutes stores what routers have seen, by minute of event time, all together or nothing. A sum that is stored already only grows.
func (s *Store) StoreMinutes(ctx context.Context, stream string, minutes []detectors.RoutedMinute) error {
	var all, byRule minuteColumns
	for i := range minutes {
		m := &minutes[i]
		all.add(m)
		all.events, all.refused, all.unwatched = append(all.events, m.Events), append(all.refused, m.Refused), append(all.unwatched, m.Unwatched)
		all.good, all.unjudged = append(all.good, m.Good), append(all.unjudged, m.Unjudged)
		for rule, n := range m.Matched {
			byRule.add(m)
			byRule.rules, byRule.match = append(byRule.rules, traffic.Printable(rule)), append(byRule.match, n)
		}
	}
	var batch pgx.Batch
	batch.Queue(`INSERT INTO event_minutes AS h (stream, router, part, minute, seen, events, refused, unwatched, good, unjudged)
		SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
		ON CONFLICT (stream, minute, router, part) DO UPDATE SET
			seen = greatest(h.seen, excluded.seen), events = greatest(h.events, excluded.events), refused = greatest(h.refused, excluded.refused),
			unwatched = greatest(h.unwatched, excluded.unwatched), good = greatest(h.good, excluded.good), unjudged = greatest(h.unjudged, excluded.unjudged)`,
		stream, all.routers, all.parts, all.minutes, all.seen, all.events, all.refused, all.unwatched, all.good, all.unjudged)
	batch.Queue(`INSERT INTO rule_event_minutes AS h (stream, router, part, minute, seen, rule, matched)
		SELECT $1, * FROM unnest($2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::text[], $7::bigint[])
		ON CONFLICT (stream, rule, minute, router, part) DO UPDATE SET
			seen = greatest(h.seen, excluded.seen), matched = greatest(h.matched, excluded.matched)`,
		stream, byRule.routers, byRule.parts, byRule.minutes, byRule.seen, byRule.rules, byRule.match)
	if err := s.SendBatch(ctx, &batch).Close(); err != nil {
		return s.Fail("storing what routers of "+stream+" have seen", err)
	}
	return nil
}
