package console

import (
	"cmp"
	"slices"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/standing"
	"github.com/weirhq/weir/traffic"
)

// picture joins what the two stores said into what is shown.
type picture struct {
	*standing.Standing
	readings *readings
	now      traffic.Time
	command  shown.Commands
}

func newPicture(s *readings, now traffic.Time, command string) *picture {
	return &picture{Standing: standing.At(now, s.rules, s.listed.Items), readings: s, now: now, command: shown.Commands(command)}
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

// blockView is one block.
type blockView struct {
	Rule     string       `json:"rule"`
	Source   shown.Source `json:"source"`
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
	Source   shown.Source `json:"source"`
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
	Cut          bool          `json:"cut"`        // Redis holds more than was read: totals are at least that
}

const (
	blocksShown   = 200
	releasesShown = 50
)

func (p *picture) blocksView() blocksView {
	v := blocksView{
		Stale: p.stale(partBlocks), Total: len(p.Blocks), ReleaseTotal: len(p.Releases), Unreadable: p.readings.listed.Unreadable,
		Cut:    p.readings.listed.Cut,
		Blocks: []blockView{}, Released: []releaseView{},
	}
	for _, item := range p.Blocks {
		if item.InForce {
			v.InForce++
		}
		v.Blocks = append(v.Blocks, blockView{
			Rule: item.Rule, Source: shown.SourceOf(item.Subject), Since: item.Block.Since, Until: item.Block.Until,
			Hit: item.Block.Hit, BlockID: blockID(item.Block.Hit), Extended: item.Block.Extended, InForce: item.InForce,
		})
	}
	slices.SortFunc(v.Blocks, func(a, b blockView) int {
		return cmp.Or(cmp.Compare(b.Since, a.Since), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Source.Subject, b.Source.Subject))
	})
	v.Blocks = first(v.Blocks, blocksShown)
	for i := range v.Blocks {
		v.Blocks[i].Command = p.command.Release(v.Blocks[i].Rule, v.Blocks[i].Source.Subject)
	}
	for _, item := range p.Releases {
		t := item.Tombstone
		v.Released = append(v.Released, releaseView{
			Rule: item.Rule, Source: shown.SourceOf(item.Subject), Released: t.Released, Until: t.Until, Hit: t.Hit, By: shown.Text(t.By),
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
