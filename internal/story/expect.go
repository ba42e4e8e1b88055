package story

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Fact is one field of a line, as a story writes it.
type Fact struct{ Name, Text string }

// Line is one hit, block or sum: what a story expects of it, or what came of it.
type Line struct {
	Number int // in the file, of one that is expected
	Facts  []Fact
}

// String is the line as a story writes it.
func (l Line) String() string {
	parts := make([]string, len(l.Facts))
	for i, f := range l.Facts {
		parts[i] = f.Name + ": " + f.Text
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// meets reports whether a line that came says all that l says.
func (l Line) meets(came Line) bool {
	return !slices.ContainsFunc(l.Facts, func(f Fact) bool { return !slices.Contains(came.Facts, f) })
}

// Expect is all that must come of a story. What it does not list must not come.
type Expect struct {
	Hits, Uncounted, Blocks []Line
	// Near and Candidate are of episodes of which nothing comes.
	Near, Candidate Beside
	// AnyBlocks says that nothing is said of blocks: a test that has no such list.
	AnyBlocks bool
}

// Outcome is what came of a story.
type Outcome struct {
	Expect
	Enforced bool // the story was played with ENFORCE: its blocks are to be compared
}

func (p *parser) expect(path string, n yamlnode.Node) {
	section := func(to *[]Line, read func(string, yamlnode.Node) Line) func(string, yamlnode.Node) {
		return func(path string, n yamlnode.Node) {
			p.list(path, n, func(path string, n yamlnode.Node) { *to = append(*to, read(path, n)) })
		}
	}
	e := &p.s.Expect
	found := p.mapping(path, n, []field{
		{"hits", func(path string, n yamlnode.Node) { p.list(path, n, p.hitOfAnyKind) }},
		{"near", e.Near.section(p, detectors.KindNear)},
		{"candidate", e.Candidate.section(p, detectors.KindCandidate)},
		{"uncounted", section(&e.Uncounted, p.uncounted)},
		{"blocks", section(&e.Blocks, p.block)},
	})
	if p.tested != "" {
		p.requireIn(path, n, found, []string{"hits"}, "it in every test; [] where nothing may come")
		e.AnyBlocks = !found["blocks"]
	}
}

// facts collects what a line of the expectation says.
type facts struct {
	p    *parser
	line Line
}

func (f *facts) keep(name, text string) { f.line.Facts = append(f.line.Facts, Fact{name, text}) }

func (f *facts) duration(name string) field {
	return field{name, func(path string, n yamlnode.Node) { f.keep(name, duration.Format(f.p.duration(path, n))) }}
}

func (f *facts) number(name string) field {
	return field{name, func(path string, n yamlnode.Node) { f.keep(name, strconv.FormatInt(f.p.number(path, n, 0, 1<<60), 10)) }}
}

func (f *facts) truth(name string) field {
	return field{name, func(path string, n yamlnode.Node) { f.keep(name, strconv.FormatBool(f.p.truth(path, n))) }}
}

func (f *facts) choice(name string, words ...string) field {
	return field{name, func(path string, n yamlnode.Node) { f.keep(name, f.p.choice(path, n, words...)) }}
}

// read reads a line about a rule and one of its sources; key tells which of the rule's keys names the source.
func (f *facts) read(path string, n yamlnode.Node, key func(*rules.Version) []traffic.KeyField, more ...field) Line {
	id := f.p.tested
	var identity traffic.Identity
	fields := []field{{"rule", func(path string, n yamlnode.Node) { id = f.p.ruleID(path, n) }}}
	extra := map[string]string{}
	if key != nil {
		fields = append(append(fields, f.p.identity(&identity)...), f.p.extraFields(extra)...)
	}
	found := f.p.mapping(path, n, append(fields, more...))
	if f.p.tested == "" {
		f.p.require(path, n, found, []string{"rule"})
	}
	f.line.Number = n.Line()
	v := f.p.s.rule(id)
	if v == nil {
		return f.line
	}
	about := []Fact{{"rule", id}}
	if key != nil {
		about = append(about, f.p.sourceFacts(path, n, v.ID, &identity, key(v), found)...)
		about = append(about, f.p.extraFacts(path, n, v.ID, extra, key(v))...)
	}
	f.line.Facts = append(about, f.line.Facts...)
	return f.line
}

// sourceFacts names a source by the fields of a key, as far as the line says them.
func (p *parser) sourceFacts(path string, n yamlnode.Node, id string, identity *traffic.Identity, key []traffic.KeyField, found map[string]bool) []Fact {
	names := keyNames(key)
	for _, name := range traffic.FieldNames() {
		if found[name] && !slices.Contains(strings.FieldsFunc(names, func(r rune) bool { return strings.ContainsRune(", |", r) }), name) {
			p.add(n.Place(), join(path, name), "a field that is not of the key", cmp.Or(names, "no field")+", the key of "+id, "")
		}
	}
	var out []Fact
	for _, f := range subjectFacts(subjectOf(identity, key)) {
		if found[f.Name] {
			out = append(out, f)
		}
	}
	return out
}

// extraFields are the fields beside the identity that keys of the story's rules have.
func (p *parser) extraFields(values map[string]string) []field {
	var out []field
	for i := range p.s.Rules {
		for _, name := range extraNames(p.s.Rules[i].Key) {
			if !slices.ContainsFunc(out, func(f field) bool { return f.name == name }) {
				out = append(out, field{name, func(path string, n yamlnode.Node) { values[name] = p.word(path, n) }})
			}
		}
	}
	return out
}

func extraNames(key []traffic.KeyField) []string {
	var names []string
	for _, k := range key {
		for one := range k.Alternatives() {
			if !one.OfIdentity() {
				names = append(names, one.String())
			}
		}
	}
	return names
}

// extraFacts names a source by the fields beside the identity that the line says.
func (p *parser) extraFacts(path string, n yamlnode.Node, id string, values map[string]string, key []traffic.KeyField) []Fact {
	var out []Fact
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(extraNames(key), name) {
			p.add(n.Place(), join(path, name), "a field that is not of the key", cmp.Or(keyNames(key), "no field")+", the key of "+id, "")
			continue
		}
		out = append(out, Fact{name, values[name]})
	}
	return out
}

func (p *parser) hit(path string, n yamlnode.Node, more ...field) Line {
	f := &facts{p: p}
	return f.read(path, n, ruleKey, append(more, f.number("count"), f.number("peak"), f.duration("first"), f.duration("last"),
		f.number("updates"), f.choice("phase", string(detectors.PhaseClosed), string(detectors.PhaseMerged)), f.truth("grouped"))...)
}

func (p *parser) uncounted(path string, n yamlnode.Node) Line {
	f := &facts{p: p}
	var reasons []string
	for r := range detectors.NumUncounted {
		reasons = append(reasons, r.String())
	}
	return f.read(path, n, nil, f.choice("why", reasons...), f.number("count"))
}

func (p *parser) block(path string, n yamlnode.Node) Line {
	f := &facts{p: p}
	return f.read(path, n, blockKey, f.duration("until"), f.truth("released"))
}

func ruleKey(v *rules.Version) []traffic.KeyField { return v.Key }

func blockKey(v *rules.Version) []traffic.KeyField {
	if v.Block == nil {
		return nil
	}
	return v.Block.Key
}

// offset is a time as stories write it: since the beginning.
func offset(at traffic.Time) string {
	return duration.Format(time.Duration(at-Begin) * time.Microsecond)
}

func subjectOf(identity *traffic.Identity, key []traffic.KeyField) traffic.Subject {
	s, _ := traffic.MakeSubject(identity, key)
	return s
}

// subjectFacts are the fields of a subject, a whole address without its prefix length. A field that is missing is none.
func subjectFacts(s traffic.Subject) []Fact {
	values, err := s.Values()
	if err != nil {
		return []Fact{{"subject", fmt.Sprintf("%q", string(s))}}
	}
	var out []Fact
	for _, v := range values {
		text := v.Value
		if v.Field == traffic.FieldIP.String() {
			text = strings.TrimSuffix(strings.TrimSuffix(text, "/32"), "/128")
		}
		if !v.Missing {
			out = append(out, Fact{v.Field, text})
		}
	}
	return out
}

// BlockLine is a block that was written, as stories write it.
func BlockLine(subject traffic.Subject, rule string, until traffic.Time, released bool) Line {
	facts := append([]Fact{{"rule", rule}}, subjectFacts(subject)...)
	return Line{Facts: append(facts, Fact{"until", offset(until)}, Fact{"released", strconv.FormatBool(released)})}
}

// Tell turns the records of the hits topic into lines: one for each episode, with its last count and phase, and one for
// each rule and reason of what was left out. A record that stands there twice tells nothing new, and must not be given twice. It
// tells nothing of blocks.
func Tell(records []detectors.Hit) Expect {
	var out Expect
	type told struct {
		last    detectors.Hit
		updates int
	}
	episodes := map[string]*told{}
	left := map[[2]string]int64{}
	for i := range records {
		h := &records[i]
		switch h.Kind {
		case detectors.KindLate:
			left[[2]string{h.Rule, detectors.UncountedLate.String()}] += h.Count
		case detectors.KindUncounted:
			left[[2]string{h.Rule, h.Reason}] += h.Count
		case detectors.KindHit, detectors.KindNear, detectors.KindCandidate:
			e := episodes[h.ID]
			if e == nil {
				e = &told{last: *h}
				episodes[h.ID] = e
			}
			if h.Phase == detectors.PhaseUpdate {
				e.updates++
			}
			e.last.Count, e.last.Peak = max(e.last.Count, h.Count), max(e.last.Peak, h.Peak)
			e.last.First, e.last.Last = min(e.last.First, h.First), max(e.last.Last, h.Last)
			if h.Phase == detectors.PhaseClosed || h.Phase == detectors.PhaseMerged {
				e.last.Phase = h.Phase
			}
		}
	}
	for _, e := range episodes {
		facts := append([]Fact{{"rule", e.last.Rule}}, subjectFacts(e.last.Subject)...)
		facts = append(facts, Fact{"count", strconv.FormatInt(e.last.Count, 10)}, Fact{"peak", strconv.Itoa(e.last.Peak)},
			Fact{"first", offset(e.last.First)}, Fact{"last", offset(e.last.Last)}, Fact{"updates", strconv.Itoa(e.updates)},
			Fact{"phase", string(e.last.Phase)}, Fact{"grouped", strconv.FormatBool(e.last.Grouped)})
		to := out.of(e.last.Kind)
		*to = append(*to, Line{Facts: facts})
	}
	for at, n := range left {
		out.Uncounted = append(out.Uncounted, Line{Facts: []Fact{{"rule", at[0]}, {"why", at[1]}, {"count", strconv.FormatInt(n, 10)}}})
	}
	for _, list := range [][]Line{out.Hits, out.Near.Lines, out.Candidate.Lines, out.Uncounted} {
		sortLines(list)
	}
	return out
}

func sortLines(list []Line) {
	slices.SortFunc(list, func(a, b Line) int { return cmp.Compare(a.String(), b.String()) })
}

// Diff says where an outcome is not what the story expects, line by line; "" where it is.
func (s *Story) Diff(o *Outcome) string {
	var b strings.Builder
	section(&b, "hits", s.Expect.Hits, o.Hits)
	if s.Expect.Near.Asked {
		section(&b, "near", s.Expect.Near.Lines, o.Near.Lines)
	}
	if s.Expect.Candidate.Asked {
		section(&b, "candidate", s.Expect.Candidate.Lines, o.Candidate.Lines)
	}
	section(&b, "uncounted", s.Expect.Uncounted, o.Uncounted)
	if o.Enforced && !s.Expect.AnyBlocks {
		section(&b, "blocks", s.Expect.Blocks, o.Blocks)
	}
	return b.String()
}

// section writes the lines of one kind, if they differ: the expected ones that came plain, "-" before a line that did not
// come, "+" before one that came and was not expected.
func section(b *strings.Builder, name string, want, got []Line) {
	of := pair(want, got)
	taken := make([]bool, len(got))
	paired := 0
	for _, at := range of {
		if at >= 0 {
			taken[at] = true
			paired++
		}
	}
	if paired == len(want) && paired == len(got) {
		return
	}
	fmt.Fprintf(b, "%s:\n", name)
	for i, at := range of {
		if at >= 0 {
			fmt.Fprintf(b, "    %s\n", want[i])
		} else {
			fmt.Fprintf(b, "  - %s   expected in line %d\n", want[i], want[i].Number)
		}
	}
	for i, l := range got {
		if !taken[i] {
			fmt.Fprintf(b, "  + %s   came\n", l)
		}
	}
}

// pair gives each expected line one that came and meets it, -1 for none: as many pairs as there can be.
func pair(want, got []Line) []int {
	of, owner := make([]int, len(want)), make([]int, len(got))
	for i := range of {
		of[i] = -1
	}
	for i := range owner {
		owner[i] = -1
	}
	var find func(i int, seen []bool) bool
	find = func(i int, seen []bool) bool {
		for at := range got {
			if seen[at] || !want[i].meets(got[at]) {
				continue
			}
			seen[at] = true
			if owner[at] < 0 || find(owner[at], seen) {
				of[i], owner[at] = at, i
				return true
			}
		}
		return false
	}
	for i := range want {
		find(i, make([]bool, len(got)))
	}
	return of
}
