package story

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// blocking follows the blocks that ENFORCE writes for hits as they come, with nothing in its way: no lag of its own, no list of
// those who are never blocked, no bound on the blocks of one address. Events come in spite of blocks: a story says what came.
type blocking struct {
	story *Story
	on    map[string]bool // the rules that block
	all   []*standing
	of    map[blockName]*standing // the newest of each
}

type blockName struct {
	rule    string
	subject traffic.Subject
}

// standing is one block, or one that has been.
type standing struct {
	blockName
	until    traffic.Time
	released traffic.Time // BeforeTime: it was not
}

func newBlocking(s *Story) *blocking {
	b := &blocking{story: s, on: map[string]bool{}, of: map[blockName]*standing{}}
	for i := range s.Rules {
		b.on[s.Rules[i].ID] = s.Blocking
	}
	return b
}

// act is what an operator does.
func (b *blocking) act(s *Step) {
	switch s.Do {
	case ActPromote, ActDemote:
		b.on[s.Rule] = s.Do == ActPromote
	case ActRelease:
		if block := b.of[blockName{s.Rule, s.Subject}]; block != nil {
			block.released = Begin.Add(s.At)
		}
	}
}

// hit does what ENFORCE would do about h, at the time now.
func (b *blocking) hit(h *detectors.Hit, now traffic.Time) {
	v := b.story.rule(h.Rule)
	if h.Kind != detectors.KindHit || h.Phase == detectors.PhaseMerged || h.BlockSubject == "" || h.Grouped || !b.on[h.Rule] || v == nil || v.Block == nil {
		return
	}
	until, age := h.First.Add(v.Block.TTL), now.Sub(h.Last)
	if v.Block.Extend == rules.ExtendOnHit {
		until = h.Last.Add(v.Block.TTL)
	}
	name := blockName{h.Rule, h.BlockSubject}
	newest := b.of[name]
	released := newest != nil && newest.released != traffic.BeforeTime
	stands := newest != nil && !released && newest.until > now
	switch {
	case until <= now || released && h.Last <= newest.released:
	case h.Phase == detectors.PhaseClosed:
		// It comes a window and the lateness after its last event, and only lengthens.
		if stands && v.Block.Extend == rules.ExtendOnHit && age <= v.MaxLag+v.Window+v.Lateness {
			newest.until = max(newest.until, until)
		}
	case age > v.MaxLag:
	case newest == nil || released:
		b.of[name] = &standing{name, until, traffic.BeforeTime}
		b.all = append(b.all, b.of[name])
	default:
		newest.until = max(newest.until, until)
	}
}

// lines are all blocks that ever stood.
func (b *blocking) lines() []Line {
	var out []Line
	for _, s := range b.all {
		out = append(out, BlockLine(s.subject, s.rule, s.until, s.released != traffic.BeforeTime))
	}
	return out
}
