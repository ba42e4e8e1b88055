package history

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// DecisionQuery selects block decisions. Its zero value selects all.
type DecisionQuery struct {
	Stream string
	Rule   string
	Rules  []string // one of these; nil: all
	Source *Source
	Action blocklist.Action // empty: all
	Hit    string           // decisions about one hit; empty: all
	Since  traffic.Time     // decided not before it; 0: no bound
	Until  traffic.Time     // decided before it; 0: no bound
	After  *Place           // those that come after it in the order of Decisions; nil: from the beginning
	Limit  int              // 0: no limit
}

// RecordedDecision is a decision as it was stored.
type RecordedDecision struct {
	Stream string `json:"stream" mask:"name"`
	blocklist.Decision
	Recorded time.Time `json:"recorded_at"`
}

const decisionColumns = "stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by, recorded_at"

// allDecisions is the view that has all of them, those with a day and those without.
const allDecisions = "block_decisions_all"

func scanDecision(row pgx.CollectableRow) (r RecordedDecision, err error) {
	d := &r.Decision
	err = row.Scan(&r.Stream, &d.ID, &d.Action, &d.Reason, &d.Rule, &d.Subject, &d.Hit, &d.Generation,
		postgres.ScanTime(&d.Since), postgres.ScanTime(&d.Until), postgres.ScanTime(&d.At), &d.By, &r.Recorded)
	d.Format = blocklist.DecisionFormat
	r.Recorded = r.Recorded.UTC()
	return r, err
}

func (q *DecisionQuery) where() *where {
	w := new(where)
	w.selectRows(q.Stream, q.Rule, q.Source)
	if q.Action != "" {
		w.Add("action = ?", traffic.Printable(string(q.Action)))
	}
	if q.Hit != "" {
		w.Add("hit = ?", traffic.Printable(q.Hit))
	}
	if q.Since != 0 {
		w.Add("at >= ?", postgres.Timestamp(q.Since))
		w.notBefore(q.Since, 0)
	}
	if q.Until != 0 {
		w.Add("at < ?", postgres.Timestamp(q.Until))
		w.notAfter(q.Until, 1) // of a decision that was taken twice the earlier time stands, under the day of what was stored first
	}
	if q.Rules != nil {
		w.Add("rule = ANY (?::text[])", q.Rules)
	}
	return w
}

// Decisions returns block decisions, newest first.
func (s *Store) Decisions(ctx context.Context, q DecisionQuery) ([]RecordedDecision, error) {
	w := q.where()
	w.after("at", q.After)
	from := allDecisions + w.String()
	if q.Source != nil {
		from = "(SELECT * FROM " + from + " OFFSET 0) of_source" // see Hits
	}
	rows, err := s.Query(ctx, "SELECT "+decisionColumns+" FROM "+from+
		" ORDER BY at DESC, id DESC LIMIT NULLIF("+w.Arg(q.Limit)+"::bigint, 0)", w.Args...)
	if err != nil {
		return nil, s.Fail("reading block decisions", err)
	}
	all, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return nil, s.Fail("reading block decisions", err)
	}
	return all, nil
}

// DecisionsByHit returns decisions about the hits whose id begins with prefix, hex digits: at most limit, newest first.
func (s *Store) DecisionsByHit(ctx context.Context, prefix string, limit int) ([]RecordedDecision, error) {
	const doing = "finding decisions by the id of a hit"
	condition, id := "hit = $1", prefix
	if len(prefix) < wholeID { // no index has the beginnings of ids: what still stands is looked through
		condition, id = "until > now() AND action IN ('written', 'extended') AND hit LIKE $1", prefix+"%"
	}
	rows, err := s.Query(ctx, "SELECT "+decisionColumns+" FROM "+allDecisions+" WHERE "+condition+" ORDER BY at DESC, id LIMIT $2", traffic.Printable(id), limit)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	all, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return nil, s.Fail(doing, err)
	}
	return all, nil
}

// wholeID is how many digits the id of a hit has.
const wholeID = 32

// CountDecisions is the number of decisions that q selects without its limit, CountCap at most.
func (s *Store) CountDecisions(ctx context.Context, q DecisionQuery) (int64, error) {
	return s.count(ctx, allDecisions, q.where(), CountCap)
}

// ActiveBlocks returns a page of the decisions from which Redis can be rebuilt after it has lost its keys: blocks of the live
// stream that were written or extended, or releases, all with an Until still ahead. They are in descending order of Until and
// ID, so that an index on until gives each page without reading the others. Whether a release covers a block, and whether a
// mode generation still holds, the caller decides.
func (s *Store) ActiveBlocks(ctx context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	w := new(where)
	w.Add("stream = ?", Live)
	// In words, not as arguments: the indexes on until are partial, and a plan that is made once for all arguments uses
	// one only where the statement says that it asks for no other rows.
	if q.Released {
		w.Add("action = 'released'")
	} else {
		w.Add("action IN ('written', 'extended')")
	}
	w.Add("until > now()")
	if q.After != nil {
		w.Add("until <= ?", postgres.Timestamp(q.After.Until)) // for the index; the pair alone would be no condition on it
		w.Add("(until, id) < (?, ?)", postgres.Timestamp(q.After.Until), q.After.ID)
	}
	rows, err := s.Query(ctx, "SELECT "+decisionColumns+" FROM "+allDecisions+w.String()+
		" ORDER BY until DESC, id DESC LIMIT "+strconv.Itoa(q.Limit), w.Args...)
	if err != nil {
		return nil, s.Fail("reading standing decisions", err)
	}
	page, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (blocklist.Decision, error) {
		r, err := scanDecision(row)
		return r.Decision, err
	})
	if err != nil {
		return nil, s.Fail("reading standing decisions", err)
	}
	return page, nil
}
