package route

import (
	"maps"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules/condition"
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
	MinutesLeftOut    int64 // events whose minutes were not stored, since the store was away too long
	AcceptedGaps      int64
	OrderWaits        int64               // times that events waited for what may be older and was not read yet
	PrefetchedBytes   int                 // what is read and not yet routed, in memory, unpacked
	Sources           map[int]SourceStats // the partitions of the present generation
	NewestVersion     int64               // newest routing version that was loaded
}

// SourceStats is where one source partition stands.
type SourceStats struct {
	Refused       bool          // not routed; the other members are those of its last good time
	Halted        bool          // routed up to Offset, and cannot be read on
	Held          traffic.Time  // since when, at the latest, an open transaction is why; 0: none is
	Waited        time.Duration // of the last ingest.WaitsWithin, before open transactions
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
	Keyless         int64 // events that rules watch and none counts: they lack fields of its key or what it counts, or are let pass
	FutureCorrected int64 // times later than append time + FutureTolerance, replaced by the append time
	Timeless        int64 // events without a time, which got the append time
	UnknownFields   int64 // members that the event format does not define
	// MissingIdentities counts decoded events by the field that their identity lacks, and why.
	MissingIdentities [traffic.NumFields][traffic.NumMissingReasons]int64
	Rules             map[string]RuleStats // by rule id
	// KnownGood counts by what known_good says the events that weir itself has not refused.
	KnownGood [detectors.KnownGood + 1]int64
	// Allowed counts, by rule and allow list, the events that a rule watches and does not count, since the first of its lists
	// that says so lets their source pass.
	Allowed map[RuleList]int64
	minutes map[traffic.Time]*minuteCounts // of a chunk only
}

// RuleList is a rule and one of the allow lists that it names, by their ids.
type RuleList struct{ Rule, List string }

// RuleStats counts the events that one rule watches.
type RuleStats struct {
	Matched int64
	// Behind counts events older than the progress of their source partition by more than the rule's lateness, whether or
	// not they have a complete key; BehindComplete counts those of them that have it, and the amount that the rule counts.
	Behind, BehindComplete int64
	Missing                [traffic.NumFields]int64   // events that lack a field of the key
	MissingExtra           map[string]int64           // the same of fields beside the identity, by name; nil for none
	Skipped                int64                      // events that for this reason feed no window (on_missing: skip)
	Grouped                int64                      // events that for this reason share a window (on_missing: group)
	Faults                 [condition.NumFaults]int64 // events that are not watched since match.when could not be judged
	TierFaults             [condition.NumFaults]int64 // counted events whose limit is the greatest that they may have, since the condition of a tier could not be judged
	Uncounted              [numUncounted]int64        // events that feed no window since they lack the value or number that the rule counts
}

func newEventStats() EventStats {
	return EventStats{
		DeadLetters: map[string]int64{}, Rules: map[string]RuleStats{}, Allowed: map[RuleList]int64{}, minutes: map[traffic.Time]*minuteCounts{},
	}
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
	for good, n := range d.KnownGood {
		s.KnownGood[good] += n
	}
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
	for key, n := range d.Allowed {
		s.Allowed[key] += n
	}
}

func (s *RuleStats) add(d *RuleStats) {
	s.Matched += d.Matched
	s.Behind += d.Behind
	s.BehindComplete += d.BehindComplete
	for f := range s.Missing {
		s.Missing[f] += d.Missing[f]
	}
	for f, n := range d.MissingExtra {
		s.lackExtra(f, n)
	}
	s.Skipped += d.Skipped
	s.Grouped += d.Grouped
	for why := range s.Uncounted {
		s.Uncounted[why] += d.Uncounted[why]
	}
	for fault := range s.Faults {
		s.Faults[fault] += d.Faults[fault]
		s.TierFaults[fault] += d.TierFaults[fault]
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
	for id, r := range s.Rules {
		if r.MissingExtra != nil {
			r.MissingExtra = maps.Clone(r.MissingExtra)
			s.Rules[id] = r
		}
	}
	s.Allowed = maps.Clone(s.Allowed)
	s.Sources = maps.Clone(s.Sources)
	return s
}

// ruleCounts counts a chunk's events by rule index: with a thousand rules and a chunk of three events, only what was
// touched may cost anything.
type ruleCounts struct {
	version *routingVersion
	stats   []RuleStats
	marked  []bool // those in touched
	touched []int
	allowed map[[2]int]int64 // by rule and allow list of version
	minute  minuteTally
}

// of is where events of a rule are counted.
func (c *ruleCounts) of(rule int) *RuleStats {
	if !c.marked[rule] {
		c.marked[rule], c.touched = true, append(c.touched, rule)
	}
	return &c.stats[rule]
}

// countsOf is where the present chunk counts events by the rules of v; nil for a source without a version, which has no
// events.
func (b *chunkBuilder) countsOf(v *routingVersion) *ruleCounts {
	if v == nil {
		return nil
	}
	c := b.counts[v]
	if c == nil {
		c = &ruleCounts{version: v, stats: make([]RuleStats, len(v.rules)), marked: make([]bool, len(v.rules)), allowed: map[[2]int]int64{}}
		b.counts[v] = c
	}
	return c
}

// sumRules moves the counts of the present chunk into s.
func (b *chunkBuilder) sumRules(s *EventStats) {
	for _, c := range b.counts {
		c.minute.move(c.version, s.minutes)
		for _, i := range c.touched {
			if r := &c.version.rules[i]; !r.pending {
				sum := s.Rules[r.id]
				sum.add(&c.stats[i])
				s.Rules[r.id] = sum
			}
			c.stats[i], c.marked[i] = RuleStats{}, false
		}
		c.touched = c.touched[:0]
		for at, n := range c.allowed {
			if r := &c.version.rules[at[0]]; !r.pending {
				s.Allowed[RuleList{r.id, c.version.allow[at[1]].id}] += n
			}
		}
		clear(c.allowed)
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
	}
	s.Records += int64(len(got.targets))
	rules.minute.count(rules.version, got, s.minutes)
	if got.fate != FateRefusal {
		s.KnownGood[got.good]++
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
		rules.of(w.rule).count(w, rules.version.rules[w.rule].key)
		if w.allowed >= 0 {
			rules.allowed[[2]int{w.rule, int(w.allowed)}]++
		}
	}
	for _, t := range got.turned {
		if t.fault != condition.Fine {
			rules.of(t.rule).Faults[t.fault]++
		}
	}
}

// Lacking is how many of the events that the rule watches lack each field of its key, by name; fields that none lacks are
// left out.
func (s *RuleStats) Lacking() map[string]int64 {
	out := maps.Clone(s.MissingExtra)
	for f, n := range s.Missing {
		if n > 0 {
			if out == nil {
				out = map[string]int64{}
			}
			out[traffic.Field(f).String()] = n
		}
	}
	return out
}

func (s *RuleStats) lackExtra(field string, n int64) {
	if s.MissingExtra == nil {
		s.MissingExtra = map[string]int64{}
	}
	s.MissingExtra[field] += n
}

func (s *RuleStats) count(w *watching, key []traffic.KeyField) {
	s.Matched++
	if w.behind {
		s.Behind++
		if w.lacking == 0 && w.counts() {
			s.BehindComplete++
		}
	}
	for i := 0; w.lacking>>i != 0; i++ {
		switch {
		case w.lacking&(1<<i) == 0:
		case key[i].OfIdentity():
			s.Missing[key[i].Field]++
		default:
			s.lackExtra(key[i].String(), 1)
		}
	}
	switch {
	case w.allowed >= 0: // counted by rule and list
	case w.skipped:
		s.Skipped++
	case w.why != counted:
		s.Uncounted[w.why]++
	case w.lacking != 0:
		s.Grouped++
	}
	if w.fault != condition.Fine {
		s.TierFaults[w.fault]++
	}
}
