package detectors

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// forgetful is an algorithm that cannot place what is older than since.
type forgetful struct {
	algorithm
	since traffic.Time
}

func (f forgetful) add(c *cell, ev *event) {
	if ev.time < f.since {
		ev.left = ev.units
		return
	}
	f.algorithm.add(c, ev)
}

// uncountedBench folds events of one source partition for two rules: a-users counts users, b-cost a sum.
type uncountedBench struct {
	t      *testing.T
	p      *Partition
	format int
	next   int64
	top    int64
	since  int64 // second from which on b-cost can place events
	hits   []Hit
}

func newUncountedBench(t *testing.T, format int) *uncountedBench {
	b := &uncountedBench{t: t, p: NewPartition(Config{Keyed: 5, Sources: 2, Generation: 1}), format: format}
	b.learn()
	b.event(5000, "u", 3)
	return b
}

func (b *uncountedBench) learn() {
	version := func(id string, count rules.Count) rules.Version {
		return rules.Version{Number: 1, Lineage: 1, Document: rules.Document{
			ID: id, Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 5, Window: time.Minute,
			Lateness: time.Hour, Count: count,
		}}
	}
	b.p.Learn(NewPlan(&rules.Routing{Number: 1, RecordFormat: b.format, Rules: []rules.Version{
		version("a-users", rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldUser}}),
		version("b-cost", rules.Count{Sum: "attrs.cost"}),
	}}))
}

// event is one at a second, by a user or none, for so many units. Each is appended a second after the one before.
func (b *uncountedBench) event(at int64, user string, units int64) {
	b.t.Helper()
	b.top = max(b.top, at)
	k := Keyed{
		Kind: KeyedEvent, Generation: 1, Offset: b.next, Prev: b.next - 1, Version: 1, Rules: []int{0, 1}, Units: []int64{1, units},
		Time: traffic.Time(at) * minute / 60, Progress: traffic.Time(b.top) * minute / 60,
		Identity: traffic.Identity{IP: netip.MustParseAddr("192.0.2.1"), User: user},
	}
	if l := b.p.keys.lineages["b-cost/1"]; l.cells.n > 0 {
		if f, ok := l.algorithm.(forgetful); ok {
			l.algorithm = f.algorithm
		}
		l.algorithm = forgetful{l.algorithm, traffic.Time(b.since) * minute / 60}
	}
	var err error
	if b.hits, err = b.p.Fold(traffic.Time(b.next)*minute/60, &k, b.hits); err != nil {
		b.t.Fatal(err)
	}
	b.next++
}

// minuteOver lets the minute pass with a tick.
func (b *uncountedBench) minuteOver() {
	b.t.Helper()
	k := Keyed{Kind: KeyedTick, Generation: 1, Offset: b.next, Prev: b.next - 1}
	var err error
	if b.hits, err = b.p.Fold(traffic.Time(b.next)*minute/60+minute, &k, b.hits); err != nil {
		b.t.Fatal(err)
	}
}

// takeOver goes on with what a snapshot holds.
func (b *uncountedBench) takeOver() {
	b.t.Helper()
	raw := b.p.Snapshot(nil)
	p, err := Restore(b.p.cfg, raw)
	if err != nil {
		b.t.Fatal(err)
	}
	if again := p.Snapshot(nil); !slices.Equal(again, raw) {
		b.t.Errorf("restored it is written as\n%x, was\n%x", again, raw)
	}
	b.p = p
	b.learn()
}

func (b *uncountedBench) sums() (out []string) {
	for i := range b.hits {
		h := &b.hits[i]
		out = append(out, fmt.Sprint(h.Kind, " ", h.Reason, " ", h.Rule, " ", h.Count, " in minute ", int64(h.First/minute), " to ", int64(h.Last*60/minute)))
	}
	return out
}

func TestWhatARuleLeavesOutIsSummedByReason(t *testing.T) {
	b := newUncountedBench(t, rules.UncountedRecordFormat)
	b.event(120, "u", 1) // more than an hour late, for both
	b.takeOver()
	b.event(4900, "", 0) // no user; a cost of 0 is no missing one
	b.since = 4950
	b.event(4902, "", 7)
	b.takeOver()
	b.event(4999, "u", 1)
	if len(b.hits) > 0 {
		t.Fatalf("sums before their minute is over: %q", b.sums())
	}
	b.minuteOver()
	want := []string{
		"late  a-users 1 in minute 0 to 120",
		"uncounted missing_value a-users 2 in minute 0 to 4902",
		"late  b-cost 1 in minute 0 to 120",
		"uncounted out_of_order b-cost 1 in minute 0 to 4902",
	}
	if got := b.sums(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	ids := map[string]bool{}
	for i := range b.hits {
		ids[b.hits[i].ID] = true
	}
	if len(ids) != len(want) {
		t.Errorf("%d ids of %d sums", len(ids), len(want))
	}
	b.hits = nil
	if b.minuteOver(); len(b.hits) > 0 {
		t.Errorf("sums a second time: %q", b.sums())
	}
}

// Each pair of an event and a rule is counted, or left out for one reason, and metrics are told of each once.
func TestEachEventIsCountedOrLeftOutForOneReason(t *testing.T) {
	b := newUncountedBench(t, rules.UncountedRecordFormat)
	b.since = 4950
	want := [NumUncounted]int64{}
	for i := range 40 {
		at, user, units := []int64{4990, 50, 4940, 5001}[i%4], []string{"u", ""}[i/4%2], int64(i%3)
		b.event(at, user, units)
		if at == 50 {
			want[UncountedLate] += 2
			continue
		}
		if user == "" {
			want[UncountedMissingValue]++
		}
		if at == 4940 && units > 0 {
			want[UncountedOutOfOrder]++
		}
	}
	c := b.p.Counts()
	if got := [NumUncounted]int64{UncountedLate: c.Late, UncountedOutOfOrder: c.OutOfOrder, UncountedMissingValue: c.MissingValue}; got != want ||
		c.Counted+c.Late+c.OutOfOrder+c.MissingValue != 2*c.Events {
		t.Errorf("of %d pairs: %+v, want %v left out", 2*c.Events, c, want)
	}
	var told RuleEvents
	b.p.TakeRuleEvents(func(_ string, e *RuleEvents) { told.Add(e) })
	if told.Uncounted != want || told.Counted != c.Counted {
		t.Errorf("told of %v, want %v left out and %d counted", told, want, c.Counted)
	}
	b.p.TakeRuleEvents(func(rule string, e *RuleEvents) { t.Errorf("told again of %v of %s", e, rule) })
}

// Metrics are told of what a rule left out also when the rule is gone meanwhile.
func TestARemovedRuleIsToldOf(t *testing.T) {
	b := newUncountedBench(t, rules.UncountedRecordFormat)
	b.p, b.next = NewPartition(b.p.cfg), 0
	b.learn()
	b.event(50, "", 1) // late, with no window to keep its lineage
	b.minuteOver()
	for n := range int64(KeptRoutings) {
		b.p.Learn(NewPlan(&rules.Routing{Number: 2 + n}))
	}
	told := map[string]RuleEvents{}
	b.p.TakeRuleEvents(func(rule string, e *RuleEvents) { told[rule] = *e })
	late := RuleEvents{Uncounted: [NumUncounted]int64{UncountedLate: 1}}
	if want := map[string]RuleEvents{"a-users": late, "b-cost": late}; !maps.Equal(told, want) {
		t.Errorf("told of %+v, want a late event of two rules", told)
	}
	if b.p.Learn(NewPlan(&rules.Routing{Number: 100})); len(b.p.keys.ordered) > 0 {
		t.Errorf("%d lineages are kept that nothing names and nobody is to be told of", len(b.p.keys.ordered))
	}
}

// A sum of 0 adds nothing: it is counted, and takes no memory.
func TestASumOfNothingOpensNoWindow(t *testing.T) {
	b := newUncountedBench(t, rules.UncountedRecordFormat)
	b.event(5000, "u", 3)
	before := b.p.Keys()
	k := Keyed{
		Kind: KeyedEvent, Generation: 1, Offset: b.next, Prev: b.next - 1, Version: 1, Rules: []int{1}, Units: []int64{0},
		Time: 5000 * minute / 60, Progress: 5000 * minute / 60, Identity: traffic.Identity{IP: netip.MustParseAddr("192.0.2.2")},
	}
	counted := b.p.Counts().Counted
	if _, err := b.p.Fold(b.p.watermark.appended, &k, nil); err != nil {
		t.Fatal(err)
	}
	if b.p.Keys() != before || b.p.Counts().Counted != counted+1 {
		t.Errorf("%d keys, were %d; %d counted, want %d", b.p.Keys(), before, b.p.Counts().Counted, counted+1)
	}
}

// Readers of an older record format do not know the kind: they get none of it, and late sums as ever.
func TestOlderReadersGetLateSumsOnly(t *testing.T) {
	b := newUncountedBench(t, rules.UncountedRecordFormat-1)
	b.event(4999, "", 1)
	b.event(50, "", 1)
	b.minuteOver()
	if got, want := b.sums(), []string{"late  a-users 1 in minute 0 to 50", "late  b-cost 1 in minute 0 to 50"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if c := b.p.Counts(); c.MissingValue != 1 {
		t.Errorf("%d without a value in the metrics, want 1", c.MissingValue)
	}
}
