package history

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// LateQuery selects sums of late events.
type LateQuery struct {
	Stream string
	Rule   string
	Since  traffic.Time // minutes not before it; 0: no bound
	Until  traffic.Time // minutes before it; 0: no bound
	After  *Place       // only what comes after it; nil: from the newest on
	Limit  int          // 0: no limit
}

// lateKey orders the sums of a minute.
const lateKey = "rule || '/' || id"

func (q *LateQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, nil)
	if q.Since != 0 {
		w.Add("minute >= ?", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("minute < ?", postgres.Timestamp(q.Until))
	}
	return w
}

// LateSum is the number of events of one source partition that came too late for a rule, by the minute in which they came.
type LateSum struct {
	Stream  string       `json:"stream" mask:"name"`
	Rule    string       `json:"rule" mask:"name"`
	Lineage int          `json:"lineage"`
	Source  int          `json:"source_partition"`
	Keyed   int          `json:"keyed_partition"`
	Minute  traffic.Time `json:"minute"`
	Latest  traffic.Time `json:"latest"` // greatest time of the events themselves
	Events  int64        `json:"events"`

	key string
}

// Late returns sums of late events, newest minute first.
func (s *Store) Late(ctx context.Context, q LateQuery) ([]LateSum, error) {
	w := q.where()
	w.behind(lateKey, q.After)
	rows, err := s.Query(ctx, `
		SELECT stream, rule, lineage, source_partition, keyed_partition, minute, latest, events, `+lateKey+` FROM late_sums`+w.String()+
		" ORDER BY minute DESC, "+lateKey+" LIMIT NULLIF("+w.Arg(q.Limit)+"::bigint, 0)", w.Args...)
	if err != nil {
		return nil, s.Fail("reading late events", err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (l LateSum, err error) {
		return l, row.Scan(&l.Stream, &l.Rule, &l.Lineage, &l.Source, &l.Keyed, postgres.ScanTime(&l.Minute), postgres.ScanTime(&l.Latest), &l.Events, &l.key)
	})
	if err != nil {
		return nil, s.Fail("reading late events", err)
	}
	return sums, nil
}

// Place is where the sum lies in Late.
func (l *LateSum) Place() *Place { return &Place{At: l.Minute, ID: l.key} }

// CountLate is the number of sums that q selects without its place and limit, CountCap at most.
func (s *Store) CountLate(ctx context.Context, q LateQuery) (int64, error) {
	return s.count(ctx, "late_sums", q.where(), CountCap)
}

// StoreUncounted stores sums of events that routers left out. A sum that is stored already only grows.
func (s *Store) StoreUncounted(ctx context.Context, stream string, sums []detectors.RoutedUncounted) error {
	var batch pgx.Batch
	for i := range sums {
		u := &sums[i]
		id := fmt.Sprintf("route/%s/%s/%s/%s", u.Router, u.Rule, u.Reason, u.Minute)
		batch.Queue(`INSERT INTO uncounted_sums AS h (stream, id, rule, reason, minute, seen, events) VALUES ($1, $2, $3, $4, $5, $6, $7)
			ON CONFLICT (stream, id) DO UPDATE SET seen = greatest(h.seen, excluded.seen), events = greatest(h.events, excluded.events)`,
			stream, traffic.Printable(id), traffic.Printable(u.Rule), u.Reason.String(), postgres.Timestamp(u.Minute), postgres.Timestamp(u.Seen), u.Events)
	}
	if err := s.SendBatch(ctx, &batch).Close(); err != nil {
		return s.Fail("storing what routers of "+stream+" left out", err)
	}
	return nil
}

// UncountedQuery selects sums of events that rules did not count.
type UncountedQuery struct {
	Stream string
	Rule   string
	Reason string       // as detectors.Uncounted writes it; empty: all
	Since  traffic.Time // minutes not before it; 0: no bound
	Until  traffic.Time // minutes before it; 0: no bound
	After  *Place       // only what comes after it; nil: from the newest on
	Limit  int          // 0: no limit
}

// The sums that rules did not count, with the ids by which the sums of a minute are ordered: uncounted_v has none.
const (
	uncountedFrom = `(SELECT stream, rule, 'late' COLLATE "C" AS reason, lineage, source_partition, keyed_partition, minute, events, id FROM late_sums
		UNION ALL SELECT stream, rule, reason, lineage, source_partition, keyed_partition, minute, events, id FROM uncounted_sums) u`
	uncountedKey = "rule || '/' || reason || '/' || id"
)

// UncountedSum is the number of events that a rule did not count for one reason, by the minute in which they came. Lineage and
// partitions are nil in sums of ROUTE, which does not know them.
type UncountedSum struct {
	Stream  string       `json:"stream" mask:"name"`
	Rule    string       `json:"rule" mask:"name"`
	Reason  string       `json:"reason" mask:"-"`
	Lineage *int         `json:"lineage,omitempty"`
	Source  *int         `json:"source_partition,omitempty"`
	Keyed   *int         `json:"keyed_partition,omitempty"`
	Minute  traffic.Time `json:"minute"`
	Events  int64        `json:"events"`

	key string
}

func (q *UncountedQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, nil)
	if q.Reason != "" {
		w.Add("reason = ?", q.Reason)
	}
	if q.Since != 0 {
		w.Add("minute >= ?", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("minute < ?", postgres.Timestamp(q.Until))
	}
	return w
}

// Uncounted returns sums of events that rules did not count, late ones included, newest minute first.
func (s *Store) Uncounted(ctx context.Context, q UncountedQuery) ([]UncountedSum, error) {
	w := q.where()
	w.behind(uncountedKey, q.After)
	const doing = "reading what was not counted"
	rows, err := s.Query(ctx, "SELECT stream, rule, reason, lineage, source_partition, keyed_partition, minute, events, "+uncountedKey+
		" FROM "+uncountedFrom+w.String()+" ORDER BY minute DESC, "+uncountedKey+" LIMIT NULLIF("+w.Arg(q.Limit)+"::bigint, 0)", w.Args...)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	sums, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (u UncountedSum, err error) {
		return u, row.Scan(&u.Stream, &u.Rule, &u.Reason, &u.Lineage, &u.Source, &u.Keyed, postgres.ScanTime(&u.Minute), &u.Events, &u.key)
	})
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	return sums, nil
}

// Place is where the sum lies in Uncounted.
func (u *UncountedSum) Place() *Place { return &Place{At: u.Minute, ID: u.key} }

// CountUncounted is the number of sums that q selects without its place and limit, CountCap at most.
func (s *Store) CountUncounted(ctx context.Context, q UncountedQuery) (int64, error) {
	return s.count(ctx, "uncounted_v", q.where(), CountCap)
}

// Figure is a number of events, or UnknownFigure. It is null in JSON where it is not known.
type Figure int64

// UnknownFigure stands for a number that is not known.
const UnknownFigure Figure = -1

var (
	_ json.Marshaler   = Figure(0)
	_ json.Unmarshaler = (*Figure)(nil)
)

// String is the number, or "?".
func (f Figure) String() string {
	if f == UnknownFigure {
		return "?"
	}
	return strconv.FormatInt(int64(f), 10)
}

// MarshalJSON writes the number, or null.
func (f Figure) MarshalJSON() ([]byte, error) {
	if f == UnknownFigure {
		return []byte("null"), nil
	}
	return json.Marshal(int64(f))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = UnknownFigure
		return nil
	}
	return json.Unmarshal(b, (*int64)(f))
}

// Figures are the numbers of events that a rule did not count, by reason. For one rule, an event has one reason.
type Figures struct {
	Late         Figure `json:"late"`
	OutOfOrder   Figure `json:"out_of_order"`
	MissingField Figure `json:"missing_field"`
	MissingValue Figure `json:"missing_value"`
	Budget       Figure `json:"budget"`
}

// UnknownFigures are Figures none of which is known.
func UnknownFigures() Figures {
	return Figures{UnknownFigure, UnknownFigure, UnknownFigure, UnknownFigure, UnknownFigure}
}

// Of is the figure for one reason.
func (f *Figures) Of(reason detectors.Uncounted) Figure {
	switch reason {
	case detectors.UncountedLate:
		return f.Late
	case detectors.UncountedOutOfOrder:
		return f.OutOfOrder
	case detectors.UncountedMissingField:
		return f.MissingField
	case detectors.UncountedMissingValue:
		return f.MissingValue
	case detectors.UncountedBudget:
		return f.Budget
	}
	return UnknownFigure
}

// NotCounted is what the rules of a stream did not count since some minute.
type NotCounted struct {
	// Complete says that the figures of all reasons are known. They are not where a routing version with an older record
	// format was in force: processes of its builds tell of late events only.
	Complete bool
	rules    map[string]map[string]int64 // rule, reason → events
}

// Figures are the figures of one rule.
func (n *NotCounted) Figures(rule string) Figures {
	of := func(reason detectors.Uncounted) Figure {
		if reason != detectors.UncountedLate && !n.Complete {
			return UnknownFigure
		}
		return Figure(n.rules[rule][reason.String()])
	}
	return Figures{
		Late: of(detectors.UncountedLate), OutOfOrder: of(detectors.UncountedOutOfOrder),
		MissingField: of(detectors.UncountedMissingField), MissingValue: of(detectors.UncountedMissingValue),
		Budget: of(detectors.UncountedBudget),
	}
}

// NotCounted sums up what the rules of a stream did not count in the minutes from since on; 0: in all its life.
func (s *Store) NotCounted(ctx context.Context, stream string, since traffic.Time) (NotCounted, error) {
	n := NotCounted{rules: map[string]map[string]int64{}}
	if since == 0 {
		since = traffic.BeforeTime
	}
	doing := "summing up what rules of " + stream + " did not count"
	var versions, older int
	err := s.QueryRow(ctx, `
		SELECT count(*), count(*) FILTER (WHERE (document::json ->> 'record_format')::bigint < $3) FROM routing_versions
		WHERE stream = $1 AND number >= coalesce((SELECT max(number) FROM routing_versions WHERE stream = $1 AND created_at <= $2), 0)`,
		stream, postgres.Timestamp(since), rules.UncountedRecordFormat).Scan(&versions, &older)
	if err != nil {
		return n, s.Fail(doing, err)
	}
	n.Complete = versions > 0 && older == 0
	rows, err := s.Query(ctx, `SELECT rule, reason, sum(events)::bigint FROM uncounted_v
		WHERE stream = $1 AND minute >= $2 GROUP BY rule, reason`, stream, postgres.Timestamp(since))
	if err != nil {
		return n, s.Fail(doing, err)
	}
	var rule, reason string
	var events int64
	_, err = pgx.ForEachRow(rows, []any{&rule, &reason, &events}, func() error {
		if n.rules[rule] == nil {
			n.rules[rule] = map[string]int64{}
		}
		n.rules[rule][reason] = events
		return nil
	})
	if err != nil {
		return n, s.Fail(doing, err)
	}
	return n, nil
}
