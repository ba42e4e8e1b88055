package detectors_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const minute = 60 * second

// warning is a rule that warns at the second event of a source.
func warning(lateness time.Duration) rules.Version {
	v := rule(4, 10*time.Second, lateness)
	v.Near = 50
	return v
}

// again restores the partition from its snapshot.
func (b *bench) again(v rules.Version) {
	b.t.Helper()
	restored, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
	if err != nil {
		b.t.Fatal(err)
	}
	b.p = restored
	b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, RecordFormat: rules.LanguageRecordFormat, Rules: []rules.Version{v}}))
}

// near brings a source near its limit.
func (b *bench) near(source int, at traffic.Time, ip string) {
	b.t.Helper()
	b.must(b.event(source, at, ip, 1))
	b.must(b.event(source, at, ip, 1))
}

// openedByMinute are the first hits of a kind by the minute of the first event over.
func openedByMinute(hits []detectors.Hit, kind detectors.Kind) map[traffic.Time]int {
	out := map[traffic.Time]int{}
	for _, h := range ofKind(hits, kind) {
		if h.Phase == detectors.PhaseOpen {
			out[h.First-h.First%minute]++
		}
	}
	return out
}

// What warnings tell is bounded by rule, partition and minute of event time, whenever the events arrive and whether or not the
// partition was restored between; one that is left out is counted, stays silent to its end, and is no hit's loss. Hits are not
// bounded.
func TestWarningsAreBounded(t *testing.T) {
	v := warning(0)
	b := newBench(t, 1, v)
	const sources = 250
	first := origin - origin%minute
	left := int64(0)
	count := func() {
		b.p.TakeRuleEvents(func(_ string, e *detectors.RuleEvents) { left += e.NearLeftOut })
	}
	for n := range sources {
		if b.now += minute / 3; n%50 == 0 { // a minute of arrival is none of the events
			count()
			b.again(v)
		}
		for range 5 {
			b.must(b.event(0, first+traffic.Time(n)*second/5, fmt.Sprintf("192.0.2.%d", n), 1))
		}
	}
	if count(); left != sources-detectors.MaxNearOpenings {
		t.Errorf("%d left out, want %d", left, sources-detectors.MaxNearOpenings)
	}
	if n := len(ofKind(b.hits, detectors.KindHit)); n < sources {
		t.Errorf("%d hits, want at least %d", n, sources)
	}
	b.near(0, first+minute, "203.0.113.1") // the next one, within the same minute of arrival
	b.near(0, first+minute, "203.0.113.2")
	b.end()
	open, closed := 0, 0
	for _, h := range ofKind(b.hits, detectors.KindNear) {
		switch h.Phase {
		case detectors.PhaseOpen:
			open++
		case detectors.PhaseClosed:
			closed++
		default:
			t.Errorf("a warning is %s", h.Phase)
		}
	}
	if open != detectors.MaxNearOpenings+2 || closed != open {
		t.Errorf("%d warnings opened, %d closed, want %d", open, closed, detectors.MaxNearOpenings+2)
	}
}

// However the source partitions come, one ahead of the other and events late, each minute has as many warnings as a rule with
// that limit has hits in it, up to the bound; a late event neither takes from a newer minute nor opens a full one anew.
func TestWarningsOfAMinuteWhateverTheOrder(t *testing.T) {
	first, full := origin-origin%minute, 0
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		v := warning(5 * time.Minute)
		plain := rule(v.NearCount(v.Limit)-1, 10*time.Second, 5*time.Minute)
		b, want := newBench(t, 2, v), newBench(t, 2, plain)
		ahead, sent := traffic.Time(rnd.IntN(40))*minute, [2]int{}
		for sent[0]+sent[1] < 1600 {
			source := rnd.IntN(2)
			n := sent[source]
			sent[source]++
			at := first + traffic.Time(source)*ahead + traffic.Time(n)*second/4 - traffic.Time(rnd.IntN(4))*minute
			ip := fmt.Sprintf("10.%d.%d.%d", source, n/250, n%250)
			if rnd.IntN(200) == 0 {
				b.again(v)
			}
			b.now += traffic.Time(rnd.IntN(3)) * second
			b.near(source, at, ip)
			want.near(source, at, ip)
		}
		b.end()
		want.end()
		expected := openedByMinute(want.hits, detectors.KindHit)
		for m, n := range expected {
			if n > detectors.MaxNearOpenings {
				full++
			}
			expected[m] = min(n, detectors.MaxNearOpenings)
		}
		if got := openedByMinute(b.hits, detectors.KindNear); !maps.Equal(got, expected) {
			t.Errorf("seed %d: got %v\nwant %v", seed, got, expected)
		}
		replayed := newBench(t, 2, v)
		for _, l := range b.log {
			out, err := replayed.p.Fold(l.appended, &l.keyed, nil)
			if err != nil {
				t.Fatal(err)
			}
			replayed.hits = append(replayed.hits, out...)
		}
		if got, again := fmt.Sprint(b.hits), fmt.Sprint(replayed.hits); got != again {
			t.Errorf("seed %d: the log gives other hits a second time", seed)
		}
	}
	if full < 8 {
		t.Errorf("%d minutes were full: the test has shown little", full)
	}
}

// Openings are counted for a bounded number of minutes, the newest; what is late for all of them is left out, since nobody knows
// how many it would be.
func TestMinutesOfWarningsAreBounded(t *testing.T) {
	const minutes = 64
	v := warning(2 * time.Hour)
	b := newBench(t, 1, v)
	first := origin - origin%minute
	for n := range minutes + 6 {
		b.near(0, first+traffic.Time(n)*minute, fmt.Sprintf("192.0.2.%d", n))
	}
	b.again(v)
	for n := range 3 {
		b.near(0, first+traffic.Time(5+n)*minute, fmt.Sprintf("198.51.100.%d", n)) // the first has been forgotten
	}
	got := openedByMinute(b.hits, detectors.KindNear)
	if n := got[first+5*minute]; n != 1 {
		t.Errorf("%d warnings in a minute that is forgotten, want 1", n)
	}
	if n := got[first+6*minute]; n != 2 {
		t.Errorf("%d warnings in the oldest minute known, want 2", n)
	}
	left := int64(0)
	b.p.TakeRuleEvents(func(_ string, e *detectors.RuleEvents) { left += e.NearLeftOut })
	if left != 1 {
		t.Errorf("%d left out, want 1", left)
	}
	last := first
	for n := range 3000 {
		last = first + traffic.Time(100+n)*minute
		b.near(0, last, "203.0.113.1")
	}
	for range 40 { // the keys go, one sweep after the other
		b.must(b.tick(0, last+3*60*minute))
	}
	if size := len(b.p.Snapshot(nil)); size > 1000 {
		t.Errorf("a snapshot of %d bytes without keys: the minutes are not bounded", size)
	}
}

// A minute stays full when all keys of the rule are forgotten within it, and the partition is restored.
func TestFullMinutesOutliveTheirKeys(t *testing.T) {
	v := warning(0)
	b := newBench(t, 1, v)
	first := origin - origin%minute
	for n := range detectors.MaxNearOpenings {
		b.near(0, first, fmt.Sprintf("192.0.2.%d", n))
	}
	b.must(b.tick(0, first+30*second))
	if keys := b.p.Keys(); keys != 0 {
		t.Fatalf("%d keys are left", keys)
	}
	b.again(v)
	b.near(0, first+40*second, "203.0.113.1")
	b.near(0, first+60*second, "203.0.113.1")
	if got, want := openedByMinute(b.hits, detectors.KindNear), (map[traffic.Time]int{first: detectors.MaxNearOpenings, first + minute: 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
