package history

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// DecisionRecorder stores the blocks topic: every decision of ENFORCE. Of several records with one id it keeps the earliest.
type DecisionRecorder struct {
	stream string
	core   recorder[blocklist.Decision]
	days   Days // nil: rows have none
	table  *dayed
}

var _ interface {
	Apply(ctx context.Context, batch []traffic.Message) error
} = (*DecisionRecorder)(nil)

// NewDecisionRecorder makes a recorder of stream's blocks topic into store, which is a *Store. topic is that topic's name,
// for dead letters and metrics. days are those under which rows are kept; nil: they have none.
func NewDecisionRecorder(store Transactions, stream, topic string, letters DeadLetters, days Days,
	registry prometheus.Registerer) (*DecisionRecorder, error) {
	if err := ingest.Stream(stream).Check(); err != nil {
		return nil, err
	}
	r := &DecisionRecorder{stream: stream, days: days, table: decisionsTable()}
	metrics, err := newRecordMetrics(registry, r.table.base.table)
	if err != nil {
		return nil, err
	}
	r.core = recorder[blocklist.Decision]{
		store: store, letters: letters, topic: topic, metrics: metrics, decode: blocklist.DecodeDecision,
		table: func(*blocklist.Decision) string { return r.table.base.table }, write: r.write, days: days, day: r.day,
	}
	return r, nil
}

// Apply is HitRecorder.Apply for decisions.
func (r *DecisionRecorder) Apply(ctx context.Context, batch []traffic.Message) error {
	return r.core.apply(ctx, batch)
}

// day is the day under which a decision is kept. Releases have none: they are few, and the reconcilers of builds that do not know the days
// must find them, or they would put a released block back.
func (r *DecisionRecorder) day(d *blocklist.Decision) (retention.Day, bool) {
	if r.days == nil || d.Action == blocklist.ActionReleased {
		return 0, false
	}
	return r.days.Of(d.At)
}

func (r *DecisionRecorder) write(ctx context.Context, tx pgx.Tx, items []item[blocklist.Decision]) error {
	rows := make(map[string]*decisionRow, len(items))
	for i := range items {
		row := newDecisionRow(items[i].row)
		if known := rows[row.ID]; known == nil || row.before(known) {
			rows[row.ID] = row
		}
	}
	values := valuesInOrder(r.stream, rows)
	if r.days == nil {
		return wrapDecisions(r.table.base.run(ctx, tx, values))
	}
	if err := enter(ctx, tx); err != nil {
		return err
	}
	for i, row := range values {
		id, _ := row[idColumn].(string)
		if day, ok := r.day(&rows[id].Decision); ok {
			values[i] = append(row, day.Date())
			continue
		}
		values[i] = append(row, nil)
	}
	return wrapDecisions(r.table.run(ctx, tx, values))
}

func wrapDecisions(err error) error {
	if err != nil {
		return fmt.Errorf("block decisions: %w", err)
	}
	return nil
}

type decisionRow struct{ blocklist.Decision }

func newDecisionRow(d blocklist.Decision) *decisionRow {
	d.Action = blocklist.Action(traffic.Printable(string(d.Action)))
	d.Reason = traffic.Printable(d.Reason)
	d.Rule = traffic.Printable(d.Rule)
	d.Subject = traffic.Subject(traffic.Printable(string(d.Subject)))
	d.Hit = traffic.Printable(d.Hit)
	d.By = traffic.Printable(d.By)
	return &decisionRow{d}
}

// before is the order that updateDecision has in SQL.
func (r *decisionRow) before(o *decisionRow) bool {
	return cmp.Or(cmp.Compare(r.At, o.At), cmp.Compare(r.Reason, o.Reason), cmp.Compare(r.By, o.By)) < 0
}

func (r *decisionRow) values(stream string) []any {
	d := decodeSubject(r.Subject)
	return []any{stream, r.ID, string(r.Action), r.Reason, r.Rule, string(r.Subject), d.ip, d.device, d.user, d.apiKey, d.session,
		r.Hit, r.Generation, postgres.TimestampOrNull(r.Since), postgres.TimestampOrNull(r.Until), postgres.Timestamp(r.At), r.By}
}

// An id is a hash of action, hit, rule and until. The other members may differ where a decision is taken again after a crash;
// the decision of the earliest time is kept.
const updateDecision = `DO UPDATE SET
		at = excluded.at, reason = excluded.reason, decided_by = excluded.decided_by, subject = excluded.subject,
		ip = excluded.ip, device = excluded.device, user_id = excluded.user_id, api_key = excluded.api_key,
		session = excluded.session, generation = excluded.generation, since = excluded.since
	WHERE (excluded.at, excluded.reason, excluded.decided_by) < (h.at, h.reason, h.decided_by)`

func decisionsTable() *dayed {
	return &dayed{
		base: &upsert{
			table: "block_decisions",
			columns: strings.Fields(`stream id action reason rule subject ip device user_id api_key session
				hit generation since until at decided_by`),
			update: updateDecision,
		},
		days: "block_decisions_by_day",
		// A decision that is taken again after a crash has a later time, and the id of the one before.
		near: "h.day BETWEEN i.day - 7 AND i.day + 1",
	}
}
