package detectors_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// climb is one partition with rules of several limits: on a ladder, or each with windows of its own.
type climb struct {
	p       *detectors.Partition
	offset  []int64
	highest []traffic.Time
	named   []int
	hits    []detectors.Hit
}

func newClimb(sources int, window, late time.Duration, limits []int, ladder bool, budget int64) *climb {
	c := &climb{offset: slices.Repeat([]int64{detectors.NoOffset}, sources), highest: make([]traffic.Time, sources)}
	r := rules.Routing{Stream: "live", Number: 1, RecordFormat: rules.LanguageRecordFormat}
	var all []int
	for i, limit := range limits {
		v := rule(limit, window, late)
		v.ID = fmt.Sprintf("rung-%d", i)
		r.Rules, all = append(r.Rules, v), append(all, i)
	}
	c.p = detectors.NewPartition(detectors.Config{Sources: sources, Generation: 1, Budget: budget})
	if ladder {
		c.p.LearnLadders(&r, [][]int{all})
		c.named = all[:1]
		return c
	}
	c.p.Learn(detectors.NewPlan(&r))
	c.named = all
	return c
}

func (c *climb) fold(t *rapid.T, k detectors.Keyed) {
	var err error
	if c.hits, err = c.p.Fold(origin, &k, c.hits); err != nil {
		t.Fatal(err)
	}
}

func (c *climb) event(t *rapid.T, source int, at traffic.Time, ip string) {
	c.highest[source] = max(c.highest[source], at)
	c.offset[source]++
	c.fold(t, detectors.Keyed{
		Kind: detectors.KeyedEvent, Generation: 1, Source: source, Offset: c.offset[source], Prev: c.offset[source] - 1, Time: at,
		Progress: c.highest[source], Version: 1, Rules: c.named, Identity: identityOf(ip), Sample: []byte(fmt.Sprint(at)),
	})
}

func (c *climb) tick(t *rapid.T, at traffic.Time) {
	for source := range c.offset {
		c.fold(t, detectors.Keyed{
			Kind: detectors.KeyedTick, Generation: 1, Source: source, Offset: c.offset[source] + 1, Prev: c.offset[source],
			Time: max(c.highest[source], at),
		})
	}
}

// told are the hits of each rule, in the order of their sending.
func (c *climb) told(t *rapid.T) map[string][]string {
	out := map[string][]string{}
	for i := range c.hits {
		if c.hits[i].Kind != detectors.KindHit {
			continue // what is left out is told of the first rung
		}
		text, err := json.Marshal(&c.hits[i])
		if err != nil {
			t.Fatal(err)
		}
		out[c.hits[i].Rule] = append(out[c.hits[i].Rule], string(text))
	}
	return out
}

// Rules on a ladder tell, hit by hit, what they tell with windows of their own: whatever comes, in whatever order, however long
// an attack lasts, and however often a source is over, falls silent and comes back.
func TestLadderTellsWhatItsRungsTell(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 20, 33, 40, 70, 128}), 2, 6, rapid.ID[int]).Draw(t, "limits")
		slices.SortFunc(limits, cmp.Compare[int])
		window := time.Duration(rapid.IntRange(2, 20).Draw(t, "window")) * time.Second
		late := time.Duration(rapid.SampledFrom([]int{0, 1, 5, 40}).Draw(t, "lateness")) * time.Second
		sources := rapid.IntRange(1, 2).Draw(t, "sources")
		with, without := newClimb(sources, window, late, limits, true, 0), newClimb(sources, window, late, limits, false, 0)
		now := origin
		for range rapid.IntRange(1, 40).Draw(t, "stretches") {
			gap := rapid.SampledFrom([]traffic.Time{0, 1, second / 20, second / 3, second, 5 * second}).Draw(t, "gap")
			now += rapid.SampledFrom([]traffic.Time{0, 0, second, 10 * second, 100 * second}).Draw(t, "pause")
			ip := rapid.SampledFrom([]string{"192.0.2.1", "192.0.2.2"}).Draw(t, "ip")
			delays := rapid.SliceOfN(rapid.SampledFrom([]traffic.Time{0, 0, 0, 0, 1, second, 4 * second, 30 * second}), 1, 5).Draw(t, "delays")
			source := rapid.IntRange(0, sources-1).Draw(t, "source")
			for i := range rapid.IntRange(1, 60).Draw(t, "events") {
				now += gap
				at := now - delays[i%len(delays)]
				with.event(t, source, at, ip)
				without.event(t, source, at, ip)
			}
			if rapid.Bool().Draw(t, "tick") {
				with.tick(t, now)
				without.tick(t, now)
			}
		}
		with.tick(t, traffic.EndOfTime)
		without.tick(t, traffic.EndOfTime)
		got, want := with.told(t), without.told(t)
		for rule := range want {
			if !slices.Equal(got[rule], want[rule]) {
				t.Fatalf("limits %v, %s:\n got %v\nwant %v", limits, rule, got[rule], want[rule])
			}
		}
		if len(got) > len(want) {
			t.Fatalf("more rules tell of something: %d, want %d", len(got), len(want))
		}
		if with.p.Keys() != 0 || with.p.Bytes() != 0 {
			t.Fatalf("at the end there are %d keys of %d bytes", with.p.Keys(), with.p.Bytes())
		}
	})
}

// With too little memory a source that is forgotten is forgotten on all rungs: what is told holds, and every episode ends once.
func TestLadderUnderABudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newClimb(1, 10*time.Second, 5*time.Second, []int{1, 3, 9}, true, int64(rapid.IntRange(1<<10, 1<<14).Draw(t, "budget")))
		now := origin
		for range rapid.IntRange(50, 600).Draw(t, "events") {
			now += second / 10
			c.event(t, 0, now, fmt.Sprintf("192.0.2.%d", rapid.IntRange(0, 40).Draw(t, "ip")))
		}
		c.tick(t, traffic.EndOfTime)
		open := map[string]bool{}
		for i := range c.hits {
			h := &c.hits[i]
			if h.Kind != detectors.KindHit {
				continue
			}
			id := h.Rule + h.ID
			switch h.Phase {
			case detectors.PhaseOpen:
				if open[id] {
					t.Fatalf("%s opens twice", id)
				}
				open[id] = true
			case detectors.PhaseClosed, detectors.PhaseMerged:
				delete(open, id)
			}
		}
		if len(open) > 0 || c.p.Keys() != 0 || c.p.Bytes() > 1<<14 {
			t.Fatalf("%d episodes do not end, %d keys and %d bytes are left", len(open), c.p.Keys(), c.p.Bytes())
		}
	})
}

// Only what is one log with several limits shares.
func TestShares(t *testing.T) {
	base := rule(5, time.Minute, 0)
	for name, change := range map[string]func(*rules.Version){
		"window": func(v *rules.Version) { v.Window = time.Hour }, "lateness": func(v *rules.Version) { v.Lateness = time.Second },
		"key": func(v *rules.Version) { v.Key = nil }, "slices": func(v *rules.Version) { v.Limit = 129 },
		"fixed":   func(v *rules.Version) { v.Algorithm = rules.AlgorithmFixed },
		"sum":     func(v *rules.Version) { v.Count.Sum = "bytes" },
		"tiers":   func(v *rules.Version) { v.Tiers = []rules.Tier{{}} },
		"near":    func(v *rules.Version) { v.Near = 80 },
		"trial":   func(v *rules.Version) { v.Candidate = &rules.Candidate{} },
		"raise":   func(v *rules.Version) { v.Raised = &rules.Raise{} },
		"pending": func(v *rules.Version) { v.Pending = true },
		"missing": func(v *rules.Version) { v.Missing = rules.MissingGroup },
	} {
		other := base
		if other.Limit = 7; !detectors.Shares(&base, &other) {
			t.Fatal("another limit does not share")
		}
		if change(&other); detectors.Shares(&base, &other) || detectors.Shares(&other, &base) {
			t.Errorf("another %s shares", name)
		}
	}
}
