package detectors

import (
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// limits are those of a rule whose events do not all have the same one.
type limits struct {
	of     []int64      // the rule's own, and those of its tiers
	raised int64        // at least, for events before until
	until  traffic.Time // BeforeTime where nothing is raised
}

// newLimits makes the limits of a version's windows of a role; nil where all events have the same one.
func newLimits(v *rules.Version, r role) *limits {
	if len(v.Tiers) == 0 && v.Raised == nil {
		return nil
	}
	l := &limits{of: []int64{limitFor(v, r, v.Limit)}, until: traffic.BeforeTime}
	if r == roleCandidate {
		l.of[0] = int64(v.Candidate.Limit)
	}
	for _, t := range v.Tiers {
		l.of = append(l.of, limitFor(v, r, t.Limit))
	}
	if v.Raised != nil {
		l.raised, l.until = limitFor(v, r, v.Raised.Limit), v.Raised.Until
	}
	return l
}

// limitFor is what the windows of a role may hold for a limit of the document: they warn of a source when it is near.
func limitFor(v *rules.Version, r role, limit int) int64 {
	if r == roleNear {
		return int64(v.NearCount(limit)) - 1
	}
	return int64(limit)
}

// at is the limit of an event at an instant, of a tier or of none (0).
func (l *limits) at(tier int, at traffic.Time) int64 {
	if at < l.until {
		return max(l.of[tier], l.raised)
	}
	return l.of[tier]
}

// steady is the greatest of the limits that are not for a time.
func (l *limits) steady() int64 {
	most := int64(0)
	for _, limit := range l.of {
		most = max(most, limit)
	}
	return most
}

// limitOf is the limit of an event, under the rule at index i of k.Rules.
func (b *binding) limitOf(k *Keyed, i int) int64 {
	if b.limits == nil {
		return b.limit
	}
	return b.limits.at(k.tier(i), k.Time)
}

// burstOf is the capacity of a bucket for an event of this limit.
func (b *binding) burstOf(limit int64) int64 {
	if b.limits != nil && b.fills {
		return limit
	}
	return b.burst
}

// tier is which of the rule's limits the event has under the rule at index i of k.Rules: 0 for the rule's own.
func (k *Keyed) tier(i int) int {
	if i < len(k.Tiers) {
		return k.Tiers[i]
	}
	return 0
}
