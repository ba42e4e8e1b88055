package history

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// enter takes the partition's row of counts: whoever else records the partition, because it has not yet heard that it lost it, waits for the
// end of the transaction. What is in memory stays if nobody has counted since.
func (l *leftOut) enter(ctx context.Context, tx pgx.Tx, partition int, lane *laneCounts) error {
	const read = "SELECT token, at, nth, newest FROM hit_counts WHERE stream = $1 AND hits_partition = $2 FOR UPDATE"
	token, at, nth, newest := int64(0), []int64{}, []int64{}, traffic.Time(0)
	err := tx.QueryRow(ctx, read, l.stream, partition).Scan(&token, &at, &nth, postgres.ScanTime(&newest))
	if errors.Is(err, pgx.ErrNoRows) {
		_, err = tx.Exec(ctx, `INSERT INTO hit_counts (stream, hits_partition, token, at, nth, newest) VALUES ($1, $2, $3, '{}', '{}', '-infinity')
			ON CONFLICT DO NOTHING`, l.stream, partition, rand.Int64()) //nolint:gosec // it tells transactions apart, and is no secret
		if err == nil {
			err = tx.QueryRow(ctx, read, l.stream, partition).Scan(&token, &at, &nth, postgres.ScanTime(&newest))
		}
	}
	if err != nil || lane.groups != nil && lane.token == token {
		return err
	}
	lane.token, lane.at, lane.nth, lane.newest = token, at, nth, newest
	lane.groups, lane.ids = map[minuteKey]*minuteRows{}, 0
	lane.news = leftOutNews{}
	return nil
}

// know reads what is stored of minutes that are not in memory.
func (l *leftOut) know(ctx context.Context, tx pgx.Tx, partition int, lane *laneCounts, wanted map[minuteKey]bool) error {
	var batch pgx.Batch
	for _, key := range sortedKeys(wanted, minuteKey.compare) {
		lane.clock++
		g := lane.groups[key]
		if g == nil {
			g = &minuteRows{}
			lane.groups[key] = g
			if key.minute <= lane.newest {
				l.queueRead(&batch, partition, lane, key, g)
			}
		}
		g.used = lane.clock
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &batch).Close()
}

func (l *leftOut) queueRead(batch *pgx.Batch, partition int, lane *laneCounts, key minuteKey, g *minuteRows) {
	batch.Queue("SELECT beyond FROM hits_left_out WHERE stream = $1 AND rule = $2 AND kind = $3 AND minute = $4 AND hits_partition = $5",
		l.stream, key.rule, string(key.kind), postgres.Timestamp(key.minute), partition).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&g.beyond}, func() error { return nil })
		return err
	})
	condition, args := "", []any{l.dayOf(key), key.rule, postgres.Timestamp(key.minute), postgres.Timestamp(key.minute + minute)}
	if key.kind != detectors.KindHit {
		condition, args = " AND kind = $5", append(args, string(key.kind))
	}
	batch.Queue("SELECT id, subject, block_subject FROM "+dayedOf(key.kind)+
		" WHERE day = $1::date AND rule = $2 AND last >= $3 AND opened >= $3 AND opened < $4"+condition, args...).Query(func(rows pgx.Rows) error {
		var h detectors.Hit
		_, err := pgx.ForEachRow(rows, []any{&h.ID, &h.Subject, &h.BlockSubject}, func() error {
			if l.caps.Partitions <= 1 || h.Partition(l.caps.Partitions) == partition {
				g.ids = append(g.ids, h.ID)
			}
			return nil
		})
		slices.Sort(g.ids)
		lane.ids += len(g.ids)
		return err
	})
}

// leave takes away the rows and samples that others have pushed out, and writes what is left out and how far the partition has come.
func (l *leftOut) leave(ctx context.Context, tx pgx.Tx, partition int, lane *laneCounts, wanted map[minuteKey]bool) error {
	keys := sortedKeys(wanted, minuteKey.compare)
	if err := l.evict(ctx, tx, lane, keys); err != nil {
		return err
	}
	var batch pgx.Batch
	samples := l.caps.share(l.caps.Samples)
	for _, key := range keys {
		g := lane.groups[key]
		if g.touched {
			l.queueSums(&batch, partition, lane, key, g)
		}
		var stripped []string
		for _, id := range g.sampled {
			if at, stays := slices.BinarySearch(g.ids, id); stays && at >= samples {
				stripped = append(stripped, id)
			}
		}
		if len(stripped) > 0 && samples > 0 {
			batch.Queue("UPDATE "+dayedOf(key.kind)+" SET samples = '{}', samples_rank = 0 WHERE day = $1::date AND id = ANY ($2)", l.dayOf(key), stripped)
		}
		lane.ids += len(g.fresh)
		g.touched, g.fresh, g.sampled, g.evicted, g.sums = false, nil, nil, nil, leftOutSums{}
	}
	lane.token = rand.Int64() //nolint:gosec // it tells transactions apart, and is no secret
	batch.Queue("UPDATE hit_counts SET token = $3, at = $4, nth = $5, newest = $6 WHERE stream = $1 AND hits_partition = $2",
		l.stream, partition, lane.token, lane.at, lane.nth, postgres.Timestamp(lane.newest))
	lane.forget()
	return tx.SendBatch(ctx, &batch).Close()
}

// evict deletes rows that stayed before, and counts them among those that were left out.
func (l *leftOut) evict(ctx context.Context, tx pgx.Tx, lane *laneCounts, keys []minuteKey) error {
	var batch pgx.Batch
	for _, key := range keys {
		g := lane.groups[key]
		if len(g.evicted) == 0 {
			continue
		}
		lane.ids -= len(g.evicted)
		batch.Queue("DELETE FROM "+dayedOf(key.kind)+" WHERE day = $1::date AND id = ANY ($2) RETURNING phase, events, peak",
			l.dayOf(key), g.evicted).Query(func(rows pgx.Rows) error {
			var phase int16
			var events, peak int64
			_, err := pgx.ForEachRow(rows, []any{&phase, &events, &peak}, func() error {
				g.sums.rows++
				g.sums.end(phase, events, peak)
				return nil
			})
			return err
		})
	}
	if batch.Len() == 0 {
		return nil
	}
	return tx.SendBatch(ctx, &batch).Close()
}

func (l *leftOut) queueSums(batch *pgx.Batch, partition int, lane *laneCounts, key minuteKey, g *minuteRows) {
	without := 0
	if l.caps.Samples > 0 {
		without = max(0, len(g.ids)-l.caps.share(l.caps.Samples))
	}
	s := &g.sums
	lane.news.rows += s.rows
	lane.news.samples += int64(max(0, without-g.without))
	g.without = without
	batch.Queue(`INSERT INTO hits_left_out AS h (stream, rule, kind, minute, hits_partition, beyond, rows, merged, ended, events, peak, without_samples)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
		ON CONFLICT (stream, rule, kind, minute, hits_partition) DO UPDATE SET
			beyond = excluded.beyond, rows = h.rows + excluded.rows, merged = h.merged + excluded.merged, ended = h.ended + excluded.ended,
			events = h.events + excluded.events, peak = greatest(h.peak, excluded.peak), without_samples = excluded.without_samples`,
		l.stream, key.rule, string(key.kind), postgres.Timestamp(key.minute), partition, g.beyond, s.rows, s.merged, s.ended, s.events, s.peak, without)
}

// dayedOf is the table by day that has the rows of a kind.
func dayedOf(kind detectors.Kind) string {
	if kind == detectors.KindHit {
		return retention.HitsByDay
	}
	return retention.BesideByDay
}

// dayOf is the day under which the rows of a minute are kept.
func (l *leftOut) dayOf(k minuteKey) string {
	day, _ := l.days.Of(k.minute)
	return day.String()
}
