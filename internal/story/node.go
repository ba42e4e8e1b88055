package story

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
)

// maxProblems bounds what is reported of one file.
const maxProblems = 50

// reader reads YAML nodes, and collects what is wrong on the way.
type reader struct {
	file     string
	problems rules.Problems
}

func (r *reader) add(line int, field, got, allowed, hint string) {
	if len(r.problems) < maxProblems {
		r.problems = append(r.problems, rules.Problem{File: r.file, Line: line, Field: field, Got: got, Allowed: allowed, Hint: hint})
	}
}

// wrong reports a value of another kind than the field takes.
func (r *reader) wrong(field string, n *yaml.Node, allowed string) {
	r.add(n.Line, field, describe(n), allowed, "")
}

// document is the only document of a file; nil, with a problem, where there is none.
func (r *reader) document(src []byte) *yaml.Node {
	const allowed = "one YAML document that is a mapping"
	if len(src) > rules.MaxFileBytes {
		r.add(1, "", fmt.Sprintf("%d bytes", len(src)), fmt.Sprintf("at most %d", rules.MaxFileBytes), "")
		return nil
	}
	decoder := yaml.NewDecoder(strings.NewReader(string(src)))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); err != nil {
		line, text := 1, strings.TrimPrefix(err.Error(), "yaml: ")
		if m := regexp.MustCompile(`^line (\d+): (.*)$`).FindStringSubmatch(text); m != nil {
			line, _ = strconv.Atoi(m[1]) // digits
			text = m[2]
		}
		r.add(line, "", "a text that is not YAML ("+text+")", allowed, "")
		return nil
	}
	if decoder.Decode(&more) == nil {
		r.add(more.Line, "", "a second document", allowed, "")
		return nil
	}
	n := doc.Content[0]
	r.refuseReferences(n)
	if n.Kind != yaml.MappingNode {
		r.wrong("", n, allowed)
		return nil
	}
	return n
}

// refuseReferences reports anchors, aliases and tags: a story means what it shows.
func (r *reader) refuseReferences(n *yaml.Node) {
	switch {
	case n.Kind == yaml.AliasNode:
		r.add(n.Line, "", "the YAML alias *"+short(n.Value), "values written out", "")
		return
	case n.Anchor != "":
		r.add(n.Line, "", "the YAML anchor &"+short(n.Anchor), "values written out", "")
	case n.Style&yaml.TaggedStyle != 0:
		r.add(n.Line, "", "the YAML tag "+short(n.Tag), "values without a tag", "")
	}
	for _, c := range n.Content {
		r.refuseReferences(c)
	}
}

// field is a member of a mapping: how it is read.
type field struct {
	name string
	read func(path string, n *yaml.Node)
}

// mapping reads the members of n, and gives the place of each that it has.
func (r *reader) mapping(path string, n *yaml.Node, fields []field) (found map[string]*yaml.Node) {
	found = map[string]*yaml.Node{}
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	allowed := strings.Join(names, ", ")
	if n.Kind != yaml.MappingNode {
		r.wrong(path, n, "a mapping with "+allowed)
		return found
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := slices.Index(names, key.Value)
		first, twice := found[key.Value]
		switch name := join(path, short(key.Value)); {
		case key.Kind != yaml.ScalarNode:
			r.add(key.Line, path, describe(key)+" as a name", allowed, "")
		case at < 0:
			hint := ""
			if meant := rules.Nearest(key.Value, names); meant != "" {
				hint = fmt.Sprintf("did you mean %q?", meant)
			}
			r.add(key.Line, name, "an unknown field", allowed, hint)
		case twice:
			r.add(key.Line, name, fmt.Sprintf("it a second time (first at line %d)", first.Line), "each field once", "")
		default:
			found[key.Value] = value
			fields[at].read(name, value)
		}
	}
	return found
}

// list reads the elements of n.
func (r *reader) list(path string, n *yaml.Node, read func(path string, n *yaml.Node)) {
	if n.Kind != yaml.SequenceNode {
		r.wrong(path, n, "a list")
		return
	}
	for i, c := range n.Content {
		read(fmt.Sprintf("%s[%d]", path, i), c)
	}
}

// scalar is the text of a value of one of these tags.
func (r *reader) scalar(path string, n *yaml.Node, allowed string, tags ...string) (string, bool) {
	if n.Kind != yaml.ScalarNode || !slices.Contains(tags, n.Tag) {
		r.wrong(path, n, allowed)
		return "", false
	}
	return n.Value, true
}

func (r *reader) text(path string, n *yaml.Node) string {
	s, _ := r.scalar(path, n, "a text", "!!str")
	return s
}

// word is a text that may look like a number: a name that somebody has chosen.
func (r *reader) word(path string, n *yaml.Node) string {
	s, ok := r.scalar(path, n, "a text", "!!str", "!!int", "!!float")
	if ok && s == "" {
		r.add(n.Line, path, "an empty text", "a text; what an event has not is left out", "")
	}
	return s
}

func (r *reader) number(path string, n *yaml.Node, least, most int64) int64 {
	allowed := fmt.Sprintf("a whole number from %d to %d", least, most)
	s, ok := r.scalar(path, n, allowed, "!!int")
	if !ok {
		return least
	}
	x, err := strconv.ParseInt(s, 10, 64)
	if err != nil || x < least || x > most {
		r.add(n.Line, path, short(s), allowed, "")
		return least
	}
	return x
}

func (r *reader) truth(path string, n *yaml.Node) bool {
	s, _ := r.scalar(path, n, "true, false", "!!bool")
	return s == "true"
}

const (
	longest         = 31 * 24 * time.Hour
	allowedDuration = "a duration from 0s to 31d, such as 90s, 5m or 1h30m"
)

func (r *reader) duration(path string, n *yaml.Node) time.Duration {
	s, ok := r.scalar(path, n, allowedDuration, "!!str")
	if !ok {
		return 0
	}
	d, err := duration.Parse(s)
	if err != nil || d > longest {
		r.add(n.Line, path, short(s), allowedDuration, "")
		return 0
	}
	return d
}

// choice is one of a few words.
func (r *reader) choice(path string, n *yaml.Node, words ...string) string {
	s, ok := r.scalar(path, n, strings.Join(words, ", "), "!!str", "!!int", "!!bool", "!!null")
	if ok && !slices.Contains(words, s) {
		r.add(n.Line, path, short(s), strings.Join(words, ", "), "")
	}
	return s
}

// address is an IP address; a prefix length behind it is read over.
func (r *reader) address(path string, n *yaml.Node) netip.Addr {
	const allowed = "an IP address"
	s, ok := r.scalar(path, n, allowed, "!!str", "!!int", "!!float")
	if !ok {
		return netip.Addr{}
	}
	host, _, _ := strings.Cut(s, "/")
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" {
		r.add(n.Line, path, short(s), allowed, "")
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

// describe names what stands in the file.
func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case n.Kind == yaml.AliasNode:
		return "an alias"
	case n.Tag == "!!null":
		return "nothing"
	}
	return short(n.Value)
}

// short is a text as messages quote it.
func short(s string) string {
	if len(s) > 60 {
		s = s[:60] + "…"
	}
	return strings.Trim(strconv.Quote(s), `"`)
}
