package streams

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// noPartition stands for a source or keyed partition where a loss is of another topic.
const noPartition = -1

// KeepLoss keeps what a stage will never read of topic. The same loss told again is the same row.
func (s *Store) KeepLoss(ctx context.Context, stream, topic string, l ingest.Loss) error {
	id := fmt.Sprintf("%s/%d:%d:%d-%d", l.Stage, l.Partition, l.From, l.Log.Start, l.Log.End)
	reason := fmt.Sprintf("stage %s, topic %s, partition %d: %s", l.Stage, topic, l.Partition, l.Reason)
	_, err := s.db.Exec(ctx, `INSERT INTO losses (stream, id, generation, source_partition, source_offset,
		keyed_partition, offsets,
			watermark, seen, accepted_by, reason)
		SELECT $1, $2, coalesce((SELECT generation FROM streams WHERE name = $1), 0), $3, $4, $3, $5, now(), now(), '', $6
		ON CONFLICT DO NOTHING`,
		stream, id, noPartition, l.Next, l.Offsets, traffic.Printable(reason))
	if err != nil {
		return s.db.Fail("storing a loss of topic "+topic, err)
	}
	return nil
}

// RecentLosses says how many losses the live stream had within the last day, by the time at which they were stored,
// and the reason of the newest.
func (s *Store) RecentLosses(ctx context.Context) (n int, newest string, err error) {
	err = s.db.QueryRow(ctx, `SELECT count(*), coalesce((array_agg(reason ORDER BY recorded_at DESC))[1], '')
		FROM losses
		WHERE stream = $1 AND recorded_at > now() - interval '1 day'`, Live).Scan(&n, &newest)
	if err != nil {
		return 0, "", s.db.Fail("looking for losses", err)
	}
	return n, newest, nil
}
