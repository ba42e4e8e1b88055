package rulestore

import (
	"slices"

	"github.com/weirhq/weir/rules"
)

// Touched is what a plan changes.
type Touched struct {
	// Owners are those of the rules and lists, before and afterwards; each once, ascending.
	Owners []string
	// Documents are those of the rules as they would be; of a rule that would be removed, there is none.
	Documents []*rules.Document
	Lists     []TouchedList
}

// TouchedList is an allow list that a plan changes.
type TouchedList struct {
	List   string
	Owners []string // before and afterwards
	// By are the versions that act, or are pending, of the rules that name it, and those of the documents that do.
	By []*rules.Document
}

// touchedBy is what a plan changes of what is stored; given are the lists of the documents.
func touchedBy(plan *Plan, stored []Rule, docs []Document, lists []AllowList, given []rules.AllowList) *Touched {
	out := &Touched{}
	changed := func(kind ChangeKind) bool { return kind != ChangeUnchanged && kind != ChangeKept }
	for _, c := range plan.Changes {
		if !changed(c.Kind) {
			continue
		}
		for i := range stored {
			if stored[i].Newest.Version.ID == c.Rule {
				out.Owners = append(out.Owners, stored[i].Newest.Version.Owner)
			}
		}
		for i := range docs {
			if docs[i].ID == c.Rule {
				out.Owners = append(out.Owners, docs[i].Owner)
				out.Documents = append(out.Documents, &docs[i].Document)
			}
		}
	}
	for _, c := range plan.AllowLists {
		if !changed(c.Kind) {
			continue
		}
		list := TouchedList{List: c.List, By: whoName(c.List, stored, docs)}
		for i := range lists {
			if lists[i].List.ID == c.List {
				list.Owners = append(list.Owners, lists[i].List.Owner)
			}
		}
		for i := range given {
			if given[i].ID == c.List {
				list.Owners = append(list.Owners, given[i].Owner)
			}
		}
		out.Owners = append(out.Owners, list.Owners...)
		out.Lists = append(out.Lists, list)
	}
	slices.Sort(out.Owners)
	out.Owners = slices.Compact(out.Owners)
	return out
}

// whoName are the documents that name an allow list.
func whoName(list string, stored []Rule, docs []Document) (by []*rules.Document) {
	for i := range stored {
		by = append(by, stored[i].Naming(list)...)
	}
	for i := range docs {
		if slices.Contains(docs[i].Allow, list) {
			by = append(by, &docs[i].Document)
		}
	}
	return by
}

// Naming are the versions of r that act, or are pending, and name an allow list.
func (r *Rule) Naming(list string) (by []*rules.Document) {
	if r.Removed {
		return nil
	}
	if slices.Contains(r.Newest.Version.Allow, list) {
		by = append(by, &r.Newest.Version.Document)
	}
	if r.Pending != nil && slices.Contains(r.Pending.Version.Allow, list) {
		by = append(by, &r.Pending.Version.Document)
	}
	return by
}
