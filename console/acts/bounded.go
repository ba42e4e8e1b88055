package acts

import (
	"context"
	"fmt"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/bounds"
)

// BeyondError says that an act is refused to an owner of rules, since it concerns requests that his rules may not
// reach. Nothing was done.
type BeyondError struct {
	Act  access.Act
	List string // the allow list that is changed, which the rule names; empty: the rule itself is concerned
	bounds.Beyond
}

func (e *BeyondError) Error() string {
	concerned := e.Beyond.String()
	if e.List != "" {
		concerned = fmt.Sprintf("rule %s names allow list %s, and %s", e.Rule, e.List, concerned)
	}
	return fmt.Sprintf("%s needs the role admin here: %s; nothing was done", e.Act, concerned)
}

// bounded asks of what an actor does whether it stays within the bounds of the owner for whom he does it.
type bounded struct {
	bounds.Bounds
	actor access.Actor
	act   access.Act
}

// free reports whether nothing is asked: admins are not bound, and to stop a rule reaches nobody.
func (b *bounded) free() bool {
	return len(b.Bounds) == 0 || b.actor.Role >= access.Admin || b.act == access.Demote || b.act == access.Disable
}

// rules refuses an act on documents of which one reaches beyond its owner's bounds.
func (b *bounded) rules(docs ...*rules.Document) error {
	if b.free() {
		return nil
	}
	for _, d := range docs {
		if beyond := b.Beyond(d); beyond != nil {
			return &BeyondError{Act: b.act, Beyond: *beyond}
		}
	}
	return nil
}

// list refuses a change of an allow list that documents name of which one reaches beyond the bounds of the list's
// owner: whom the list names is not counted there.
func (b *bounded) list(list, owner string, by ...*rules.Document) error {
	if b.free() {
		return nil
	}
	for _, d := range by {
		if beyond := b.BeyondOf(owner, d); beyond != nil {
			return &BeyondError{Act: b.act, List: list, Beyond: *beyond}
		}
	}
	return nil
}

// touched refuses documents.
func (b *bounded) touched(t *rulestore.Touched) error {
	if err := b.rules(t.Documents...); err != nil {
		return err
	}
	for i := range t.Lists {
		for _, owner := range t.Lists[i].Owners {
			if err := b.list(t.Lists[i].List, owner, t.Lists[i].By...); err != nil {
				return err
			}
		}
	}
	return nil
}

// mode refuses a change of a rule as it stands.
func (b *bounded) mode(r *rulestore.Rule, c *rulestore.ModeChange) error {
	pending := r.Pending
	switch {
	case b.act == access.Promote && pending != nil && (c.Pending || c.Version == pending.Version.Number):
		return b.rules(&pending.Version.Document)
	case b.act == access.Enable && pending != nil: // which is counted again, too
		return b.rules(&r.Newest.Version.Document, &pending.Version.Document)
	}
	return b.rules(&r.Newest.Version.Document)
}

// naming are the documents that name a list. They are read before it is changed: a rule that begins to name it
// meanwhile does so as if it came afterwards.
func (b *bounded) naming(ctx context.Context, lookup Lookup, list string) (by []*rules.Document, err error) {
	if b.free() {
		return nil, nil
	}
	stored, err := lookup.List(ctx)
	for i := range stored {
		by = append(by, stored[i].Naming(list)...)
	}
	return by, err
}
