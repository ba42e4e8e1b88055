package history

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// ReportedPartition is what a stage last said about a partition, and when.
type ReportedPartition struct {
	ingest.PartitionStatus
	Reported time.Time
}

// reportState never lets an owner that was replaced have the last word: a lower epoch changes nothing.
const reportState = `
	INSERT INTO partition_states AS s (stream, side, partition, owner, state, reason, log_offset, log_end, epoch, watermark,
		gap_source, gap_offset)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
	ON CONFLICT (stream, side, partition) DO UPDATE SET owner = excluded.owner, state = excluded.state,
		reason = excluded.reason, log_offset = excluded.log_offset, log_end = excluded.log_end, epoch = excluded.epoch,
		watermark = excluded.watermark, gap_source = excluded.gap_source, gap_offset = excluded.gap_offset, reported_at = now()
	WHERE excluded.epoch >= s.epoch`

// Report stores what a stage says about its partitions, in place of what was said before.
func (s *Store) Report(ctx context.Context, stream string, states []ingest.PartitionStatus) error {
	if len(states) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, st := range states {
		batch.Queue(reportState, stream, string(st.Side), st.Partition, traffic.Printable(st.Owner), string(st.State),
			traffic.Printable(st.Reason), st.Offset, st.End, st.Epoch, stamp(st.Watermark), st.GapSource, st.GapOffset)
	}
	if err := s.pool.SendBatch(ctx, &batch).Close(); err != nil {
		return s.fail("reporting partitions of "+stream, err)
	}
	return nil
}

// PartitionStates returns the last report about each partition of stream, requests before keyed, ascending.
func (s *Store) PartitionStates(ctx context.Context, stream string) ([]ReportedPartition, error) {
	rows, err := s.pool.Query(ctx, `
		SELECT side, partition, owner, state, reason, log_offset, log_end, epoch, watermark, gap_source, gap_offset, reported_at
		FROM partition_states WHERE stream = $1 ORDER BY side DESC, partition`, stream)
	if err != nil {
		return nil, s.fail("partitions of "+stream, err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p ReportedPartition, err error) {
		err = row.Scan(&p.Side, &p.Partition, &p.Owner, &p.State, &p.Reason, &p.Offset, &p.End, &p.Epoch,
			scanTime(&p.Watermark), &p.GapSource, &p.GapOffset, &p.Reported)
		p.Reported = p.Reported.UTC()
		return p, err
	})
	if err != nil {
		return nil, s.fail("partitions of "+stream, err)
	}
	return states, nil
}

// Accept stores an operator's word that a gap may be passed, and audits it. The same gap accepted again is as before.
func (s *Store) Accept(ctx context.Context, stream string, a ingest.Acceptance) error {
	object := fmt.Sprintf("partition %s/%d of %s", a.Side, a.Partition, stream)
	return s.transact(ctx, "accepting a gap in "+object, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO gap_acceptances (stream, side, partition, gap_source, gap_offset, accepted_by, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING`, stream, string(a.Side), a.Partition, a.GapSource,
			a.GapOffset, traffic.Printable(a.By), traffic.Printable(a.Reason))
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return writeAudit(ctx, tx, AuditEntry{Actor: a.By, Action: "accept-gap", Object: object, Reason: a.Reason,
			Detail: fmt.Sprintf("source partition %d, first offset after the gap %d", a.GapSource, a.GapOffset)})
	})
}

// Accepted returns all acceptances of the stream, oldest first.
func (s *Store) Accepted(ctx context.Context, stream string) ([]ingest.Acceptance, error) {
	rows, err := s.pool.Query(ctx, `SELECT side, partition, gap_source, gap_offset, accepted_by, reason
		FROM gap_acceptances WHERE stream = $1 ORDER BY seq`, stream)
	if err != nil {
		return nil, s.fail("accepted gaps of "+stream, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a ingest.Acceptance, err error) {
		return a, row.Scan(&a.Side, &a.Partition, &a.GapSource, &a.GapOffset, &a.By, &a.Reason)
	})
	if err != nil {
		return nil, s.fail("accepted gaps of "+stream, err)
	}
	return all, nil
}
