package exactness

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Delays tells, for each routing version of the live stream after the first that records name or should, how long after it was stored
// the first event happened that was routed by it or by a later one. Events of the load happen when they are sent.
func (s *Stream) Delays(ctx context.Context, l *Logs) (map[int64]time.Duration, error) {
	out := map[int64]time.Duration{}
	err := s.Query(ctx, `SELECT number, created_at FROM {ns}.routing_versions WHERE stream = 'live' AND number > 1`, func(rows pgx.Rows) error {
		var number int64
		var stored time.Time
		if err := rows.Scan(&number, &stored); err != nil {
			return err
		}
		first := int64(0)
		for _, records := range l.fenced {
			for _, k := range records {
				if k.Version >= number && (first == 0 || k.Time < first) {
					first = k.Time
				}
			}
		}
		if first == 0 {
			return fmt.Errorf("no event was routed by version %d or a later one", number)
		}
		out[number] = time.UnixMicro(first).Sub(stored)
		return nil
	})
	return out, err
}
