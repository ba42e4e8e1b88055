package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// HitQuery selects episodes. Its zero value selects all episodes of all streams, except merged ones.
type HitQuery struct {
	Stream string         // live, replay/NAME; empty: all
	Rule   string         // empty: all
	Rules  []string       // one of these; nil: all
	Source *Source        // nil: all
	Field  string         // only sources that have this field of an identity; empty: all
	Since  traffic.Time   // episodes whose last over event is not before it; 0: no bound
	Until  traffic.Time   // episodes whose first over event is before it; 0: no bound
	Kind   detectors.Kind // of episodes; empty: KindHit
	State  State          // empty: running and closed ones
	After  *Place         // those that come after it in the order of Hits; nil: from the beginning
	Merged bool           // with episodes that were merged into others, which are no offences of their own
	Limit  int            // 0: no limit
}

// State is whether an episode goes on.
type State string

const (
	StateRunning State = "running" // not closed, as far as history knows
	StateClosed  State = "closed"  // its counts are final
)

// Place is that of a row in a list by time, newest first, and by id.
type Place struct {
	At traffic.Time
	ID string
}

// RecordedHit is one episode: all records with its id, joined. Seen is when the newest of those records was caused.
type RecordedHit struct {
	Stream string `json:"stream" mask:"name"`
	detectors.Hit
	SeenFirst traffic.Time `json:"seen_first"`  // when the episode was first seen
	Recorded  time.Time    `json:"recorded_at"` // when its first record was stored
}

// Hits returns episodes of one kind, those with the newest last over event first.
func (s *Store) Hits(ctx context.Context, q HitQuery) ([]RecordedHit, error) {
	w := q.where()
	w.after("last", q.After)
	from := q.table() + w.String()
	if q.Source != nil {
		// Of a source all rows are found by its own index and then put in order. The planner would rather walk the newest rows until it has met
		// enough of the source, since it takes each prefix that an address may have been cut to for one that there is.
		from = "(SELECT * FROM " + from + " OFFSET 0) of_source"
	}
	rows, err := s.Query(ctx, "SELECT "+recordedHitColumns+", "+q.kindColumn()+" FROM "+from+" ORDER BY last DESC, id DESC LIMIT NULLIF("+w.Arg(q.Limit)+"::bigint, 0)", w.Args...)
	if err != nil {
		return nil, s.Fail("reading hits", err)
	}
	hits, err := pgx.CollectRows(rows, scanHit)
	if err != nil {
		return nil, s.Fail("reading hits", err)
	}
	return hits, nil
}

// HitsByID returns the episodes whose id begins with prefix, hex digits such as a refused client is told: at most limit of
// all streams, the live one's first.
func (s *Store) HitsByID(ctx context.Context, prefix string, limit int) ([]RecordedHit, error) {
	// With the streams named, the primary key is a range; g comes after all hex digits.
	const found = ` WHERE stream IN (SELECT name FROM streams) AND id >= $1 AND id < $1 || 'g'`
	rows, err := s.Query(ctx, "SELECT * FROM (SELECT "+recordedHitColumns+", 'hit' AS kind FROM "+allHits+found+`
		UNION ALL SELECT `+recordedHitColumns+", kind FROM "+allBeside+found+`) found
		ORDER BY stream <> 'live', id, stream LIMIT $2`, traffic.Printable(prefix), limit)
	if err != nil {
		return nil, s.Fail("finding hits by id", err)
	}
	hits, err := pgx.CollectRows(rows, scanHit)
	if err != nil {
		return nil, s.Fail("finding hits by id", err)
	}
	return hits, nil
}

// RowsOfEpisode returns the rows of the episode that h is a row of, ascending by id: one for each block that it may lead to. While it runs,
// they are those of its source that are not closed.
func (s *Store) RowsOfEpisode(ctx context.Context, h *RecordedHit) ([]RecordedHit, error) {
	q := HitQuery{Stream: h.Stream, Rule: h.Rule, Kind: h.Kind, Since: h.First, Until: max(h.Last, h.First) + 1, Merged: h.Phase == detectors.PhaseMerged}
	if h.Subject != "" {
		source := SourceOf(h.Subject)
		q.Source = &source
	}
	w := q.where()
	w.Add("subject = ?", traffic.Printable(string(h.Subject)))
	w.Add("lineage = ?", h.Lineage)
	if h.Phase == detectors.PhaseClosed {
		w.Add("phase = 3 AND first = ?", postgres.Timestamp(h.First))
	} else {
		w.Add("phase <> 3")
	}
	rows, err := s.Query(ctx, "SELECT "+recordedHitColumns+", "+q.kindColumn()+" FROM "+q.table()+w.String()+" ORDER BY id LIMIT "+w.Arg(detectors.MaxTuples+1), w.Args...)
	if err != nil {
		return nil, s.Fail("reading the rows of an episode", err)
	}
	hits, err := pgx.CollectRows(rows, scanHit)
	if err != nil {
		return nil, s.Fail("reading the rows of an episode", err)
	}
	return hits, nil
}

// CountHits is the number of episodes that q selects without its limit, CountCap at most.
func (s *Store) CountHits(ctx context.Context, q HitQuery) (int64, error) {
	return s.count(ctx, q.table(), q.where(), CountCap)
}

// CountHitsTo is CountHits that stops at most rows.
func (s *Store) CountHitsTo(ctx context.Context, q HitQuery, most int64) (int64, error) {
	return s.count(ctx, q.table(), q.where(), most)
}

// Where is the condition that a row is selected, on the rows of From, without After and Limit.
func (q *HitQuery) Where() *postgres.Where { return &q.where().Where }

// From is the view that has the rows, with raw columns: phases are numbers, windows milliseconds.
func (q *HitQuery) From() string { return q.table() }

// mostOpen is more than the time between the opening of a row and its last over event, or its first: an episode is cut after a day.
const mostOpen = 2

func (q *HitQuery) where() *where {
	w := new(where)
	q.add(w)
	return w
}

// add adds the conditions of q, without its place, to w.
func (q *HitQuery) add(w *where) {
	w.selectRows(q.Stream, q.Rule, q.Source)
	if q.Rules != nil {
		w.Add("rule = ANY (?::text[])", q.Rules)
	}
	if q.Since != 0 {
		w.Add("last >= ?", postgres.Timestamp(q.Since))
		w.notBefore(q.Since, mostOpen)
	}
	if q.Until != 0 {
		w.Add("first < ?", postgres.Timestamp(q.Until))
		w.notAfter(q.Until, mostOpen)
	}
	if field, known := traffic.ParseField(q.Field); known {
		w.Add(column(field) + " IS NOT NULL")
	}
	switch q.State {
	case StateRunning:
		w.Add("phase < 3")
	case StateClosed:
		w.Add("phase = 3")
	}
	if !q.Merged {
		w.Add("phase < 4")
	}
	if q.table() == allBeside {
		w.Add("kind = ?", string(q.Kind))
	}
}

// tableBeside has the episodes that nothing comes of: near a limit, and over one on trial.
const tableBeside = "hits_beside"

// The views that have all rows of episodes, those with a day and those without.
const (
	allHits   = "hits_all"
	allBeside = "hits_beside_all"
)

// table is where the episodes of the query's kind are.
func (q *HitQuery) table() string {
	if q.Kind == "" || q.Kind == detectors.KindHit {
		return allHits
	}
	return allBeside
}

func (q *HitQuery) kindColumn() string {
	if q.table() == allBeside {
		return "kind"
	}
	return "'hit' AS kind"
}

const recordedHitColumns = `stream, id, rule, rule_version, lineage, phase, subject, block_subject, grouped, rule_limit, window_ms, events, peak,
	first, last, seen_first, seen_last, cut, generation, source_partition, source_offset, keyed_partition, into_id,
	users, devices, samples, at_least, reason, recorded_at, opened, known_good, refused`

func scanHit(row pgx.CollectableRow) (r RecordedHit, err error) {
	h := &r.Hit
	var phase int
	err = row.Scan(&r.Stream, &h.ID, &h.Rule, &h.RuleVersion, &h.Lineage, &phase, &h.Subject, &h.BlockSubject, &h.Grouped,
		&h.Limit, &h.WindowMS, &h.Count, &h.Peak, postgres.ScanTime(&h.First), postgres.ScanTime(&h.Last), postgres.ScanTime(&r.SeenFirst), postgres.ScanTime(&h.Seen),
		&h.Cut, &h.Generation, &h.Source, &h.Offset, &h.Keyed, &h.IntoID, &h.Users, &h.Devices, &h.Samples, &h.AtLeast, &h.Reason, &r.Recorded,
		postgres.ScanTime(&h.Opened), &h.Good, &h.Refused, &h.Kind)
	h.Format = detectors.HitFormat
	if known := phases(); phase >= 1 && phase <= len(known) {
		h.Phase = known[phase-1]
	}
	r.Recorded = r.Recorded.UTC()
	return r, err
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
	rows, err := s.Query(ctx, `
		SELECT rule, coalesce(episodes, 0), coalesce(sources, 0), coalesce(events, 0)::bigint, coalesce(late, 0)::bigint
		FROM (SELECT rule, count(*) AS episodes, count(DISTINCT subject) AS sources, sum(events) AS events
			FROM `+allHits+` WHERE stream = $1 AND phase < 4 GROUP BY rule) found
		FULL JOIN (SELECT rule, sum(events) AS late FROM late_sums WHERE stream = $1 GROUP BY rule) missed USING (rule)
		ORDER BY rule`, stream)
	if err != nil {
		return nil, s.Fail("summing up "+stream, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r RuleSummary, err error) {
		return r, row.Scan(&r.Rule, &r.Episodes, &r.Sources, &r.Events, &r.Late)
	})
	if err != nil {
		return nil, s.Fail("summing up "+stream, err)
	}
	return all, nil
}
