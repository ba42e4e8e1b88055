package story

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/yamlnode"
)

// Beside are the episodes of a kind of which nothing comes: near the limit, or over a candidate's.
type Beside struct {
	Lines []Line
	Asked bool // a story that does not speak of them says nothing of them; else what it does not list must not come
}

// of is where lines of a kind stand.
func (e *Expect) of(kind detectors.Kind) *[]Line {
	switch kind {
	case detectors.KindNear:
		return &e.Near.Lines
	case detectors.KindCandidate:
		return &e.Candidate.Lines
	}
	return &e.Hits
}

// section reads the list of a kind. Who writes it speaks of that kind, also by an empty one.
func (b *Beside) section(p *parser, kind detectors.Kind) func(string, yamlnode.Node) {
	return func(path string, n yamlnode.Node) {
		b.Asked = true
		p.list(path, n, func(path string, n yamlnode.Node) { b.add(p, path, n, kind, p.hit(path, n)) })
	}
}

// hitOfAnyKind reads a line of hits. One that names another kind than that of a hit is as in the list of that kind.
func (p *parser) hitOfAnyKind(path string, n yamlnode.Node) {
	e, kind := &p.s.Expect, detectors.KindHit
	line := p.hit(path, n, field{"kind", func(path string, n yamlnode.Node) {
		kind = detectors.Kind(p.choice(path, n, string(detectors.KindHit), string(detectors.KindNear), string(detectors.KindCandidate)))
	}})
	switch kind {
	case detectors.KindNear:
		e.Near.add(p, path, n, kind, line)
	case detectors.KindCandidate:
		e.Candidate.add(p, path, n, kind, line)
	default:
		e.Hits = append(e.Hits, line)
	}
}

// add adds a line of a rule that has what the kind is of.
func (b *Beside) add(p *parser, path string, n yamlnode.Node, kind detectors.Kind, line Line) {
	b.Asked, b.Lines = true, append(b.Lines, line)
	if len(line.Facts) == 0 || line.Facts[0].Name != "rule" {
		return // it was reported
	}
	v := p.s.rule(line.Facts[0].Text)
	if v != nil && (kind == detectors.KindNear && v.Near == 0 || kind == detectors.KindCandidate && v.Candidate == nil) {
		p.add(n.Place(), path, "an episode of kind "+string(kind), "those of rules with "+string(kind)+", which "+v.ID+" has not", "")
	}
}
