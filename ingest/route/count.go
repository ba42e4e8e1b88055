package route

import (
	"github.com/weirhq/weir/traffic"
)

// ruleCounts counts a chunk's events by rule index: with a thousand rules and a chunk of three events, only what was
// touched may cost anything.
type ruleCounts struct {
	version *routingVersion
	stats   []RuleStats
	touched []int
}

// countsOf is where the present chunk counts events by the rules of v; nil for a source without a version, which has no
// events.
func (b *chunkBuilder) countsOf(v *routingVersion) *ruleCounts {
	if v == nil {
		return nil
	}
	c := b.counts[v]
	if c == nil {
		c = &ruleCounts{version: v, stats: make([]RuleStats, len(v.rules))}
		b.counts[v] = c
	}
	return c
}

// sumRules moves the counts of the present chunk into s.
func (b *chunkBuilder) sumRules(s *EventStats) {
	for _, c := range b.counts {
		for _, i := range c.touched {
			id := c.version.rules[i].id
			sum := s.Rules[id]
			sum.add(&c.stats[i])
			s.Rules[id] = sum
			c.stats[i] = RuleStats{}
		}
		c.touched = c.touched[:0]
	}
	if len(b.counts) > keptVersions {
		clear(b.counts)
	}
}

// count adds one event to the statistics of its chunk.
func (s *EventStats) count(rules *ruleCounts, got *reading) {
	s.Events++
	switch got.fate {
	case FateDead:
		s.DeadLetters[got.reason]++
		return
	case FateEndMark:
		s.EndMarks++
		return
	case FateRefusal:
		s.OwnRefusals++
	case FateUnmatched:
		s.Unmatched++
	case FateKeyless:
		s.Keyless++
	case FateRouted:
		s.Records += int64(len(got.targets))
	}
	s.UnknownFields += int64(got.unknown)
	if got.timeless {
		s.Timeless++
	}
	if got.future {
		s.FutureCorrected++
	}
	for f, reason := range got.missing {
		if reason != traffic.Present {
			s.MissingIdentities[f][reason]++
		}
	}
	for i := range got.watched {
		w := &got.watched[i]
		if rules.stats[w.rule].Matched == 0 {
			rules.touched = append(rules.touched, w.rule)
		}
		rules.stats[w.rule].count(w)
	}
}

func (s *RuleStats) count(w *watching) {
	s.Matched++
	if w.behind {
		s.Behind++
		if w.lacking == 0 && w.why == counted {
			s.BehindComplete++
		}
	}
	for f := range s.Missing {
		if w.lacking&(1<<f) != 0 {
			s.Missing[f]++
		}
	}
	switch {
	case w.skipped:
		s.Skipped++
	case w.why != counted:
		s.Uncounted[w.why]++
	case w.lacking != 0:
		s.Grouped++
	}
}
