package order

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// noon is when the stories begin: the start of a minute.
const noon = origin - origin%hour

// visit is an event of a story, of one source; value is whom it says to be where users are counted.
type visit struct {
	source int
	at     traffic.Time
	value  string
}

// everySecond is n visits, a second apart from the second at first on.
func everySecond(first traffic.Time, n int) []visit {
	var out []visit
	for i := range n {
		out = append(out, visit{at: noon + (first+traffic.Time(i))*second, value: fmt.Sprint("u", i)})
	}
	return out
}

// orders are as told, in order, newest first, and shuffled six times.
func orders(visits []visit) map[string][]visit {
	sorted := slices.SortedStableFunc(slices.Values(visits), func(a, b visit) int { return cmp.Compare(a.at, b.at) })
	newest := slices.Clone(sorted)
	slices.Reverse(newest)
	out := map[string][]visit{"as told": visits, "in order": sorted, "newest first": newest}
	for seed := range uint64(6) {
		shuffled := slices.Clone(sorted)
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		out[fmt.Sprint("shuffle ", seed)] = shuffled
	}
	return out
}

// tell folds the visits of one address, and gives its hits at their end.
func tell(t *testing.T, d rules.Document, sources int, visits []visit) []detectors.Hit {
	t.Helper()
	p := detectors.NewPartition(detectors.Config{Sources: sources, Generation: 1, Secret: detectors.Secret{9}})
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{{Document: d, Number: 1, Lineage: 1}}}))
	next, progress, now := make([]int64, sources), make([]traffic.Time, sources), noon
	for s := range progress {
		progress[s] = traffic.BeforeTime
	}
	var hits []detectors.Hit
	fold := func(k detectors.Keyed) {
		now += 1000
		k.Generation, k.Offset, k.Prev = 1, next[k.Source], next[k.Source]-1
		var err error
		if hits, err = p.Fold(now, &k, hits); err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range visits {
		progress[v.source] = max(progress[v.source], v.at)
		fold(detectors.Keyed{
			Kind: detectors.KeyedEvent, Source: v.source, Time: v.at, Progress: progress[v.source], Version: 1, Rules: []int{0},
			Identity: traffic.Identity{IP: address(0), Device: v.value},
		})
		next[v.source]++
	}
	for s := range sources {
		fold(detectors.Keyed{Kind: detectors.KeyedTick, Source: s, Time: traffic.EndOfTime})
	}
	if c := p.Counts(); c.Late != 0 {
		t.Fatalf("%d of %d events are late: the story is not told as it was meant", c.Late, len(visits))
	}
	return slices.DeleteFunc(hits, func(h detectors.Hit) bool { return h.Phase != detectors.PhaseClosed })
}

// A hundred requests of 12:00:40-49, and then a hundred of 12:00:00-09, are no 150 in ten seconds.
func TestTwoBurstsThatComeInTheWrongOrder(t *testing.T) {
	var visits []visit
	for _, start := range []traffic.Time{40, 0} {
		for i := range 100 {
			visits = append(visits, visit{at: noon + start*second + traffic.Time(i)*second/10, value: fmt.Sprint("u", start, " ", i)})
		}
	}
	for _, a := range rules.Algorithms() {
		for _, c := range a.Counts() {
			t.Run(fmt.Sprint(a, " ", c), func(t *testing.T) {
				for name, order := range orders(visits) {
					if hits := tell(t, way{algorithm: a, count: c}.document(150, 10*second, minute), 1, order); len(hits) > 0 {
						t.Errorf("%s: %d hits, the first of %d events from %d to %d s", name, len(hits), hits[0].Count,
							(hits[0].First-noon)/second, (hits[0].Last-noon)/second)
					}
				}
			})
		}
	}
}

const backlogSources = 8

// backlog is what so many requests a second for six and a half minutes are after an outage: spread over eight source
// partitions that are caught up one after the other. Who sent them goes on for a minute meanwhile.
func backlog(rate int) []visit {
	var visits []visit
	for s := range backlogSources {
		for i := range 390 * rate {
			if i%backlogSources == s {
				visits = append(visits, visit{source: s, at: noon + traffic.Time(i)*second/traffic.Time(rate), value: fmt.Sprint("u", i)})
			}
		}
	}
	for i := 390 * rate; i < 450*rate; i++ {
		visits = append(visits, visit{source: i % backlogSources, at: noon + traffic.Time(i)*second/traffic.Time(rate), value: fmt.Sprint("u", i)})
	}
	return visits
}

// eachBacklogRule runs a test for every way of counting and the limits on both sides of where `sliding` keeps no log.
func eachBacklogRule(t *testing.T, test func(t *testing.T, w way, limit int)) {
	t.Helper()
	for _, a := range rules.Algorithms() {
		for _, c := range a.Counts() {
			for _, limit := range []int{100, 128, 129, 150} {
				t.Run(fmt.Sprint(a, " ", c, " ", limit), func(t *testing.T) {
					test(t, way{a, c, a == rules.AlgorithmSliding && limit > rules.SlidingExact}, limit)
				})
			}
		}
	}
}

// One request a second is sixty a minute, however late and in whatever order it is read.
func TestABacklogIsNoBurst(t *testing.T) {
	visits := backlog(1)
	eachBacklogRule(t, func(t *testing.T, w way, limit int) {
		if hits := tell(t, w.document(limit, minute, minute), backlogSources, visits); len(hits) > 0 {
			t.Errorf("%d hits, the first of %d events with peak %d", len(hits), hits[0].Count, hits[0].Peak)
		}
	})
}

// Three a second are 180 a minute, also in a backlog: who counts in any order sees it.
func TestABacklogHidesNoBurst(t *testing.T) {
	visits := backlog(3)
	eachBacklogRule(t, func(t *testing.T, w way, limit int) {
		if !w.orderFree() && (!w.above || w.distinct()) {
			return
		}
		if hits := tell(t, w.document(limit, minute, minute), backlogSources, visits); len(hits) != 1 {
			t.Errorf("%d hits, want 1", len(hits))
		}
	})
}

// A value that comes first with its newest time is still one of those of the time where the others lie.
func TestAValueThatComesLateIsPutInItsPlace(t *testing.T) {
	visits := []visit{{at: noon + 30*second, value: "z"}}
	for i, v := range everySecond(0, 6) {
		v.value = fmt.Sprint("u", i)
		visits = append(visits, v)
	}
	for name, order := range orders(visits) {
		hits := tell(t, way{algorithm: rules.AlgorithmSliding, count: rules.CountDistinct}.document(3, 10*second, minute), 1, order)
		if len(hits) != 1 || hits[0].First < noon+3*second || hits[0].Last > noon+5*second {
			t.Errorf("%s: %d hits %v, want one from 12:00:03 to :05", name, len(hits), hits)
		}
	}
}

// Twenty requests a second apart, limit 3 in a minute: the fourth was the first over, in every order, and seventeen were.
func TestTheSameEvidenceInEveryOrder(t *testing.T) {
	for _, a := range []rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmSlidingLog} {
		for name, order := range orders(everySecond(0, 20)) {
			hits := tell(t, way{algorithm: a, count: rules.CountEvents}.document(3, minute, minute), 1, order)
			if len(hits) != 1 {
				t.Errorf("%s, %s: %d hits", a, name, len(hits))
				continue
			}
			if h := hits[0]; h.First != noon+3*second || h.Last != noon+19*second || h.Count != 17 || atLeast(&h) {
				t.Errorf("%s, %s: %d events from :%02d to :%02d, want 17 from :03 to :19", a, name, h.Count, (h.First-noon)/second, (h.Last-noon)/second)
			}
		}
	}
}

// burst is n visits that one source partition has, so long apart.
func burst(source, n int, from, every traffic.Time) (out []visit) {
	for i := range n {
		out = append(out, visit{source: source, at: noon + from + traffic.Time(i)*every})
	}
	return out
}

// A burst of which the rest comes after the next burst may be missed, since of an attack that is known no more is kept
// than it takes to judge what comes after. The hit of that attack then says that there was more. Limit 20 in 5 s.
func TestABurstThatComesAfterTheNextOne(t *testing.T) {
	d := way{algorithm: rules.AlgorithmSlidingLog, count: rules.CountEvents}.document(20, 5*second, 5*second)
	half := burst(0, 20, 0, second/5) // with the other half, 40 in 4 s
	rest := burst(1, 20, second/10, second/5)
	tests := []struct {
		name  string
		parts [][]visit
		want  int
	}{
		{"64 are kept", [][]visit{half, burst(0, 44, 18*second, second/10), rest}, 2},
		{"of 65 the newest 32 are", [][]visit{half, burst(0, 45, 18*second, second/10), rest}, 1},
		{"what was before both counts among them", [][]visit{
			burst(0, 30, -60*second, second), half, burst(0, 30, 18*second, second/10), burst(1, 9, second/10,
				second/5),
		}, 1},
		{"one that lies behind what is not kept", [][]visit{
			burst(0, 34, 0, second/4), burst(0, 31, 18*second, second/10), burst(1, 1, 8*second+second/10, second),
		}, 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			visits := slices.Concat(test.parts...)
			hits := tell(t, d, 2, visits)
			if len(hits) != test.want || anyBound(hits) != (test.want == 1) {
				t.Errorf("%d episodes, of which the last says %+v; want %d", len(hits), hits[len(hits)-1], test.want)
			}
			if hits := tell(t, d, 2, orders(visits)["in order"]); len(hits) != 2 || atLeast(&hits[0]) ||
				atLeast(&hits[1]) {
				t.Errorf("in order: %d episodes, want 2 of which all was seen", len(hits))
			}
		})
	}
}
