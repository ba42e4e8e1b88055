package story

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
)

// maxTestSteps bounds the events of all tests of one file, repeated ones included.
const maxTestSteps = 100_000

// Tests reads the tests of rule documents, as rules.Environment wants them read. Each is a story of its document alone, which
// blocks from the beginning. The zero value keeps none: it tells what is wrong with them.
type Tests struct {
	// Keep is given each test that nothing is wrong with, in the order of the files.
	Keep func(Test)

	file  string // that is read
	steps int    // of its tests
}

// Test is one test of a rule document.
type Test struct {
	Rule, File string
	Line       int
	*Story
}

var _ rules.TestReader = (*Tests)(nil)

// ReadTests implements rules.TestReader.
func (t *Tests) ReadTests(d *rules.Document, file string, tests yamlnode.Node, report func(rules.Problem)) {
	if t.file != file {
		t.file, t.steps = file, 0
	}
	v, _ := rules.NextVersion(nil, *d)
	names := map[string]int{}
	for i, n := range tests.Children() {
		p := &parser{reader: reader{file: file}, s: &Story{Partitions: 1, Rules: []rules.Version{v}, Blocking: true}, tested: v.ID, room: maxTestSteps - t.steps}
		path := element("tests", i)
		p.test(path, n)
		name := p.s.Name
		if first, twice := names[name]; twice && name != "" {
			p.add(n.Place(), join(path, "name"), fmt.Sprintf("%q a second time (first at line %d)", short(name), first), "a name of its own for every test", "")
		}
		names[name] = n.Line()
		t.steps += len(p.s.Steps)
		for _, problem := range p.problems {
			report(problem)
		}
		if len(p.problems) == 0 && t.Keep != nil {
			t.Keep(Test{Rule: v.ID, File: file, Line: n.Line(), Story: p.s})
		}
	}
}

// test reads one test. It says what a story does, but for rules and for what happens to processes.
func (p *parser) test(path string, n yamlnode.Node) {
	var each, timeline, expect yamlnode.Node
	keep := func(to *yamlnode.Node) func(string, yamlnode.Node) {
		return func(_ string, n yamlnode.Node) { *to = n }
	}
	found := p.mapping(path, n, []field{
		{"name", func(path string, n yamlnode.Node) { p.s.Name = p.title(path, n) }},
		{"each", keep(&each)},
		{"timeline", keep(&timeline)},
		{"expect", keep(&expect)},
	})
	p.requireIn(path, n, found, []string{"name", "timeline", "expect"}, "name, timeline and expect in every test")
	if found["each"] {
		p.mapping(join(path, "each"), each, p.eventFields(&p.each))
	}
	if found["timeline"] {
		p.timeline(join(path, "timeline"), timeline)
	}
	if found["expect"] {
		p.expect(join(path, "expect"), expect)
	}
}

// title is a test's name: one line, which stands in what is shown and is looked for by --run.
func (p *parser) title(path string, n yamlnode.Node) string {
	s := p.text(path, n)
	if n.Kind() == yamlnode.Text && (s == "" || len(s) > maxName || strings.ContainsAny(s, "\n\r")) {
		p.wrong(path, n, fmt.Sprintf("one line of at most %d bytes", maxName))
	}
	return s
}

// maxName bounds a test's name in bytes.
const maxName = 200

// refusesAct reports an act that no test has.
func (p *parser) refusesAct(path string, n yamlnode.Node, act Act) bool {
	if p.tested == "" || act == ActEvent {
		return false
	}
	p.add(n.Place(), join(path, string(act)), "something else than an event", "events: "+strings.Join(p.eventNames(), ", "),
		"a test's rule blocks from the beginning, and nothing fails; what happens to processes and modes is told by stories")
	return true
}

// eventNames are the fields of an event in a timeline.
func (p *parser) eventNames() []string {
	var names []string
	for _, f := range slices.Concat(p.stepFields(&stepTimes{}), p.eventFields(&p.each)) {
		names = append(names, f.name)
	}
	return names
}
