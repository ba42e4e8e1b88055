package explore

import (
	"context"
	"slices"
	"strings"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/traffic"
)

// AuditFilter selects what people did. Of each member an empty value selects everything.
type AuditFilter struct {
	Rule         string       `json:"rule,omitempty"`   // acts on this rule, and on blocks of it
	Source       string       `json:"source,omitempty"` // acts on blocks of this source; rules of many sources are not among them
	Actor        string       `json:"actor,omitempty"`
	Action       string       `json:"action,omitempty"`
	Since, Until traffic.Time // not before, and before
}

// Acts is a page of the audit trail.
type Acts struct {
	Acts  []audit.Numbered `json:"acts"`
	Total Total            `json:"total"`
	Next  string           `json:"next,omitempty"`
}

// mostScanned is how many entries are looked through for those about a source, whose objects are texts.
const mostScanned = 20_000

// Audit lists what people did, newest first.
func (x *Explorer) Audit(ctx context.Context, f AuditFilter, p Page) (Acts, error) {
	limit, place, err := p.begin()
	if err != nil {
		return Acts{}, err
	}
	source, err := x.check(ctx, &Filter{Rule: f.Rule, Source: f.Source, Since: f.Since, Until: f.Until})
	if err == nil {
		err = x.named(ctx, audit.ColumnActor, f.Actor)
	}
	if err == nil {
		err = x.named(ctx, audit.ColumnAction, f.Action)
	}
	if err != nil {
		return Acts{}, err
	}
	q := audit.Query{Actor: f.Actor, Action: f.Action, Since: f.Since, Until: f.Until}
	if place != nil {
		q.Before = int64(place.At)
	}
	if f.Rule == "" && source == nil {
		return x.auditPage(ctx, q, limit)
	}
	q.Limit = mostScanned
	all, err := x.store.Audit.Find(ctx, q)
	if err != nil {
		return Acts{}, err
	}
	all = slices.DeleteFunc(all, func(n audit.Numbered) bool {
		rule, subject := concerns(&n.Entry)
		return f.Rule != "" && rule != f.Rule || source != nil && (subject == "" || !source.Matches(subject))
	})
	found := Acts{Acts: all, Total: Total{N: int64(len(all)), More: len(all) == mostScanned}}
	if len(all) > limit {
		found.Acts, found.Next = all[:limit], encodeCursor(all[limit-1].Seq, "")
	}
	return found, nil
}

func (x *Explorer) auditPage(ctx context.Context, q audit.Query, limit int) (Acts, error) {
	q.Limit = limit + 1
	all, err := x.store.Audit.Find(ctx, q)
	if err != nil {
		return Acts{}, err
	}
	n, err := x.store.Audit.Count(ctx, q)
	found := Acts{Acts: all, Total: Total{N: n}}
	if len(all) > limit {
		found.Acts, found.Next = all[:limit], encodeCursor(all[limit-1].Seq, "")
	}
	return found, err
}

// named refuses an actor or an action that the trail does not have.
func (x *Explorer) named(ctx context.Context, column audit.Column, got string) error {
	if got == "" {
		return nil
	}
	names, err := x.store.Audit.Named(ctx, column)
	if err != nil || slices.Contains(names, got) {
		return err
	}
	return unknown(string(column), got, names)
}

// concerns is the rule that an act is about, and the source, where it is about a block.
func concerns(e *audit.Entry) (rule string, subject traffic.Subject) {
	thing, rest, _ := strings.Cut(e.Object, " ")
	switch thing {
	case "rule":
		if e.Action == "reset-count" {
			text, _, _ := strings.Cut(e.Detail, ", in routing version")
			return rest, traffic.Subject(text)
		}
		return rest, ""
	case "block":
		rule, text, _ := strings.Cut(rest, " ")
		return rule, traffic.Subject(text)
	}
	return "", ""
}

// actsOn lists the acts on blocks of a source in a time, newest first.
func (x *Explorer) actsOn(ctx context.Context, source *history.Source, f *Filter) ([]audit.Numbered, error) {
	all, err := x.store.Audit.Find(ctx, audit.Query{Since: f.Since, Until: f.Until, Limit: mostScanned})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(all, func(n audit.Numbered) bool {
		rule, subject := concerns(&n.Entry)
		return subject == "" || !source.Matches(subject) || f.Rule != "" && rule != f.Rule
	}), nil
}
