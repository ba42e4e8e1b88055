// Package sums keeps sums of the live episodes that have ended, by the hour (UTC) of their last over event, so that questions about days and
// months need not read the rows. They are always made from the rows as a whole; triggers of step 28 of the migrations mark what rows that have
// changed make stale.
package sums

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Hashes is how many hashes of sources the sum of an hour has at most.
const Hashes = 256

// Columns are those of Select, and of the table hit_sums behind its hour.
const Columns = "rule, begun, episodes, events, refused, peak, first, last, several, sources, hashes"

// Select is the query of sums, by rule and hour of the first over event, over the rows of a query with rule, subject, block_subject, first, last,
// events, refused and peak. hashes are those of the sources, ascending: at most so many. several says that a source has rows for different blocks.
func Select(rows string, hashes int64) string {
	return fmt.Sprintf(`SELECT rule, begun, sum(episodes)::bigint AS episodes, sum(events)::bigint AS events, sum(refused)::bigint AS refused, max(peak) AS peak,
			min(first) AS first, max(last) AS last, bool_or(several) AS several, count(*) AS sources, array_agg(hash ORDER BY hash) FILTER (WHERE nth <= %d) AS hashes
		FROM (SELECT *, row_number() OVER (PARTITION BY rule, begun ORDER BY hash) AS nth
			FROM (SELECT rule, date_trunc('hour', first, 'UTC') AS begun, hashtextextended(subject, 0) AS hash, count(*) AS episodes, sum(events) AS events,
					sum(refused) AS refused, max(peak) AS peak, min(first) AS first, max(last) AS last,
					coalesce(min(hashtextextended(block_subject, 0)) <> max(hashtextextended(block_subject, 0)), false) AS several
				FROM (%s) rows GROUP BY 1, 2, 3) each) placed
		GROUP BY rule, begun`, hashes, rows)
}

const (
	// settled is how long after its end an hour gets its sums: step 28 of the migrations counts on it.
	settled = "interval '1 hour'"
	// quiet is how long a stale sum waits: rows that change one after the other shall not have it made as often.
	quiet = "interval '5 minutes'"
	// atOnce is how many hours, or stale sums, are made in one turn: a backlog takes several, the newest hours first.
	atOnce = 48
	// turn bounds one statement to a server that has taken it and does not answer.
	turn = 30 * time.Second
)

// Maker makes sums. Any number of processes may run one; they take turns.
type Maker struct{ db *postgres.DB }

// NewMaker makes a Maker of the sums in db.
func NewMaker(db *postgres.DB) *Maker { return &Maker{db} }

// Made is what a turn has done.
type Made struct {
	Hours int // that have sums now, and had none
	Again int // sums of a rule and hour that were stale
}

// stale is a rule in an hour.
type stale struct {
	hour traffic.Time
	rule string
}

// Once makes the sums that are missing, and those that are stale, of hours from since on: as many as fit one turn. What another process makes
// meanwhile it leaves alone.
func (m *Maker) Once(ctx context.Context, since traffic.Time) (made Made, err error) {
	var hours []traffic.Time
	var again []stale
	err = m.transact(ctx, "choosing the hours to sum up", func(ctx context.Context, tx pgx.Tx) error {
		hours, again, err = choose(ctx, tx, since)
		return err
	})
	if err != nil || len(hours)+len(again) == 0 {
		return made, err
	}
	// Whoever has found before that these have no sums, and so has marked nothing, ends now; who comes later finds them.
	err = m.transact(ctx, "waiting for those who change hits", func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('weir hit sums ' || current_schema(), 0))")
		return err
	})
	if err != nil {
		return made, err
	}
	for _, hour := range hours {
		if ctx.Err() != nil {
			return made, nil
		}
		if err := m.make(ctx, hour); err != nil {
			return made, err
		}
		made.Hours++
	}
	for _, s := range again {
		if ctx.Err() != nil {
			return made, nil
		}
		done, err := m.makeAgain(ctx, s)
		if err != nil {
			return made, err
		}
		made.Again += done
	}
	return made, nil
}

// choose notes which sums are being made, so that changes of their rows are marked from then on.
func choose(ctx context.Context, tx pgx.Tx, since traffic.Time) (hours []traffic.Time, again []stale, err error) {
	// An hour that is not ready may be one that a process has begun and not ended.
	rows, err := tx.Query(ctx, `INSERT INTO hit_hours AS h (hour, ready)
		SELECT hour, false FROM generate_series(date_trunc('hour', now() - `+settled+`, 'UTC') - interval '1 hour', date_trunc('hour', $1::timestamptz, 'UTC'), interval '-1 hour') hour
		WHERE NOT EXISTS (SELECT FROM hit_hours r WHERE r.hour = hour.hour AND r.ready) ORDER BY hour DESC LIMIT $2
		ON CONFLICT (hour) DO UPDATE SET ready = false WHERE NOT h.ready RETURNING hour`, postgres.Timestamp(since), atOnce)
	if err != nil {
		return nil, nil, err
	}
	if hours, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t traffic.Time, err error) { return t, row.Scan(postgres.ScanTime(&t)) }); err != nil {
		return nil, nil, err
	}
	rows, err = tx.Query(ctx, `UPDATE hit_sums_stale s SET making = true
		FROM (SELECT hour, rule FROM hit_sums_stale WHERE since < now() - `+quiet+` ORDER BY since LIMIT $1 FOR UPDATE SKIP LOCKED) old
		WHERE s.hour = old.hour AND s.rule = old.rule RETURNING s.hour, s.rule`, atOnce)
	if err != nil {
		return nil, nil, err
	}
	again, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (s stale, err error) {
		return s, row.Scan(postgres.ScanTime(&s.hour), &s.rule)
	})
	return hours, again, err
}

// rowsOf are the rows that an hour sums up, $1 being its beginning.
const rowsOf = `SELECT * FROM hits_all WHERE stream = 'live' AND phase = 3 AND last >= $1::timestamptz AND last < $1::timestamptz + interval '1 hour'
	AND day BETWEEN ($1::timestamptz AT TIME ZONE 'UTC')::date - 2 AND ($1::timestamptz AT TIME ZONE 'UTC')::date + 2`

// make makes the sums of an hour. Changes meanwhile have marked their rule: its sums stay stale.
func (m *Maker) make(ctx context.Context, hour traffic.Time) error {
	return m.transact(ctx, "summing up the hits of "+hour.String(), func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "UPDATE hit_hours SET ready = true WHERE hour = $1 AND NOT ready", postgres.Timestamp(hour))
		if err != nil || tag.RowsAffected() == 0 { // another process has made them
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM hit_sums WHERE hour = $1", postgres.Timestamp(hour)); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, "INSERT INTO hit_sums (hour, "+Columns+") SELECT $1::timestamptz, "+Columns+" FROM ("+Select(rowsOf, Hashes)+") s", postgres.Timestamp(hour))
		return err
	})
}

// makeAgain makes the sum of a rule in an hour, unless a row has changed meanwhile.
func (m *Maker) makeAgain(ctx context.Context, s stale) (made int, err error) {
	err = m.transact(ctx, "summing up the hits of "+s.rule+" of "+s.hour.String(), func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM hit_sums_stale WHERE hour = $1 AND rule = $2 AND making", postgres.Timestamp(s.hour), s.rule)
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		if _, err := tx.Exec(ctx, "DELETE FROM hit_sums WHERE hour = $1 AND rule = $2", postgres.Timestamp(s.hour), s.rule); err != nil {
			return err
		}
		made = 1
		_, err = tx.Exec(ctx, "INSERT INTO hit_sums (hour, "+Columns+") SELECT $1::timestamptz, "+Columns+" FROM ("+Select(rowsOf+" AND rule = $2", Hashes)+") s",
			postgres.Timestamp(s.hour), s.rule)
		return err
	})
	return made, err
}

func (m *Maker) transact(ctx context.Context, doing string, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, turn)
	defer cancel()
	return m.db.Transact(ctx, doing, func(tx pgx.Tx) error { return do(ctx, tx) })
}

// Drop drops the sums of hours before the end of a day of hits, which is dropped with them in tx, and marks those of the hours in which its last
// episodes may have ended.
func Drop(ctx context.Context, tx pgx.Tx, end traffic.Time) error {
	for _, statement := range []string{
		"DELETE FROM hit_hours WHERE hour < $1",
		"DELETE FROM hit_sums WHERE hour < $1",
		"DELETE FROM hit_sums_stale WHERE hour < $1",
		`INSERT INTO hit_sums_stale (hour, rule) SELECT DISTINCT hour, rule FROM hit_sums WHERE hour < $1::timestamptz + interval '2 days'
			ORDER BY 1, 2 ON CONFLICT (hour, rule) DO UPDATE SET making = false, since = now()`,
	} {
		if _, err := tx.Exec(ctx, statement, postgres.Timestamp(end)); err != nil {
			return err
		}
	}
	return nil
}
