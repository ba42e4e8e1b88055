package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// HitQuery selects episodes. Its zero value selects all of every stream.
type HitQuery struct {
	Stream string       // live, replay/NAME; empty: all
	Rule   string       // empty: all
	Source *Source      // nil: all
	Since  traffic.Time // episodes whose last over event is not before it; 0: no bound
	Until  traffic.Time // episodes whose first over event is before it; 0: no bound
	Merged bool         // also episodes that were merged into others: they are no offences
	Limit  int          // 0: no limit
}

// RecordedHit is one episode as all records of its id amount to. Seen is when the newest of them was caused.
type RecordedHit struct {
	Stream string `json:"stream"`
	detectors.Hit
	SeenFirst traffic.Time `json:"seen_first"`  // when the episode was first seen
	Recorded  time.Time    `json:"recorded_at"` // when its first record was stored
}

// Hits returns episodes, those with the newest last over event first.
func (s *Store) Hits(ctx context.Context, q HitQuery) ([]RecordedHit, error) {
	w := q.where()
	rows, err := s.pool.Query(ctx, "SELECT "+recordedHitColumns+" FROM hits"+w.String()+" ORDER BY last DESC, id LIMIT NULLIF("+w.arg(q.Limit)+"::bigint, 0)", w.args...)
	if err != nil {
		return nil, s.fail("reading hits", err)
	}
	hits, err := pgx.CollectRows(rows, scanHit)
	if err != nil {
		return nil, s.fail("reading hits", err)
	}
	return hits, nil
}

// HitsByID returns the episodes of every stream whose id begins with prefix, hex digits of which clients are told some: the
// live stream's first, at most so many.
func (s *Store) HitsByID(ctx context.Context, prefix string, most int) ([]RecordedHit, error) {
	// With the streams named, the primary key is a range; g comes after all hex digits.
	rows, err := s.pool.Query(ctx, "SELECT "+recordedHitColumns+` FROM hits
		WHERE stream IN (SELECT name FROM streams) AND id >= $1 AND id < $1 || 'g'
		ORDER BY stream <> 'live', id, stream LIMIT $2`, traffic.Printable(prefix), most)
	if err != nil {
		return nil, s.fail("finding hits by id", err)
	}
	hits, err := pgx.CollectRows(rows, scanHit)
	if err != nil {
		return nil, s.fail("finding hits by id", err)
	}
	return hits, nil
}

func (q *HitQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, q.Source)
	if q.Since != 0 {
		w.add("last >= ?", stamp(q.Since))
	}
	if q.Until != 0 {
		w.add("first < ?", stamp(q.Until))
	}
	if !q.Merged {
		w.add("phase < 4")
	}
	return w
}

const recordedHitColumns = `stream, id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, window_ms, events, peak,
	first, last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id,
	users, devices, samples, at_least, recorded_at`

func scanHit(row pgx.CollectableRow) (r RecordedHit, err error) {
	h := &r.Hit
	var phase int
	err = row.Scan(&r.Stream, &h.ID, &h.Rule, &h.RuleVersion, &h.Lineage, &phase, &h.Subject, &h.BlockSubject, &h.Grouped,
		&h.Limit, &h.WindowMS, &h.Count, &h.Peak, scanTime(&h.First), scanTime(&h.Last), scanTime(&r.SeenFirst), scanTime(&h.Seen),
		&h.Cut, &h.Generation, &h.Source, &h.Offset, &h.Keyed, &h.IntoID, &h.Users, &h.Devices, &h.Samples, &h.AtLeast, &r.Recorded)
	h.Format, h.Kind = detectors.HitFormat, detectors.KindHit
	if known := phases(); phase >= 1 && phase <= len(known) {
		h.Phase = known[phase-1]
	}
	r.Recorded = r.Recorded.UTC()
	return r, err
}

// selectRows adds the conditions that hits and decisions have in common.
func (w *where) selectRows(stream, rule string, source *Source) {
	if stream != "" {
		w.add("stream = ?", stream)
	}
	if rule != "" {
		w.add("rule = ?", traffic.Printable(rule))
	}
	if source != nil {
		source.condition(w)
	}
}

// LateQuery selects sums of late events.
type LateQuery struct {
	Stream string
	Rule   string
	Since  traffic.Time // minutes not before it; 0: no bound
	Limit  int          // 0: no limit
}

func (q *LateQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, nil)
	if q.Since != 0 {
		w.add("minute >= ?", stamp(q.Since))
	}
	return w
}

// LateSum is how many events of one source partition came too late for a rule, by the minute in which they came.
type LateSum struct {
	Stream  string       `json:"stream"`
	Rule    string       `json:"rule"`
	Lineage int          `json:"lineage"`
	Source  int          `json:"source_partition"`
	Keyed   int          `json:"keyed_partition"`
	Minute  traffic.Time `json:"minute"`
	Latest  traffic.Time `json:"latest"` // greatest time of the events themselves
	Events  int64        `json:"events"`
}

// Late returns sums of late events, newest minute first.
func (s *Store) Late(ctx context.Context, q LateQuery) ([]LateSum, error) {
	w := q.where()
	rows, err := s.pool.Query(ctx, `
		SELECT stream, rule, lineage, source_partition, keyed_partition, minute, latest, events FROM late_sums`+w.String()+
		" ORDER BY minute DESC, rule, source_partition, keyed_partition, id LIMIT NULLIF("+w.arg(q.Limit)+"::bigint, 0)", w.args...)
	if err != nil {
		return nil, s.fail("reading late events", err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l LateSum, err error) {
		return l, row.Scan(&l.Stream, &l.Rule, &l.Lineage, &l.Source, &l.Keyed, scanTime(&l.Minute), scanTime(&l.Latest), &l.Events)
	})
	if err != nil {
		return nil, s.fail("reading late events", err)
	}
	return sums, nil
}

// Loss is a gap in a log that was passed over: by an operator's word, or because retention had made it.
type Loss struct {
	Stream     string       `json:"stream"`
	ID         string       `json:"id"`
	Generation int64        `json:"generation"`
	Source     int          `json:"source_partition"` // -1: the gap is in the keyed log itself
	Offset     int64        `json:"offset"`           // first after the gap
	Keyed      int          `json:"keyed_partition"`
	Offsets    int64        `json:"offsets"`   // how many were passed over
	Watermark  traffic.Time `json:"watermark"` // of the keyed partition at the gap
	Seen       traffic.Time `json:"seen"`
	By         string       `json:"by,omitempty"`
	Reason     string       `json:"reason,omitempty"`
}

// Losses returns the losses of stream, of all streams when it is empty, newest first.
func (s *Store) Losses(ctx context.Context, stream string) ([]Loss, error) {
	w := new(where)
	w.selectRows(stream, "", nil)
	rows, err := s.pool.Query(ctx, `
		SELECT stream, id, generation, source_partition, source_offset, keyed_partition, offsets, watermark, seen, accepted_by, reason
		FROM losses`+w.String()+" ORDER BY seen DESC, id", w.args...)
	if err != nil {
		return nil, s.fail("reading losses", err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l Loss, err error) {
		return l, row.Scan(&l.Stream, &l.ID, &l.Generation, &l.Source, &l.Offset, &l.Keyed, &l.Offsets, scanTime(&l.Watermark),
			scanTime(&l.Seen), &l.By, &l.Reason)
	})
	if err != nil {
		return nil, s.fail("reading losses", err)
	}
	return all, nil
}

// RuleSummary is what one rule found in a stream.
type RuleSummary struct {
	Rule     string `json:"rule"`
	Episodes int64  `json:"episodes"` // merged ones excluded
	Sources  int64  `json:"sources"`  // distinct subjects of those episodes
	Events   int64  `json:"events"`   // sum of the episodes' counts
	Late     int64  `json:"late"`     // events that came too late to count
}

// Summary sums up a stream per rule, ascending by rule. A rule that found nothing, and missed nothing, is not in it.
func (s *Store) Summary(ctx context.Context, stream string) ([]RuleSummary, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT rule, coalesce(episodes, 0), coalesce(sources, 0), coalesce(events, 0)::bigint, coalesce(late, 0)::bigint
		FROM (SELECT rule, count(*) AS episodes, count(DISTINCT subject) AS sources, sum(events) AS events
			FROM hits WHERE stream = $1 AND phase < 4 GROUP BY rule) found
		FULL JOIN (SELECT rule, sum(events) AS late FROM late_sums WHERE stream = $1 GROUP BY rule) missed USING (rule)
		ORDER BY rule`, stream)
	if err != nil {
		return nil, s.fail("summing up "+stream, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r RuleSummary, err error) {
		return r, row.Scan(&r.Rule, &r.Episodes, &r.Sources, &r.Events, &r.Late)
	})
	if err != nil {
		return nil, s.fail("summing up "+stream, err)
	}
	return all, nil
}
