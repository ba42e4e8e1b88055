package rulestore

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// AllowList is a stored allow list: its newest version with its origin.
type AllowList struct {
	List    rules.AllowList `json:"document"`
	Version int             `json:"version"`
	Hash    string          `json:"hash" mask:"-"` // SHA-256 of the stored document, hex
	Created time.Time       `json:"created"`
	Author  string          `json:"author" mask:"name"`
	Reason  string          `json:"reason,omitempty" mask:"text,Author"`
	Removed bool            `json:"removed,omitempty"`
	// Rules are the ids of the rules that name the list, removed ones left out.
	Rules []string `json:"rules" mask:"name"`
}

// AllowChange is the effect of a change on one allow list: planned, or done.
type AllowChange struct {
	List    string     `json:"list" mask:"name"`
	Kind    ChangeKind `json:"kind"`
	Version int        `json:"version"`           // the newest one afterwards
	Entries int        `json:"entries"`           // afterwards
	Rules   []string   `json:"rules" mask:"name"` // those that name it
	Diff    []string   `json:"diff,omitempty" mask:"lines,whom it lets pass"`
	// Refused has the reasons for which the change is refused: a rule that blocks would count, and may block, sources that it
	// let pass when it was promoted.
	Refused []string `json:"refused,omitempty" mask:"lines,whom it lets pass"`
	Routing int64    `json:"routing"` // the live stream's newest routing version afterwards; 0 for a plan
}

const allowColumns = "list, version, document, hash, removed, created_at, author, reason"

func scanAllow(row pgx.CollectableRow) (a AllowList, err error) {
	var id, document string
	var hash []byte
	if err := row.Scan(&id, &a.Version, &document, &hash, &a.Removed, &a.Created, &a.Author, &a.Reason); err != nil {
		return a, err
	}
	if a.List, err = rules.DecodeAllowList([]byte(document)); err != nil {
		return a, fmt.Errorf("allow list %s, version %d: %w", id, a.Version, err)
	}
	a.Hash, a.Created, a.Rules = hex.EncodeToString(hash), a.Created.UTC(), []string{}
	return a, nil
}

// loadAllow reads the newest versions of all lists, removed ones included, ascending by id.
func loadAllow(ctx context.Context, q postgres.Querier) ([]AllowList, error) {
	rows, err := q.Query(ctx, "SELECT DISTINCT ON (list) "+allowColumns+" FROM allow_versions ORDER BY list, version DESC")
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scanAllow)
}

// AllowLists returns all allow lists that have not been removed, ascending by id.
func (s *Store) AllowLists(ctx context.Context) ([]AllowList, error) {
	const doing = "listing allow lists"
	all, err := loadAllow(ctx, s.db)
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	stored, err := loadRules(ctx, s.db, "NOT m.removed")
	if err != nil {
		return nil, s.db.Fail(doing, err)
	}
	all = slices.DeleteFunc(all, func(a AllowList) bool { return a.Removed })
	named := naming(stored)
	for i := range all {
		all[i].Rules = append(all[i].Rules, named[all[i].List.ID]...)
	}
	return all, nil
}

// naming are, by allow list, the ids of the rules of stored that name it.
func naming(stored []Rule) map[string][]string {
	names := map[string][]string{}
	for i := range stored {
		r := &stored[i]
		if r.Removed {
			continue
		}
		lists := slices.Clone(r.Newest.Version.Allow)
		if r.Pending != nil {
			lists = append(lists, r.Pending.Version.Allow...)
		}
		slices.Sort(lists)
		for _, list := range slices.Compact(lists) {
			names[list] = append(names[list], r.Newest.Version.ID)
		}
	}
	return names
}

// plainAllow are the lists that have not been removed, as routing versions have them.
func plainAllow(all []AllowList) []rules.AllowList {
	var out []rules.AllowList
	for i := range all {
		if !all[i].Removed {
			out = append(out, all[i].List)
		}
	}
	return out
}

// AllowRefusedError says that nothing was changed, because rules that block would begin to count, and to block, sources that
// they let pass when they were promoted.
type AllowRefusedError struct{ Changes []AllowChange }

func (e *AllowRefusedError) Error() string {
	var b strings.Builder
	for _, c := range e.Changes {
		for _, reason := range c.Refused {
			fmt.Fprintf(&b, "allow list %s: %s\n", c.List, reason)
		}
	}
	b.WriteString("nothing was changed; an entry's own end (until) needs no promotion, taking an entry back by hand does: " +
		"demote the rule (weir rules demote), change the list, watch the rule in shadow, promote it again")
	return b.String()
}

// ChangeAllowList makes the next version of a list, which change makes from the newest, and publishes it to the live
// stream. Where change changes nothing, no version is stored. The change is audited as by says: who, how he came, action and reason.
// postgres.ErrNotFound is wrapped where there is no such list, and *AllowRefusedError is returned where a rule that blocks may block more.
func (s *Store) ChangeAllowList(ctx context.Context, id string, by audit.Entry,
	change func(l *rules.AllowList, now traffic.Time) error) (AllowChange, error) {
	var done AllowChange
	err := s.db.Transact(ctx, fmt.Sprintf("changing allow list %q", id), func(tx pgx.Tx) error {
		if _, err := begin(ctx, tx); err != nil {
			return err
		}
		all, err := loadAllow(ctx, tx)
		if err != nil {
			return err
		}
		at := slices.IndexFunc(all, func(a AllowList) bool { return a.List.ID == id && !a.Removed })
		if at < 0 {
			return postgres.ErrNotFound
		}
		next := all[at].List
		next.Entries = slices.Clone(next.Entries)
		now, err := clock(ctx, tx)
		if err != nil {
			return err
		}
		if err := change(&next, traffic.At(now)); err != nil {
			return err
		}
		stored, err := loadRules(ctx, tx, "true")
		if err != nil {
			return err
		}
		p := allowPlanner{tx: tx, stored: stored, before: all}
		done, err = p.plan(ctx, &next)
		if err != nil {
			return err
		}
		if len(done.Refused) > 0 {
			return &AllowRefusedError{Changes: []AllowChange{done}}
		}
		b := &batch{tx: tx}
		if err := storeAllow(b, &done, &next, &all[at], by); err != nil {
			return err
		}
		if err := b.send(ctx); err != nil {
			return err
		}
		done.Routing, err = s.publishRules(ctx, tx)
		return err
	})
	return done, err
}

// allowPlanner finds out what becomes of lists.
type allowPlanner struct {
	tx     pgx.Tx
	stored []Rule // all, removed ones included
	before []AllowList

	identity *traffic.IdentityMap // of the live stream, once it was asked for
	named    map[string][]string  // by list, the rules that name it; nil until it is asked for
}

// identities are those that entries must fit.
func (p *allowPlanner) identities(ctx context.Context) (traffic.IdentityMap, error) {
	if p.identity == nil {
		routing, err := newestRouting(ctx, p.tx, streams.Live)
		if err != nil {
			return traffic.IdentityMap{}, err
		}
		if routing == nil {
			return traffic.IdentityMap{}, errNoRouting
		}
		p.identity = &routing.Identity
	}
	return *p.identity, nil
}

// naming are the rules that name a list, never nil.
func (p *allowPlanner) naming(list string) []string {
	if p.named == nil {
		p.named = naming(p.stored)
	}
	return append([]string{}, p.named[list]...)
}

// plan is the effect of next in the place of the list of its id.
func (p *allowPlanner) plan(ctx context.Context, next *rules.AllowList) (AllowChange, error) {
	identity, err := p.identities(ctx)
	if err != nil {
		return AllowChange{}, err
	}
	if err := next.Validate(rules.Environment{Identity: identity}); err != nil {
		return AllowChange{}, err
	}
	out := AllowChange{List: next.ID, Kind: ChangeNew, Version: 1, Entries: len(next.Entries), Rules: p.naming(next.ID)}
	at := slices.IndexFunc(p.before, func(a AllowList) bool { return a.List.ID == next.ID })
	if at < 0 {
		out.Diff = rules.DiffAllow(nil, next)
		return out, nil
	}
	prev := &p.before[at]
	out.Version = prev.Version + 1
	switch {
	case prev.Removed:
		out.Kind, out.Diff = ChangeRestored, rules.DiffAllow(nil, next)
		return out, nil // no rule names it
	case prev.List.Equal(next):
		out.Kind, out.Version = ChangeUnchanged, prev.Version
		return out, nil
	}
	out.Kind, out.Diff = ChangeEdited, rules.DiffAllow(&prev.List, next)
	out.Refused, err = p.takenBack(ctx, &prev.List, next)
	return out, err
}

// takenBack are the reasons against next in the place of prev: a rule that blocks would count sources that the list let pass when
// the rule was promoted, before the end that their entry had then. What was added since may be taken back: without it, the
// rule does what was promoted. An entry that ended longer ago than any rule's max_lag has no evidence left that could block.
func (p *allowPlanner) takenBack(ctx context.Context, prev, next *rules.AllowList) (reasons []string, err error) {
	var now time.Time
	if err := p.tx.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return nil, err
	}
	since := traffic.At(now.Add(-rules.MaxMaxLag))
	for i := range p.stored {
		r := &p.stored[i]
		if r.Removed || !r.Mode.Blocks() || !slices.Contains(r.Newest.Version.Allow, next.ID) {
			continue
		}
		rows, err := p.tx.Query(ctx, "SELECT "+allowColumns+" FROM allow_versions WHERE list = $1 AND created_at <= $2 ORDER BY version DESC LIMIT 1",
			next.ID, r.Changed)
		if err != nil {
			return nil, err
		}
		promoted, err := pgx.CollectExactlyOneRow(rows, scanAllow)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && promoted.Removed {
			continue
		}
		if err != nil {
			return nil, err
		}
		gone := promoted.List.Uncovered(prev, since) // before this change, so that it is not its doing
		for _, e := range promoted.List.Uncovered(next, since) {
			if slices.Contains(gone, e) {
				continue
			}
			reasons = append(reasons, fmt.Sprintf("rule %s blocks, and %s was let pass when it was promoted on %s: it would count, and may block, that source",
				r.Newest.Version.ID, e.Source(), r.Changed.Format("2006-01-02")))
			if len(reasons) == maxTakenBack {
				return reasons, nil
			}
		}
	}
	return reasons, nil
}

// maxTakenBack bounds the reasons that are given against one change.
const maxTakenBack = 20

// storeAllow queues what stores a planned change of was, nil for a new list, where it is one. by is who, how he came, action and reason.
func storeAllow(b *batch, c *AllowChange, next *rules.AllowList, was *AllowList, by audit.Entry) error {
	if c.Kind == ChangeUnchanged || c.Kind == ChangeKept {
		return nil
	}
	document, err := next.Canonical()
	if err != nil {
		return err
	}
	hash := sha256.Sum256(document)
	// The clock at this moment, under the stream's lock, as that of promotions: takenBack compares them.
	b.queue("INSERT INTO allow_versions ("+allowColumns+") VALUES ($1, $2, $3, $4, $5, clock_timestamp(), $6, $7)",
		c.List, c.Version, string(document), hash[:], c.Kind == ChangeRemoved, traffic.Printable(by.Actor), traffic.Printable(by.Reason))
	by.Object, by.Detail = "allow list "+c.List, fmt.Sprintf("%s, version %d: %s", c.Kind, c.Version, strings.Join(c.Diff, "; "))
	now := AllowList{List: *next, Version: c.Version, Hash: hex.EncodeToString(hash[:]), Removed: c.Kind == ChangeRemoved}
	by.Before, by.After = was.stands(), now.stands()
	b.audit(by)
	return nil
}

// allowStep is a planned change of a list with the list.
type allowStep struct {
	AllowChange
	next rules.AllowList
}

// planApply plans for the lists of applied documents, and for those that are stored and not among them. after are the rules as
// they will be: each list that one of them names must be there.
func (p *allowPlanner) planApply(ctx context.Context, lists []rules.AllowList, after []step, prune bool) ([]allowStep, error) {
	var steps []allowStep
	there := map[string]bool{}
	for i := range lists {
		if there[lists[i].ID] {
			return nil, fmt.Errorf("allow list %s is given twice", lists[i].ID)
		}
		there[lists[i].ID] = true
		c, err := p.plan(ctx, &lists[i])
		if err != nil {
			return nil, fmt.Errorf("allow list %s: %w", lists[i].ID, err)
		}
		steps = append(steps, allowStep{c, lists[i]})
	}
	named := map[string]bool{}
	for i := range after {
		for _, name := range after[i].names() {
			named[name] = true
		}
	}
	for i := range p.before {
		a := &p.before[i]
		id := a.List.ID
		if a.Removed || there[id] {
			continue
		}
		there[id] = true
		st := allowStep{next: a.List, AllowChange: AllowChange{List: id, Kind: ChangeKept, Version: a.Version, Entries: len(a.List.Entries), Rules: p.naming(id)}}
		if prune && !named[id] {
			st.Kind, st.Version, st.Diff = ChangeRemoved, a.Version+1, rules.DiffAllow(&a.List, nil)
		}
		steps = append(steps, st)
	}
	for i := range after {
		for _, name := range after[i].names() {
			if there[name] {
				continue
			}
			if slices.ContainsFunc(p.before, func(a AllowList) bool { return a.List.ID == name }) {
				return nil, fmt.Errorf("rule %s: allow: got %q, an allow list that was removed: weir allow show %[2]s has its document, to be applied again", after[i].Rule, name)
			}
			return nil, fmt.Errorf("rule %s: allow: got %q, which no allow list has as its id", after[i].Rule, name)
		}
	}
	slices.SortFunc(steps, func(a, b allowStep) int { return cmp.Compare(a.List, b.List) })
	return steps, nil
}
