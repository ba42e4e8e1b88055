// Package sessions is who is signed in at a console, in PostgreSQL, so that several consoles share it and a restart ends nobody's
// session. It gets hashes of the tokens that browsers hold, never the tokens.
package sessions

import (
	"context"
	"crypto/sha256"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Hash is the SHA-256 of a token.
type Hash [sha256.Size]byte

// Session is somebody who is signed in.
type Session struct {
	Name    string   // as the audit trail has it
	Subject string   // who it is to the identity provider: ISSUER SUB; else what the session goes back to
	Groups  []string // as the identity provider named them
	// Via is how somebody came, as access.Actor has it: oidc, token, invite.
	Via string
	// Role and Owners are what an invitation gives; of who came otherwise, the configuration says it.
	Role    string
	Owners  []string
	Created time.Time
	Expires time.Time // whatever happens
}

// MostSignIns is how many sign-ins may be under way at a time; Begin refuses what is beyond with ErrBusy.
const MostSignIns = 10_000

// ErrBusy says that as many sign-ins are under way as there may be.
var ErrBusy = errors.New("too many sign-ins are under way")

// Store is the sessions of one installation. It is safe for concurrent use. Times are the database's, so that consoles whose clocks
// differ agree on when a session ends.
type Store struct{ db *postgres.DB }

// New returns the sessions in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// Begin remembers a sign-in for within: token is what its browser holds, next the path to go on with. Those that nobody finished are
// forgotten meanwhile.
func (s *Store) Begin(ctx context.Context, token Hash, next string, within time.Duration) error {
	return s.db.Transact(ctx, "beginning a sign-in", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM sign_ins WHERE expires_at <= now()"); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, `INSERT INTO sign_ins (token, next, expires_at)
			SELECT $1, $2, now() + $3 WHERE (SELECT count(*) FROM sign_ins) < $4`, token[:], traffic.Printable(next), within, MostSignIns)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrBusy
		}
		return err
	})
}

// Take ends a sign-in and returns the path to go on with; postgres.ErrNotFound is wrapped where none is under way: it has taken too
// long, or was taken before.
func (s *Store) Take(ctx context.Context, token Hash) (next string, err error) {
	var found *string // NULL: it has taken too long
	err = s.db.QueryRow(ctx, "DELETE FROM sign_ins WHERE token = $1 RETURNING CASE WHEN expires_at > now() THEN next END", token[:]).Scan(&found)
	if errors.Is(err, pgx.ErrNoRows) || err == nil && found == nil {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return "", s.db.Fail("finishing a sign-in", err)
	}
	return *found, nil
}

// Start makes a session that ends after lasts at the latest, and audits it. Sessions that have ended are forgotten meanwhile, and so is
// replaced, the one that the browser came with; a zero one is none.
func (s *Store) Start(ctx context.Context, token, replaced Hash, who Session, lasts time.Duration, entry audit.Entry) error {
	return s.db.Transact(ctx, "starting a session", func(tx pgx.Tx) error {
		return start(ctx, tx, token, replaced, &who, lasts, entry)
	})
}

// start is Start within a transaction.
func start(ctx context.Context, tx pgx.Tx, token, replaced Hash, who *Session, lasts time.Duration,
	entry audit.Entry) error {
	if _, err := tx.Exec(ctx, "DELETE FROM sessions WHERE expires_at <= now() OR token = $1", replaced[:]); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO sessions (token, name, subject, groups, via, role, owners, expires_at)
		VALUES ($1, $2, $3, $4, $5, $6, $7, now() + $8)`,
		token[:], traffic.Printable(who.Name), traffic.Printable(who.Subject), printable(who.Groups), who.Via,
		who.Role, printable(who.Owners), lasts)
	if err != nil {
		return err
	}
	return audit.Write(ctx, tx, entry)
}

// printable are texts as PostgreSQL takes them.
func printable(texts []string) []string {
	out := make([]string, len(texts))
	for i, text := range texts {
		out[i] = traffic.Printable(text)
	}
	return out
}

// seenEvery is how often a session's last use is written down.
const seenEvery = time.Minute

// Find returns the session of token and remembers that it is in use. postgres.ErrNotFound is wrapped where there is none, and where
// it has ended: at its end, or because it was not used for idle. idle is measured to the minute.
func (s *Store) Find(ctx context.Context, token Hash, idle time.Duration) (Session, error) {
	var who Session
	var stale bool
	err := s.db.QueryRow(ctx, `SELECT name, subject, groups, via, role, owners, created_at, expires_at, seen_at <= now() - $3::interval FROM sessions
		WHERE token = $1 AND expires_at > now() AND seen_at > now() - $2::interval`, token[:], idle, seenEvery).
		Scan(&who.Name, &who.Subject, &who.Groups, &who.Via, &who.Role, &who.Owners, &who.Created, &who.Expires, &stale)
	if errors.Is(err, pgx.ErrNoRows) {
		err = postgres.ErrNotFound
	}
	if err == nil && stale {
		_, err = s.db.Exec(ctx, "UPDATE sessions SET seen_at = now() WHERE token = $1", token[:])
	}
	if err != nil {
		return Session{}, s.db.Fail("looking up a session", err)
	}
	who.Created, who.Expires = who.Created.UTC(), who.Expires.UTC()
	return who, nil
}

// End ends the session of token and audits it; there need not be one, and then nothing is audited.
func (s *Store) End(ctx context.Context, token Hash, entry audit.Entry) error {
	return s.db.Transact(ctx, "ending a session", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, "DELETE FROM sessions WHERE token = $1", token[:])
		if err != nil || tag.RowsAffected() == 0 {
			return err
		}
		return audit.Write(ctx, tx, entry)
	})
}

// Note audits what happens to nobody's session: a sign-in that was refused.
func (s *Store) Note(ctx context.Context, entry audit.Entry) error {
	return audit.NewTrail(s.db).Add(ctx, entry)
}
