// Package standing says what has become of an over-limit source: whether a block holds it now, would hold it were its rule
// promoted, or whether somebody released it. It joins what the rule store and Redis said.
package standing

import (
	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// What has become of an over-limit source.
const (
	Held     = "held"     // a block in force holds it
	Would    = "would"    // the rule is in shadow, or in a canary that leaves the source out; with all of its sources it would hold it now
	Released = "released" // an operator released it
	Passed   = "passed"   // nothing holds it, or would: the time is over, the rule names no block, it was withheld
)

// Outcome is what holds a source, and until when.
type Outcome struct {
	Kind  string        `json:"kind"`            // one of the constants
	Until *traffic.Time `json:"until,omitempty"` // of Held and Would
}

// Standing is what stands at one time.
type Standing struct {
	now      traffic.Time
	Rules    map[string]*rulestore.Rule           // by id
	Blocks   map[blocklist.Name]*blocklist.Listed // those whose time is not over, in force or not
	Releases map[blocklist.Name]*blocklist.Listed // those that are still remembered
	also     *Standing                            // of single sources, asked for later; nil: nothing
}

// At sorts what the stores said at a time.
func At(now traffic.Time, all []rulestore.Rule, listed []blocklist.Listed) *Standing {
	s := &Standing{
		now: now, Rules: make(map[string]*rulestore.Rule, len(all)),
		Blocks: make(map[blocklist.Name]*blocklist.Listed, len(listed)), Releases: map[blocklist.Name]*blocklist.Listed{},
	}
	for i := range all {
		s.Rules[all[i].Newest.Version.ID] = &all[i]
	}
	for i := range listed {
		item := &listed[i]
		name := blocklist.Name{Subject: item.Subject, Rule: item.Rule}
		switch {
		case item.Tombstone != nil && item.Tombstone.Until > now:
			s.Releases[name] = item
		case item.Block != nil && item.Block.Until > now:
			s.Blocks[name] = item
		}
	}
	return s
}

// Also is s with what single sources have, asked for beside it.
func (s *Standing) Also(listed []blocklist.Listed) *Standing {
	out := *s
	out.also = At(s.now, nil, listed)
	return &out
}

// Block is the block that stands under a name; nil: none that is known of.
func (s *Standing) Block(name blocklist.Name) *blocklist.Listed {
	if s.also != nil && s.also.Blocks[name] != nil {
		return s.also.Blocks[name]
	}
	return s.Blocks[name]
}

// Release is the release that is remembered under a name; nil: none that is known of.
func (s *Standing) Release(name blocklist.Name) *blocklist.Listed {
	if s.also != nil && s.also.Releases[name] != nil {
		return s.also.Releases[name]
	}
	return s.Releases[name]
}

// Of are the blocks, and the releases, whose names are wanted, in no order.
func (s *Standing) Of(wanted func(blocklist.Name) bool) (blocks, releases []*blocklist.Listed) {
	for name, item := range s.Blocks {
		if wanted(name) && (s.also == nil || s.also.Blocks[name] == nil) {
			blocks = append(blocks, item)
		}
	}
	for name, item := range s.Releases {
		if wanted(name) && (s.also == nil || s.also.Releases[name] == nil) {
			releases = append(releases, item)
		}
	}
	if s.also != nil {
		more, moreReleases := s.also.Of(wanted)
		blocks, releases = append(blocks, more...), append(releases, moreReleases...)
	}
	return blocks, releases
}

// Outcome says what has become of the source of an episode, by the newest version of its rule.
func (s *Standing) Outcome(h *detectors.Hit) Outcome {
	passed := Outcome{Kind: Passed}
	if h.Grouped || h.BlockSubject == "" {
		return passed
	}
	rule := s.Rules[h.Rule]
	if rule == nil {
		return passed
	}
	name := blocklist.Name{Subject: h.BlockSubject, Rule: h.Rule}
	if b := s.Block(name); b != nil && b.InForce {
		until := b.Block.Until
		return Outcome{Kind: Held, Until: &until}
	}
	if r := s.Release(name); r != nil && r.Tombstone.Covers(h.ID, h.First) {
		return Outcome{Kind: Released}
	}
	if rule.Mode != rules.ModeShadow && rule.Mode != rules.ModeCanary || rule.Newest.Version.Block == nil {
		return passed
	}
	terms := holding.TermsOf(&rule.Newest.Version.Document)
	until := terms.Until(h.First, h.Last)
	if until <= s.now {
		return passed
	}
	return Outcome{Kind: Would, Until: &until}
}
