package console

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// What has become of an over-limit source.
const (
	outcomeHeld     = "held"     // a block in force holds it
	outcomeWould    = "would"    // the rule is in shadow; promoted, it would hold the source now
	outcomeReleased = "released" // an operator released it
	outcomePassed   = "passed"   // nothing holds it, or would: the time is over, the rule names no block, it was withheld
)

// holdKey is what Redis keeps one block or release for.
type holdKey struct {
	rule    string
	subject traffic.Subject
}

// picture joins what the two stores said into what is shown.
type picture struct {
	readings *readings
	now      traffic.Time
	command  string
	versions map[string]*rulestore.Rule
	blocks   map[holdKey]*blocklist.Listed
	releases map[holdKey]*blocklist.Listed
}

func newPicture(s *readings, now traffic.Time, command string) *picture {
	p := &picture{
		readings: s, now: now, command: command, versions: map[string]*rulestore.Rule{},
		blocks: map[holdKey]*blocklist.Listed{}, releases: map[holdKey]*blocklist.Listed{},
	}
	for i := range s.rules {
		p.versions[s.rules[i].Newest.Version.ID] = &s.rules[i]
	}
	for i := range s.listed.Items {
		item := &s.listed.Items[i]
		key := holdKey{item.Rule, item.Subject}
		switch {
		case item.Tombstone != nil && item.Tombstone.Until > now:
			p.releases[key] = item
		case item.Block != nil && item.Block.Until > now:
			p.blocks[key] = item
		}
	}
	return p
}

// stale is when the store of a section answered last, nil while it answers.
func (p *picture) stale(name string) *staleView {
	at := p.readings.parts[name]
	if !at.failing {
		return nil
	}
	v := &staleView{Store: name}
	if at.answered != 0 {
		v.Since = &at.answered
	}
	return v
}

// staleView says that a section is not up to date.
type staleView struct {
	Store string        `json:"store"`
	Since *traffic.Time `json:"since"` // when it answered last; null: never
}

// outcomeView is what holds a source, and until when.
type outcomeView struct {
	Kind  string        `json:"kind"`
	Until *traffic.Time `json:"until,omitempty"`
}

// outcome says what has become of the source of an episode, by the newest version of its rule.
func (p *picture) outcome(h *detectors.Hit) outcomeView {
	passed := outcomeView{Kind: outcomePassed}
	if h.Grouped || h.BlockSubject == "" {
		return passed
	}
	rule := p.versions[h.Rule]
	if rule == nil {
		return passed
	}
	key := holdKey{h.Rule, h.BlockSubject}
	if b := p.blocks[key]; b != nil && b.InForce {
		until := b.Block.Until
		return outcomeView{Kind: outcomeHeld, Until: &until}
	}
	if r := p.releases[key]; r != nil && r.Tombstone.Covers(h.ID, h.First) {
		return outcomeView{Kind: outcomeReleased}
	}
	spec := rule.Newest.Version.Block
	if rule.Mode != rules.ModeShadow || spec == nil {
		return passed
	}
	// As ENFORCE would: see its blockSpec.
	until := h.First.Add(spec.TTL)
	if spec.Extend == rules.ExtendOnHit {
		until = h.Last.Add(spec.TTL)
	}
	if until <= p.now {
		return passed
	}
	return outcomeView{Kind: outcomeWould, Until: &until}
}

// blockView is one block.
type blockView struct {
	Rule     string       `json:"rule"`
	Source   sourceView   `json:"source"`
	Since    traffic.Time `json:"since"`
	Until    traffic.Time `json:"until"`
	Hit      string       `json:"hit"`
	BlockID  string       `json:"block_id"` // what a refused client is told
	Extended bool         `json:"extended,omitempty"`
	InForce  bool         `json:"in_force"`          // false: its rule was demoted since, and gates let pass
	Command  string       `json:"command,omitempty"` // releases it
}

// releaseView is one release that is still remembered.
type releaseView struct {
	Rule     string       `json:"rule"`
	Source   sourceView   `json:"source"`
	Released traffic.Time `json:"released"`
	Until    traffic.Time `json:"until"` // when it is forgotten
	Hit      string       `json:"hit,omitempty"`
	By       string       `json:"by,omitempty"`
}

// blocksView is the section "blocks": the newest blocks and releases, and how many there are.
type blocksView struct {
	Stale        *staleView    `json:"stale"`
	Total        int           `json:"total"`
	InForce      int           `json:"in_force"`
	Blocks       []blockView   `json:"blocks"`
	ReleaseTotal int           `json:"release_total"`
	Released     []releaseView `json:"released"`
	Unreadable   int           `json:"unreadable"` // keys in Redis that this build cannot read
}

const (
	blocksShown   = 200
	releasesShown = 50
)

func (p *picture) blocksView() blocksView {
	v := blocksView{
		Stale: p.stale(partBlocks), Total: len(p.blocks), ReleaseTotal: len(p.releases), Unreadable: p.readings.listed.Unreadable,
		Blocks: []blockView{}, Released: []releaseView{},
	}
	for _, item := range p.blocks {
		if item.InForce {
			v.InForce++
		}
		v.Blocks = append(v.Blocks, blockView{
			Rule: item.Rule, Source: source(item.Subject), Since: item.Block.Since, Until: item.Block.Until,
			Hit: item.Block.Hit, BlockID: blockID(item.Block.Hit), Extended: item.Block.Extended, InForce: item.InForce,
		})
	}
	slices.SortFunc(v.Blocks, func(a, b blockView) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source.Subject, b.Source.Subject))
	})
	v.Blocks = first(v.Blocks, blocksShown)
	for i := range v.Blocks {
		v.Blocks[i].Command = releaseCommand(p.command, v.Blocks[i].Rule, v.Blocks[i].Source.Subject)
	}
	for _, item := range p.releases {
		t := item.Tombstone
		v.Released = append(v.Released, releaseView{
			Rule: item.Rule, Source: source(item.Subject), Released: t.Released, Until: t.Until, Hit: t.Hit, By: visible(t.By),
		})
	}
	slices.SortFunc(v.Released, func(a, b releaseView) int {
		return cmp.Or(cmp.Compare(b.Released, a.Released), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source.Subject, b.Source.Subject))
	})
	v.Released = first(v.Released, releasesShown)
	return v
}

func first[T any](list []T, most int) []T { return list[:min(len(list), most)] }

// blockID is the beginning of a hit's id, by which a client and its support name a block: see gate.BlockID.
func blockID(hit string) string { return hit[:min(len(hit), 16)] }
