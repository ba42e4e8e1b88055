package rules

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/traffic"
)

// documentKind is what a document of a file is.
type documentKind string

const (
	kindRule  documentKind = "rule" // also of a document that does not say
	kindAllow documentKind = "allow"
)

const allowedDocumentKind = "rule, allow; without the field a rule"

// kindOf is what n says that it is. What is said wrongly is left to readKind.
func kindOf(n yamlnode.Node) documentKind {
	for _, m := range n.Members() {
		if m.Name.IsScalar() && m.Name.Value() == "kind" && m.Value.Kind() == yamlnode.Text && m.Value.Value() == string(kindAllow) {
			return kindAllow
		}
	}
	return kindRule
}

// readKind refuses a kind that there is not. That of an allow list was seen before.
func readKind(d *decoder, field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedDocumentKind)
	if !ok || s == string(kindRule) || s == string(kindAllow) {
		return
	}
	hint := ""
	if meant := Nearest(s, []string{string(kindRule), string(kindAllow)}); meant != "" {
		hint = fmt.Sprintf("did you mean %q?", meant)
	}
	d.wrong(field, n, allowedDocumentKind, hint)
}

// allowDocument reads the whole document as an allow list, and checks the result.
func allowDocument(d *decoder, n yamlnode.Node) (l AllowList) {
	d.nodes[""] = n
	references(d, n)
	d.section(allowSection(&l), "", n)
	l.check(d.env, func(p Problem) {
		if !d.reported(p.Field) {
			d.problems = append(d.problems, d.locate(p))
		}
	})
	return l.Normal()
}

// allowSection are the members of an allow list, read into l.
func allowSection(l *AllowList) section {
	text := func(allowed string, to *string) memberReader {
		return func(d *decoder, field string, n yamlnode.Node) { *to, _ = d.text(field, n, allowed) }
	}
	return section{members: []member{
		{"kind", allowedDocumentKind, readKind},
		{"id", allowedID, text(allowedID, &l.ID)},
		{"owner", allowedOwner, text(allowedOwner, &l.Owner)},
		{"entries", allowedEntries, func(d *decoder, field string, n yamlnode.Node) { l.Entries = allowEntries(d, field, n) }},
	}}
}

func allowEntries(d *decoder, field string, n yamlnode.Node) []AllowEntry {
	if n.Kind() != yamlnode.List {
		d.wrong(field, n, allowedEntries, "")
		return nil
	}
	items := n.Children()
	if len(items) > MaxAllowEntries { // check names it
		items = items[:MaxAllowEntries+1]
	}
	entries := make([]AllowEntry, len(items))
	for i, item := range items {
		place := element(field, i)
		d.nodes[place] = item
		if len(d.problems) >= 10*maxProblems {
			d.bad[place] = true // it is not read, and so not complained of
			continue
		}
		entries[i] = allowEntry(d, place, item)
	}
	return entries
}

// entrySection are the members of the entry at place, read into e.
func entrySection(place string, e *AllowEntry) section {
	members := make([]member, 0, len(AllowKinds())+2)
	for _, kind := range AllowKinds() {
		members = append(members, member{string(kind), "", func(d *decoder, field string, n yamlnode.Node) {
			if e.Kind != "" {
				d.bad[place] = true
				d.add(n.Place(), field, "a second source, beside "+string(e.Kind), allowedKinds+" in each entry", "make it an entry of its own")
				return
			}
			allowed := allowedAllowValue
			if kind == AllowCIDR {
				allowed = allowedCIDR
			}
			value, ok := d.text(field, n, allowed)
			d.bad[place] = d.bad[place] || !ok
			e.Kind, e.Value = kind, value
		}})
	}
	members = append(members,
		member{"reason", allowedAllowReason, func(d *decoder, field string, n yamlnode.Node) {
			e.Reason, _ = d.text(field, n, allowedAllowReason)
		}},
		member{"until", "", func(d *decoder, field string, n yamlnode.Node) { e.Until = instant(d, field, n) }})
	return section{prefix: place + ".", members: members}
}

// allowEntry reads one entry. One whose source is wrong is reported as a whole, and is not checked.
func allowEntry(d *decoder, place string, n yamlnode.Node) (e AllowEntry) {
	if !d.section(entrySection(place, &e), place, n) {
		return e
	}
	if e.Kind == "" && !d.bad[place] {
		hint := ""
		if slices.ContainsFunc(n.Members(), func(m yamlnode.Member) bool { return m.Name.Value() == "ip" }) {
			hint = `did you mean "cidr"?`
		}
		d.add(n.Place(), place, "an entry without a source", allowedKinds, hint)
		d.bad[place] = true
	}
	return e
}

// instant reads n as a time. A time that a document cannot mean, before 1970, is refused with the others.
func instant(d *decoder, field string, n yamlnode.Node) traffic.Time {
	if (n.Kind() == yamlnode.Timestamp || n.Kind() == yamlnode.Text) && n.Tag() == "" {
		if t, err := time.Parse(time.RFC3339Nano, n.Value()); err == nil && traffic.At(t) > 0 {
			return traffic.At(t)
		}
	}
	hint := ""
	if day, err := time.Parse(time.DateOnly, n.Value()); err == nil {
		hint = "say when on that day, and where: " + day.Format(time.RFC3339)
	}
	d.wrong(field, n, allowedUntil, hint)
	return 0
}

// readAllow reads the names of the lists that a rule honours.
func readAllow(d *decoder, field string, n yamlnode.Node) {
	if n.Kind() != yamlnode.List {
		hint := ""
		if n.IsScalar() && n.Kind() != yamlnode.Null {
			hint = "one list is a list too: [" + n.Value() + "]"
		}
		d.wrong(field, n, allowedAllow, hint)
		return
	}
	items := n.Children()
	if len(items) == 0 {
		d.wrong(field, n, allowedAllow, leaveOut)
		return
	}
	if d.tooMany(field, n, maxAlternatives) {
		return
	}
	for i, item := range items {
		place := element(field, i)
		d.nodes[place] = item
		name, ok := d.text(place, item, allowedAllow)
		if !ok {
			d.bad[field] = true
			return
		}
		d.doc.Allow = append(d.doc.Allow, name)
	}
}

// allow checks the names of the lists that a rule honours, not whether there are such lists.
func (c *checker) allow() {
	c.say(len(c.Allow) <= MaxRuleAllow, "allow", fmt.Sprintf("%d lists", len(c.Allow)), allowedAllow)
	for i, name := range c.Allow {
		c.say(validID(name), element("allow", i), quoteShort(name), allowedAllow)
		c.say(!slices.Contains(c.Allow[:i], name), element("allow", i), quoteShort(name)+" a second time", "each list once")
	}
}

// unknownLists reports the names in rules' allow that no list has: an error where all lists are known, else a warning, since
// the list may be stored.
func unknownLists(all []located, lists []AllowList, env Environment) (problems Problems) {
	names := slices.Clone(env.AllowLists)
	for i := range lists {
		names = append(names, lists[i].ID)
	}
	slices.Sort(names)
	looked := 0 // for names that were meant, each among all
	for i := range all {
		for j, name := range all[i].doc.Allow {
			if _, found := slices.BinarySearch(names, name); found || !validID(name) {
				continue
			}
			p := Problem{Field: element("allow", j), Got: quoteShort(name) + ", which no allow list has as its id",
				Allowed: "the id of an allow list, a document of kind: allow"}.At(all[i].file, all[i].place(element("allow", j)))
			meant := ""
			if looked++; looked <= maxProblems {
				meant = Nearest(name, names)
			}
			switch {
			case meant != "":
				p.Hint = fmt.Sprintf("did you mean %q?", meant)
			case len(names) > 0:
				p.Hint = "there are " + strings.Join(names[:min(len(names), 10)], ", ")
			case env.AllowLists != nil:
				p.Hint = "give the file of the list beside that of the rule, or the directory of both"
			}
			if env.AllowLists != nil {
				problems = append(problems, p)
			} else if env.Warn != nil {
				p.Got = quoteShort(name) + ", which no allow list of these files has as its id: weir rules apply looks among those that are stored"
				env.Warn(p)
			}
		}
	}
	return problems
}

// Secret reports whether values of this kind are secrets: keys and sessions.
func (k AllowKind) Secret() bool { return k == AllowAPIKey || k == AllowSession }

// End is the end of a value, by which who knows the secret tells it.
func (e *AllowEntry) End() string {
	return "…" + strings.ToValidUTF8(e.Value[len(e.Value)-min(4, len(e.Value)/2):], "")
}

// Subject is the source that e names.
func (e *AllowEntry) Subject() traffic.Subject {
	field, _ := e.Kind.Field()
	return traffic.SubjectOf([]traffic.SubjectValue{{Field: field.String(), Value: e.Value}})
}
