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
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// DecisionRecorder stores the blocks topic: every decision of ENFORCE. Of several records with one id it keeps the earliest.
type DecisionRecorder struct {
	stream string
	core   recorder[blocklist.Decision]
	table  *upsert
}

var _ interface {
	Apply(ctx context.Context, batch []traffic.Message) error
} = (*DecisionRecorder)(nil)

// NewDecisionRecorder makes a recorder of stream's blocks topic into store, which is a *Store. topic is that topic's name,
// for dead letters and metrics.
func NewDecisionRecorder(store Transactions, stream, topic string, letters DeadLetters,
	registry prometheus.Registerer) (*DecisionRecorder, error) {
	if err := ingest.Stream(stream).Check(); err != nil {
		return nil, err
	}
	r := &DecisionRecorder{stream: stream, table: decisionsTable()}
	metrics, err := newRecordMetrics(registry, r.table.table)
	if err != nil {
		return nil, err
	}
	r.core = recorder[blocklist.Decision]{
		store: store, letters: letters, topic: topic, metrics: metrics, decode: blocklist.DecodeDecision,
		table: func(*blocklist.Decision) string { return r.table.table }, write: r.write,
	}
	return r, nil
}

// Apply is HitRecorder.Apply for decisions.
func (r *DecisionRecorder) Apply(ctx context.Context, batch []traffic.Message) error {
	return r.core.apply(ctx, batch)
}

func (r *DecisionRecorder) write(ctx context.Context, tx pgx.Tx, items []item[blocklist.Decision]) error {
	rows := make(map[string]*decisionRow, len(items))
	for i := range items {
		row := newDecisionRow(items[i].row)
		if known := rows[row.ID]; known == nil || row.before(known) {
			rows[row.ID] = row
		}
	}
	if err := r.table.run(ctx, tx, valuesInOrder(r.stream, rows)); err != nil {
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

func decisionsTable() *upsert {
	return &upsert{
		table: "block_decisions",
		columns: strings.Fields(`stream id action reason rule subject ip device user_id api_key session
			hit generation since until at decided_by`),
		update: updateDecision,
	}
}
