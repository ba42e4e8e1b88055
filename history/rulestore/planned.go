package rulestore

import (
	"bytes"
	"encoding/json"
	"slices"
)

// same reports whether two plans change the same. They are compared as JSON, in which one of them may have been shown.
// What they say of the entries of allow lists is left out: it follows from the document and the version before it, and
// whoever may not see whom a list names was shown less.
func (p *Plan) same(other *Plan) (bool, error) {
	var texts [2][]byte
	for i, plan := range []*Plan{p, other} {
		lists := slices.Clone(plan.AllowLists)
		for j := range lists {
			lists[j].Diff, lists[j].Refused = nil, nil
		}
		var err error
		if texts[i], err = json.Marshal(Plan{Changes: plan.Changes, AllowLists: lists}); err != nil {
			return false, err
		}
	}
	return bytes.Equal(texts[0], texts[1]), nil
}

// changedOwners are the owners of what a plan changes: of the stored rule or list, and of the document that takes its place. Each is
// there once, ascending.
func changedOwners(stored []Rule, docs []Document, lists []AllowList, opts *ApplyOptions, plan *Plan) []string {
	var owners []string
	changed := func(kind ChangeKind) bool { return kind != ChangeUnchanged && kind != ChangeKept }
	for _, c := range plan.Changes {
		if !changed(c.Kind) {
			continue
		}
		for i := range stored {
			if stored[i].Newest.Version.ID == c.Rule {
				owners = append(owners, stored[i].Newest.Version.Owner)
			}
		}
		for i := range docs {
			if docs[i].ID == c.Rule {
				owners = append(owners, docs[i].Owner)
			}
		}
	}
	for _, c := range plan.AllowLists {
		if !changed(c.Kind) {
			continue
		}
		for i := range lists {
			if lists[i].List.ID == c.List {
				owners = append(owners, lists[i].List.Owner)
			}
		}
		for i := range opts.AllowLists {
			if opts.AllowLists[i].ID == c.List {
				owners = append(owners, opts.AllowLists[i].Owner)
			}
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

// setShadow also brings a removed rule back. The generation rises, so no block of the rule's former life holds again.
const setShadow = `
	INSERT INTO rule_modes AS m (rule, mode, generation, changed_by, reason) VALUES ($1, 'shadow',
		(SELECT floor FROM rule_numbers) + 1, $2, $3)
	ON CONFLICT (rule) DO UPDATE SET mode = 'shadow', generation = greatest(m.generation, excluded.generation - 1) +
		1, removed = false, changed_at = now(),
		changed_by = excluded.changed_by, reason = excluded.reason`

const setRemoved = `
	UPDATE rule_modes SET mode = 'off', generation = greatest(generation, (SELECT floor FROM rule_numbers)) + 1,
		removed = true, changed_at = now(), changed_by = $2, reason = $3
	WHERE rule = $1`
