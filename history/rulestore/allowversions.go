package rulestore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// AllowVersion is a version of an allow list without its document.
type AllowVersion struct {
	Version int       `json:"version"`
	Entries int       `json:"entries"`
	Created time.Time `json:"created"`
	Author  string    `json:"author" mask:"name"`
	Reason  string    `json:"reason,omitempty" mask:"text,Author"`
	Removed bool      `json:"removed,omitempty"`
}

// mostAllowVersions bounds the versions that AllowList returns: each change of an entry makes one.
const mostAllowVersions = 1000

// AllowList returns a version of a list, 0 for the newest one, which may be of a list that was removed, and its newest
// versions, the newest first; postgres.ErrNotFound is wrapped where there is no such list, or version.
func (s *Store) AllowList(ctx context.Context, id string, version int) (AllowList, []AllowVersion, error) {
	list, versions, err := s.allowList(ctx, traffic.Printable(id), version)
	if err != nil {
		return AllowList{}, nil, s.db.Fail(fmt.Sprintf("reading allow list %q", id), err)
	}
	return list, versions, nil
}

func (s *Store) allowList(ctx context.Context, id string, version int) (AllowList, []AllowVersion, error) {
	rows, err := s.db.Query(ctx, "SELECT "+allowColumns+` FROM allow_versions
		WHERE list = $1 AND ($2::bigint = 0 OR version = $2) ORDER BY version DESC LIMIT 1`, id, version)
	if err != nil {
		return AllowList{}, nil, err
	}
	list, err := pgx.CollectExactlyOneRow(rows, scanAllow)
	if errors.Is(err, pgx.ErrNoRows) {
		err = postgres.ErrNotFound
	}
	if err != nil {
		return AllowList{}, nil, err
	}
	rows, err = s.db.Query(ctx, `SELECT version,
		CASE json_typeof(document::json->'entries') WHEN 'array' THEN json_array_length(document::json->'entries') ELSE 0 END,
		created_at, author, reason,
			removed FROM allow_versions WHERE list = $1 ORDER BY version DESC LIMIT $2`, id, mostAllowVersions)
	if err != nil {
		return AllowList{}, nil, err
	}
	versions, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (v AllowVersion, err error) {
		err = row.Scan(&v.Version, &v.Entries, &v.Created, &v.Author, &v.Reason, &v.Removed)
		v.Created = v.Created.UTC()
		return v, err
	})
	if err != nil {
		return AllowList{}, nil, err
	}
	stored, err := loadRules(ctx, s.db, "NOT m.removed")
	list.Rules = append(list.Rules, naming(stored)[id]...)
	return list, versions, err
}
