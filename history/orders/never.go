package orders

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// MaxNever bounds the entries of the never-block list that hold: every gate compares them with each block that it
// reads.
const MaxNever = 1000

// Never is an entry of the never-block list that somebody has made.
type Never struct {
	Prefix netip.Prefix `json:"prefix"`
	Until  traffic.Time `json:"until,omitzero"` // when it ends; absent: it does not
	By     string       `json:"by"`
	Via    string       `json:"via"`
	Reason string       `json:"reason"`
	Added  traffic.Time `json:"added"`
}

// AbsentError says that there is no such entry. Nothing was removed.
type AbsentError struct{ Prefix netip.Prefix }

func (e *AbsentError) Error() string {
	return fmt.Sprintf("%s is no entry of the never-block list; nothing was removed", e.Prefix)
}

// NeverChange adds entries to the never-block list, or removes them.
type NeverChange struct {
	Prefixes        []netip.Prefix
	Remove          bool
	By, Via, Reason string
	// End says when those that are added end, by the database's clock; 0: never. Its error refuses the change. Nil:
	// they do not end.
	End func(now traffic.Time) (traffic.Time, error)
}

// ChangeNever makes a change with its entries of the audit trail, all of it or nothing. An entry that is there is
// replaced. *AbsentError and *TooManyError refuse it.
func (s *Store) ChangeNever(ctx context.Context, c NeverChange) error {
	c.By, c.Via, c.Reason = traffic.Printable(c.By), traffic.Printable(c.Via), traffic.Printable(c.Reason)
	return s.db.Transact(ctx, "changing the never-block list", func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('weir never block ' || current_schema(), 0))"); err != nil {
			return err
		}
		until, err := c.until(ctx, tx)
		if err != nil {
			return err
		}
		for _, p := range c.Prefixes {
			if err := c.one(ctx, tx, p, until); err != nil {
				return err
			}
		}
		var held int
		if err := tx.QueryRow(ctx, "SELECT count(*) FROM never_block_entries WHERE "+holding).Scan(&held); err != nil {
			return err
		}
		if held > MaxNever && !c.Remove {
			return &TooManyError{What: "entries of the never-block list", Most: MaxNever}
		}
		return s.db.Notify(ctx, tx, neverTopic(), "")
	})
}

const holding = "removed_at IS NULL AND coalesce(until > now(), true)"

// until is when added entries end, by the clock at this moment: others may have been waited for.
func (c *NeverChange) until(ctx context.Context, tx pgx.Tx) (traffic.Time, error) {
	if c.End == nil || c.Remove {
		return 0, nil
	}
	var now traffic.Time
	if err := tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(postgres.ScanTime(&now)); err != nil {
		return 0, err
	}
	return c.End(now)
}

func (c *NeverChange) one(ctx context.Context, tx pgx.Tx, p netip.Prefix, ends traffic.Time) error {
	before := audit.None
	var until traffic.Time
	switch err := tx.QueryRow(ctx, "SELECT until FROM never_block_entries WHERE prefix = $1 AND "+holding,
		p).Scan(postgres.ScanTime(&until)); {
	case err == nil:
		before = untilText(until)
	case !errors.Is(err, pgx.ErrNoRows):
		return err
	case c.Remove:
		return &AbsentError{Prefix: p}
	}
	entry := audit.Entry{Actor: c.By, Via: c.Via, Action: "never-block", Object: "never-block " + p.String(),
		Reason: c.Reason, Before: before, After: untilText(ends)}
	statement, args := `INSERT INTO never_block_entries (prefix, until, added_by, via, reason) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (prefix) DO UPDATE SET until = excluded.until, added_by = excluded.added_by, via = excluded.via,
			reason = excluded.reason,
			added_at = excluded.added_at, removed_at = NULL, revision = excluded.revision`,
		[]any{p, postgres.TimestampOrNull(ends), c.By, c.Via, c.Reason}
	if c.Remove {
		entry.Action, entry.After = "never-block-remove", audit.None
		statement, args = "UPDATE never_block_entries SET removed_at = now(), revision = nextval('never_block_revision') WHERE prefix = $1", []any{p}
	}
	if _, err := tx.Exec(ctx, statement, args...); err != nil {
		return err
	}
	return audit.Write(ctx, tx, entry)
}

func untilText(until traffic.Time) string {
	if until == 0 {
		return "never blocked"
	}
	return "never blocked until " + until.Std().UTC().Format(time.RFC3339)
}

// NeverList are the entries that hold, by prefix.
func (s *Store) NeverList(ctx context.Context) ([]Never, error) {
	const doing = "reading the never-block list"
	rows, err := s.db.Query(ctx, "SELECT prefix, until, added_by, via, reason, added_at FROM never_block_entries WHERE "+holding+" ORDER BY prefix")
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n Never, err error) {
		return n, row.Scan(&n.Prefix, postgres.ScanTime(&n.Until), &n.By, &n.Via, &n.Reason,
			postgres.ScanTime(&n.Added))
	})
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	return all, nil
}

// NeverEntries are the entries that hold, with the revision of the newest change, as processes and gates are told them.
func (s *Store) NeverEntries(ctx context.Context) (blocklist.NeverEntries, error) {
	const doing = "reading the never-block list"
	told := blocklist.NeverEntries{Format: blocklist.ValueFormat, Entries: []blocklist.NeverEntry{}}
	var floor int64 // above which revisions lie, see ADR 0014
	if err := s.db.QueryRow(ctx, "SELECT floor FROM rule_numbers").Scan(&floor); err != nil {
		return told, s.db.Fail(doing, err)
	}
	rows, err := s.db.Query(ctx, "SELECT prefix, until, "+holding+", revision FROM never_block_entries ORDER BY prefix")
	if err != nil {
		return told, s.db.Fail(doing, err)
	}
	defer rows.Close()
	for rows.Next() {
		var e blocklist.NeverEntry
		var holds bool
		var revision int64
		if err := rows.Scan(&e.Prefix, postgres.ScanTime(&e.Until), &holds, &revision); err != nil {
			return told, s.db.Fail(doing, err)
		}
		if told.Revision = max(told.Revision, revision); holds {
			told.Entries = append(told.Entries, e)
		}
	}
	if err := rows.Err(); err != nil {
		return told, s.db.Fail(doing, err)
	}
	told.Revision += floor
	return told, nil
}

func neverTopic() postgres.Topic {
	return postgres.Topic{Name: "never_block",
		Fingerprint: "SELECT coalesce(max(revision), 0), count(*) FROM never_block_entries"}
}

// WatchNever calls onChange when the never-block list has changed, see postgres.DB.Watch.
func (s *Store) WatchNever(ctx context.Context, onChange func()) {
	s.db.Watch(ctx, neverTopic(), onChange)
}
