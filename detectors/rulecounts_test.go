package detectors_test

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func (b *bench) openEpisodes() (sum int64) {
	b.p.OpenEpisodes(func(_ string, open int64) { sum += open })
	return sum
}

func (b *bench) takeEvents() (sum detectors.RuleEvents) {
	b.p.TakeRuleEvents(func(_ string, e *detectors.RuleEvents) { sum.Add(e) })
	return sum
}

func TestEventsOfARuleAreToldOnce(t *testing.T) {
	b := newBench(t, 1, rule(2, 10*time.Second, 0))
	for i := range 5 {
		b.must(b.event(0, origin+second, "192.0.2.1", 1))
		b.must(b.event(0, origin+second, []string{"192.0.2.2", "192.0.2.3"}[i%2], 1))
	}
	b.must(b.event(0, origin-second, "192.0.2.1", 1))
	want := detectors.RuleEvents{Counted: 10, Over: 3 + 1, Episodes: 2, Uncounted: [detectors.NumUncounted]int64{detectors.UncountedLate: 1}}
	if got := b.takeEvents(); got != want {
		t.Errorf("told of %+v, want %+v", got, want)
	}
	if got := b.takeEvents(); got != (detectors.RuleEvents{}) {
		t.Errorf("told again of %+v", got)
	}
	if got := b.openEpisodes(); got != 2 {
		t.Errorf("%d sources are over the limit, want 2", got)
	}
	b.end()
	if got := b.openEpisodes(); got != 0 {
		t.Errorf("%d sources are over the limit at the end", got)
	}
}

// A block that is narrower than the rule has a hit for each that it may hold. The source that is over is one all the same.
func TestManyBlocksAreOneEpisode(t *testing.T) {
	b := newBench(t, 1, narrower(rule(2, 10*time.Second, 0)))
	for i := range 30 {
		b.from(fmt.Sprint("tv-", i%10), origin+second, 1)
	}
	if n := countPhase(b.hits, detectors.PhaseOpen); n != 10 {
		t.Fatalf("%d hits, want one for each device", n)
	}
	expect := func(when string, open, told int64) {
		t.Helper()
		if got := b.openEpisodes(); got != open {
			t.Errorf("%s: %d sources are over the limit, want %d", when, got, open)
		}
		if got := b.takeEvents().Episodes; got != told {
			t.Errorf("%s: told of %d episodes, want %d", when, got, told)
		}
	}
	expect("over", 1, 1)
	b.from("tv-11", origin+2*second, 1)
	expect("another device", 1, 0)
	restored, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
	if err != nil {
		t.Fatal(err)
	}
	b.p = restored
	b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{narrower(rule(2, 10*time.Second, 0))}}))
	expect("taken over", 1, 0)
	b.from("tv-12", origin+3*second, 1)
	expect("yet another device", 1, 0)
	b.must(b.tick(0, origin+40*second))
	expect("closed", 0, 0)
}

// An episode that the arrival that opened it cut has begun, and is not open.
func TestEpisodeThatIsCutAtOnceBegan(t *testing.T) {
	v := rule(2, 25*time.Hour, time.Minute)
	v.Algorithm = rules.AlgorithmSlidingLog
	b := newBench(t, 2, v)
	for _, minute := range []traffic.Time{60, 180, 1632} {
		b.must(b.event(0, origin+minute*60*second, "192.0.2.1", 1))
	}
	b.must(b.event(1, origin+150*60*second, "192.0.2.1", 1))
	if got := b.takeEvents().Episodes; got != 2 || b.openEpisodes() != 1 {
		t.Errorf("told of %d episodes, of which %d are open; want 2 and 1", got, b.openEpisodes())
	}
}

// What is said to be open is what hits have opened and neither closed nor merged, each episode once, also behind a takeover; and each
// event that a rule watches is told of, as counted or for one reason.
func TestOpenEpisodesAreThoseOfTheHits(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt, false)
		versions := w.versions()
		devices := rapid.IntRange(1, 4).Draw(rt, "devices")
		if devices > 1 {
			for i := range versions {
				versions[i] = narrower(versions[i])
			}
		}
		b := newBench(t, w.sources, versions...)
		var sum detectors.RuleEvents
		check := func() {
			hits, subjects := map[string]bool{}, map[traffic.Subject]bool{}
			for i := range b.hits {
				hits[b.hits[i].ID] = b.hits[i].Phase == detectors.PhaseOpen || b.hits[i].Phase == detectors.PhaseUpdate
			}
			maps.DeleteFunc(hits, func(_ string, open bool) bool { return !open })
			for i := range b.hits {
				if hits[b.hits[i].ID] {
					subjects[b.hits[i].Subject] = true
				}
			}
			got := b.openEpisodes()
			if got != b.p.Reported() {
				rt.Fatalf("%d episodes are open, said to be %d", b.p.Reported(), got)
			}
			if got < int64(len(subjects)) || got > int64(len(hits)) || devices == 1 && got != int64(len(hits)) {
				rt.Fatalf("%d hits of %d sources are open, said to be %d episodes", len(hits), len(subjects), got)
			}
		}
		for i, e := range w.events {
			k := b.event(e.source, e.at, e.ip, e.version)
			k.Identity.Device = fmt.Sprint("d", i%devices)
			b.must(k)
			check()
			if i%20 != 19 {
				continue
			}
			told := b.takeEvents()
			sum.Add(&told)
			restored, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
			if err != nil {
				rt.Fatal(err)
			}
			b.p = restored
			for n := range versions {
				b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: int64(n + 1), Rules: []rules.Version{versions[n]}}))
			}
			check()
		}
		b.end()
		check()
		if got := b.openEpisodes(); got != 0 {
			rt.Fatalf("%d episodes are open at the end", got)
		}
		told := b.takeEvents()
		sum.Add(&told)
		if events := sum.Counted + sum.Uncounted[detectors.UncountedLate]; events != int64(len(w.events)) {
			rt.Fatalf("%d events, told of %d", len(w.events), events)
		}
		opened := int64(countPhase(b.hits, detectors.PhaseOpen))
		if sum.Episodes > opened || devices == 1 && sum.Episodes != opened {
			rt.Fatalf("%d hits were opened, told of %d episodes", opened, sum.Episodes)
		}
	})
}

func TestRuleEventsAddUp(t *testing.T) {
	sum := detectors.RuleEvents{Counted: 1, Over: 2, Episodes: 5, Uncounted: [detectors.NumUncounted]int64{3, 4}}
	sum.Add(&detectors.RuleEvents{Counted: 10, Over: 20, Episodes: 50, Uncounted: [detectors.NumUncounted]int64{30, 40}})
	if want := (detectors.RuleEvents{Counted: 11, Over: 22, Episodes: 55, Uncounted: [detectors.NumUncounted]int64{33, 44}}); sum != want {
		t.Errorf("got %+v, want %+v", sum, want)
	}
}
