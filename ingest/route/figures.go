package route

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// figures stores, per minute of this machine's clock, how many events this router left out, by rule and reason: what
// ROUTE leaves out reaches no detector, so nobody else can tell. A sum is stored again, under the same id and greater, until
// its minute is over and the store has it; while the store is away the minute lasts, so nothing is lost and nothing piles
// up. What a router that is killed had counted since its last report is not told.
type figures struct {
	opt   *Options
	tally *tally

	mu       sync.Mutex
	minute   traffic.Time      // the open one; BeforeTime before the first
	before   map[leftOut]int64 // of this router at the minute's start
	stored   map[leftOut]int64 // of this router, as the store has it
	unsure   bool              // the last call failed: the store may have it or not
	reported traffic.Time      // when the store took it last; BeforeTime before the first time
}

const figuresMinute = traffic.Time(time.Minute / time.Microsecond)

// leftOut names one figure.
type leftOut struct {
	rule   string
	reason detectors.Uncounted
}

func newFigures(opt *Options, tally *tally) *figures {
	return &figures{opt: opt, tally: tally, minute: traffic.BeforeTime, reported: traffic.BeforeTime}
}

// due stores the figures every ReportEvery.
func (f *figures) due(ctx context.Context) error {
	f.mu.Lock()
	since, first := f.opt.Clock().Sub(f.reported), f.reported == traffic.BeforeTime
	f.mu.Unlock()
	if !first && since >= 0 && since < f.opt.ReportEvery {
		return nil
	}
	return f.store(ctx)
}

// store stores what has changed since it last did.
func (f *figures) store(ctx context.Context) error {
	if f.opt.Figures == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.opt.Clock()
	totals := f.tally.leftOut()
	if minute := now - now%figuresMinute; minute != f.minute && !f.unsure {
		f.minute, f.before = minute, f.stored
	}
	var sums []detectors.RoutedUncounted
	for key, total := range totals {
		if total == f.stored[key] {
			continue
		}
		if events := total - f.before[key]; events > 0 {
			sums = append(sums, detectors.RoutedUncounted{
				Router: f.opt.Owner, Rule: key.rule, Reason: key.reason, Minute: f.minute, Seen: now, Events: events,
			})
		}
	}
	slices.SortFunc(sums, func(a, b detectors.RoutedUncounted) int {
		return cmp.Or(cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Reason, b.Reason))
	})
	if len(sums) > 0 {
		if err := f.opt.Figures.StoreUncounted(ctx, f.opt.Stream, sums); err != nil {
			f.unsure = true
			return err
		}
	}
	f.stored, f.unsure, f.reported = totals, false, now
	return nil
}

// lastFigures bounds how long a router that stops waits for the store to take its figures.
const lastFigures = 2 * time.Second

// lastFigures stores what was counted since the last reports, when the router's own context is over.
func (r *Router) lastFigures(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastFigures)
	defer cancel()
	if err := errors.Join(r.figures.store(ctx), r.minutes.store(ctx)); err != nil {
		r.opt.Logger.Warn("route: the last figures of what was seen and left out are not stored", "error", err)
		r.tally.bump(func(st *Stats) { st.ReportFailures++ })
	}
}

// leftOut is what the router has left out since it was made.
func (t *tally) leftOut() map[leftOut]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[leftOut]int64{}
	for id := range t.stats.Rules {
		stats := t.stats.Rules[id]
		for reason, n := range stats.LeftOut() {
			out[leftOut{id, reason}] = n
		}
	}
	return out
}

// LeftOut is how many events of the rule ROUTE left out, by reason: an event is left out for what its key lacks, or
// else for what is counted; or it is not known whether the rule watches it, since its condition was not judged.
func (s *RuleStats) LeftOut() map[detectors.Uncounted]int64 {
	values := int64(0)
	for _, n := range s.Uncounted {
		values += n
	}
	out := map[detectors.Uncounted]int64{detectors.UncountedMissingField: s.Skipped,
		detectors.UncountedMissingValue: values, detectors.UncountedBudget: s.Faults[condition.FaultBudget]}
	maps.DeleteFunc(out, func(_ detectors.Uncounted, n int64) bool { return n == 0 })
	return out
}

// Unjudged counts, by the fault, the events of a rule on which its conditions could not be judged. The zero value says that all
// could.
type Unjudged struct {
	When  map[string]int64 `json:"when,omitempty"`  // match.when: the rule does not watch such events
	Tiers map[string]int64 `json:"tiers,omitempty"` // of a tier: the greatest limit counts that such an event may have
}

// Failed is a rule with a condition that could not be judged on an event.
type Failed struct {
	Rule  int
	Fault condition.Fault
	Tier  bool // the condition of a tier, the first that could not; else match.when, so that the rule does not watch the event
}

// Unjudged is how many events the rule's conditions could not be judged on.
func (s *RuleStats) Unjudged() Unjudged {
	var u Unjudged
	for fault := condition.Fine + 1; fault < condition.NumFaults; fault++ {
		u.add(fault, false, s.Faults[fault])
		u.add(fault, true, s.TierFaults[fault])
	}
	return u
}

// Add counts an event.
func (u *Unjudged) Add(f *Failed) { u.add(f.Fault, f.Tier, 1) }

func (u *Unjudged) add(fault condition.Fault, tier bool, events int64) {
	if events == 0 {
		return
	}
	to := &u.When
	if tier {
		to = &u.Tiers
	}
	if *to == nil {
		*to = map[string]int64{}
	}
	(*to)[fault.String()] += events
}

// Notes say it in sentences: one for match.when, one for tiers, none where all could be judged.
func (u Unjudged) Notes(rule string) []string {
	var out []string
	for _, said := range []struct {
		of   map[string]int64
		what string
	}{
		{u.When, "events that it does not watch, since match.when could not be judged"},
		{u.Tiers, "events under the greatest limit that they may have, since the condition of a tier could not be judged"},
	} {
		var faults []string
		for _, fault := range slices.Sorted(maps.Keys(said.of)) {
			faults = append(faults, fmt.Sprintf("%s %d", fault, said.of[fault]))
		}
		if len(faults) > 0 {
			out = append(out, fmt.Sprintf("rule %s: %s: %s", rule, said.what, strings.Join(faults, ", ")))
		}
	}
	return out
}
