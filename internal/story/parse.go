package story

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
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

// Parse reads a story. file is its name in messages; open reads the files of rules that it names, relative to itself. The
// error is a rules.Problems with everything that is wrong, by file and line.
func Parse(file string, src []byte, open Files) (*Story, error) {
	p := &parser{reader: reader{file: file}, open: open, src: src, s: &Story{Partitions: 1}}
	doc := p.document(src)
	if doc == nil {
		return nil, p.problems
	}
	p.story(doc)
	if len(p.problems) > 0 {
		slices.SortStableFunc(p.problems, func(a, b rules.Problem) int { return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line)) })
		return nil, p.problems
	}
	return p.s, nil
}

type parser struct {
	reader
	open Files
	src  []byte
	s    *Story
}

// story reads the document. What other members are judged by comes first, wherever it stands.
func (p *parser) story(doc *yaml.Node) {
	var list, each, timeline, expect *yaml.Node
	keep := func(to **yaml.Node) func(string, *yaml.Node) {
		return func(_ string, n *yaml.Node) { *to = n }
	}
	found := p.mapping("", doc, []field{
		{"story", func(path string, n *yaml.Node) { p.s.Name = p.text(path, n) }},
		{"teaches", func(path string, n *yaml.Node) { p.s.Teaches = p.text(path, n) }},
		{"rules", keep(&list)},
		{"partitions", func(path string, n *yaml.Node) { p.s.Partitions = int(p.number(path, n, 1, maxPartitions)) }},
		{"each", keep(&each)},
		{"timeline", keep(&timeline)},
		{"expect", keep(&expect)},
	})
	for _, name := range []string{"story", "rules", "timeline", "expect"} {
		if found[name] == nil {
			p.add(doc.Line, name, "nothing", "story, rules, timeline and expect in every story", "")
		}
	}
	if list != nil {
		p.rules(list, after(doc, list))
	}
	if len(p.s.Rules) == 0 && len(p.problems) > 0 {
		return // all that names a rule would be wrong
	}
	if each != nil {
		p.event("each", each, &traffic.Request{}) // for its mistakes
	}
	if timeline != nil {
		p.timeline(timeline, each)
	}
	if expect != nil {
		p.expect(expect)
	}
}

// after is the first line behind the value of doc; a large number for the last one.
func after(doc, value *yaml.Node) int {
	for i := 1; i+1 < len(doc.Content); i += 2 {
		if doc.Content[i] == value {
			return doc.Content[i+1].Line
		}
	}
	return 1 << 30
}

// rules reads a list of rule documents, and of names of files with such.
func (p *parser) rules(n *yaml.Node, end int) {
	var files []rules.File
	if n.Kind == yaml.SequenceNode && (n.Style&yaml.FlowStyle != 0 || len(n.Content) == 0 || len(n.Content) > maxRules) {
		p.add(n.Line, "rules", describe(n), fmt.Sprintf("1 to %d rule documents or names of files, each behind a dash", maxRules), "")
		return
	}
	p.list("rules", n, func(path string, item *yaml.Node) {
		if item.Kind == yaml.MappingNode {
			next := end
			if i := slices.Index(n.Content, item); i+1 < len(n.Content) {
				next = n.Content[i+1].Line
			}
			files = append(files, rules.File{Name: p.file, Src: p.part(item, next)})
			return
		}
		name, ok := p.scalar(path, item, "a rule document, or the name of a file with some", "!!str")
		if !ok {
			return
		}
		src, err := p.open(name)
		if err != nil {
			p.add(item.Line, path, short(name)+" ("+err.Error()+")", "a file that can be read", "")
			return
		}
		files = append(files, rules.File{Name: name, Src: src})
	})
	if len(p.problems) > 0 {
		return
	}
	docs, err := rules.ParseFiles(files, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	var problems rules.Problems
	if errors.As(err, &problems) { // as ParseFiles says
		p.problems = append(p.problems, problems...)
	}
	for _, d := range docs {
		v, _ := rules.NextVersion(nil, d)
		p.s.Rules = append(p.s.Rules, v)
	}
}

// part is the text of a rule document within the story, each line where it stands in the file, so that messages about it
// name the right one.
func (p *parser) part(n *yaml.Node, end int) []byte {
	lines := strings.SplitAfter(string(p.src), "\n")
	first := n.Line - 1
	var b strings.Builder
	b.WriteString(strings.Repeat("\n", first))
	b.WriteString(strings.Repeat(" ", min(n.Column-1, len(lines[first]))) + lines[first][min(n.Column-1, len(lines[first])):])
	for _, line := range lines[first+1 : min(max(end-1, first+1), len(lines))] {
		b.WriteString(line)
	}
	return []byte(b.String())
}

// timeline reads the steps, and puts repeated events where they come.
func (p *parser) timeline(n, each *yaml.Node) {
	latest := time.Duration(0)
	p.list("timeline", n, func(path string, item *yaml.Node) {
		steps := p.step(path, item, each)
		if len(steps) == 0 {
			return
		}
		if at := steps[0].At; at < latest {
			p.add(item.Line, path, duration.Format(at)+" after "+duration.Format(latest), "steps in the order in which they come",
				"an event that comes late says so: {at: 1m, comes: 3m}")
		} else {
			latest = at
		}
		if len(p.s.Steps)+len(steps) > maxSteps {
			p.add(item.Line, path, fmt.Sprintf("more than %d events", maxSteps), "as many at most", "")
			return
		}
		p.s.Steps = append(p.s.Steps, steps...)
	})
	slices.SortStableFunc(p.s.Steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
}

// step reads one step: an act by the field that names it, or else an event, which may be repeated.
func (p *parser) step(path string, n, each *yaml.Node) []Step {
	act := ActEvent
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if a := Act(n.Content[i].Value); slices.Contains([]Act{ActKill, ActFreeze, ActSilent, ActPromote, ActDemote, ActRelease, ActRewind}, a) {
			act = a
		}
	}
	s := Step{Line: n.Line, Do: act, When: Now}
	if act == ActEvent {
		return p.events(path, n, each, s)
	}
	fields := []field{{"at", func(path string, n *yaml.Node) { s.At = p.duration(path, n) }}}
	required := []string{"at"}
	lasts := field{"for", func(path string, n *yaml.Node) { s.For = p.duration(path, n) }}
	rule := func(path string, n *yaml.Node) { s.Rule = p.ruleID(path, n) }
	stage := func(of ...Stage) func(string, *yaml.Node) {
		words := make([]string, len(of))
		for i := range of {
			words[i] = string(of[i])
		}
		return func(path string, n *yaml.Node) { s.Stage = Stage(p.choice(path, n, words...)) }
	}
	all := stage(StageRoute, StageDetect, StageRecord, StageEnforce)
	var identity traffic.Identity
	switch act {
	case ActKill:
		fields = append(fields, field{"kill", all}, field{"when", func(path string, n *yaml.Node) {
			s.When = Moment(p.choice(path, n, string(Now), string(MidChunk), string(BeforeSnapshot), string(BeforeCommit)))
		}})
	case ActFreeze:
		fields, required = append(fields, field{"freeze", all}, lasts), append(required, "for")
	case ActSilent:
		fields, required = append(fields, field{"silent", func(path string, n *yaml.Node) {
			s.Partition = int(p.number(path, n, 0, int64(p.s.Partitions-1)))
		}}, lasts), append(required, "for")
	case ActPromote, ActDemote:
		fields = append(fields, field{string(act), rule})
	case ActRelease:
		fields = append(append(fields, field{"release", rule}), p.identity(&identity)...)
	case ActRewind:
		fields = append(fields, field{"rewind", stage(StageRecord, StageEnforce)})
	}
	p.require(path, n, p.mapping(path, n, fields), required)
	p.fits(path, &s)
	if v := p.s.rule(s.Rule); v != nil && act == ActRelease {
		s.Subject = p.blockOf(path, n.Line, v, &identity)
	}
	return []Step{s}
}

func (p *parser) require(path string, n *yaml.Node, found map[string]*yaml.Node, names []string) {
	for _, name := range names {
		if n.Kind == yaml.MappingNode && found[name] == nil {
			p.add(n.Line, join(path, name), "nothing", "it in every step of this kind", "")
		}
	}
}

// fits asks whether a kill's moment is one of its stage's.
func (p *parser) fits(path string, s *Step) {
	of := map[Moment][]Stage{MidChunk: {StageRoute}, BeforeSnapshot: {StageDetect}, BeforeCommit: {StageRecord, StageEnforce}}
	if stages := of[s.When]; stages != nil && !slices.Contains(stages, s.Stage) {
		p.add(s.Line, path+".when", string(s.When)+" of "+string(s.Stage),
			"now of every stage, mid-chunk of route, before-snapshot of detect, before-commit of record and enforce", "")
	}
}

// blockOf is the subject of a block of a rule.
func (p *parser) blockOf(path string, line int, v *rules.Version, identity *traffic.Identity) traffic.Subject {
	if v.Block == nil {
		p.add(line, path, "rule "+v.ID+", which has no block", "a rule with one", "")
		return ""
	}
	subject, missing := traffic.MakeSubject(identity, v.Block.Key)
	if missing > 0 {
		p.add(line, path, "not every field of the block's key", keyNames(v.Block.Key), "")
	}
	return subject
}

// events reads an event, with what each event has, as often as it comes.
func (p *parser) events(path string, n, each *yaml.Node, s Step) []Step {
	var at, comes, every time.Duration
	times := int64(1)
	if each != nil {
		quiet := parser{reader: reader{file: p.file}, s: p.s} // its mistakes are told already
		quiet.event("each", each, &s.Request)
	}
	fields := append([]field{
		{"at", func(path string, n *yaml.Node) { at = p.duration(path, n) }},
		{"comes", func(path string, n *yaml.Node) { comes = p.duration(path, n) }},
		{"times", func(path string, n *yaml.Node) { times = p.number(path, n, 1, maxSteps) }},
		{"every", func(path string, n *yaml.Node) { every = p.duration(path, n) }},
		{"partition", func(path string, n *yaml.Node) { s.Partition = int(p.number(path, n, 0, int64(p.s.Partitions-1))) }},
	}, p.eventFields(&s.Request)...)
	found := p.mapping(path, n, fields)
	p.require(path, n, found, []string{"at"})
	if (found["times"] == nil) != (found["every"] == nil) {
		p.add(n.Line, path, "one of times and every", "both: {at: 1m, times: 3, every: 10s}", "")
	}
	if found["comes"] != nil && comes < at {
		p.add(n.Line, path+".comes", duration.Format(comes), "a time from "+duration.Format(at)+" on, when the event happens", "")
	}
	if every > 0 && time.Duration(times) > longest/every {
		p.add(n.Line, path+".every", "more than 31 days in all", "less", "")
		return nil
	}
	delay := max(comes-at, 0)
	var steps []Step
	for i := range times {
		one := s
		happens := at + time.Duration(i)*every
		one.At = happens + delay
		one.Request.Time, one.Request.HasTime = Begin.Add(happens), true
		steps = append(steps, one)
	}
	return steps
}

func (p *parser) event(path string, n *yaml.Node, q *traffic.Request) {
	p.mapping(path, n, p.eventFields(q))
}

// eventFields are those of the documented event that a story may say.
func (p *parser) eventFields(q *traffic.Request) []field {
	text := func(name string, to *string) field {
		return field{name, func(path string, n *yaml.Node) { *to = p.word(path, n) }}
	}
	return []field{
		{"ip", func(path string, n *yaml.Node) { q.IP = p.address(path, n).String() }},
		text("device", &q.Device), text("user", &q.User), text("api_key", &q.APIKey), text("session", &q.Session),
		text("method", &q.Method), text("path", &q.Path), text("host", &q.Host), text("route", &q.Route), text("plan", &q.Plan),
		{"status", func(path string, n *yaml.Node) { q.Status = int(p.number(path, n, 100, 599)) }},
		{"bytes", func(path string, n *yaml.Node) { q.Bytes = p.number(path, n, 0, 1<<50) }},
		{"attrs", func(path string, n *yaml.Node) { q.Attrs = p.attrs(path, n) }},
	}
}

// attrs are an event's own members, as JSON.
func (p *parser) attrs(path string, n *yaml.Node) []byte {
	const allowed = "a mapping of names to values that JSON can say"
	var value map[string]any
	if n.Kind != yaml.MappingNode {
		p.wrong(path, n, allowed)
		return nil
	}
	err := n.Decode(&value)
	if err == nil {
		var text []byte
		if text, err = json.Marshal(value); err == nil {
			return text
		}
	}
	p.add(n.Line, path, "a mapping that cannot be read ("+short(err.Error())+")", allowed, "")
	return nil
}

// identity are the fields of an identity.
func (p *parser) identity(id *traffic.Identity) []field {
	text := func(name string, to *string) field {
		return field{name, func(path string, n *yaml.Node) { *to = p.word(path, n) }}
	}
	return []field{
		{"ip", func(path string, n *yaml.Node) { id.IP = p.address(path, n) }},
		text("device", &id.Device), text("user", &id.User), text("api_key", &id.APIKey), text("session", &id.Session),
	}
}

// ruleID is the id of one of the story's rules.
func (p *parser) ruleID(path string, n *yaml.Node) string {
	var ids []string
	for i := range p.s.Rules {
		ids = append(ids, p.s.Rules[i].ID)
	}
	return p.choice(path, n, ids...)
}

func keyNames(key []traffic.KeyField) string {
	var names []string
	for _, k := range key {
		names = append(names, k.Field.String())
	}
	return strings.Join(names, ", ")
}
