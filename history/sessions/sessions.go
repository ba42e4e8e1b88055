// Package sessions is who is signed in at a console, in PostgreSQL, so that several consoles share it and a restart ends nobody's
// session. It gets hashes of the tokens that browsers hold, never the tokens.
package sessions

import (
	"context"
	"crypto/sha256"
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

// Store is the sessions of one installation. It is safe for concurrent use. Times are the database's, so that consoles whose clocks
// differ agree on when a session ends.
type Store struct{ db *postgres.DB }

// New returns the sessions in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// Key is what secrets that browsers hold are sealed with, the same for all consoles of an installation: 32 bytes, made
// by the migration.
func (s *Store) Key(ctx context.Context) (key []byte, err error) {
	if err = s.db.QueryRow(ctx, "SELECT key FROM session_keys").Scan(&key); err != nil {
		return nil, s.db.Fail("reading the key of sessions", postgres.NoRows(err))
	}
	return key, nil
}

// Take ends a sign-in that may take until then, on whichever console: postgres.ErrNotFound is wrapped where it was
// taken before. Those whose time is over are forgotten meanwhile; that it is over the caller has to see.
func (s *Store) Take(ctx context.Context, token Hash, until time.Time) error {
	return s.db.Transact(ctx, "finishing a sign-in", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM sign_ins WHERE expires_at <= now() - $1::interval",
			takenGrace); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, "INSERT INTO sign_ins (token, next, expires_at) VALUES ($1, '', $2) "+
			"ON CONFLICT DO NOTHING",
			token[:], until)
		if err == nil && tag.RowsAffected() == 0 {
			return postgres.ErrNotFound
		}
		return err
	})
}

// takenGrace is how far the clocks of consoles and the database may differ before a sign-in could be taken twice.
const takenGrace = time.Hour

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
	who, stale, err := s.look(ctx, token, idle)
	if err == nil && stale {
		if _, err = s.db.Exec(ctx, "UPDATE sessions SET seen_at = now() WHERE token = $1", token[:]); err != nil {
			return Session{}, s.db.Fail("remembering the use of a session", err)
		}
	}
	return who, err
}

// Look is Find for what nobody does, such as a page that keeps itself up to date: it is no use of the session.
func (s *Store) Look(ctx context.Context, token Hash, idle time.Duration) (Session, error) {
	who, _, err := s.look(ctx, token, idle)
	return who, err
}

// look returns the session, and whether its last use has to be written down anew.
func (s *Store) look(ctx context.Context, token Hash, idle time.Duration) (who Session, stale bool, err error) {
	err = s.db.QueryRow(ctx, `SELECT name, subject, groups, via, role, owners, created_at, expires_at,
			seen_at <= now() - $3::interval FROM sessions
		WHERE token = $1 AND expires_at > now() AND seen_at > now() - $2::interval`, token[:], idle, seenEvery).
		Scan(&who.Name, &who.Subject, &who.Groups, &who.Via, &who.Role, &who.Owners, &who.Created, &who.Expires, &stale)
	if err != nil {
		return Session{}, false, s.db.Fail("looking up a session", postgres.NoRows(err))
	}
	who.Created, who.Expires = who.Created.UTC(), who.Expires.UTC()
	return who, stale, nil
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
