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
	Source *Source
	Action blocklist.Action // empty: all
	Hit    string           // decisions about one hit; empty: all
	Since  traffic.Time     // decided not before it; 0: no bound
	Limit  int              // 0: no limit
}

// RecordedDecision is a decision as it was stored.
type RecordedDecision struct {
	Stream string `json:"stream"`
	blocklist.Decision
	Recorded time.Time `json:"recorded_at"`
}

const decisionColumns = "stream, id, action, reason, rule, subject, hit, generation, since, until, at, decided_by, recorded_at"

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
		w.add("action = ?", traffic.Printable(string(q.Action)))
	}
	if q.Hit != "" {
		w.add("hit = ?", traffic.Printable(q.Hit))
	}
	if q.Since != 0 {
		w.add("at >= ?", postgres.Timestamp(q.Since))
	}
	return w
}

// Decisions returns block decisions, newest first.
func (s *Store) Decisions(ctx context.Context, q DecisionQuery) ([]RecordedDecision, error) {
	w := q.where()
	rows, err := s.Query(ctx, "SELECT "+decisionColumns+" FROM block_decisions"+w.String()+
		" ORDER BY at DESC, id LIMIT NULLIF("+w.arg(q.Limit)+"::bigint, 0)", w.args...)
	if err != nil {
		return nil, s.Fail("reading block decisions", err)
	}
	all, err := pgx.CollectRows(rows, scanDecision)
	if err != nil {
		return nil, s.Fail("reading block decisions", err)
	}
	return all, nil
}

// CountDecisions is the number of decisions that q selects without its limit, CountCap at most.
func (s *Store) CountDecisions(ctx context.Context, q DecisionQuery) (int64, error) {
	return s.count(ctx, "block_decisions", q.where())
}

// ActiveBlocks returns a page of the decisions from which Redis can be rebuilt after it has lost its keys: blocks of the live
// stream that were written or extended, or releases, all with an Until still ahead. They are in descending order of Until and
// ID, so that an index on until gives each page without reading the others. Whether a release covers a block, and whether a
// mode generation still holds, the caller decides.
func (s *Store) ActiveBlocks(ctx context.Context, q blocklist.ActiveQuery) ([]blocklist.Decision, error) {
	w := new(where)
	w.add("stream = ?", Live)
	// In words, not as arguments: the indexes on until are partial, and a plan that is made once for all arguments uses
	// one only where the statement says that it asks for no other rows.
	if q.Released {
		w.add("action = 'released'")
	} else {
		w.add("action IN ('written', 'extended')")
	}
	w.add("until > now()")
	if q.After != nil {
		w.add("until <= ?", postgres.Timestamp(q.After.Until)) // for the index; the pair alone would be no condition on it
		w.add("(until, id) < (?, ?)", postgres.Timestamp(q.After.Until), q.After.ID)
	}
	rows, err := s.Query(ctx, "SELECT "+decisionColumns+" FROM block_decisions"+w.String()+
		" ORDER BY until DESC, id DESC LIMIT "+strconv.Itoa(q.Limit), w.args...)
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
