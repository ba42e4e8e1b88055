// Package savedviews is the views of the explorer that people keep under a name, for themselves or for everybody.
package savedviews

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
)

// View is a kept view.
type View struct {
	By     string    `json:"by"` // whose it is, as the audit trail names people
	Name   string    `json:"name"`
	Query  string    `json:"query"`  // of the explorer's address, without the question mark
	Shared bool      `json:"shared"` // everybody sees it; only its owner changes it
	At     time.Time `json:"at"`     // when it was kept; set by the database
}

// Bounds of views.
const (
	MaxNameBytes  = 80
	MaxQueryBytes = 2000
	MaxViews      = 200 // of one person
)

// ErrTooMany says that somebody keeps MaxViews already.
var ErrTooMany = fmt.Errorf("%d views are kept, which is the most: remove one", MaxViews)

// Invalid is what is wrong with a view; it names the member, what it got and what is allowed.
type Invalid struct{ text string }

func (i *Invalid) Error() string { return i.text }

// Store is the views of one installation. It is safe for concurrent use.
type Store struct{ db *postgres.DB }

// New returns the views in db.
func New(db *postgres.DB) *Store { return &Store{db} }

// List returns the views of by, and then those that others share, by name.
func (s *Store) List(ctx context.Context, by string) ([]View, error) {
	const doing = "reading saved views"
	rows, err := s.db.Query(ctx, `SELECT made_by, name, query, shared, made_at FROM saved_views
		WHERE made_by = $1 OR shared ORDER BY made_by <> $1, name, made_by`, by)
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	views, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v View, err error) {
		err = row.Scan(&v.By, &v.Name, &v.Query, &v.Shared, &v.At)
		v.At = v.At.UTC()
		return v, err
	})
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return views, nil
}

// Save keeps a view, in the place of the one of that name and person. *Invalid says what is wrong with it, ErrTooMany that its owner
// keeps as many as one may.
func (s *Store) Save(ctx context.Context, v View) error {
	if err := v.check(); err != nil {
		return err
	}
	return s.db.Transact(ctx, "keeping a view", func(tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, `INSERT INTO saved_views (made_by, name, query, shared)
			SELECT $1, $2, $3, $4
			WHERE (SELECT count(*) FROM saved_views WHERE made_by = $1 AND name <> $2) < $5
			ON CONFLICT (made_by, name) DO UPDATE SET query = excluded.query, shared = excluded.shared, made_at = now()`,
			v.By, v.Name, v.Query, v.Shared, MaxViews)
		if err == nil && tag.RowsAffected() == 0 {
			return ErrTooMany
		}
		return err
	})
}

// Remove forgets a view of by's; postgres.ErrNotFound is wrapped where there is none.
func (s *Store) Remove(ctx context.Context, by, name string) error {
	tag, err := s.db.Exec(ctx, "DELETE FROM saved_views WHERE made_by = $1 AND name = $2", by, name)
	if err == nil && tag.RowsAffected() == 0 {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return s.db.Fail("removing a view", err)
	}
	return nil
}

func (v *View) check() error {
	_, err := url.ParseQuery(v.Query)
	switch {
	case v.By == "":
		return errors.New("a view of nobody's")
	case v.Name == "" || len(v.Name) > MaxNameBytes || strings.TrimSpace(v.Name) != v.Name || strings.ContainsFunc(v.Name, unprintable):
		return &Invalid{fmt.Sprintf("name: got %.100q; allowed: 1 to %d bytes of printable text without blanks around it", v.Name, MaxNameBytes)}
	case err != nil || len(v.Query) > MaxQueryBytes || strings.ContainsFunc(v.Query, func(r rune) bool { return r <= ' ' || r >= 0x7f }):
		return &Invalid{fmt.Sprintf("query: got %d bytes; allowed: the part of the explorer's address behind the question mark, up to %d bytes", len(v.Query), MaxQueryBytes)}
	}
	return nil
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
