package partitions

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// ReportedPartition is the last report of a stage about a partition.
type ReportedPartition struct {
	ingest.PartitionStatus
	Reported time.Time
}

// GapAcceptable reports whether a partition has stopped at a gap, which an operator may accept, and for no other
// reason. Without a gap, stages report -1; those of older builds reported 0 of keyed partitions, where no gap can end.
func (p *ReportedPartition) GapAcceptable() bool {
	least := int64(0)
	if p.Side == ingest.SideKeyed {
		least = 1
	}
	return p.State != ingest.Running && p.GapOffset >= least
}

// reportState ignores a report with a lower epoch than the stored one: its owner was replaced.
const reportState = `
	INSERT INTO partition_states AS s (stream, side, partition, owner, state, reason, log_offset, log_end, epoch, watermark,
		gap_source, gap_offset, address, stopped_at)
	VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, CASE WHEN $5 <> 'running' THEN now() END)
	ON CONFLICT (stream, side, partition) DO UPDATE SET owner = excluded.owner, address = excluded.address, state = excluded.state,
		reason = excluded.reason, log_offset = excluded.log_offset, log_end = excluded.log_end, epoch = excluded.epoch,
		watermark = excluded.watermark, gap_source = excluded.gap_source, gap_offset = excluded.gap_offset,
		reported_at = now(),
		stopped_at = CASE WHEN excluded.state = 'running' THEN NULL
			WHEN s.state <> 'running' AND s.gap_source = excluded.gap_source AND s.gap_offset = excluded.gap_offset
			THEN coalesce(s.stopped_at, now()) ELSE now() END
	WHERE excluded.epoch >= s.epoch`

// Report stores a stage's reports about its partitions, in place of the ones before.
func (s *Store) Report(ctx context.Context, stream string, states []ingest.PartitionStatus) error {
	if len(states) == 0 {
		return nil
	}
	var batch pgx.Batch
	for _, st := range states {
		batch.Queue(reportState, stream, string(st.Side), st.Partition, traffic.Printable(st.Owner), string(st.State),
			traffic.Printable(st.Reason), st.Offset, st.End, st.Epoch, postgres.Timestamp(st.Watermark), st.GapSource, st.GapOffset,
			traffic.Printable(st.Address))
	}
	if err := s.db.SendBatch(ctx, &batch).Close(); err != nil {
		return s.db.Fail("reporting partitions of "+stream, err)
	}
	return nil
}

// PartitionStates returns the last report about each partition of stream, requests before keyed, ascending.
func (s *Store) PartitionStates(ctx context.Context, stream string) ([]ReportedPartition, error) {
	rows, err := s.db.Query(ctx, `
		SELECT side, partition, owner, state, reason, log_offset, log_end, epoch, watermark, gap_source, gap_offset, reported_at, address
		FROM partition_states WHERE stream = $1 ORDER BY side DESC, partition`, stream)
	if err != nil {
		return nil, s.db.Fail("partitions of "+stream, err)
	}
	states, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p ReportedPartition, err error) {
		err = row.Scan(&p.Side, &p.Partition, &p.Owner, &p.State, &p.Reason, &p.Offset, &p.End, &p.Epoch,
			postgres.ScanTime(&p.Watermark), &p.GapSource, &p.GapOffset, &p.Reported, &p.Address)
		p.Reported = p.Reported.UTC()
		return p, err
	})
	if err != nil {
		return nil, s.db.Fail("partitions of "+stream, err)
	}
	return states, nil
}

// ofAnotherStop holds for an acceptance a of requests, or of a keyed log that was made anew, that was given before its
// partition stopped as it stands now: a commit that is lost a second time, or a topic that is made anew, stops it
// before a gap of the same numbers. Keyed partitions fold their log again from a snapshot, and pass the same other gap
// again. -2 is ingest.KeyedAnew.
const ofAnotherStop = `(a.side = 'requests' OR a.gap_source = -2) AND EXISTS (
	SELECT FROM partition_states p WHERE p.stream = a.stream AND p.side = a.side AND p.partition = a.partition
		AND (p.stopped_at IS NULL OR p.stopped_at > a.accepted_at))`

// Accept stores an operator's word that a gap may be passed, and audits it with via, which is how he came. Accepting a
// gap again changes nothing, and news is false, unless the partition has stopped anew since. A stage passes the gap
// that it stands before, and no other one.
func (s *Store) Accept(ctx context.Context, stream, via string, a ingest.Acceptance) (news bool, err error) {
	object := fmt.Sprintf("partition %s/%d of %s", a.Side, a.Partition, stream)
	err = s.db.Transact(ctx, "accepting a gap in "+object, func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `
			INSERT INTO gap_acceptances AS a (stream, side, partition, gap_source, gap_offset, accepted_by, reason)
			VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (stream, side, partition, gap_source, gap_offset) DO UPDATE
			SET accepted_by = excluded.accepted_by, reason = excluded.reason, accepted_at = now()
			WHERE `+ofAnotherStop, stream, string(a.Side), a.Partition, a.GapSource,
			a.GapOffset, traffic.Printable(a.By), traffic.Printable(a.Reason))
		if news = err == nil && tag.RowsAffected() > 0; !news {
			return err
		}
		return audit.Write(ctx, tx, audit.Entry{Actor: a.By, Via: via, Action: "accept-gap", Object: object,
			Reason: a.Reason,
			Detail: fmt.Sprintf("source partition %d, first offset after the gap %d", a.GapSource, a.GapOffset),
			Before: fmt.Sprintf("a gap in source partition %d that nobody has accepted", a.GapSource),
			After:  fmt.Sprintf("may be passed over, up to offset %d", a.GapOffset)})
	})
	return news && err == nil, err
}

// Accepted returns the acceptances of the stream that hold, oldest first: of requests those of how its partitions
// stand now.
func (s *Store) Accepted(ctx context.Context, stream string) ([]ingest.Acceptance, error) {
	rows, err := s.db.Query(ctx, `SELECT side, partition, gap_source, gap_offset, accepted_by, reason
		FROM gap_acceptances a WHERE stream = $1 AND NOT (`+ofAnotherStop+`) ORDER BY seq`, stream)
	if err != nil {
		return nil, s.db.Fail("accepted gaps of "+stream, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (a ingest.Acceptance, err error) {
		return a, row.Scan(&a.Side, &a.Partition, &a.GapSource, &a.GapOffset, &a.By, &a.Reason)
	})
	if err != nil {
		return nil, s.db.Fail("accepted gaps of "+stream, err)
	}
	return all, nil
}
