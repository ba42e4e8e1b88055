package rulestore

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// MaxRaise is how long a limit may be raised for. What is to last longer is an edit of the document.
const MaxRaise = 31 * 24 * time.Hour

// Raised is a limit that is raised for events before Until, with who set it, when and why.
type Raised struct {
	Limit  int       `json:"limit"`
	Until  time.Time `json:"until"`
	Set    time.Time `json:"set"`
	By     string    `json:"by" mask:"name"`
	Reason string    `json:"reason,omitempty" mask:"text,By"`
}

// In reports whether the limit is raised at now.
func (u *Raised) In(now time.Time) bool { return u != nil && now.Before(u.Until) }

// LimitChange asks for a higher limit, in place of a raise that there was: for events before Until, or, where For is
// not 0, before so long from the database's now on. Limit 0 ends a raise.
type LimitChange struct {
	Rule   string
	Limit  int
	For    time.Duration
	Until  time.Time
	By     string
	Via    string // as of a ModeChange
	Reason string
	Check  func(r *Rule) error // as of a ModeChange
}

// LimitSet is what became of a LimitChange.
type LimitSet struct {
	Rule    string  `json:"rule" mask:"name"`
	Limit   int     `json:"limit"` // the document's
	Raised  *Raised `json:"raised,omitempty"`
	Changed bool    `json:"changed"` // false: there was none to end, or the same is set already
	Routing int64   `json:"routing"`
}

// RaiseLimit raises the limit of a rule's live version until a time of events, or ends that early. The end returns to what
// the document says, and needs no promotion. The raise outlasts edits and promotions of the rule, and acts while it is above their
// limit; a pending version has none. It is refused unless it raises, and ends ahead of now, MaxRaise at most; and where
// the rule blocks and a higher limit may block more, as it may with a bucket and with extend never. postgres.ErrNotFound is wrapped
// for an unknown rule.
func (s *Store) RaiseLimit(ctx context.Context, c LimitChange) (set LimitSet, err error) {
	err = s.db.Transact(ctx, fmt.Sprintf("raising the limit of rule %q", c.Rule), func(tx pgx.Tx) error {
		if _, err := begin(ctx, tx); err != nil {
			return err
		}
		r, err := findRule(ctx, tx, c.Rule)
		if err != nil {
			return err
		}
		if err := r.checked(c.Check); err != nil {
			return err
		}
		if r.Removed {
			return r.removedError()
		}
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		changed, err := r.raise(ctx, tx, c, now)
		if err != nil {
			return err
		}
		set = LimitSet{Rule: c.Rule, Limit: r.Newest.Version.Limit, Raised: r.Raised, Changed: changed}
		set.Routing, err = s.publishRules(ctx, tx)
		return err
	})
	return set, err
}

// raise stores the change, and updates r.
func (r *Rule) raise(ctx context.Context, tx pgx.Tx, c LimitChange, now time.Time) (changed bool, err error) {
	entry := audit.Entry{Actor: c.By, Via: c.Via, Action: "set-limit", Object: "rule " + c.Rule, Reason: c.Reason, Before: r.limited(now)}
	if c.Limit == 0 {
		if r.Raised == nil {
			return false, nil
		}
		entry.Detail = fmt.Sprintf("limit %d again, no longer %d until %s", r.Newest.Version.Limit, r.Raised.Limit, r.Raised.Until.Format(time.RFC3339))
		r.Raised = nil
		entry.After = r.limited(now)
		if _, err := tx.Exec(ctx, "DELETE FROM raised_limits WHERE rule = $1", c.Rule); err != nil {
			return false, err
		}
		return true, audit.Write(ctx, tx, entry)
	}
	if c.For != 0 {
		c.Until = now.Add(c.For)
	}
	c.Until = c.Until.UTC().Truncate(time.Microsecond)
	if err := r.mayRaise(c, now); err != nil {
		return false, err
	}
	if r.Raised != nil && r.Raised.Limit == c.Limit && r.Raised.Until.Equal(c.Until) {
		return false, nil
	}
	r.Raised = &Raised{Limit: c.Limit, Until: c.Until, By: traffic.Printable(c.By), Reason: traffic.Printable(c.Reason)}
	err = tx.QueryRow(ctx, `INSERT INTO raised_limits (rule, rule_limit, until, set_by, reason) VALUES ($1, $2, $3, $4, $5)
		ON CONFLICT (rule) DO UPDATE SET rule_limit = excluded.rule_limit, until = excluded.until, set_by = excluded.set_by,
			reason = excluded.reason, set_at = excluded.set_at RETURNING set_at`,
		c.Rule, c.Limit, c.Until, r.Raised.By, r.Raised.Reason).Scan(&r.Raised.Set)
	if err != nil {
		return false, err
	}
	r.Raised.Set = r.Raised.Set.UTC()
	entry.Detail = fmt.Sprintf("limit %d → %d until %s", r.Newest.Version.Limit, c.Limit, c.Until.Format(time.RFC3339))
	entry.After = r.limited(now)
	return true, audit.Write(ctx, tx, entry)
}

// mayRaise returns an error where the limit must not be raised so.
func (r *Rule) mayRaise(c LimitChange, now time.Time) error {
	v := &r.Newest.Version
	switch {
	case c.Limit <= v.Limit || c.Limit > rules.MaxLimit:
		return fmt.Errorf("got %d, allowed %d to %d: the document's is %d, and set-limit only raises", c.Limit, v.Limit+1, rules.MaxLimit, v.Limit)
	case !c.Until.After(now) || c.Until.Sub(now) > MaxRaise:
		return fmt.Errorf("until: got %s, allowed a time ahead of now (%s), 31 days at most", c.Until.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	if !r.Mode.Blocks() {
		return nil
	}
	if reasons := raiseMayBlockMore(&v.Document, c.Limit); len(reasons) > 0 {
		return fmt.Errorf("it blocks, and with a higher limit for a time it may block more (%s): demote it first (weir rules demote %s)",
			strings.Join(reasons, "; "), c.Rule)
	}
	return nil
}

// raiseMayBlockMore gives the reasons why d may block more when its limit is raised for a time.
func raiseMayBlockMore(d *rules.Document, limit int) []string {
	raised := d.RaisedTo(limit)
	return rules.MayBlockMore(d, &raised)
}

// addRaised gives each of all its raised limit.
func addRaised(ctx context.Context, q postgres.Querier, all []Rule, where string, args ...any) error {
	rows, err := q.Query(ctx, `SELECT r.rule, r.rule_limit, r.until, r.set_at, r.set_by, r.reason FROM raised_limits r
		JOIN rule_modes m ON m.rule = r.rule WHERE `+where, args...)
	if err != nil {
		return err
	}
	raised := map[string]*Raised{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (none struct{}, err error) {
		var rule string
		u := &Raised{}
		err = row.Scan(&rule, &u.Limit, &u.Until, &u.Set, &u.By, &u.Reason)
		u.Until, u.Set = u.Until.UTC(), u.Set.UTC()
		raised[rule] = u
		return none, err
	})
	for i := range all {
		all[i].Raised = raised[all[i].Newest.Version.ID]
	}
	return err
}
