package story

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// Bounds of a story.
const (
	maxPartitions = 64
	maxSteps      = 100_000 // repeated events included
	maxRules      = 100
)

// Files gives the text of a file of rules that a story names.
type Files func(name string) ([]byte, error)

// Read reads the story in a file, and the files of rules that it names.
func Read(file string) (*Story, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return Parse(file, src, func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(filepath.Dir(file), name)) })
}

// Parse reads a story. file is its name in messages; open reads the files of rules that it names, relative to itself. The
// error is a rules.Problems with everything that is wrong, by file and place.
func Parse(file string, src []byte, open Files) (*Story, error) {
	p := &parser{reader: reader{file: file}, open: open, lines: lines(src), s: &Story{Partitions: 1}, room: maxSteps}
	doc, ok := p.document(src)
	if !ok {
		return nil, p.problems
	}
	p.story(doc)
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b rules.Problem) int {
			return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
		})
		return nil, p.problems
	}
	return p.s, nil
}

type parser struct {
	reader
	open  Files
	lines []string
	s     *Story
	each  traffic.Request // what every event has that does not say otherwise

	tested string // the rule whose test is read; empty for a story
	room   int    // how many steps there may be
}

// story reads the document. What other members are judged by comes first, wherever it stands.
func (p *parser) story(doc yamlnode.Node) {
	var list, each, timeline, expect yamlnode.Node
	keep := func(to *yamlnode.Node) func(string, yamlnode.Node) {
		return func(_ string, n yamlnode.Node) { *to = n }
	}
	found := p.mapping("", doc, []field{
		{"story", func(path string, n yamlnode.Node) { p.s.Name = p.text(path, n) }},
		{"teaches", func(path string, n yamlnode.Node) { p.s.Teaches = p.text(path, n) }},
		{"rules", keep(&list)},
		{"partitions", func(path string, n yamlnode.Node) { p.s.Partitions = int(p.number(path, n, 1, maxPartitions)) }},
		{"each", keep(&each)},
		{"timeline", keep(&timeline)},
		{"expect", keep(&expect)},
	})
	for _, name := range []string{"story", "rules", "timeline", "expect"} {
		if !found[name] {
			p.add(doc.Place(), name, "nothing", "story, rules, timeline and expect in every story", "")
		}
	}
	if found["rules"] {
		p.rules(list, after(doc, list))
	}
	if len(p.s.Rules) == 0 && len(p.problems) > 0 {
		return // all that names a rule would be wrong
	}
	if found["each"] {
		p.mapping("each", each, p.eventFields(&p.each))
	}
	if found["timeline"] {
		p.timeline("timeline", timeline)
	}
	if found["expect"] {
		p.expect("expect", expect)
	}
}

// after is the first line behind the value of doc; a large number for the last one.
func after(doc, value yamlnode.Node) int {
	members := doc.Members()
	for i := range len(members) - 1 {
		if members[i].Value == value {
			return members[i+1].Name.Line()
		}
	}
	return 1 << 30
}

// rules reads a list of rule documents, and of names of files with such.
func (p *parser) rules(n yamlnode.Node, end int) {
	items := n.Children()
	if n.Kind() != yamlnode.List || n.Flow() || len(items) == 0 || len(items) > maxRules {
		p.wrong("rules", n, fmt.Sprintf("1 to %d rule documents or names of files, each behind a dash", maxRules))
		return
	}
	var files []rules.File
	for i, item := range items {
		if item.Kind() == yamlnode.Mapping {
			next := end
			if i+1 < len(items) {
				next = items[i+1].Line()
			}
			files = append(files, rules.File{Name: p.file, Src: p.part(item, next)})
			continue
		}
		path := element("rules", i)
		name, ok := p.scalar(path, item, "a rule document, or the name of a file with some", yamlnode.Text)
		if !ok {
			continue
		}
		src, err := p.open(name)
		if err != nil {
			p.add(item.Place(), path, short(name)+" ("+err.Error()+")", "a file that can be read", "")
			continue
		}
		files = append(files, rules.File{Name: name, Src: src})
	}
	if len(p.problems) > 0 {
		return
	}
	conditions, err := condition.New()
	if err != nil {
		p.problems = append(p.problems, rules.Problem{File: p.file, Line: 1, Got: err.Error(), Allowed: "a program that can judge conditions"})
		return
	}
	set, err := rules.ParseSet(files, rules.Environment{Identity: traffic.DefaultIdentityMap(), Conditions: conditions, AllowLists: []string{}})
	var problems rules.Problems
	if errors.As(err, &problems) { // as ParseSet says
		p.problems = append(p.problems, problems...)
	}
	if set == nil {
		return
	}
	p.s.Allow = set.AllowLists
	for _, d := range set.Rules {
		v, _ := rules.NextVersion(nil, d)
		p.s.Rules = append(p.s.Rules, v)
	}
}

// lines are those of a text as YAML counts them, which knows more ends of a line than one.
func lines(src []byte) []string {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.SplitAfter(ends.Replace(string(src)), "\n")
}

// part is the text of a rule document within the story, each line where it stands in the file, so that messages about it
// name the right one.
func (p *parser) part(n yamlnode.Node, end int) []byte {
	first := n.Line() - 1
	before := min(n.Column()-1, len(p.lines[first]))
	var b strings.Builder
	b.WriteString(strings.Repeat("\n", first))
	b.WriteString(strings.Repeat(" ", before) + p.lines[first][before:])
	for _, line := range p.lines[first+1 : min(max(end-1, first+1), len(p.lines))] {
		b.WriteString(line)
	}
	return []byte(b.String())
}

// timeline reads the steps, and puts repeated events where they come.
func (p *parser) timeline(path string, n yamlnode.Node) {
	latest := time.Duration(0)
	p.list(path, n, func(path string, item yamlnode.Node) {
		steps := p.step(path, item)
		if len(steps) == 0 {
			return
		}
		if at := steps[0].At; at < latest {
			p.add(item.Place(), path, duration.Format(at)+" after "+duration.Format(latest), "steps in the order in which they come",
				"an event that comes late says so: {at: 1m, comes: 3m}")
		} else {
			latest = at
		}
		if len(p.s.Steps)+len(steps) > p.room {
			p.add(item.Place(), path, fmt.Sprintf("more than %d events", maxSteps), "as many at most", "")
			return
		}
		p.s.Steps = append(p.s.Steps, steps...)
	})
	slices.SortStableFunc(p.s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// step reads one step: an act by the field that names it, or else an event, which may be repeated.
func (p *parser) step(path string, n yamlnode.Node) []Step {
	act := ActEvent
	for _, m := range n.Members() {
		if a := Act(m.Name.Value()); slices.Contains([]Act{ActKill, ActFreeze, ActSilent, ActPromote, ActDemote, ActRelease, ActRewind}, a) {
			act = a
		}
	}
	if p.refusesAct(path, n, act) {
		return nil
	}
	s := Step{Line: n.Line(), Do: act, When: Now}
	if act == ActEvent {
		return p.events(path, n, s)
	}
	fields := []field{{"at", func(path string, n yamlnode.Node) { s.At = p.duration(path, n) }}}
	required := []string{"at"}
	lasts := field{"for", func(path string, n yamlnode.Node) { s.For = p.duration(path, n) }}
	rule := func(path string, n yamlnode.Node) { s.Rule = p.ruleID(path, n) }
	stage := func(of ...string) func(string, yamlnode.Node) {
		return func(path string, n yamlnode.Node) { s.Stage = p.choice(path, n, of...) }
	}
	all := stage(ingest.StageRoute, ingest.StageDetect, ingest.StageRecord, ingest.StageEnforce)
	var identity traffic.Identity
	switch act {
	case ActKill:
		fields = append(fields, field{"kill", all}, field{"when", func(path string, n yamlnode.Node) {
			s.When = Moment(p.choice(path, n, string(Now), string(MidChunk), string(BeforeSnapshot), string(BeforeCommit)))
		}})
	case ActFreeze:
		fields, required = append(fields, field{"freeze", all}, lasts), append(required, "for")
	case ActSilent:
		fields, required = append(fields, field{"silent", func(path string, n yamlnode.Node) {
			s.Partition = int(p.number(path, n, 0, int64(p.s.Partitions-1)))
		}}, lasts), append(required, "for")
	case ActPromote, ActDemote:
		fields = append(fields, field{string(act), rule})
	case ActRelease:
		fields = append(append(fields, field{"release", rule}), p.identity(&identity)...)
	case ActRewind:
		fields = append(fields, field{"rewind", stage(ingest.StageRecord, ingest.StageEnforce)})
	}
	p.require(path, n, p.mapping(path, n, fields), required)
	p.fits(path, n, &s)
	if v := p.s.rule(s.Rule); v != nil && act == ActRelease {
		s.Subject = p.blockOf(path, n, v, &identity)
	}
	return []Step{s}
}

func (p *parser) require(path string, n yamlnode.Node, found map[string]bool, names []string) {
	p.requireIn(path, n, found, names, "it in every step of this kind")
}

func (p *parser) requireIn(path string, n yamlnode.Node, found map[string]bool, names []string, allowed string) {
	for _, name := range names {
		if n.Kind() == yamlnode.Mapping && !found[name] {
			p.add(n.Place(), join(path, name), "nothing", allowed, "")
		}
	}
}

// fits asks whether a kill's moment is one of its stage's.
func (p *parser) fits(path string, n yamlnode.Node, s *Step) {
	of := map[Moment][]string{
		MidChunk: {ingest.StageRoute}, BeforeSnapshot: {ingest.StageDetect}, BeforeCommit: {ingest.StageRecord, ingest.StageEnforce},
	}
	if stages := of[s.When]; stages != nil && !slices.Contains(stages, s.Stage) {
		p.add(n.Place(), path+".when", string(s.When)+" of "+s.Stage,
			"now of every stage, mid-chunk of route, before-snapshot of detect, before-commit of record and enforce", "")
	}
}

// blockOf is the subject of a block of a rule.
func (p *parser) blockOf(path string, n yamlnode.Node, v *rules.Version, identity *traffic.Identity) traffic.Subject {
	if v.Block == nil {
		p.add(n.Place(), path, "rule "+v.ID+", which has no block", "a rule with one", "")
		return ""
	}
	subject, missing := traffic.MakeSubject(identity, v.Block.Key)
	if missing > 0 {
		p.add(n.Place(), path, "not every field of the block's key", keyNames(v.Block.Key), "")
	}
	return subject
}

// identity are the fields of an identity.
func (p *parser) identity(id *traffic.Identity) []field {
	text := func(name string, to *string) field {
		return field{name, func(path string, n yamlnode.Node) { *to = p.word(path, n) }}
	}
	return []field{
		{"ip", func(path string, n yamlnode.Node) { id.IP = p.address(path, n) }},
		text("device", &id.Device), text("user", &id.User), text("api_key", &id.APIKey), text("session", &id.Session),
	}
}

// ruleID is the id of one of the story's rules.
func (p *parser) ruleID(path string, n yamlnode.Node) string {
	var ids []string
	for i := range p.s.Rules {
		ids = append(ids, p.s.Rules[i].ID)
	}
	return p.choice(path, n, ids...)
}

func keyNames(key []traffic.KeyField) string {
	var names []string
	for _, k := range key {
		names = append(names, k.String())
	}
	return strings.Join(names, ", ")
}
