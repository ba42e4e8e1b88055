// Package audit is the trail of deliberate acts: promotions, releases, accepted gaps.
package audit

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Entry is one deliberate act: who did what to what, and why.
type Entry struct {
	At     time.Time `json:"at"` // set by the database
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // apply, promote, demote, disable, enable, remove, set-limit, add-entry, remove-entry, release, accept-gap, recreate, budget
	Object string    `json:"object"` // "rule ID", "allow list ID", "block RULE SUBJECT", "partition SIDE/N of STREAM", "stream NAME"
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`

	// Ref is the id of the record that tells of the act, empty where there is none: a record that is read twice is one entry.
	Ref string `json:"-"`
}

const insert = `INSERT INTO audit (actor, action, object, reason, detail, ref)
	VALUES ($1, $2, $3, $4, $5, NULLIF($6, '')) ON CONFLICT (ref) WHERE ref IS NOT NULL DO NOTHING`

func (e Entry) args() []any {
	return []any{traffic.Printable(e.Actor), e.Action, traffic.Printable(e.Object), traffic.Printable(e.Reason),
		traffic.Printable(e.Detail), e.Ref}
}

// Write stores e, in the transaction of the act itself.
func Write(ctx context.Context, tx pgx.Tx, e Entry) error {
	_, err := tx.Exec(ctx, insert, e.args()...)
	return err
}

// Queue is Write as a part of a batch.
func Queue(b *pgx.Batch, e Entry) { b.Queue(insert, e.args()...) }

// Trail reads what was written.
type Trail struct{ db *postgres.DB }

// NewTrail returns the trail of db's installation.
func NewTrail(db *postgres.DB) *Trail { return &Trail{db} }

// Of returns the newest entries about object, about all objects when it is empty, newest first. limit 0 is no limit.
func (t *Trail) Of(ctx context.Context, object string, limit int) ([]Entry, error) {
	rows, err := t.db.Query(ctx, `SELECT at, actor, action, object, reason, detail FROM audit
		WHERE $1 = '' OR object = $1 ORDER BY seq DESC LIMIT NULLIF($2::bigint, 0)`, traffic.Printable(object), limit)
	if err != nil {
		return nil, t.db.Fail("reading the audit trail", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(&e.At, &e.Actor, &e.Action, &e.Object, &e.Reason, &e.Detail)
		e.At = e.At.UTC()
		return e, err
	})
	if err != nil {
		return nil, t.db.Fail("reading the audit trail", err)
	}
	return entries, nil
}
