package history

import (
	"cmp"
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// points are how far episodes had been told to be by the end of each minute of append time, for questions about a time
// that is over. Figures only grow, as those of rows do, so that neither the order nor the number of records matters.
type points map[pointKey]*detectors.Hit

type pointKey struct {
	id     string
	minute traffic.Time
}

// take keeps the greatest figures of an episode's records of one minute. Nobody asks how far a warning was.
func (p points) take(h *detectors.Hit) {
	if h.Kind == detectors.KindNear {
		return
	}
	told := *h
	if h.Kind == detectors.KindRunning {
		told.First = 0 // it may be the opening's, which is no bound
	}
	key := pointKey{h.ID, h.Seen - h.Seen%minute}
	known, ok := p[key]
	if !ok {
		p[key] = &told
		return
	}
	if told.Kind.Episode() && known.Phase != detectors.PhaseMerged {
		known.Kind, known.Phase = told.Kind, told.Phase
	}
	if known.First == 0 || told.First != 0 && told.First < known.First {
		known.First = told.First
	}
	if len(told.Samples) > len(known.Samples) {
		known.Samples = told.Samples
	}
	known.AtLeast = known.AtLeast || told.AtLeast
	raise(known, &told)
}

// write adds the points to those that are stored, in the order in which all writers lock them. Those of running counts
// alone are of episodes that have a row: of one that history has left out nobody asks.
func (p points) write(ctx context.Context, tx pgx.Tx, known Days) error {
	if len(p) == 0 {
		return nil
	}
	keys := sortedKeys(p, func(a, b pointKey) int {
		return cmp.Or(cmp.Compare(a.id, b.id), cmp.Compare(a.minute,
			b.minute))
	})
	hits := make([]detectors.Hit, len(keys))
	var minutes, first, days []any
	var rules []string
	var merged, atLeast []bool
	var samples []int64
	for i, key := range keys {
		h := p[key]
		hits[i] = *h
		minutes, first = append(minutes, postgres.Timestamp(key.minute)),
			append(first, postgres.TimestampOrNull(h.First))
		rules, merged = append(rules, traffic.Printable(h.Rule)), append(merged, h.Kind.Episode() &&
			h.Phase == detectors.PhaseMerged)
		samples, atLeast = append(samples, int64(len(h.Samples))), append(atLeast, h.AtLeast)
		day := any(nil)
		if d, ok := known.Of(h.Opened); ok {
			day = d.Date()
		}
		days = append(days, day)
	}
	_, err := tx.Exec(ctx, `INSERT INTO hit_points AS p (id, events, peak, last, users, devices, refused, known_good, minute, first, rule, merged, samples, at_least)
		SELECT id, events, peak, last, users, devices, refused, known_good, minute, first, rule, merged, samples,
			at_least
		FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::timestamptz[], $5::bigint[], $6::bigint[],
			$7::bigint[], $8::smallint[],
			$9::timestamptz[], $10::timestamptz[], $11::text[], $12::boolean[], $13::bigint[], $14::boolean[],
				$15::date[])
			AS t (id, events, peak, last, users, devices, refused, known_good, minute, first, rule, merged, samples, at_least, day)
		WHERE first IS NOT NULL OR EXISTS (SELECT FROM hits_by_day h WHERE h.id = t.id AND h.day = t.day)
			OR EXISTS (SELECT FROM hits_beside_by_day h WHERE h.id = t.id AND h.day = t.day)
		ON CONFLICT (id, minute) DO UPDATE SET
			events = greatest(p.events, excluded.events), peak = greatest(p.peak, excluded.peak),
			first = least(p.first, excluded.first), last = greatest(p.last, excluded.last),
			users = greatest(p.users, excluded.users), devices = greatest(p.devices, excluded.devices),
			refused = greatest(p.refused, excluded.refused), known_good = greatest(p.known_good, excluded.known_good),
			samples = greatest(p.samples, excluded.samples), merged = p.merged OR excluded.merged,
				at_least = p.at_least OR excluded.at_least
		WHERE excluded.events > p.events OR excluded.peak > p.peak OR excluded.first < coalesce(p.first, 'infinity')
			OR excluded.last > p.last
			OR excluded.users > p.users OR excluded.devices > p.devices OR excluded.refused > p.refused
				OR excluded.known_good > p.known_good
			OR excluded.samples > p.samples OR excluded.merged > p.merged OR excluded.at_least > p.at_least`,
		append(figuresOf(hits), minutes, first, rules, merged, samples, atLeast, days)...)
	return err
}

// raise has known tell the greater of each figure of two records of one episode.
func raise(known, told *detectors.Hit) {
	known.Count, known.Peak, known.Last = max(known.Count, told.Count), max(known.Peak, told.Peak),
		max(known.Last, told.Last)
	known.Users, known.Devices = max(known.Users, told.Users), max(known.Devices, told.Devices)
	known.Refused, known.Good, known.Opened = max(known.Refused, told.Refused), max(known.Good, told.Good),
		max(known.Opened, told.Opened)
}
