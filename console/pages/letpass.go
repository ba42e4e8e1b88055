package pages

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// letting is how a release may go on to let its source pass: by an entry of an allow list that the rule names.
type letting struct {
	lists []rulestore.AllowList  // those that the visitor may change
	parts []traffic.SubjectValue // of the source, what an entry can name
	why   string                 // why it is not offered; empty, too, where the visitor lets nobody pass
}

// offered reports whether the visitor can have the source let pass.
func (l *letting) offered() bool { return len(l.lists) > 0 && len(l.parts) > 0 }

// letting looks which lists and which parts of a source there are for an entry.
func (p *Pages) letting(ctx context.Context, see *reading, rule string, subject traffic.Subject) (letting, error) {
	found := see.Rules[rule]
	if found == nil || access.MayAny(see.visit.Actor, access.Allow) != nil {
		return letting{}, nil
	}
	d := &found.Newest.Version.Document
	own := see.may(access.Allow, d.Owner)
	if len(d.Allow) == 0 {
		if own {
			return letting{why: "This rule names no allow list, so that nobody can be let pass for longer here. Write one into its document, such as allow: [partners], and apply it."}, nil
		}
		return letting{}, nil
	}
	all, err := p.o.Rules.AllowLists(ctx)
	if err != nil {
		return letting{}, err
	}
	l := letting{parts: entryParts(subject)}
	for i := range all {
		if slices.Contains(d.Allow, all[i].List.ID) && see.may(access.Allow, all[i].List.Owner) {
			l.lists = append(l.lists, all[i])
		}
	}
	switch {
	case len(l.lists) == 0 && own:
		l.why = "The allow lists that this rule names are not yours to change: " + strings.Join(d.Allow, ", ") +
			". Ask their owners to let it pass for longer."
	case len(l.lists) > 0 && len(l.parts) == 0:
		l.why = "No part of this source can be an entry of an allow list: of long values only a digest is stored. Enter the value itself on the page of the list."
	}
	return l, nil
}

// entryParts are the parts of a source that an entry can name.
func entryParts(subject traffic.Subject) []traffic.SubjectValue {
	values, err := subject.Values()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(values, func(v traffic.SubjectValue) bool {
		return v.Missing || v.Digest || v.Value == "" || allowKind(v.Field) == ""
	})
}

// allowKind is the kind of the entries that name a field; empty for none.
func allowKind(field string) rules.AllowKind {
	for _, kind := range rules.AllowKinds() {
		if f, _ := kind.Field(); f.String() == field {
			return kind
		}
	}
	return ""
}

// kindWords names what an entry tells a source by.
func kindWords(kind rules.AllowKind) string {
	if kind == rules.AllowCIDR {
		return "address"
	}
	return strings.ReplaceAll(strings.ReplaceAll(string(kind), "api_key", "API key"), "_", " ")
}

// allowedValue is the value of an entry for this visitor. Of keys and sessions, which are secrets, it is the end only.
func allowedValue(r *reading, kind rules.AllowKind, value string) string {
	field, _ := kind.Field()
	if r.mask.Masks(field.String()) {
		return shown.Text(r.mask.Value(field.String(), value))
	}
	if kind.Secret() {
		value = (&rules.AllowEntry{Value: value}).End()
	}
	return shown.Text(value)
}

// letLength is for how long a source is let pass.
type letLength struct {
	name, text string
	length     time.Duration // 0: for good
}

func letLengths() []letLength {
	return []letLength{{"1d", "For 1 day", 24 * time.Hour}, {"30d", "For 30 days", 30 * 24 * time.Hour},
		{"good", "For good", 0}}
}

// inputs ask whether the source is to be let pass, by what, and in which list.
func (l *letting) inputs(see *reading, asked func(name string) string) []input {
	if !l.offered() {
		return nil
	}
	long := input{Name: "pass", Label: "And let it pass from now on", Radio: true,
		Choices: []choice{{Value: "", Text: "No: new evidence blocks it again", Chosen: asked("pass") == ""}}}
	for _, one := range letLengths() {
		long.Choices = append(long.Choices, choice{Value: one.name, Text: one.text, Chosen: asked("pass") == one.name})
	}
	part := input{Name: "part", Label: "If so: everybody with this"}
	for _, v := range l.parts {
		kind := allowKind(v.Field)
		part.Choices = append(part.Choices, choice{Value: v.Field, Text: kindWords(kind) + " " + allowedValue(see,
			kind, v.Value), Chosen: asked("part") == v.Field})
	}
	list := input{Name: "list", Label: "By an entry in this allow list"}
	for i := range l.lists {
		one := &l.lists[i]
		list.Choices = append(list.Choices, choice{Value: one.List.ID, Text: one.List.ID + ", for " +
			strings.Join(one.Rules, ", "), Chosen: asked("list") == one.List.ID})
	}
	return []input{long, part, list}
}

// request is the entry that a form asks for; nil where it asks for none.
func (l *letting) request(r *http.Request, now traffic.Time) (*acts.AllowRequest, error) {
	pass := r.PostFormValue("pass")
	if pass == "" {
		return nil, nil
	}
	if !l.offered() {
		return nil, &acts.Invalid{Field: "pass", Got: shown.Text(pass), Allowed: orElse(l.why,
			"nothing: nobody can be let pass here")}
	}
	asked := &acts.AllowRequest{List: r.PostFormValue("list")}
	lengths := letLengths()
	n := slices.IndexFunc(lengths, func(one letLength) bool { return one.name == pass })
	part := slices.IndexFunc(l.parts, func(v traffic.SubjectValue) bool { return v.Field == r.PostFormValue("part") })
	switch {
	case n < 0:
		return nil, &acts.Invalid{Field: "pass", Got: shown.Text(pass), Allowed: "1d, 30d, good, or nothing"}
	case part < 0:
		return nil, &acts.Invalid{Field: "part", Got: shown.Text(r.PostFormValue("part")),
			Allowed: "a part of this source"}
	case !slices.ContainsFunc(l.lists, func(one rulestore.AllowList) bool { return one.List.ID == asked.List }):
		return nil, &acts.Invalid{Field: "list", Got: shown.Text(asked.List),
			Allowed: "an allow list that the rule names"}
	}
	until := traffic.Time(0)
	if length := lengths[n].length; length > 0 {
		asked.For, until = duration.Format(length), now.Add(length)
	}
	if e := l.entered(asked.List, l.parts[part]); e != nil &&
		(e.Until == 0 || until != 0 && e.Until > until) {
		return nil, &acts.Invalid{Field: "pass", Got: shown.Text(pass),
			Allowed: "nothing: it is in the list already, for longer; choose No to release its block alone"}
	}
	var err error
	asked.Entries = []acts.AllowSource{{Kind: allowKind(l.parts[part].Field), Value: l.parts[part].Value}}
	asked.Reason, err = entryReason(r.PostFormValue("reason"))
	return asked, err
}

// entered is the entry of a list that names a part of a source; nil for none.
func (l *letting) entered(list string, part traffic.SubjectValue) *rules.AllowEntry {
	for i := range l.lists {
		if l.lists[i].List.ID != list {
			continue
		}
		for j := range l.lists[i].List.Entries {
			e := &l.lists[i].List.Entries[j]
			if e.Kind == allowKind(part.Field) && e.Value == part.Value {
				return e
			}
		}
	}
	return nil
}

// mostEntryReason bounds the reason of an entry, in bytes, as rule documents do.
const mostEntryReason = 256

// entryReason is a reason as an entry keeps it: in one line.
func entryReason(text string) (string, error) {
	line := strings.Join(strings.Fields(text), " ")
	if len(line) > mostEntryReason {
		return "", &acts.Invalid{Field: "reason", Got: fmt.Sprintf("%d bytes", len(line)),
			Allowed: fmt.Sprintf("%d bytes, since the entry keeps it", mostEntryReason)}
	}
	return line, nil
}

// unlifted says of a release that failed behind an entry what is done and what is not.
func unlifted(list string, err error) error {
	done := &acts.UnfinishedError{Done: "the source is entered in the allow list " + list,
		Undone: "its block is not released", Cause: err}
	var unfinished *acts.UnfinishedError
	if errors.As(err, &unfinished) {
		done.Done, done.Undone, done.Cause = done.Done+", and "+unfinished.Done, unfinished.Undone, unfinished.Cause
	}
	return done
}
