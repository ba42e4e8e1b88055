package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// HitRecorder stores the hits topic of one stream. It is safe for concurrent use. The result does not depend on the order of
// records, nor on how often each is given: counts, peaks and last times only grow, first times only fall, and phases go from
// open through update and closed to merged. Giving the records of a partition in order only saves writes.
type HitRecorder struct {
	stream                   string
	core                     recorder[detectors.Hit]
	days                     Days // nil: rows have none
	hits, beside             *dayed
	late, uncounted, minutes *upsert
	refusals                 *upsert
	leftOut                  *leftOut // nil: all stay
}

var _ interface {
	Apply(ctx context.Context, batch []traffic.Message) error
} = (*HitRecorder)(nil)

// NewHitRecorder makes a recorder of stream's hits topic into store, which is a *Store. topic is that topic's name, for
// dead letters and metrics. days are those under which rows are kept: nil for replays, whose rows have none.
func NewHitRecorder(store Transactions, stream, topic string, letters DeadLetters, days Days,
	registry prometheus.Registerer) (*HitRecorder, error) {
	if err := ingest.Stream(stream).Check(); err != nil {
		return nil, err
	}
	r := &HitRecorder{stream: stream, days: days, hits: hitsTable(), beside: besideTable(), late: lateTable(),
		uncounted: uncountedTable(), minutes: minutesTable(), refusals: refusalsTable()}
	metrics, err := newRecordMetrics(registry, r.hits.base.table, r.beside.base.table, r.late.table, r.uncounted.table,
		r.minutes.table, r.refusals.table, runningTable, lossesTable, auditTable)
	if err != nil {
		return nil, err
	}
	r.core = recorder[detectors.Hit]{
		store: store, letters: letters, topic: topic, metrics: metrics, decode: decodeHit, table: r.table, write: r.write, days: days, day: r.day,
	}
	return r, nil
}

// Bound has the recorder leave out rows beyond caps, and count them. Rows without days are not bounded: those of replays above all.
func (r *HitRecorder) Bound(caps Caps, registry prometheus.Registerer) error {
	if r.days == nil || caps.Rows == 0 {
		return nil
	}
	metrics, err := newLeftOutMetrics(registry)
	if err != nil {
		return err
	}
	r.leftOut = newLeftOut(caps, r.stream, r.days, metrics)
	return nil
}

// Apply stores a batch and returns nil after PostgreSQL has committed it. A record that does not decode, or whose row
// PostgreSQL refuses, goes to the dead letters and is counted. After an error the caller must give the whole batch again. A
// record that a newer build wrote is such an error: only a process of that build can store it.
func (r *HitRecorder) Apply(ctx context.Context, batch []traffic.Message) error {
	if err := r.core.apply(ctx, batch); err != nil || r.leftOut == nil {
		return err
	}
	r.leftOut.tell()
	return nil
}

// decodeHit decodes a hit and refuses phases that the hits table does not know.
func decodeHit(value []byte) (detectors.Hit, error) {
	h, err := detectors.DecodeHit(value)
	if err == nil && h.Kind.Episode() {
		_, err = phaseRank(h.Phase)
	}
	return h, err
}

// The tables that take what is no sum and no episode.
const (
	lossesTable = "losses"
	auditTable  = "audit"
)

func (r *HitRecorder) table(h *detectors.Hit) string {
	switch h.Kind {
	case detectors.KindNear, detectors.KindCandidate:
		return r.beside.base.table
	case detectors.KindLate:
		return r.late.table
	case detectors.KindUncounted:
		return r.uncounted.table
	case detectors.KindStatistics:
		return r.minutes.table
	case detectors.KindRefused:
		return r.refusals.table
	case detectors.KindRunning:
		return runningTable
	case detectors.KindLoss:
		return lossesTable
	case detectors.KindRelease:
		return auditTable
	}
	return r.hits.base.table
}

// day is the day under which a record's row is kept.
func (r *HitRecorder) day(h *detectors.Hit) (retention.Day, bool) {
	if r.days == nil || !h.Kind.Episode() {
		return 0, false
	}
	return r.days.Of(h.Opened)
}

func (r *HitRecorder) write(ctx context.Context, tx pgx.Tx, items []item[detectors.Hit]) error {
	if r.days != nil {
		if err := enter(ctx, tx); err != nil {
			return err
		}
	}
	if r.leftOut != nil {
		var err error
		if items, err = r.leftOut.choose(ctx, tx, items); err != nil {
			return err
		}
	}
	hits, late, uncounted, refused := make(map[string]*hitRow), make(map[string]*lateRow),
		make(map[string]*uncountedRow), make(map[string]*refusalRow)
	beside, minutes, raised, told := make(map[string]*besideRow), make(map[string]*minuteRow), running{}, points{}
	var rest pgx.Batch
	for i := range items {
		h := items[i].row
		if r.hasPoint(&h) {
			told.take(&h)
		}
		switch h.Kind {
		case detectors.KindHit:
			row, err := newHitRow(h)
			if err != nil {
				return err
			}
			mergeInto(hits, h.ID, &row, (*hitRow).merge)
		case detectors.KindNear, detectors.KindCandidate:
			row, err := newHitRow(h)
			if err != nil {
				return err
			}
			mergeInto(beside, h.ID, &besideRow{row}, (*besideRow).merge)
		case detectors.KindLate:
			mergeInto(late, h.ID, &lateRow{hit: h}, (*lateRow).merge)
		case detectors.KindUncounted:
			mergeInto(uncounted, h.ID, &uncountedRow{lateRow{hit: h}}, (*uncountedRow).merge)
		case detectors.KindStatistics:
			mergeInto(minutes, h.ID, &minuteRow{hit: h}, (*minuteRow).merge)
		case detectors.KindRefused:
			mergeInto(refused, h.ID, &refusalRow{lateRow{hit: h}}, (*refusalRow).merge)
		case detectors.KindRunning:
			raised.take(&h)
		case detectors.KindLoss:
			r.queueLoss(&rest, &h)
		case detectors.KindRelease:
			queueRelease(&rest, &h)
		}
	}
	if err := r.writeEpisodes(ctx, tx, valuesInOrder(r.stream, hits), valuesInOrder(r.stream, beside)); err != nil {
		return err
	}
	if err := r.late.run(ctx, tx, valuesInOrder(r.stream, late)); err != nil {
		return fmt.Errorf("late sums: %w", err)
	}
	if err := r.uncounted.run(ctx, tx, valuesInOrder(r.stream, uncounted)); err != nil {
		return fmt.Errorf("sums of what was not counted: %w", err)
	}
	if err := r.minutes.run(ctx, tx, valuesInOrder(r.stream, minutes)); err != nil {
		return fmt.Errorf("minutes of rules: %w", err)
	}
	if err := r.refusals.run(ctx, tx, valuesInOrder(r.stream, refused)); err != nil {
		return fmt.Errorf("sums of refused requests: %w", err)
	}
	if err := raised.raise(ctx, tx, r.stream, r.days); err != nil {
		return fmt.Errorf("running episodes: %w", err)
	}
	if err := told.write(ctx, tx, r.days); err != nil {
		return fmt.Errorf("points of episodes: %w", err)
	}
	if rest.Len() == 0 {
		return nil
	}
	if err := tx.SendBatch(ctx, &rest).Close(); err != nil {
		return fmt.Errorf("losses and releases: %w", err)
	}
	return nil
}

// hasPoint reports whether it is kept how far the episode of a record was in its minute: of live traffic, and of no
// minute that a clock made up.
func (r *HitRecorder) hasPoint(h *detectors.Hit) bool {
	if r.days == nil || !h.Kind.Episode() && h.Kind != detectors.KindRunning {
		return false
	}
	_, ok := r.days.Of(h.Seen)
	return ok
}

// writeEpisodes stores rows of episodes, by their days where there are any.
func (r *HitRecorder) writeEpisodes(ctx context.Context, tx pgx.Tx, hits, beside [][]any) error {
	write := func(d *dayed, rows [][]any) error { return d.base.run(ctx, tx, rows) }
	if r.days != nil {
		write = func(d *dayed, rows [][]any) error { return d.run(ctx, tx, r.dated(rows)) }
	}
	if err := write(r.hits, hits); err != nil {
		return fmt.Errorf("hits: %w", err)
	}
	if err := write(r.beside, beside); err != nil {
		return fmt.Errorf("hits beside a limit: %w", err)
	}
	return nil
}

// dated adds to each row its day.
func (r *HitRecorder) dated(rows [][]any) [][]any {
	for i, row := range rows {
		opened, _ := row[openedColumn].(postgres.Timestamp)
		if day, ok := r.days.Of(traffic.Time(opened)); ok {
			rows[i] = append(row, day.Date())
			continue
		}
		rows[i] = append(row, nil)
	}
	return rows
}

// mergeInto adds row to rows, merged with the row of the same id if there is one.
func mergeInto[T any](rows map[string]*T, id string, row *T, merge func(known, more *T)) {
	if known, ok := rows[id]; ok {
		merge(known, row)
		return
	}
	rows[id] = row
}

// valuesInOrder returns the rows' values sorted by id, so that recorders whose batches overlap lock rows in the same order.
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

// idColumn is the index of the id among the columns of every table that an upsert writes.
const idColumn = 1

// queueLoss keeps the first record of a loss: all records with one id say the same.
func (r *HitRecorder) queueLoss(b *pgx.Batch, h *detectors.Hit) {
	// Who accepted the gap is not in the log: the word was there before a stage could act on it.
	b.Queue(`INSERT INTO `+lossesTable+` (stream, id, generation, source_partition, source_offset, keyed_partition, offsets,
			watermark, seen, accepted_by, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, coalesce(nullif($10, ''), (SELECT accepted_by FROM gap_acceptances g
			WHERE g.stream = $1 AND g.gap_source = $4 AND g.gap_offset = $5
				AND (g.side = 'requests' AND g.partition = $4 OR g.side = 'keyed' AND g.partition = $6)
			ORDER BY accepted_at DESC LIMIT 1), ''), $11) ON CONFLICT DO NOTHING`,
		r.stream, h.ID, h.Generation, h.Source, h.Offset, h.Keyed, h.Count, postgres.Timestamp(h.First), postgres.Timestamp(h.Seen),
		traffic.Printable(h.By), traffic.Printable(h.Reason))
}

// queueRelease writes the audit entry only: the release itself is a decision on the blocks topic.
func queueRelease(b *pgx.Batch, h *detectors.Hit) {
	subject := h.BlockSubject
	if subject == "" {
		subject = h.Subject
	}
	entry := audit.Entry{
		Actor: h.By, Action: "release", Object: "block " + h.Rule + " " + string(subject), Reason: h.Reason, Ref: h.ID,
		Via: h.Via, Before: h.Found, After: "released",
	}
	audit.Queue(b, entry)
}

// phaseRank is the number that the hits table has for a phase: phases in the order in which an episode goes through them.
func phaseRank(p detectors.Phase) (int16, error) {
	if i := slices.Index(phases(), p); i >= 0 {
		return int16(i + 1), nil
	}
	return 0, fmt.Errorf("phase %q: known are %v", p, phases())
}

func phases() []detectors.Phase {
	return []detectors.Phase{detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseClosed, detectors.PhaseMerged}
}

// lateRow is a sum of late events.
type lateRow struct{ hit detectors.Hit }

func (r *lateRow) merge(o *lateRow) {
	a, b := &r.hit, &o.hit
	a.First = min(a.First, b.First)
	a.Last = max(a.Last, b.Last)
	a.Seen = max(a.Seen, b.Seen)
	a.Count = max(a.Count, b.Count)
}

func (r *lateRow) values(stream string) []any {
	h := &r.hit
	return []any{stream, h.ID, traffic.Printable(h.Rule), h.Lineage, h.Generation, h.Source, h.Keyed,
		postgres.Timestamp(h.First), postgres.Timestamp(h.Last), postgres.Timestamp(h.Seen), h.Count}
}

const updateLate = `DO UPDATE SET
		minute = least(h.minute, excluded.minute),
		latest = greatest(h.latest, excluded.latest),
		seen   = greatest(h.seen, excluded.seen),
		events = greatest(h.events, excluded.events)
	WHERE excluded.minute < h.minute OR excluded.latest > h.latest OR excluded.seen > h.seen OR excluded.events > h.events`

func lateTable() *upsert {
	return &upsert{
		table:   "late_sums",
		columns: strings.Fields("stream id rule lineage generation source_partition keyed_partition minute latest seen events"),
		update:  updateLate,
	}
}

// uncountedRow is a sum of events that a detector left out, for another reason than that they were late.
type uncountedRow struct{ lateRow }

func (r *uncountedRow) merge(o *uncountedRow) { r.lateRow.merge(&o.lateRow) }

func (r *uncountedRow) values(stream string) []any {
	h := &r.hit
	return []any{stream, h.ID, traffic.Printable(h.Rule), traffic.Printable(h.Reason), h.Lineage, h.Source, h.Keyed,
		postgres.Timestamp(h.First), postgres.Timestamp(h.Last), postgres.Timestamp(h.Seen), h.Count}
}

func uncountedTable() *upsert {
	return &upsert{
		table:   "uncounted_sums",
		columns: strings.Fields("stream id rule reason lineage source_partition keyed_partition minute latest seen events"),
		update:  updateLate,
	}
}

// refusalRow is a sum of requests that gates refused.
type refusalRow struct{ lateRow }

func (r *refusalRow) merge(o *refusalRow) {
	r.lateRow.merge(&o.lateRow)
	r.hit.Known = max(r.hit.Known, o.hit.Known)
}

func (r *refusalRow) values(stream string) []any {
	h := &r.hit
	return []any{stream, h.ID, traffic.Printable(h.Rule), traffic.Printable(h.Block), h.Keyed,
		postgres.Timestamp(h.First), postgres.Timestamp(h.Last), postgres.Timestamp(h.Seen), h.Count, h.Known}
}

func refusalsTable() *upsert {
	return &upsert{
		table:   "refusals",
		columns: strings.Fields("stream id rule block keyed_partition minute latest seen events known_good"),
		update: `DO UPDATE SET latest = greatest(h.latest, excluded.latest), seen = greatest(h.seen, excluded.seen),
			events = greatest(h.events, excluded.events), known_good = greatest(h.known_good, excluded.known_good)
		WHERE excluded.latest > h.latest OR excluded.seen > h.seen OR excluded.events > h.events OR excluded.known_good > h.known_good`,
	}
}
