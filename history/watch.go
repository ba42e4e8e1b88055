package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// The channels on which a change is told, each after the schema's name and an underscore.
const (
	channelRouting = "routing"
	channelModes   = "modes"
)

const (
	// pollInterval is how old a change can be that no notification told of.
	pollInterval = 2 * time.Second
	// pollTimeout is when a listening connection that does not answer a poll is given up.
	pollTimeout = 5 * time.Second
)

func (s *Store) channel(name string) string { return s.schema + "_" + name }

// notify tells those who watch once the transaction commits.
func (s *Store) notify(ctx context.Context, tx pgx.Tx, channel, payload string) error {
	_, err := tx.Exec(ctx, "SELECT pg_notify($1, $2)", s.channel(channel), payload)
	return err
}

// Watch calls onChange when routing versions have been published: within milliseconds by notification, within 2 s by
// polling where notifications do not come through. It is also called once for each connection made, the first included,
// because what happened before is not known. Watch returns when ctx ends; it outlives any outage of PostgreSQL. Calls
// are made one at a time; a slow onChange delays the next one.
func (s *Store) Watch(ctx context.Context, onChange func()) {
	s.watch(ctx, channelRouting, "SELECT count(*), coalesce(sum(number), 0)::bigint FROM routing_versions", onChange)
}

// WatchModes is Watch for the modes of rules and their newest versions.
func (s *Store) WatchModes(ctx context.Context, onChange func()) {
	s.watch(ctx, channelModes, `SELECT (SELECT coalesce(sum(generation), 0)::bigint FROM rule_modes),
		(SELECT count(*) FROM rule_versions)`, onChange)
}

// fingerprint is two numbers that move with every change of what is watched.
type fingerprint [2]int64

func (s *Store) watch(ctx context.Context, channel, poll string, onChange func()) {
	const shortest = 50 * time.Millisecond
	pause := shortest
	for {
		err := s.listen(ctx, channel, poll, func() { pause = shortest; onChange() })
		if ctx.Err() != nil {
			return
		}
		s.log.Warn("lost the connection that tells of changes, connecting again", "channel", s.channel(channel), "error", s.plain(err))
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, pollInterval)
	}
}

// listen serves one connection of its own until it breaks.
func (s *Store) listen(ctx context.Context, channel, poll string, onChange func()) error {
	conn, err := pgx.ConnectConfig(ctx, s.pool.Config().ConnConfig)
	if err != nil {
		return err
	}
	defer func() {
		// ctx has ended, most likely; without a bound a dead peer could hold us up.
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if err := conn.Close(closing); err != nil {
			s.log.Debug("closing the listening connection", "error", err)
		}
	}()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{s.channel(channel)}.Sanitize()); err != nil {
		return err
	}
	// Read after LISTEN: a change is in the fingerprint or notified, or both.
	seen, err := readFingerprint(ctx, conn, poll)
	if err != nil {
		return err
	}
	onChange()
	for {
		told, err := waitNotification(ctx, conn)
		if err != nil {
			return err
		}
		now, err := readFingerprint(ctx, conn, poll)
		if err != nil {
			return err
		}
		if told || now != seen {
			seen = now
			onChange()
		}
	}
}

// waitNotification waits at most pollInterval and reports whether a notification came.
func waitNotification(ctx context.Context, conn *pgx.Conn) (bool, error) {
	waiting, cancel := context.WithTimeout(ctx, pollInterval)
	defer cancel()
	_, err := conn.WaitForNotification(waiting)
	if err != nil && waiting.Err() != nil && ctx.Err() == nil && !conn.IsClosed() {
		return false, nil
	}
	return err == nil, err
}

func readFingerprint(ctx context.Context, conn *pgx.Conn, poll string) (f fingerprint, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	return f, conn.QueryRow(ctx, poll).Scan(&f[0], &f[1])
}
