package detectors

import (
	"slices"

	"github.com/weirhq/weir/traffic"
)

// RuleEvents is what became of events that a rule watches, and the episodes that they opened: by its limit, not by what stands
// beside it.
type RuleEvents struct {
	Counted   int64               // fed a window
	Over      int64               // of those that came, were over the limit, or put an earlier one over it
	Episodes  int64               // that their first report opened; one that was merged into another later is among them
	Uncounted [NumUncounted]int64 // left out, by reason
	// NearLeftOut are the warnings that were not told, because the rule had opened MaxNearOpenings in their minute.
	NearLeftOut int64
}

// Add adds more of the same rule's events.
func (e *RuleEvents) Add(more *RuleEvents) {
	e.Counted += more.Counted
	e.Over += more.Over
	e.Episodes += more.Episodes
	e.NearLeftOut += more.NearLeftOut
	for reason, n := range more.Uncounted {
		e.Uncounted[reason] += n
	}
}

// lineageCounts are what metrics show of a lineage. They cost an addition in memory that each event needs anyway.
type lineageCounts struct {
	told RuleEvents // since the last TakeRuleEvents
	open int64      // episodes that were told, and run
}

// counted notes that an event has fed a window, unless it is a pending version's: the rule is the live one.
func (c *lineageCounts) counted(b *binding) {
	if b.kind == KindHit {
		c.told.Counted++
	}
}

// TakeRuleEvents gives, rule by rule, what became of the events since the last call. A rule whose lineages changed comes once
// for each of them. The numbers are for metrics and no part of the state.
func (p *Partition) TakeRuleEvents(give func(rule string, e *RuleEvents)) {
	for _, l := range p.keys.ordered {
		if l.counts.told != (RuleEvents{}) {
			give(l.rule, &l.counts.told)
			l.counts.told = RuleEvents{}
		}
	}
}

// OpenEpisodes gives, rule by rule, how many reported episodes run: the sources over its limit now. An episode is one, however
// many blocks it may lead to, each with a hit of its own. A rule whose lineages changed comes once for each of them.
func (p *Partition) OpenEpisodes(give func(rule string, open int64)) {
	for _, l := range p.keys.ordered {
		if l.counts.open > 0 {
			give(l.rule, l.counts.open)
		}
	}
}

// opens counts the episode when a hit of it is about to be sent for the first time.
func (ep *episode) opens() {
	if !ep.told {
		ep.told = true
		if ep.kind != KindHit {
			return
		}
		ep.rule.counts.open++
		ep.rule.counts.told.Episodes++
	}
}

// ends counts the episode among the open ones no more: it is closed, or part of another.
func (ep *episode) ends() {
	ep.over = true
	if ep.told && ep.kind == KindHit {
		ep.rule.counts.open--
	}
}

// restoreOpen counts a restored episode of which a hit was sent.
func (ep *episode) restoreOpen() {
	ep.told = slices.ContainsFunc(ep.targets, func(t *blockTarget) bool { return t.sent != traffic.BeforeTime })
	if ep.told && ep.kind == KindHit {
		ep.rule.counts.open++
	}
}
