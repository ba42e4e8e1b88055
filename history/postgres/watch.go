package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/retry"
)

const (
	// pollInterval bounds how late a change is heard of that no notification told of, as behind a connection pooler.
	pollInterval = 2 * time.Second
	// pollTimeout is when a listening connection that does not answer a poll is given up.
	pollTimeout = 5 * time.Second
	// leastReconnect is the wait before the first try to connect again; it doubles up to pollInterval.
	leastReconnect = 50 * time.Millisecond
)

// Topic is something that can be watched: writers Notify of it, and Watch hears them.
type Topic struct {
	Name string // the channel of LISTEN and NOTIFY is the schema's name, an underscore and Name
	// Fingerprint is a query of two bigints, one of which at least is another one after every change.
	Fingerprint string
}

// fingerprint is what Topic.Fingerprint gave.
type fingerprint [2]int64

func (db *DB) channel(t Topic) string { return db.schema + "_" + t.Name }

// Notify tells the watchers of t once the transaction commits. payload is for people who listen with psql.
func (db *DB) Notify(ctx context.Context, tx pgx.Tx, t Topic, payload string) error {
	_, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", db.channel(t), payload)
	return err
}

// Watch calls onChange after every change of t: within milliseconds by notification, within 2 s by polling where
// notifications do not come through. It also calls it once for each connection made, the first included, because it cannot
// know of changes before. Calls are made one at a time: a slow onChange delays the next one. Watch has a connection of its own
// beside the pool, outlives any outage of PostgreSQL and returns when ctx ends.
func (db *DB) Watch(ctx context.Context, t Topic, onChange func()) {
	backoff := retry.NewBackoff(leastReconnect, pollInterval)
	var trouble retry.Trouble
	for {
		err := db.listen(ctx, t, func() {
			backoff.Reset()
			trouble.Over(db.log, "connected again, changes are heard", "channel", db.channel(t))
			onChange()
		})
		if ctx.Err() != nil {
			return
		}
		trouble.Failed(db.log, "lost the connection that tells of changes, connecting again", db.plain(err), "channel", db.channel(t))
		if backoff.Wait(ctx) != nil {
			return
		}
	}
}

// listen serves one connection until it breaks, and returns why.
func (db *DB) listen(ctx context.Context, t Topic, onChange func()) error {
	conn, err := pgx.ConnectConfig(ctx, db.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		// ctx has ended, most likely; without a bound a dead peer could hold us up.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := conn.Close(closing); err != nil {
			db.log.Debug("closing the listening connection", "error", err)
		}
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{db.channel(t)}.Sanitize()); err != nil {
		return err
	}
	// Read after LISTEN: a change is in the fingerprint or notified, or both.
	last, err := readFingerprint(ctx, conn, t)
	if err != nil {
		return err
	}
	onChange()
	for {
		notified, err := waitNotification(ctx, conn, db.poll)
		if err != nil {
			return err
		}
		now, err := readFingerprint(ctx, conn, t)
		if err != nil {
			return err
		}
		if notified || now != last {
			last = now
			onChange()
		}
	}
}

// waitNotification waits for at most limit and reports whether a notification came.
func waitNotification(ctx context.Context, conn *pgx.Conn, limit time.Duration) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

func readFingerprint(ctx context.Context, conn *pgx.Conn, t Topic) (f fingerprint, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return f, conn.QueryRow(ctx, t.Fingerprint).Scan(&f[0], &f[1])
}
