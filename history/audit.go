package history

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/traffic"
)

// AuditEntry is one deliberate act: who did what to what, and why.
type AuditEntry struct {
	At     time.Time `json:"at"`
	Actor  string    `json:"actor"`
	Action string    `json:"action"` // apply, promote, demote, disable, enable, remove, release, accept-gap, recreate
	Object string    `json:"object"` // "rule ID", "block RULE SUBJECT", "partition SIDE/N of STREAM", "stream NAME"
	Reason string    `json:"reason"`
	Detail string    `json:"detail,omitempty"`

	ref string // id of the record that tells of the act, so that reading it twice is one entry
}

const insertAudit = `INSERT INTO audit (actor, action, object, reason, detail, ref)
	VALUES ($1, $2, $3, $4, $5, NULLIF($6, '')) ON CONFLICT (ref) WHERE ref IS NOT NULL DO NOTHING`

func (e AuditEntry) args() []any {
	return []any{traffic.Printable(e.Actor), e.Action, traffic.Printable(e.Object), traffic.Printable(e.Reason),
		traffic.Printable(e.Detail), e.ref}
}

func writeAudit(ctx context.Context, q querier, e AuditEntry) error {
	_, err := q.Exec(ctx, insertAudit, e.args()...)
	return err
}

// Audit returns the newest entries about object, all objects when it is empty, newest first. limit 0 is no limit.
func (s *Store) Audit(ctx context.Context, object string, limit int) ([]AuditEntry, error) {
	rows, err := s.pool.Query(ctx, `SELECT at, actor, action, object, reason, detail FROM audit
		WHERE $1 = '' OR object = $1 ORDER BY seq DESC LIMIT NULLIF($2::bigint, 0)`, traffic.Printable(object), limit)
	if err != nil {
		return nil, s.fail("reading the audit trail", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e AuditEntry, err error) {
		err = row.Scan(&e.At, &e.Actor, &e.Action, &e.Object, &e.Reason, &e.Detail)
		e.At = e.At.UTC()
		return e, err
	})
	if err != nil {
		return nil, s.fail("reading the audit trail", err)
	}
	return entries, nil
}
