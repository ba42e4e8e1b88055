// Package audit is the trail of deliberate acts: promotions, releases, accepted gaps.
package audit

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// Entry is one deliberate act: who did what to what, and why.
type Entry struct {
	At    time.Time `json:"at"` // set by the database
	Actor string    `json:"actor" mask:"name"`
	// Action is apply, promote, demote, disable, enable, remove, set-limit, add-entry, remove-entry, block, never-block,
	// never-block-remove, release, accept-gap, recreate, budget, reveal, invite, withdraw-invite, sign-in,
	// sign-in-refused, sign-out, end-session, raise-numbers, export, save-view
	Action string `json:"action" mask:"-"`
	// "rule ID", "session", "allow list ID", "block RULE SUBJECT", "partition SIDE/N of STREAM", "stream NAME",
	// "numbers", "history", "history of SOURCE", "view", "view of SOURCE"
	Object string `json:"object" mask:"object"`
	Reason string `json:"reason" mask:"text,Actor"`
	Detail string `json:"detail,omitempty" mask:"detail"`
	// Before and After are what the act found and what it left behind, in parts that Part separates; None where there was, or is, nothing.
	// Empty: nothing that has a value was changed, or it is not known.
	Before string `json:"before,omitempty" mask:"detail"`
	After  string `json:"after,omitempty" mask:"detail"`
	// Via is how who did it came, as access.Actor has it: oidc, token, invite, local. Empty: a program that nobody
	// asked, or not known.
	Via string `json:"via,omitempty" mask:"-"`

	// Ref is the id of the record that tells of the act, empty where there is none: a record that is read twice is one entry.
	Ref string `json:"-" mask:"-"`
}

// Part separates the parts of Entry.Before and After. None is the word for what is not there.
const (
	Part = ", "
	None = "none"
)

// Local is Entry.Via of what is done by commands alone, which have credentials of their own.
const Local = "local"

// Change is what was changed, in one line: the parts of Before that went and those of After that came.
func (e *Entry) Change() string {
	before, after := strings.Split(e.Before, Part), strings.Split(e.After, Part)
	switch e.Before {
	case e.After:
		return ""
	case "": // of a build that did not tell
		return "→ " + e.After
	}
	without := func(parts, others []string) string {
		left := slices.DeleteFunc(slices.Clone(parts), func(p string) bool { return slices.Contains(others, p) })
		return cmp.Or(strings.Join(left, Part), None)
	}
	return without(before, after) + " → " + without(after, before)
}

const columns = "at, actor, action, object, reason, detail, before, after, via"

// targets are what columns are scanned into.
func (e *Entry) targets() []any {
	return []any{&e.At, &e.Actor, &e.Action, &e.Object, &e.Reason, &e.Detail, &e.Before, &e.After, &e.Via}
}

const insert = `INSERT INTO audit (actor, action, object, reason, detail, ref, before, after, via)
	VALUES ($1, $2, $3, $4, $5, NULLIF($6, ''), $7, $8, $9) ON CONFLICT (ref) WHERE ref IS NOT NULL DO NOTHING`

func (e Entry) args() []any {
	return []any{traffic.Printable(e.Actor), e.Action, traffic.Printable(e.Object), traffic.Printable(e.Reason),
		traffic.Printable(e.Detail), e.Ref, traffic.Printable(e.Before), traffic.Printable(e.After), traffic.Printable(e.Via)}
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

// Add stores an entry that belongs to no change in the database.
func (t *Trail) Add(ctx context.Context, e Entry) error {
	if _, err := t.db.Exec(ctx, insert, e.args()...); err != nil {
		return t.db.Fail("writing the audit trail", err)
	}
	return nil
}

// Of returns the newest entries about object, about all objects when it is empty, newest first. limit 0 is no limit.
func (t *Trail) Of(ctx context.Context, object string, limit int) ([]Entry, error) {
	rows, err := t.db.Query(ctx, `SELECT `+columns+` FROM audit
		WHERE $1 = '' OR object = $1 ORDER BY seq DESC LIMIT NULLIF($2::bigint, 0)`, traffic.Printable(object), limit)
	if err != nil {
		return nil, t.db.Fail("reading the audit trail", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e Entry, err error) {
		err = row.Scan(e.targets()...)
		e.At = e.At.UTC()
		return e, err
	})
	if err != nil {
		return nil, t.db.Fail("reading the audit trail", err)
	}
	return entries, nil
}

// Query selects entries. Its zero value selects all; of each member an empty value selects everything.
type Query struct {
	Object       string // this object
	ObjectPrefix string // objects that begin so: "rule ", "block RULE "
	Actor        string
	Action       string
	Since, Until traffic.Time // not before, and before
	Before       int64        // entries older than that of this Seq; 0: from the newest
	Limit        int          // 0: no limit
}

// Numbered is an entry with its number in the trail.
type Numbered struct {
	Seq int64 `json:"seq"`
	Entry
}

func (q *Query) where() *postgres.Where {
	w := new(postgres.Where)
	if q.Object != "" {
		w.Add("object = ?", traffic.Printable(q.Object))
	}
	if q.ObjectPrefix != "" {
		w.Add("starts_with(object, ?)", traffic.Printable(q.ObjectPrefix))
	}
	if q.Actor != "" {
		w.Add("actor = ?", traffic.Printable(q.Actor))
	}
	if q.Action != "" {
		w.Add("action = ?", traffic.Printable(q.Action))
	}
	if q.Since != 0 {
		w.Add("at >= ?", postgres.Timestamp(q.Since))
	}
	if q.Until != 0 {
		w.Add("at < ?", postgres.Timestamp(q.Until))
	}
	return w
}

// Find returns the entries that q selects, newest first.
func (t *Trail) Find(ctx context.Context, q Query) ([]Numbered, error) {
	w := q.where()
	if q.Before != 0 {
		w.Add("seq < ?", q.Before)
	}
	rows, err := t.db.Query(ctx, "SELECT seq, "+columns+" FROM audit"+w.String()+
		" ORDER BY seq DESC LIMIT NULLIF("+w.Arg(q.Limit)+"::bigint, 0)", w.Args...)
	if err != nil {
		return nil, t.db.Fail("searching the audit trail", err)
	}
	entries, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Numbered, err error) {
		e := &n.Entry
		err = row.Scan(append([]any{&n.Seq}, e.targets()...)...)
		e.At = e.At.UTC()
		return n, err
	})
	if err != nil {
		return nil, t.db.Fail("searching the audit trail", err)
	}
	return entries, nil
}

// Count is the number of entries that q selects without Before and Limit.
func (t *Trail) Count(ctx context.Context, q Query) (n int64, err error) {
	w := q.where()
	if err := t.db.QueryRow(ctx, "SELECT count(*) FROM audit"+w.String(), w.Args...).Scan(&n); err != nil {
		return 0, t.db.Fail("counting entries of the audit trail", err)
	}
	return n, nil
}

// Named lists the different actors, or actions, of the trail, ascending.
func (t *Trail) Named(ctx context.Context, column Column) ([]string, error) {
	rows, err := t.db.Query(ctx, "SELECT DISTINCT "+string(column)+" FROM audit ORDER BY 1")
	if err != nil {
		return nil, t.db.Fail("listing the audit trail's "+string(column)+"s", err)
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, t.db.Fail("listing the audit trail's "+string(column)+"s", err)
	}
	return names, nil
}

// Column is one that Named lists.
type Column string

const (
	ColumnActor  Column = "actor"  // who did it
	ColumnAction Column = "action" // what was done
)
