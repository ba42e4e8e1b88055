package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// HitRecorder stores the hits topic of one stream. It is safe for concurrent use, though records of one partition are
// best given in order: it is not needed for the result, but saves writes.
//
// What is stored does not depend on the order of records, nor on how often each is given: counts, peaks and last times
// only grow, first times only fall, and phases go from open through update and closed to merged.
type HitRecorder struct {
	stream                string
	core                  recorder[detectors.Hit]
	hits, late, uncounted *upsert
}

var _ interface {
	Apply(ctx context.Context, batch []traffic.Message) error
} = (*HitRecorder)(nil)

// NewHitRecorder makes a recorder of stream's hits topic into store, which is a *Store. topic is that topic's name, for
// dead letters and metrics.
func NewHitRecorder(store Transactions, stream, topic string, letters DeadLetters,
	registry prometheus.Registerer) (*HitRecorder, error) {
	if err := CheckStream(stream); err != nil {
		return nil, err
	}
	metrics, err := newRecordMetrics(registry)
	if err != nil {
		return nil, err
	}
	r := &HitRecorder{stream: stream, hits: hitsTable(), late: lateTable(), uncounted: uncountedTable()}
	r.core = recorder[detectors.Hit]{
		store: store, letters: letters, topic: topic, metrics: metrics, decode: decodeHit, write: r.write,
	}
	return r, nil
}

// Apply stores a batch and returns nil after PostgreSQL has committed it. A record that does not decode, or whose row
// PostgreSQL refuses, goes to the dead letters and is counted. On an error the whole batch is to be given again: also when
// it holds a record that a newer build wrote, which is that build's to store.
func (r *HitRecorder) Apply(ctx context.Context, batch []traffic.Message) error {
	return r.core.apply(ctx, batch)
}

// decodeHit reads a hit that write knows how to keep.
func decodeHit(value []byte) (detectors.Hit, error) {
	h, err := detectors.DecodeHit(value)
	if err == nil && h.Kind == detectors.KindHit {
		_, err = phaseRank(h.Phase)
	}
	return h, err
}

func (r *HitRecorder) write(ctx context.Context, tx pgx.Tx, items []item[detectors.Hit]) error {
	hits, late, uncounted := make(map[string]*hitRow), make(map[string]*lateRow), make(map[string]*uncountedRow)
	var rest pgx.Batch
	for i := range items {
		h := items[i].row
		switch h.Kind {
		case detectors.KindHit:
			row, err := newHitRow(h)
			if err != nil {
				return err
			}
			mergeInto(hits, h.ID, &row, (*hitRow).merge)
		case detectors.KindLate:
			mergeInto(late, h.ID, &lateRow{hit: h}, (*lateRow).merge)
		case detectors.KindUncounted:
			mergeInto(uncounted, h.ID, &uncountedRow{lateRow{hit: h}}, (*uncountedRow).merge)
		case detectors.KindLoss:
			r.queueLoss(&rest, &h)
		case detectors.KindRelease:
			queueRelease(&rest, &h)
		}
	}
	if err := r.hits.run(ctx, tx, valuesInOrder(r.stream, hits)); err != nil {
		return fmt.Errorf("hits: %w", err)
	}
	if err := r.late.run(ctx, tx, valuesInOrder(r.stream, late)); err != nil {
		return fmt.Errorf("late sums: %w", err)
	}
	if err := r.uncounted.run(ctx, tx, valuesInOrder(r.stream, uncounted)); err != nil {
		return fmt.Errorf("sums of what was not counted: %w", err)
	}
	if rest.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &rest).Close(); err != nil {
		return fmt.Errorf("losses and releases: %w", err)
	}
	return nil
}

// mergeInto joins row to what the batch already says under its id.
func mergeInto[T any](rows map[string]*T, id string, row *T, merge func(known, more *T)) {
	if known, ok := rows[id]; ok {
		merge(known, row)
		return
	}
	rows[id] = row
}

// valuesInOrder sorts by id, so that recorders whose batches overlap lock rows in the same order.
func valuesInOrder[T any, R interface {
	*T
	values(stream string) []any
}](stream string, byID map[string]R) [][]any {
	rows := make([][]any, 0, len(byID))
	for _, row := range byID {
		rows = append(rows, row.values(stream))
	}
	slices.SortFunc(rows, func(a, b []any) int {
		x, _ := a[idColumn].(string)
		y, _ := b[idColumn].(string)
		return cmp.Compare(x, y)
	})
	return rows
}

// idColumn is where every table of records has its id.
const idColumn = 1

// queueLoss keeps the first account of a loss: all records of one id tell the same.
func (r *HitRecorder) queueLoss(b *pgx.Batch, h *detectors.Hit) {
	b.Queue(`INSERT INTO losses (stream, id, generation, source_partition, source_offset, keyed_partition, offsets,
			watermark, seen, accepted_by, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
		r.stream, h.ID, h.Generation, h.Source, h.Offset, h.Keyed, h.Count, stamp(h.First), stamp(h.Seen),
		traffic.Printable(h.By), traffic.Printable(h.Reason))
}

// queueRelease only audits: what became of the block is a decision on the blocks topic.
func queueRelease(b *pgx.Batch, h *detectors.Hit) {
	subject := h.BlockSubject
	if subject == "" {
		subject = h.Subject
	}
	entry := AuditEntry{
		Actor: h.By, Action: "release", Object: "block " + h.Rule + " " + string(subject), Reason: h.Reason, ref: h.ID,
	}
	b.Queue(insertAudit, entry.args()...)
}
