package story

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// blocking follows the blocks that ENFORCE writes for hits as they come, with nothing in its way: no lag of its own, no list of
// those who are never blocked, no bound on the blocks of one address. Events come in spite of blocks: a story says what came.
type blocking struct {
	story *Story
	modes map[string]*mode
	all   []*standing
	of    map[blockName]*standing // the newest of each
}

// mode is whether a rule blocks. Each change of it begins a generation.
type mode struct {
	blocks     bool
	generation int64
}

type blockName struct {
	rule    string
	subject traffic.Subject
}

// standing is one block of a story's outcome, or one that has been, as far as the next release of it.
type standing struct {
	blockName
	block    holding.Block
	until    traffic.Time // the greatest so far; BeforeTime: nobody was blocked
	released bool
}

func newBlocking(s *Story) *blocking {
	b := &blocking{story: s, modes: map[string]*mode{}, of: map[blockName]*standing{}}
	for i := range s.Rules {
		b.modes[s.Rules[i].ID] = &mode{s.Blocking, 1}
	}
	return b
}

// act is what an operator does.
func (b *blocking) act(s *Step) {
	switch s.Do {
	case ActPromote, ActDemote:
		if m := b.modes[s.Rule]; m != nil {
			m.blocks = s.Do == ActPromote
			m.generation++
		}
	case ActRelease:
		at := Begin.Add(s.At)
		x := b.standing(blockName{s.Rule, s.Subject})
		x.block.Free(at, at, holding.ReleaseKept)
		x.released = true
	}
}

// hit does what ENFORCE would do about h, which comes to it at now.
func (b *blocking) hit(h *detectors.Hit, now traffic.Time) {
	v, m := b.story.rule(h.Rule), b.modes[h.Rule]
	if h.Kind != detectors.KindHit || !h.Offends() || v == nil || v.Block == nil || !m.blocks {
		return
	}
	x := b.standing(blockName{h.Rule, h.BlockSubject})
	terms, hit := holding.TermsOf(&v.Document), h.Holding(m.generation)
	if x.block.Take(&terms, &hit, now) == holding.Left {
		return
	}
	if x.released {
		x = b.begin(x.blockName, x.block)
	}
	x.until = max(x.until, x.block.Until)
}

// standing is the newest of a name.
func (b *blocking) standing(name blockName) *standing {
	if x := b.of[name]; x != nil {
		return x
	}
	return b.begin(name, holding.Block{})
}

func (b *blocking) begin(name blockName, block holding.Block) *standing {
	x := &standing{blockName: name, block: block, until: traffic.BeforeTime}
	b.of[name] = x
	b.all = append(b.all, x)
	return x
}

// lines are all blocks that ever stood.
func (b *blocking) lines() []Line {
	var out []Line
	for _, x := range b.all {
		if x.until != traffic.BeforeTime {
			out = append(out, BlockLine(x.subject, x.rule, x.until, x.released))
		}
	}
	return out
}
