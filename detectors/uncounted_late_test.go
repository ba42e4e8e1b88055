package detectors_test

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// manyLate is a partition of which each of n rules has a sum of late events of each of 8 source partitions.
func manyLate(t testing.TB, n int) (fold func(source int, rules []int), p *detectors.Partition) {
	var list []rules.Version
	all := make([]int, n)
	for i := range n {
		v := rule(100, time.Minute, time.Minute)
		v.ID = fmt.Sprintf("rule-%04d", i)
		list, all[i] = append(list, v), i
	}
	const sources = 8
	p = detectors.NewPartition(detectors.Config{Sources: sources, Generation: 1})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: list}))
	appended := origin - origin%(60*second)
	prev := slices.Repeat([]int64{detectors.NoOffset}, sources)
	send := func(s int, at traffic.Time, watched []int) {
		k := detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Source: s, Offset: prev[s] + 1, Prev: prev[s], Version: 1, Rules: watched,
			Time: at, Progress: appended, Identity: traffic.Identity{IP: netip.MustParseAddr("192.0.2.1")},
		}
		prev[s]++
		if _, err := p.Fold(appended, &k, nil); err != nil {
			t.Fatal(err)
		}
	}
	for s := range sources {
		send(s, appended, all[:1])
		send(s, appended-3600*second, all)
	}
	return func(source int, rules []int) { send(source, appended, rules) }, p
}

// However many sums wait for the end of their minute, an event gathers none of them, which would show as memory that it
// takes. That it does not look at each of them either is BenchmarkEventBesideLateSums' to show.
func TestSumsOfLateEventsCostAnEventNothing(t *testing.T) {
	fold, p := manyLate(t, 200)
	one := []int{0}
	if got := testing.AllocsPerRun(200, func() { fold(0, one) }); got > 1 { // the record itself
		t.Errorf("%.0f allocations an event while 1600 sums wait", got)
	}
	if c := p.Counts(); c.Late != 1600 {
		t.Fatalf("%d late events, want 1600: this tests nothing", c.Late)
	}
}

// BenchmarkEventBesideLateSums is what an event costs while sums of late events wait for the end of their minute.
func BenchmarkEventBesideLateSums(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprintf("rules=%d", n), func(b *testing.B) {
			fold, _ := manyLate(b, n)
			one := []int{0}
			for i := 0; b.Loop(); i++ {
				fold(i%8, one)
			}
		})
	}
}

// Brokers' clocks differ: when a partition's leader changes, append times may step back, over the end of a minute too. A
// sum that was sent is not sent again under another id, also when the partition was taken over in between.
func TestAMinuteIsSummedOnce(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		b := newBench(t, 2, rule(0, 10*time.Second, 0))
		b.must(b.event(0, origin+1000*second, "192.0.2.1", 1))
		b.must(b.event(1, origin+1000*second, "192.0.2.1", 1))
		sent := int64(0)
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			b.now += traffic.Time(rapid.Int64Range(-90, 90).Draw(rt, "seconds")) * second
			if rapid.IntRange(0, 3).Draw(rt, "takeover") == 0 {
				p, err := detectors.Restore(b.cfg, b.p.Snapshot(nil))
				if err != nil {
					rt.Fatal(err)
				}
				b.p = p
				b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{rule(0, 10*time.Second, 0)}}))
			}
			b.must(b.event(rapid.IntRange(0, 1).Draw(rt, "source"), origin, "192.0.2.2", 1))
			sent++
		}
		b.end()
		type sum struct {
			source int
			minute traffic.Time
		}
		seen, events := map[sum]bool{}, int64(0)
		for i := range b.hits {
			h := &b.hits[i]
			if h.Kind != detectors.KindLate {
				continue
			}
			if s := (sum{h.Source, h.First}); seen[s] {
				rt.Fatalf("source partition %d has two sums of the minute %v", h.Source, h.First)
			} else {
				seen[s] = true
			}
			events += h.Count
		}
		if events != sent {
			rt.Fatalf("sums of %d events, %d were late", events, sent)
		}
	})
}

// While sources are between two routing versions, a key must live as long as the greater lateness says: a version that
// waits less may not take from another one what it still waits for.
func TestAKeyLivesByTheGreatestLateness(t *testing.T) {
	for _, algorithm := range []rules.Algorithm{"", rules.AlgorithmFixed, rules.AlgorithmSlidingLog} {
		patient, hasty := rule(2, time.Minute, 20*time.Minute), rule(2, time.Minute, 0)
		patient.Algorithm, hasty.Algorithm = algorithm, algorithm
		hasty.Number = 2
		b := newBench(t, 1, patient, hasty)
		start := origin - origin%(60*second)
		b.must(b.event(0, start, "192.0.2.1", 1))
		b.must(b.event(0, start+10*second, "192.0.2.1", 1))
		for i := range 3000 { // and sweeps run
			b.must(b.event(0, start+600*second, fmt.Sprintf("198.51.%d.%d", i/250, i%250), 2))
		}
		b.must(b.event(0, start+20*second, "192.0.2.1", 1))
		if got, want := phases(b.hits), []string{"open ip=192.0.2.1%2F32 1"}; !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q: its third request in a minute, ten minutes late of twenty", algorithm, got, want)
		}
	}
}

// Sums of late events that a build without reasons has written are sent when their minute is over, as if nothing had been.
func TestLateSumsOutliveATakeover(t *testing.T) {
	b := newBench(t, 2, rule(0, 10*time.Second, time.Second))
	b.now = origin - origin%(60*second)
	b.must(b.event(0, origin+100*second, "192.0.2.1", 1))
	b.must(b.event(1, origin+100*second, "192.0.2.1", 1))
	for i := range 5 {
		b.must(b.event(min(i, 1), origin, "192.0.2.2", 1))
	}
	p, err := detectors.Restore(b.cfg, readFile(t, "snapshot-2-sums.bin"))
	if err != nil {
		t.Fatal(err)
	}
	b.now += 60 * second
	b.hits = nil
	tick := b.tick(0, origin+100*second)
	b.must(tick)
	if got, want := phases(b.hits), []string{"late 1", "late 4"}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if hits, err := p.Fold(b.now, &tick, nil); err != nil || !reflect.DeepEqual(hits, b.hits) {
		t.Errorf("%v, got\n%+v\nwant\n%+v", err, hits, b.hits)
	}
}
