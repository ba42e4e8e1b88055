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
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// HitRecorder stores the hits topic of one stream. It is safe for concurrent use. The result does not depend on the order of
// records, nor on how often each is given: counts, peaks and last times only grow, first times only fall, and phases go from
// open through update and closed to merged. Giving the records of a partition in order only saves writes.
type HitRecorder struct {
	stream                        string
	core                          recorder[detectors.Hit]
	hits, beside, late, uncounted *upsert
}

var _ interface {
	Apply(ctx context.Context, batch []traffic.Message) error
} = (*HitRecorder)(nil)

// NewHitRecorder makes a recorder of stream's hits topic into store, which is a *Store. topic is that topic's name, for
// dead letters and metrics.
func NewHitRecorder(store Transactions, stream, topic string, letters DeadLetters,
	registry prometheus.Registerer) (*HitRecorder, error) {
	if err := ingest.Stream(stream).Check(); err != nil {
		return nil, err
	}
	r := &HitRecorder{stream: stream, hits: hitsTable(), beside: besideTable(), late: lateTable(), uncounted: uncountedTable()}
	metrics, err := newRecordMetrics(registry, r.hits.table, r.beside.table, r.late.table, r.uncounted.table, lossesTable, auditTable)
	if err != nil {
		return nil, err
	}
	r.core = recorder[detectors.Hit]{
		store: store, letters: letters, topic: topic, metrics: metrics, decode: decodeHit, table: r.table, write: r.write,
	}
	return r, nil
}

// Apply stores a batch and returns nil after PostgreSQL has committed it. A record that does not decode, or whose row
// PostgreSQL refuses, goes to the dead letters and is counted. After an error the caller must give the whole batch again. A
// record that a newer build wrote is such an error: only a process of that build can store it.
func (r *HitRecorder) Apply(ctx context.Context, batch []traffic.Message) error {
	return r.core.apply(ctx, batch)
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
		return r.beside.table
	case detectors.KindLate:
		return r.late.table
	case detectors.KindUncounted:
		return r.uncounted.table
	case detectors.KindLoss:
		return lossesTable
	case detectors.KindRelease:
		return auditTable
	}
	return r.hits.table
}

func (r *HitRecorder) write(ctx context.Context, tx pgx.Tx, items []item[detectors.Hit]) error {
	hits, late, uncounted := make(map[string]*hitRow), make(map[string]*lateRow), make(map[string]*uncountedRow)
	beside := make(map[string]*besideRow)
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
		case detectors.KindLoss:
			r.queueLoss(&rest, &h)
		case detectors.KindRelease:
			queueRelease(&rest, &h)
		}
	}
	if err := r.hits.run(ctx, tx, valuesInOrder(r.stream, hits)); err != nil {
		return fmt.Errorf("hits: %w", err)
	}
	if err := r.beside.run(ctx, tx, valuesInOrder(r.stream, beside)); err != nil {
		return fmt.Errorf("hits beside a limit: %w", err)
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
	b.Queue(`INSERT INTO `+lossesTable+` (stream, id, generation, source_partition, source_offset, keyed_partition, offsets,
			watermark, seen, accepted_by, reason)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`,
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

// hitRow is the merger of the records of one episode, given in any order and any number of times.
type hitRow struct {
	hit       detectors.Hit // Seen is the greatest
	phase     int16
	seenFirst traffic.Time
	rank      int64 // of the record that the samples came from, see samplesRank
}

func newHitRow(h detectors.Hit) (hitRow, error) {
	phase, err := phaseRank(h.Phase)
	if err != nil {
		return hitRow{}, err
	}
	h.Rule = traffic.Printable(h.Rule)
	h.Subject = traffic.Subject(traffic.Printable(string(h.Subject)))
	h.BlockSubject = traffic.Subject(traffic.Printable(string(h.BlockSubject)))
	h.Reason = traffic.Printable(h.Reason)
	samples := make([]string, len(h.Samples)) // not nil, which would be NULL
	for i, s := range h.Samples {
		samples[i] = traffic.Printable(s)
	}
	h.Samples = samples
	return hitRow{hit: h, phase: phase, seenFirst: h.Seen, rank: samplesRank(&h, phase)}, nil
}

// samplesRank orders records by whose samples are kept: the greater count first, then the later phase. 0: it has none.
func samplesRank(h *detectors.Hit, phase int16) int64 {
	const phaseBits = 3
	if len(h.Samples) == 0 {
		return 0
	}
	return min(max(h.Count, 1), 1<<(62-phaseBits))<<phaseBits | int64(phase)
}

// merge adds the record o of the same episode to r, as updateHit does in SQL: each member moves in one direction only, so the
// order and number of records do not matter.
func (r *hitRow) merge(o *hitRow) {
	a, b := &r.hit, &o.hit
	r.phase = max(r.phase, o.phase)
	r.seenFirst = min(r.seenFirst, o.seenFirst)
	a.RuleVersion = max(a.RuleVersion, b.RuleVersion)
	a.Limit = max(a.Limit, b.Limit)
	a.Count = max(a.Count, b.Count)
	a.Peak = max(a.Peak, b.Peak)
	a.First = min(a.First, b.First)
	a.Last = max(a.Last, b.Last)
	a.Seen = max(a.Seen, b.Seen)
	a.AtLeast = a.AtLeast || b.AtLeast
	a.Cut = a.Cut || b.Cut
	a.IntoID = max(a.IntoID, b.IntoID)
	a.Reason = max(a.Reason, b.Reason)
	a.Users = max(a.Users, b.Users)
	a.Devices = max(a.Devices, b.Devices)
	if cmp.Or(cmp.Compare(o.rank, r.rank), slices.Compare(b.Samples, a.Samples)) > 0 {
		r.rank, a.Samples = o.rank, b.Samples
	}
}

// values are in the order of the columns of hitsTable.
func (r *hitRow) values(stream string) []any {
	h := &r.hit
	d := decodeSubject(h.Subject)
	return []any{stream, h.ID, h.Rule, h.RuleVersion, h.Lineage, r.phase, string(h.Subject), string(h.BlockSubject),
		d.ip, d.device, d.user, d.apiKey, d.session, h.Grouped, h.Limit, h.WindowMS, h.Count, h.Peak,
		postgres.Timestamp(h.First), postgres.Timestamp(h.Last), postgres.Timestamp(r.seenFirst), postgres.Timestamp(h.Seen), h.Cut, h.Generation, h.Source, h.Offset, h.Keyed,
		h.IntoID, h.Users, h.Devices, h.Samples, r.rank, h.AtLeast, h.Reason}
}

const hitColumns = `stream id rule rule_version lineage phase subject block_subject
	ip device user_id api_key session grouped rule_limit window_ms events peak
	first last seen_first seen_last cut generation source_partition source_offset keyed_partition
	into_id users devices samples samples_rank at_least reason`

// updateHit writes a row only where the record adds to it: a record that is read twice costs no write.
const updateHit = `DO UPDATE SET
		phase        = greatest(h.phase, excluded.phase),
		rule_version = greatest(h.rule_version, excluded.rule_version),
		rule_limit   = greatest(h.rule_limit, excluded.rule_limit),
		events       = greatest(h.events, excluded.events),
		peak         = greatest(h.peak, excluded.peak),
		first        = least(h.first, excluded.first),
		last         = greatest(h.last, excluded.last),
		seen_first   = least(h.seen_first, excluded.seen_first),
		seen_last    = greatest(h.seen_last, excluded.seen_last),
		cut          = h.cut OR excluded.cut,
		into_id      = greatest(h.into_id, excluded.into_id),
		users        = greatest(h.users, excluded.users),
		devices      = greatest(h.devices, excluded.devices),
		samples      = CASE WHEN (excluded.samples_rank, excluded.samples) > (h.samples_rank, h.samples)
			THEN excluded.samples ELSE h.samples END,
		samples_rank = greatest(h.samples_rank, excluded.samples_rank),
		at_least     = h.at_least OR excluded.at_least,
		reason       = greatest(h.reason, excluded.reason)
	WHERE excluded.phase > h.phase OR excluded.rule_version > h.rule_version OR excluded.rule_limit > h.rule_limit
		OR excluded.events > h.events OR excluded.peak > h.peak OR excluded.first < h.first OR excluded.last > h.last
		OR excluded.seen_first < h.seen_first OR excluded.seen_last > h.seen_last OR excluded.cut > h.cut
		OR excluded.into_id > h.into_id OR excluded.users > h.users OR excluded.devices > h.devices OR excluded.at_least > h.at_least
		OR excluded.reason > h.reason
		OR (excluded.samples_rank, excluded.samples) > (h.samples_rank, h.samples)`

func hitsTable() *upsert {
	return &upsert{table: "hits", columns: strings.Fields(hitColumns), update: updateHit}
}

// besideRow is a hitRow of an episode near a limit, or over one on trial.
type besideRow struct{ hitRow }

func (r *besideRow) merge(o *besideRow) { r.hitRow.merge(&o.hitRow) }

func (r *besideRow) values(stream string) []any {
	return append(r.hitRow.values(stream), string(r.hit.Kind))
}

func besideTable() *upsert {
	return &upsert{table: tableBeside, columns: strings.Fields(hitColumns + " kind"), update: updateHit}
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
