package story

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
)

// maxProblems bounds what is reported of one file.
const maxProblems = 50

// reader reads the values of a story, and collects what is wrong on the way.
type reader struct {
	file     string
	problems rules.Problems
}

func (r *reader) add(at yamlnode.Place, field, got, allowed, hint string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, rules.Problem{Field: field, Got: got, Allowed: allowed, Hint: hint}.At(r.file, at))
	}
}

// wrong reports a value of another kind than the field takes, or out of its range. References are reported already.
func (r *reader) wrong(field string, n yamlnode.Node, allowed string) {
	if n.Kind() != yamlnode.Alias && n.Tag() == "" {
		r.add(n.Place(), field, n.Describe(short), allowed, "")
	}
}

// document is the only document of a file; ok is false, and a problem told, where there is none.
func (r *reader) document(src []byte) (doc yamlnode.Node, ok bool) {
	const allowed = "one YAML document that is a mapping"
	if len(src) > rules.MaxFileBytes {
		r.add(yamlnode.Place{Line: 1, Column: 1}, "", fmt.Sprintf("%d bytes", len(src)), fmt.Sprintf("at most %d", rules.MaxFileBytes), "")
		return doc, false
	}
	documents := 0
	for n, err := range yamlnode.Documents(src) {
		if err != nil {
			at, text, hint := yamlnode.Place{Line: 1}, err.Error(), ""
			if e := (*yamlnode.SyntaxError)(nil); errors.As(err, &e) {
				text, hint = e.Reason, e.Hint
				if e.Line > 0 {
					at = e.Place
				}
			}
			r.add(at, "", "a text that is not YAML ("+text+")", allowed, hint)
			return doc, false
		}
		if documents++; documents > 1 {
			r.add(n.Place(), "", "a second document", allowed, "")
			return doc, false
		}
		doc = n
	}
	if documents == 0 {
		r.add(yamlnode.Place{Line: 1, Column: 1}, "", "nothing", allowed, "")
		return doc, false
	}
	for _, found := range doc.References(short) { // a story means what it shows
		r.add(found.Place, "", found.Got, found.Allowed, "")
	}
	if doc.Kind() != yamlnode.Mapping {
		r.wrong("", doc, allowed)
		return doc, false
	}
	return doc, true
}

// field is a member of a mapping: how it is read.
type field struct {
	name string
	read func(path string, n yamlnode.Node)
}

// mapping reads the members of n, and says which of them it has.
func (r *reader) mapping(path string, n yamlnode.Node, fields []field) (found map[string]bool) {
	found = map[string]bool{}
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	allowed := strings.Join(names, ", ")
	if n.Kind() != yamlnode.Mapping {
		r.wrong(path, n, "a mapping with "+allowed)
		return found
	}
	for _, m := range n.Members() {
		at := slices.Index(names, m.Name.Value())
		switch name := join(path, short(m.Name.Value())); {
		case m.Name.Kind() == yamlnode.Alias: // reported already
		case !m.Name.IsScalar():
			r.add(m.Name.Place(), path, m.Name.Describe(short)+" as a name", allowed, "")
		case at < 0:
			hint := ""
			if meant := rules.Nearest(m.Name.Value(), names); meant != "" {
				hint = fmt.Sprintf("did you mean %q?", meant)
			}
			r.add(m.Name.Place(), name, "an unknown field", allowed, hint)
		case m.First > 0:
			r.add(m.Name.Place(), name, fmt.Sprintf("it a second time (first at line %d)", m.First), "each field once", "")
		default:
			found[m.Name.Value()] = true
			fields[at].read(name, m.Value)
		}
	}
	return found
}

// list reads the elements of n.
func (r *reader) list(path string, n yamlnode.Node, read func(path string, n yamlnode.Node)) {
	if n.Kind() != yamlnode.List {
		r.wrong(path, n, "a list")
		return
	}
	for i, c := range n.Children() {
		read(element(path, i), c)
	}
}

// scalar is the text of a value of one of these kinds.
func (r *reader) scalar(path string, n yamlnode.Node, allowed string, kinds ...yamlnode.Kind) (string, bool) {
	if !slices.Contains(kinds, n.Kind()) {
		r.wrong(path, n, allowed)
		return "", false
	}
	return n.Value(), true
}

func (r *reader) text(path string, n yamlnode.Node) string {
	s, _ := r.scalar(path, n, "a text", yamlnode.Text)
	return s
}

// word is a text that may look like a number: a name that somebody has chosen.
func (r *reader) word(path string, n yamlnode.Node) string {
	s, ok := r.scalar(path, n, "a text", yamlnode.Text, yamlnode.Integer, yamlnode.Float)
	if ok && s == "" {
		r.add(n.Place(), path, "an empty text", "a text; what an event has not is left out", "")
	}
	return s
}

func (r *reader) number(path string, n yamlnode.Node, least, most int64) int64 {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	s, ok := r.scalar(path, n, allowed, yamlnode.Integer)
	if !ok {
		return least
	}
	x, err := strconv.ParseInt(s, 10, 64)
	if err != nil || x < least || x > most {
		r.wrong(path, n, allowed)
		return least
	}
	return x
}

func (r *reader) truth(path string, n yamlnode.Node) bool {
	s, _ := r.scalar(path, n, "true, false", yamlnode.Boolean)
	return s == "true"
}

const (
	longest         = 31 * 24 * time.Hour
	allowedDuration = "a duration from 0s to 31d, such as 90s, 5m or 1h30m"
)

func (r *reader) duration(path string, n yamlnode.Node) time.Duration {
	s, ok := r.scalar(path, n, allowedDuration, yamlnode.Text)
	if !ok {
		return 0
	}
	d, err := duration.Parse(s)
	if err != nil || d > longest {
		hint := ""
		if meant := duration.Meant(s); meant != "" {
			hint = "did you mean " + meant + "?"
		}
		if n.Tag() == "" { // which is reported already
			r.add(n.Place(), path, n.Describe(short), allowedDuration, hint)
		}
		return 0
	}
	return d
}

// choice is one of a few words, some of which YAML may take for something else.
func (r *reader) choice(path string, n yamlnode.Node, words ...string) string {
	if !n.IsScalar() || !slices.Contains(words, n.Value()) {
		r.wrong(path, n, strings.Join(words, ", "))
	}
	return n.Value()
}

// address is an IP address; a prefix length behind it is read over.
func (r *reader) address(path string, n yamlnode.Node) netip.Addr {
	const allowed = "an IP address"
	s, ok := r.scalar(path, n, allowed, yamlnode.Text, yamlnode.Integer, yamlnode.Float)
	if !ok {
		return netip.Addr{}
	}
	host, _, _ := strings.Cut(s, "/")
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" {
		r.wrong(path, n, allowed)
		return netip.Addr{}
	}
	return ip.Unmap()
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func element(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

// short is a text as messages quote it.
func short(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.Trim(strconv.Quote(s), `"`)
}
