package route

import (
	"maps"
	"sync"

	"github.com/weirhq/weir/traffic"
)

// Stats is what a router has done since it was made.
type Stats struct {
	EventStats
	Chunks            int64 // acknowledged chunks
	ChunkRetries      int64 // times that a chunk, or its dead letters, was not acknowledged and given again
	Announcements     int64 // commits that the group took
	UnansweredCommits int64 // commits after which the membership was given up
	RefusedCommits    int64 // commits that the group refused: the generation was over
	TickRounds        int64 // acknowledged rounds of ticks
	FailedTickRounds  int64
	FetchFailures     int64
	LookFailures      int64 // failed looks at commits, log bounds or routing versions
	ReportFailures    int64
	AcceptedGaps      int64
	OrderWaits        int64               // times that events waited for what may be older and was not read yet
	PrefetchedBytes   int                 // what is read and not yet routed, in memory, unpacked
	Sources           map[int]SourceStats // the partitions of the present generation
	NewestVersion     int64               // newest routing version that was loaded
}

// SourceStats is where one source partition stands.
type SourceStats struct {
	Refused       bool // not routed; the other members are those of its last good time
	Halted        bool // routed up to Offset, and cannot be read on
	Offset, End   int64
	Version       int64
	HighWatermark int64 // end of the log when last seen; HighWatermark-Offset is the lag
	Progress      traffic.Time
}

// EventStats counts events. An event is counted when its chunk is acknowledged and committed, so one that is routed
// again after a crash or a lost answer may be counted by two processes, or by none.
type EventStats struct {
	Events          int64 // all that was read, bad ones included
	Records         int64 // keyed records
	DeadLetters     map[string]int64
	EndMarks        int64
	OwnRefusals     int64 // requests that weir itself refused: they feed no window
	Unmatched       int64 // events that no rule watches
	Keyless         int64 // events that rules watch, but that lack for each of them fields of its key or what it counts
	FutureCorrected int64 // times later than append time + FutureTolerance, replaced by the append time
	Timeless        int64 // events without a time, which got the append time
	UnknownFields   int64 // members that the event format does not define
	// MissingIdentities counts decoded events by the field that their identity lacks, and why.
	MissingIdentities [traffic.NumFields][traffic.NumMissingReasons]int64
	Rules             map[string]RuleStats // by rule id
}

// RuleStats counts the events that one rule watches.
type RuleStats struct {
	Matched int64
	// Behind counts events older than the progress of their source partition by more than the rule's lateness, whether or
	// not they have a complete key; BehindComplete counts those of them that have it, and the amount that the rule counts.
	Behind, BehindComplete int64
	Missing                [traffic.NumFields]int64 // events that lack a field of the key
	Skipped                int64                    // events that for this reason feed no window (on_missing: skip)
	Grouped                int64                    // events that for this reason share a window (on_missing: group)
	Uncounted              [numUncounted]int64      // events that feed no window since they lack the value or number that the rule counts
}

func newEventStats() EventStats {
	return EventStats{DeadLetters: map[string]int64{}, Rules: map[string]RuleStats{}}
}

func (s *EventStats) add(d *EventStats) {
	s.Events += d.Events
	s.Records += d.Records
	s.EndMarks += d.EndMarks
	s.OwnRefusals += d.OwnRefusals
	s.Unmatched += d.Unmatched
	s.Keyless += d.Keyless
	s.FutureCorrected += d.FutureCorrected
	s.Timeless += d.Timeless
	s.UnknownFields += d.UnknownFields
	for reason, n := range d.DeadLetters {
		s.DeadLetters[reason] += n
	}
	for f := range s.MissingIdentities {
		for reason := range s.MissingIdentities[f] {
			s.MissingIdentities[f][reason] += d.MissingIdentities[f][reason]
		}
	}
	for id, r := range d.Rules {
		sum := s.Rules[id]
		sum.add(&r)
		s.Rules[id] = sum
	}
}

func (s *RuleStats) add(d *RuleStats) {
	s.Matched += d.Matched
	s.Behind += d.Behind
	s.BehindComplete += d.BehindComplete
	for f := range s.Missing {
		s.Missing[f] += d.Missing[f]
	}
	s.Skipped += d.Skipped
	s.Grouped += d.Grouped
	for why := range s.Uncounted {
		s.Uncounted[why] += d.Uncounted[why]
	}
}

// tally is a router's statistics, shared by its goroutines and its readers.
type tally struct {
	mu    sync.Mutex
	stats Stats
}

func newTally() *tally {
	return &tally{stats: Stats{EventStats: newEventStats(), Sources: map[int]SourceStats{}}}
}

// bump changes the statistics.
func (t *tally) bump(change func(*Stats)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.stats)
}

func (t *tally) snapshot() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.DeadLetters = maps.Clone(s.DeadLetters)
	s.Rules = maps.Clone(s.Rules)
	s.Sources = maps.Clone(s.Sources)
	return s
}

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
