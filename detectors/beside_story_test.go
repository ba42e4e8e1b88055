package detectors_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func story(hits []detectors.Hit) (out []string) {
	for i := range hits {
		h := &hits[i]
		out = append(out, fmt.Sprintf("%s %s v%d limit %d count %d", h.Kind, h.Phase, h.RuleVersion, h.Limit, h.Count))
	}
	return out
}

func expectStory(t *testing.T, hits []detectors.Hit, want ...string) {
	t.Helper()
	if got := story(hits); !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

// One source goes from nothing to over: the warning opens at the share of the limit, rounded up; it names the rule's limit,
// nobody to block, and has no updates.
func TestNearOpensAndCloses(t *testing.T) {
	v := rule(10, time.Minute, 0)
	v.Near, v.Cooldown = 75, time.Second
	b := newBench(t, 1, v)
	for s := range traffic.Time(12) {
		b.must(b.event(0, origin+2*s*second, "192.0.2.1", 1))
	}
	b.end()
	expectStory(t, b.hits, "near open v1 limit 10 count 1", "hit open v1 limit 10 count 1", "hit update v1 limit 10 count 2",
		"hit closed v1 limit 10 count 2", "near closed v1 limit 10 count 5")
	for _, h := range ofKind(b.hits, detectors.KindNear) {
		if h.BlockSubject != "" || h.First != origin+14*second {
			t.Errorf("%+v", h)
		}
	}
	var near, told int64
	b.p.TakeRuleEvents(func(rule string, e *detectors.RuleEvents) { near, told = near+e.NearLeftOut+e.Episodes, told+e.Counted })
	if near != 1 || told != 12 {
		t.Errorf("%d events are counted, of 12; %d episodes and warnings left out, want 1", told, near)
	}
}

// promoted are the routing versions before and after a pending version is promoted.
func promoted(p *detectors.Partition) {
	live := rule(5, 10*time.Second, 30*time.Second)
	next := rule(2, 10*time.Second, 30*time.Second)
	next.Number, next.Lineage, next.Pending = 2, 2, true
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: 5, Rules: []rules.Version{live, next}}))
	next.Pending = false
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 2, RecordFormat: 5, Rules: []rules.Version{next}}))
}

// A pending version is counted beside the live one, in windows of its own. Promoted, it goes on with them: the episode on trial
// is closed by the first event over the limit, which opens one that counts. What was routed before and comes late ends nothing
// and opens nothing where a source is over. Whenever the partition is restored between, the story is the same.
func TestPromotionGoesOnWithTheWindows(t *testing.T) {
	for restore := range 13 {
		b := newBench(t, 1)
		promoted(b.p)
		step := 0
		send := func(at int, version int64) {
			if step == restore {
				p, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
				if err != nil {
					t.Fatal(err)
				}
				promoted(p)
				b.p = p
			}
			step++
			k := b.event(0, origin+traffic.Time(at)*second, "192.0.2.1", version)
			if k.Rules = []int{0}; version == 1 {
				k.Rules = []int{0, 1}
			}
			b.must(k)
		}
		for at := range 4 {
			send(at, 1) // 2 and 3 are over the pending limit
		}
		send(4, 2) // over the promoted limit
		send(3, 1) // late, and over under the version as it was pending
		send(5, 2)
		send(5, 1)  // the same, not late
		send(40, 1) // another episode on trial begins long after
		send(40, 1)
		send(40, 1)
		send(41, 2)
		b.end()
		expectStory(t, b.hits,
			"candidate open v2 limit 2 count 1", "candidate closed v2 limit 2 count 2", "hit open v2 limit 2 count 1",
			"hit open v1 limit 5 count 1",
			"candidate open v2 limit 2 count 1", "candidate closed v2 limit 2 count 1", "hit open v2 limit 2 count 1",
			"hit closed v1 limit 5 count 1", "hit closed v2 limit 2 count 2", "hit closed v2 limit 2 count 1")
		if t.Failed() {
			t.Fatalf("restored at step %d", restore)
		}
	}
}

// The live rule alone is told of, not its pending version: events, late ones, episodes.
func TestRuleEventsAreOfTheLiveVersion(t *testing.T) {
	b := newBench(t, 1)
	promoted(b.p)
	for _, at := range []int{0, 1, 2, 3, 90, 0} {
		k := b.event(0, origin+traffic.Time(at)*second, "192.0.2.1", 1)
		k.Rules = []int{0, 1}
		b.must(k)
	}
	var sum detectors.RuleEvents
	b.p.TakeRuleEvents(func(_ string, e *detectors.RuleEvents) { sum.Add(e) })
	if sum.Counted != 5 || sum.Uncounted[detectors.UncountedLate] != 1 || sum.Episodes != 0 || sum.Over != 0 {
		t.Errorf("%+v", sum)
	}
	b.end()
	late := ofKind(b.hits, detectors.KindLate)
	if len(late) != 1 || late[0].Count != 1 || late[0].RuleVersion != 1 {
		t.Errorf("%+v", late)
	}
}

// A record that names a tier that its rule has not is refused as a whole.
func TestUnknownTierIsRefused(t *testing.T) {
	v := rule(1, time.Minute, 0)
	v.Tiers = []rules.Tier{{When: "true", Limit: 3}}
	b := newBench(t, 1, v)
	k := b.event(0, origin, "192.0.2.1", 1)
	k.Tiers = []int{2}
	if err := b.fold(k); !errors.Is(err, detectors.ErrRecord) {
		t.Fatalf("got %v", err)
	}
	k.Tiers = []int{1}
	b.must(k)
}

// An older snapshot would take an episode on trial for one that blocks: once a record of the format that brought them was
// folded, none is written, also where records of an older routing version follow.
func TestEpisodesOnTrialAreInNoOlderSnapshot(t *testing.T) {
	v := rule(9, time.Minute, 0)
	v.Candidate = &rules.Candidate{Limit: 0}
	b := newBench(t, 1, v, rule(9, time.Minute, 0))
	first := b.event(0, origin, "192.0.2.1", 1)
	first.Format = rules.LanguageRecordFormat
	b.must(first)
	old := b.event(0, origin, "192.0.2.2", 2)
	old.Format = rules.LanguageRecordFormat - 1
	b.must(old)
	raw := b.p.Snapshot(nil)
	if raw[0] != 4 {
		t.Fatalf("format %d", raw[0])
	}
	p, err := detectors.Restore(b.cfg, raw)
	if err != nil {
		t.Fatal(err)
	}
	b.p = p
	b.end()
	expectStory(t, b.hits, "candidate open v1 limit 0 count 1", "candidate closed v1 limit 0 count 1")
}

// A source that is over by the lowest of its limits keeps what the greatest needs: a later event of the great limit is judged
// by all that lies in its window.
func TestTrimmedLogsServeTheGreatestLimit(t *testing.T) {
	user := rules.Count{Distinct: &traffic.KeyField{Field: traffic.FieldUser}}
	for name, count := range map[string]rules.Count{"events": {}, "distinct": user} {
		for _, great := range []int{100, 120, 700} { // logs that are packed, and one that is too long
			v := rule(1, time.Hour, 0)
			v.Count, v.Tiers = count, []rules.Tier{{When: "true", Limit: great}}
			if great > detectors.SlidingExact {
				v.Algorithm = rules.AlgorithmSlidingLog
				if count.Distinct != nil {
					continue // sets of values, of which none is trimmed
				}
			}
			b := newBench(t, 1, v)
			last := origin
			for n := range great + 3 {
				last = origin + traffic.Time(n)*second
				k := b.event(0, last, "192.0.2.1", 1)
				if k.Identity.User = fmt.Sprint(n); n > great {
					k.Tiers = []int{1}
				}
				b.must(k)
			}
			b.end()
			if h := b.hits[len(b.hits)-1]; h.Phase != detectors.PhaseClosed || h.Last != last || h.Peak <= great {
				t.Errorf("%s, limit %d: %+v, want last %v", name, great, h, last)
			}
		}
	}
}
