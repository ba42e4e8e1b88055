package sessions

import (
	"context"
	"encoding/hex"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Invite is who may sign in by a link, and as what.
type Invite struct {
	Name   string   // as the audit trail will have it
	Role   string   // as access.Role names it
	Owners []string // for whom an owner decides
	By     string   // who made it
}

// MostInvites is how many invitations may wait at a time; Invite refuses what is beyond with ErrTooManyInvites.
const MostInvites = 1000

// ErrTooManyInvites says that as many invitations wait as there may be.
var ErrTooManyInvites = errors.New("too many invitations wait to be used: end some, or wait until they are over")

// Invite keeps an invitation for within, and audits it: link is the hash of what its link holds. Those that are over
// are forgotten meanwhile. The time that it returns is when this one is over.
func (s *Store) Invite(ctx context.Context, link Hash, of Invite, within time.Duration,
	entry audit.Entry) (until time.Time, err error) {
	err = s.db.Transact(ctx, "keeping an invitation", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "DELETE FROM invites WHERE expires_at <= now()"); err != nil {
			return err
		}
		err := tx.QueryRow(ctx, `INSERT INTO invites (token, name, role, owners, made_by, expires_at)
			SELECT $1, $2, $3, $4, $5, now() + $6 WHERE (SELECT count(*) FROM invites) < $7 RETURNING expires_at`,
			link[:], traffic.Printable(of.Name), of.Role, printable(of.Owners), traffic.Printable(of.By), within,
			MostInvites).Scan(&until)
		if errors.Is(err, pgx.ErrNoRows) {
			return ErrTooManyInvites
		}
		if err != nil {
			return err
		}
		return audit.Write(ctx, tx, entry)
	})
	return until.UTC(), err
}

// Redeem takes the invitation of link, and makes a session of whom it names in its place, or nothing of both. made is
// asked for the session's origin and for the entry of the audit trail. postgres.ErrNotFound is wrapped where there is
// no invitation: it was never made, is over, was taken back, or somebody has used it. Of several who bring the same
// link at once, one gets the session.
func (s *Store) Redeem(ctx context.Context, link, token, replaced Hash, lasts time.Duration,
	made func(Invite) (Session, audit.Entry)) (Session, error) {
	var who Session
	err := s.db.Transact(ctx, "redeeming an invitation", func(tx pgx.Tx) error {
		var of Invite
		err := tx.QueryRow(ctx, "DELETE FROM invites WHERE token = $1 AND expires_at > now() RETURNING name, role, owners, made_by", link[:]).
			Scan(&of.Name, &of.Role, &of.Owners, &of.By)
		if err != nil {
			return postgres.NoRows(err)
		}
		var entry audit.Entry
		who, entry = made(of)
		return start(ctx, tx, token, replaced, &who, lasts, entry)
	})
	if err != nil {
		return Session{}, err
	}
	return who, nil
}

// Listed is a session that lives or an invitation that waits, as who looks after them sees it.
type Listed struct {
	// ID names it: the beginning of the hash by which it is kept, in hex. Nobody can sign in with it.
	ID string
	Session
	Seen    time.Time // when it was used last, to the minute; zero of an invitation
	Invited bool      // an invitation, which nobody has used
	By      string    // who made the invitation
}

// idDigits is how many hexadecimal digits of a hash are an ID: enough to tell a million apart, and to type.
const idDigits = 12

// ID is by what Listed names what is kept under the hash.
func (h Hash) ID() string { return hex.EncodeToString(h[:])[:idDigits] }

// What Listed has of the rows of both tables.
const (
	listedID      = "left(encode(token, 'hex'), 12)"
	listedSession = listedID + " AS id, name, subject, groups, via, role, owners, created_at, expires_at, seen_at, false, ''"
	listedInvite  = listedID + ", name, '', '{}', 'invite', role, owners, made_at, expires_at, NULL, true, made_by"
)

// List returns the sessions that live and the invitations that wait, by name and then by when they began. idle is how
// long a session lives unused.
func (s *Store) List(ctx context.Context, idle time.Duration) ([]Listed, error) {
	rows, err := s.db.Query(ctx, "SELECT "+listedSession+
		" FROM sessions WHERE expires_at > now() AND seen_at > now() - $1::interval UNION ALL SELECT "+
		listedInvite+" FROM invites WHERE expires_at > now() ORDER BY name, created_at, id", idle)
	if err != nil {
		return nil, s.db.Fail("listing sessions", err)
	}
	all, err := pgx.CollectRows(rows, scanListed)
	if err != nil {
		return nil, s.db.Fail("listing sessions", err)
	}
	return all, nil
}

func scanListed(row pgx.CollectableRow) (l Listed, err error) {
	var seen *time.Time // NULL: of an invitation
	err = row.Scan(&l.ID, &l.Name, &l.Subject, &l.Groups, &l.Via, &l.Role, &l.Owners, &l.Created, &l.Expires, &seen,
		&l.Invited, &l.By)
	if seen != nil {
		l.Seen = seen.UTC()
	}
	l.Created, l.Expires = l.Created.UTC(), l.Expires.UTC()
	return l, err
}

// Which says what Remove ends: what has the ID or, where that is empty, everything of Name.
type Which struct{ ID, Name string }

// Remove ends sessions and takes back invitations, and audits each: entry is asked what of it is to be said. It
// returns what it has ended, nothing where there was none. A browser that has one of the sessions is signed out with
// its next request, on every console.
func (s *Store) Remove(ctx context.Context, which Which, entry func(Listed) audit.Entry) (ended []Listed, err error) {
	condition, value := " WHERE "+listedID+" = $1 RETURNING *", which.ID
	if which.ID == "" {
		condition, value = " WHERE name = $1 RETURNING *", traffic.Printable(which.Name)
	}
	err = s.db.Transact(ctx, "ending sessions", func(tx pgx.Tx) error {
		// Whoever is redeeming an invitation is waited for: his session is seen then, and ends.
		if _, err := tx.Exec(ctx, "LOCK TABLE invites IN SHARE ROW EXCLUSIVE MODE"); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, "WITH s AS (DELETE FROM sessions"+condition+"), i AS (DELETE FROM invites"+condition+
			") SELECT "+listedSession+" FROM s UNION ALL SELECT "+listedInvite+" FROM i ORDER BY name, created_at, id",
			value)
		if err != nil {
			return err
		}
		if ended, err = pgx.CollectRows(rows, scanListed); err != nil {
			return err
		}
		for i := range ended {
			if err := audit.Write(ctx, tx, entry(ended[i])); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return ended, nil
}
