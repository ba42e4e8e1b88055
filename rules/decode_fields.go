package rules

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules/reading"
)

func (d *decoder) readMatch(field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.Null {
		d.wrong(field, n, allowedMatch, "write {} to match every request")
		return
	}
	d.section(watchSection(), field, n)
}

func readReach(d *decoder, field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.Null {
		d.wrong(field, n, allowedReach, "write {} to hold every request of the key")
		return
	}
	d.doc.Block.Match = &Match{}
	if !d.section(reachSection(), field, n) {
		d.doc.Block.Match = nil
	}
}

// readList reads a member that is a text or a list of texts, each once: of a kind, that take reads and place holds. all is the hint
// of an empty one.
func readList(kind, allowed, all string, take func(*decoder, string, yamlnode.Node, string) (string, bool), place func(*Document) *[]string) memberReader {
	return func(d *decoder, field string, n yamlnode.Node) {
		items := []yamlnode.Node{n}
		if n.Kind() == yamlnode.List {
			if items = n.Children(); len(items) == 0 {
				d.bad[field] = true
				d.add(n.Place(), field, "an empty list", allowed, all)
				return
			}
			if d.tooMany(field, n, maxAlternatives) {
				return
			}
		}
		list := place(&d.doc)
		for i, item := range items {
			at := field
			if n.Kind() == yamlnode.List {
				at = element(field, i)
			} else {
				d.nodes[element(field, 0)] = item // as which it is checked
			}
			d.nodes[at] = item
			s, ok := take(d, at, item, allowed)
			switch {
			case !ok:
				d.bad[field] = true
			case s == "":
				d.bad[field] = true
				d.wrong(at, item, allowed, all)
			case slices.Contains(*list, s):
				d.add(item.Place(), at, quoteShort(s)+" a second time", "each "+kind+" once", "")
			default:
				*list = append(*list, s)
			}
		}
	}
}

// tooMany reports a list that is longer than most, before its elements are compared with each other.
func (d *decoder) tooMany(field string, n yamlnode.Node, most int) bool {
	count := len(n.Children())
	if count > most {
		d.bad[field] = true
		d.add(n.Place(), field, strconv.Itoa(count)+" of them", "at most "+strconv.Itoa(most), "")
	}
	return count > most
}

func aText(d *decoder, field string, n yamlnode.Node, allowed string) (string, bool) {
	return d.text(field, n, allowed)
}

// aHost reads a host, which is compared in lower case.
func aHost(d *decoder, field string, n yamlnode.Node, allowed string) (string, bool) {
	host, ok := d.text(field, n, allowed)
	return strings.ToLower(host), ok
}

// aStatus reads a status, which is a number, or a text for a class of them.
func aStatus(d *decoder, field string, n yamlnode.Node, allowed string) (string, bool) {
	if n.Kind() == yamlnode.Integer && n.Tag() == "" && checkStatus(n.Value()) == "" {
		return n.Value(), true
	}
	if n.Kind() != yamlnode.Text || n.Tag() != "" {
		d.wrong(field, n, allowed, "")
		return "", false
	}
	return strings.ToLower(n.Value()), true
}

// readMethods reads method, whose names are compared in upper case.
func readMethods(of func(*Document) *Match) memberReader {
	upper := func(d *decoder, field string, n yamlnode.Node, allowed string) (string, bool) {
		name, ok := d.text(field, n, allowed)
		return strings.ToUpper(name), ok
	}
	return readList("method", allowedMethod, "leave the field out to match every method", upper,
		func(d *Document) *[]string { return &of(d).Methods })
}

// readPaths reads path: one stands by itself, several are a list.
func readPaths(of func(*Document) *Match) memberReader {
	read := readList("path", allowedPath, "leave the field out to match every path", aText, func(d *Document) *[]string { return &of(d).Paths })
	return func(d *decoder, field string, n yamlnode.Node) {
		read(d, field, n)
		if m := of(&d.doc); len(m.Paths) == 1 {
			m.Path, m.Paths = m.Paths[0], nil
		}
	}
}

// requireReach reports a block that no request can meet.
func requireReach(d *decoder) {
	if d.doc.Block == nil {
		return
	}
	reach, field := d.doc.Reach(), "match.path"
	if d.doc.Block.Match != nil {
		field = "block.match.path"
	}
	if paths := reach.paths(); !d.reported(field) && len(paths) > 0 && !slices.ContainsFunc(paths, func(p string) bool {
		return reading.CheckPattern(p) != "" || !(&Match{Methods: reach.Methods, Path: p}).pathless()
	}) {
		d.add(d.place(field), field, strings.Join(quoteAll(paths), ", ")+", and a block, which no request can meet",
			"a path as requests have it, from the first / on, where there is a block", "")
	}
}

// requireNormalPath reports a path that is not in the form in which it is compared.
func (d *decoder) requireNormalPath() {
	m := &d.doc.Match
	if m.Path == "" || len(m.Except) > 0 || m.PathAs == PathRaw || d.reported("match.path") || reading.CheckPattern(m.Path) != "" {
		return
	}
	if allowed, hint := checkNormal(m.Path); allowed != "" {
		d.add(d.place("match.path"), "match.path", quoteShort(m.Path), allowed, hint)
	}
}

func (d *decoder) readBlock(field string, n yamlnode.Node) {
	d.doc.Block = &Block{}
	if !d.section(blockSection(), field, n) {
		d.doc.Block = nil
	}
}

func (d *decoder) readExtend(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedExtend)
	switch {
	case !ok:
	case s == "on-attempt":
		d.bad[field] = true
		d.add(n.Place(), field, quoteShort(s)+", which is not supported by this version", allowedExtend, "")
	default:
		d.doc.Block.Extend = Extend(s)
	}
}

func element(field string, i int) string { return field + "[" + strconv.Itoa(i) + "]" }

func (d *decoder) readAlgorithm(field string, n yamlnode.Node) {
	s, ok := d.text(field, n, allowedAlgorithm())
	switch {
	case !ok:
	case s == "": // which a Document holds for the default
		d.wrong(field, n, allowedAlgorithm(), leaveOut)
	case !slices.Contains(Algorithms(), Algorithm(s)):
		hint := ""
		if meant := Nearest(s, strings.Split(allowedAlgorithm(), ", ")); meant != "" {
			hint = fmt.Sprintf("did you mean %q?", meant)
		}
		d.wrong(field, n, allowedAlgorithm(), hint)
		d.bad["count"], d.bad["burst"] = true, true // they cannot be judged
	default:
		d.doc.Algorithm = Algorithm(s)
	}
}

// countSection reads a count that is written as a mapping: of its members exactly one.
func countSection() section {
	return section{
		prefix: "count.",
		members: []member{
			{"distinct", "", (*decoder).readDistinct},
			{"sum", "", intoUnlessZero(textAs[string], allowedSum, "", func(d *Document) *string { return &d.Count.Sum })},
		},
	}
}

func (d *decoder) readCount(field string, n yamlnode.Node) {
	if n.Kind() == yamlnode.Mapping {
		before := len(d.problems)
		d.section(countSection(), field, n)
		switch {
		case len(d.problems) > before:
			d.bad[field] = true
		case len(n.Children()) == 0:
			d.wrong(field, n, allowedCount, "")
		}
		return
	}
	s, ok := d.text(field, n, allowedCount)
	if !ok || s == string(CountEvents) {
		return
	}
	hint := ""
	switch CountKind(s) {
	case CountDistinct:
		hint = "say of which field: {distinct: device}"
	case CountSum:
		hint = "say of what: {sum: attrs.cost}, {sum: bytes}"
	}
	d.wrong(field, n, allowedCount, hint)
}

// readTests keeps the tests for Environment.Tests. They are no part of the document: a test that changes makes no version.
func readTests(d *decoder, field string, n yamlnode.Node) {
	if n.Kind() != yamlnode.List || len(n.Children()) > MaxTests {
		d.wrong(field, n, allowedTests, "")
		return
	}
	d.tests = n
}

// reachName is how a match that stands alone is named in messages, where a file's name stands.
const reachName = "match"

// ParseReach reads a match that stands alone, as block.match is written in a document: `{method: POST, path:
// /v1/login}`. The error is a Problems. An empty match, which is every request, is for the caller to judge.
func ParseReach(text string) (Match, error) {
	src := []byte(text)
	if p := checkSource(src); p != nil {
		p.File = reachName
		return Match{}, Problems{*p}
	}
	d := &decoder{file: reachName, nodes: map[string]yamlnode.Node{}, bad: map[string]bool{}}
	d.doc.Block = &Block{Match: &Match{}}
	documents := 0
	for n, err := range yamlnode.Documents(src) {
		if err != nil {
			return Match{}, Problems{syntaxProblem(File{Name: reachName}, err)}
		}
		if documents++; documents == 1 {
			d.nodes[""] = n
			references(d, n)
			readReach(d, "block.match", n)
		}
	}
	if documents != 1 {
		return Match{}, Problems{{File: reachName, Line: 1, Got: fmt.Sprintf("%d documents", documents),
			Allowed: allowedReach}}
	}
	m := d.doc.Block.Match
	if m != nil {
		m.check("block.match.", true, func(p Problem) {
			if !d.reported(p.Field) {
				d.problems = append(d.problems, d.locate(p))
			}
		})
		requireReach(d)
	}
	if len(d.problems) > 0 {
		return Match{}, d.problems.bounded()
	}
	m.sortSets()
	return *m, nil
}
