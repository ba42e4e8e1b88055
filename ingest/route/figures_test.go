package route

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

// figureStore keeps sums as a store does. What it answers may be wrong: a call that failed may have been done.
type figureStore struct {
	sums   map[string]int64 // by everything but the number
	shrunk string
	fails  func() (before, after bool)
}

var _ ingest.Figures = (*figureStore)(nil)

func (s *figureStore) StoreUncounted(_ context.Context, stream string, sums []detectors.RoutedUncounted) error {
	before, after := s.fails()
	if before {
		return errors.New("away")
	}
	for _, u := range sums {
		id := fmt.Sprint(stream, " ", u.Router, " ", u.Rule, " ", u.Reason, " ", u.Minute)
		if u.Events < s.sums[id] {
			s.shrunk = id
		}
		s.sums[id] = max(s.sums[id], u.Events)
	}
	if after {
		return errors.New("no answer")
	}
	return nil
}

func (s *figureStore) StoreMinutes(_ context.Context, stream string, minutes []detectors.RoutedMinute) error {
	before, after := s.fails()
	if before {
		return errors.New("away")
	}
	grow := func(n int64, name ...any) {
		id := fmt.Sprint(name...)
		if n < s.sums[id] {
			s.shrunk = id
		}
		s.sums[id] = max(s.sums[id], n)
	}
	for _, m := range minutes {
		for what, n := range map[string]int64{"events": m.Events, "refused": m.Refused, "unwatched": m.Unwatched, "good": m.Good, "unjudged": m.Unjudged} {
			grow(n, stream, " ", m.Router, " ", m.Part, " ", m.Minute, " ", what)
		}
		for rule, n := range m.Matched {
			grow(n, stream, " ", m.Router, " ", m.Part, " ", m.Minute, " rule-", rule)
		}
	}
	if after {
		return errors.New("no answer")
	}
	return nil
}

// However often the store fails, answers or not, each event that was left out is in one sum, once the store works again.
func TestWhatRoutersLeftOutIsStoredOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := traffic.Time(1_700_000_000_000_000)
		store := &figureStore{sums: map[string]int64{}}
		store.fails = func() (bool, bool) {
			return rapid.Bool().Draw(t, "fails before"), rapid.Bool().Draw(t, "fails after")
		}
		opt := Options{
			Stream: "live", Owner: "a", Figures: store, Clock: func() traffic.Time { return now }, ReportEvery: 2 * time.Second,
		}
		tally := newTally()
		figures := newFigures(&opt, tally)
		want := map[string]int64{}
		minutes := map[traffic.Time]bool{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 50).Draw(t, "seconds")) * time.Second)
			fields, values := rapid.Int64Range(0, 3).Draw(t, "fields"), rapid.Int64Range(0, 3).Draw(t, "values")
			beyond := rapid.Int64Range(0, 3).Draw(t, "beyond the budget")
			tally.bump(func(st *Stats) {
				r := st.Rules["r"]
				r.Skipped += fields
				r.Uncounted[distinctMissing] += values
				r.Faults[condition.FaultBudget] += beyond
				r.Faults[condition.FaultBudget-1] += values // which leaves nothing out that the rule watches
				st.Rules["r"] = r
			})
			want["missing_field"] += fields
			want["missing_value"] += values
			want["budget"] += beyond
			minutes[now-now%figuresMinute] = true
			_ = figures.due(t.Context())
		}
		store.fails = func() (bool, bool) { return false, false }
		if err := figures.store(t.Context()); err != nil {
			t.Fatal(err)
		}
		got := map[string]int64{}
		for id, n := range store.sums {
			var stream, router, rule, reason, minute string
			if _, err := fmt.Sscan(id, &stream, &router, &rule, &reason, &minute); err != nil {
				t.Fatal(err)
			}
			got[reason] += n
			at, err := time.Parse(time.RFC3339, minute)
			if err != nil || !minutes[traffic.At(at)] {
				t.Fatalf("a sum of the minute %s, %v", minute, err)
			}
		}
		if store.shrunk != "" || got["missing_field"] != want["missing_field"] ||
			got["missing_value"] != want["missing_value"] ||
			got["budget"] != want["budget"] {
			t.Fatalf("stored %v, want %v; a sum that shrank: %q", got, want, store.shrunk)
		}
	})
}

// Between two reports the store is left alone, and it is not told what it knows.
func TestFiguresAreStoredWhenDue(t *testing.T) {
	now := traffic.Time(1_700_000_000_000_000)
	calls := 0
	store := &figureStore{sums: map[string]int64{}, fails: func() (bool, bool) { calls++; return false, false }}
	opt := Options{
		Stream: "live", Owner: "a", Figures: store, Clock: func() traffic.Time { return now }, ReportEvery: 2 * time.Second,
	}
	tally := newTally()
	figures := newFigures(&opt, tally)
	for i := range 100 { // 10 seconds
		now = now.Add(100 * time.Millisecond)
		if i < 50 {
			tally.bump(func(st *Stats) { st.Rules["r"] = RuleStats{Skipped: int64(i + 1)} })
		}
		if err := figures.due(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if calls < 3 || calls > 4 {
		t.Errorf("%d calls in 5 seconds of events and 5 without, one every 2 seconds", calls)
	}
	if tally.bump(func(st *Stats) { st.Rules["r"] = RuleStats{Skipped: 60} }); figures.due(t.Context()) != nil || calls > 4 {
		t.Errorf("not yet due, and stored: %d calls", calls)
	}
	(&Router{opt: opt, tally: tally, figures: figures, minutes: newMinutes(&opt, tally)}).lastFigures(t.Context())
	sum := int64(0)
	for _, n := range store.sums {
		sum += n
	}
	if sum != 60 {
		t.Errorf("a router that stops has stored %d of 60", sum)
	}
}
