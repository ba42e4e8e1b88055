package detectors_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// besideAll gives every rule of m all that can stand beside its limit, and every third one a pending version.
func (m *many) besideAll(until traffic.Time) {
	var out []rules.Version
	for i, v := range m.rules {
		v.Candidate = &rules.Candidate{Limit: v.Limit + 2}
		v.Raised = &rules.Raise{Limit: v.Limit + 3, Until: until}
		if v.Algorithm != rules.AlgorithmTokenBucket && v.Algorithm != rules.AlgorithmLeakyBucket {
			v.Near = 60
			v.Tiers = []rules.Tier{{When: "true", Limit: v.Limit + 5}, {When: "true", Limit: 0}}
		}
		if out = append(out, v); i%3 == 0 {
			next := v
			next.Pending, next.Raised, next.Number, next.Lineage, next.Limit = true, nil, v.Number+1, v.Lineage+1, v.Limit+1
			out = append(out, next)
		}
	}
	m.rules = out
	m.learn(m.p)
}

// everyBeside is everyAlgorithm with all that can stand beside a limit.
func everyBeside(t testing.TB) *many {
	m := newMany(t, 2, 0, everyRule(2, 10*time.Second, 40*time.Second))
	m.besideAll(origin + 20*second)
	for i := range 700 {
		at := origin + traffic.Time(i)*second/20
		if i%9 == 8 {
			at -= 25 * second
		}
		m.send(i%2, at, fmt.Sprintf("192.0.2.%d", 1+i%13), fmt.Sprintf("d%d", i/2), int64(1+i%4))
	}
	return m
}

// tiered is a rule on trial: limits by tier, one raised for a time, a share that warns and a candidate.
type tiered struct {
	limit     int
	tiers     []int
	raised    int
	until     traffic.Time
	near      int
	candidate int
	window    time.Duration
	lateness  time.Duration
}

// drawTiered draws evenly, where rapid prefers what is small: logs must be trimmed between events of great limits.
func drawTiered(rt *rapid.T) tiered {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "world"), 1))
	w := tiered{
		limit: 2 + rnd.IntN(8), raised: rnd.IntN(51), until: origin + traffic.Time(rnd.IntN(60))*second,
		near: 51 + rnd.IntN(49), candidate: rnd.IntN(13),
		window: time.Duration(2+rnd.IntN(39)) * time.Second, lateness: time.Duration(rnd.IntN(61)) * time.Second,
	}
	for range rnd.IntN(4) {
		w.tiers = append(w.tiers, rnd.IntN(61))
	}
	return w
}

func (w tiered) version() rules.Version {
	v := rule(w.limit, w.window, w.lateness)
	v.Near, v.Candidate = w.near, &rules.Candidate{Limit: w.candidate}
	for _, limit := range w.tiers {
		v.Tiers = append(v.Tiers, rules.Tier{When: "true", Limit: limit})
	}
	if w.raised > w.limit {
		v.Raised = &rules.Raise{Limit: w.raised, Until: w.until}
	}
	return v
}

// limitOf says by which limit an event is judged, for hits of a kind.
func (w tiered) limitOf(kind detectors.Kind, at traffic.Time, tier int) int {
	limits := append([]int{w.limit}, w.tiers...)
	if kind == detectors.KindCandidate {
		limits[0] = w.candidate
	}
	limit := limits[tier]
	if at < w.until && w.raised > w.limit {
		limit = max(limit, w.raised)
	}
	if kind == detectors.KindNear {
		reaches := (limit*w.near + 99) / 100
		return max(reaches, 2) - 1
	}
	return limit
}

type tieredEvent struct {
	at   traffic.Time
	tier int
	ip   string
}

// draw makes a log: runs of a source, long enough that logs are trimmed between events of other tiers.
func (w tiered) draw(rt *rapid.T, disorder bool) []tieredEvent {
	rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "log"), 1))
	tier, now, ip := 0, origin, 0
	pace, run := traffic.Time([]int{10, 50, 100}[rnd.IntN(3)]), []int{3, 12, 90}[rnd.IntN(3)]
	out := make([]tieredEvent, rnd.IntN(600))
	for i := range out {
		if rnd.IntN(run) == 0 {
			tier, ip = rnd.IntN(len(w.tiers)+1), rnd.IntN(2)
		}
		now += traffic.Time([]int{1, 1, 1, 2, 10, 60}[rnd.IntN(6)])*second/pace + 1
		at := now
		if disorder {
			at -= traffic.Time([]int{0, 0, 0, 1, 8, 30}[rnd.IntN(6)]) * second
		}
		out[i] = tieredEvent{at: at, tier: tier, ip: fmt.Sprintf("192.0.2.%d", ip)}
	}
	return out
}

// play folds a log and gives, for each source, what was on time.
func (w tiered) play(b *bench, events []tieredEvent, rnd *rand.Rand) map[string][]tieredEvent {
	onTime := map[string][]tieredEvent{}
	for i, e := range events {
		k := b.event(rnd.IntN(len(b.next)), e.at, e.ip, 1)
		k.Tiers = []int{e.tier}
		late := b.p.Counts().Late
		b.must(k)
		if b.p.Counts().Late == late {
			onTime[e.ip] = append(onTime[e.ip], e)
		}
		if i%9 == 8 {
			s := rnd.IntN(len(b.next))
			b.must(b.tick(s, b.top[s]))
		}
	}
	b.end()
	return onTime
}

func episodeKinds() []detectors.Kind {
	return []detectors.Kind{detectors.KindHit, detectors.KindNear, detectors.KindCandidate}
}

func ofKind(hits []detectors.Hit, kind detectors.Kind) (out []detectors.Hit) {
	for i := range hits {
		if hits[i].Kind == kind {
			out = append(out, hits[i])
		}
	}
	return out
}

func (w tiered) truth(kind detectors.Kind, events []tieredEvent) []oracle.Episode {
	var log []oracle.Event
	for i, e := range events {
		log = append(log, oracle.Event{Time: int64(e.at), Offset: int64(i), Limit: w.limitOf(kind, e.at, e.tier)})
	}
	return oracle.Sliding(log, w.window.Microseconds(), detectors.MaxEpisode.Microseconds())
}

// In order, the episodes of each kind are exactly those of its own limits: of tiers, of a raise until its end, however many
// events of lower tiers have been over and trimmed between.
func TestLimitsBesideEachOtherAreExactInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawTiered(rt)
		b := newBench(t, 1, w.version())
		onTime := w.play(b, w.draw(rt, false), rand.New(rand.NewPCG(1, 1)))
		for _, kind := range episodeKinds() {
			got := closings(ofKind(b.hits, kind))
			for ip, events := range onTime {
				var want []span
				for _, e := range w.truth(kind, events) {
					want = append(want, span{traffic.Time(e.First), traffic.Time(e.Last), e.Count})
				}
				if !slices.Equal(got[subjectOf(ip)], want) {
					rt.Fatalf("%s of %s\n got %v\nwant %v", kind, ip, got[subjectOf(ip)], want)
				}
			}
		}
	})
}

// Out of order, the same sources are found, of each kind.
func TestLimitsBesideEachOtherInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawTiered(rt)
		b := newBench(t, 2, w.version())
		onTime := w.play(b, w.draw(rt, true), rand.New(rand.NewPCG(2, 1)))
		for _, kind := range episodeKinds() {
			got := closings(ofKind(b.hits, kind))
			for ip, events := range onTime {
				want := w.truth(kind, events)
				if (len(got[subjectOf(ip)]) > 0) != (len(want) > 0) {
					rt.Fatalf("%s of %s: got %v, the oracle %v", kind, ip, got[subjectOf(ip)], want)
				}
			}
		}
	})
}

// With a budget that is spent, nobody is told of who was not over by his own limits, whatever is forgotten.
func TestLimitsBesideEachOtherUnderEviction(t *testing.T) {
	evicted := int64(0)
	rapid.Check(t, func(rt *rapid.T) {
		w := drawTiered(rt)
		b := newBench(t, 2)
		b.cfg.Budget = rapid.SampledFrom([]int64{300, 1 << 10, 2 << 10}).Draw(rt, "budget")
		b.p = detectors.NewPartition(b.cfg)
		b.p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{w.version()}}))
		onTime := w.play(b, w.draw(rt, true), rand.New(rand.NewPCG(3, 1)))
		for _, n := range b.p.Counts().Evicted {
			evicted += n
		}
		for _, kind := range episodeKinds() {
			got := closings(ofKind(b.hits, kind))
			for ip, events := range onTime {
				if len(got[subjectOf(ip)]) > 0 && len(w.truth(kind, events)) == 0 {
					rt.Fatalf("%s of %s: got %v, the oracle nothing", kind, ip, got[subjectOf(ip)])
				}
			}
		}
	})
	if evicted == 0 {
		t.Error("nothing was evicted")
	}
}

// Whatever the algorithm and the order, what is told of a source has an event of it, less than a window away, that is over by the
// limits of its tiers, as the algorithm is defined over the events in order of time.
func TestTiersAreSoundWithEveryAlgorithm(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawTiered(rt)
		v := w.version()
		v.Algorithm = rapid.SampledFrom([]rules.Algorithm{rules.AlgorithmFixed, rules.AlgorithmFirstSeen, rules.AlgorithmSlidingCounter,
			rules.AlgorithmSlidingLog, rules.AlgorithmSliding}).Draw(rt, "algorithm")
		if v.Algorithm == rules.AlgorithmSliding && rapid.Bool().Draw(rt, "slices") {
			v.Tiers = append(v.Tiers, rules.Tier{When: "true", Limit: 1000}) // no event has it
		}
		b := newBench(t, 2, v)
		onTime := w.play(b, w.draw(rt, true), rand.New(rand.NewPCG(4, 1)))
		for _, kind := range episodeKinds() {
			got := closings(ofKind(b.hits, kind))
			for ip, events := range onTime {
				var steps []oracle.Step
				for _, e := range events {
					steps = append(steps, oracle.Step{Time: int64(e.at), Units: 1, Limit: int64(w.limitOf(kind, e.at, e.tier))})
				}
				d := oracle.Definition{Algorithm: string(v.Algorithm), Window: w.window.Microseconds()}
				judged := d.Judge(steps)
				for _, ep := range got[subjectOf(ip)] {
					if !slices.ContainsFunc(judged, func(j oracle.Judged) bool {
						return j.Over && j.Time > int64(ep.first)-d.Window && j.Time < int64(ep.last)+d.Window
					}) {
						rt.Fatalf("%s, %s of %s: got %v, the definition nothing there", v.Algorithm, kind, ip, ep)
					}
				}
			}
		}
	})
}

// What a candidate finds is what a rule of its own with that limit finds, with every algorithm, in any order: so its hits say
// what a promotion would bring. And beside a candidate, the rule finds what it finds without one.
func TestCandidateIsARuleOfItsOwn(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		alone := drawMany(t, rt, 0)
		beside := newMany(t, len(alone.next), 0, slices.Clone(alone.rules))
		other := newMany(t, len(alone.next), 0, slices.Clone(alone.rules))
		limit := rapid.IntRange(0, 5).Draw(rt, "candidate")
		for i := range alone.rules {
			v := alone.rules[i]
			v.Candidate, v.Near, v.Tiers, v.Raised, v.Pending = nil, 0, nil, nil, false
			if v.Burst == v.Limit { // the same as none
				v.Burst = 0
			}
			alone.rules[i], beside.rules[i], other.rules[i] = v, v, v
			beside.rules[i].Candidate = &rules.Candidate{Limit: limit}
			other.rules[i].Limit = limit
		}
		var hits [3][]detectors.Hit
		for i, m := range []*many{alone, beside, other} {
			p := detectors.NewPartition(m.cfg)
			m.learn(p)
			for _, l := range alone.log {
				l.keyed.Tiers = nil
				var err error
				if hits[i], err = p.Fold(l.appended, &l.keyed, hits[i]); err != nil {
					rt.Fatal(err)
				}
			}
		}
		plain := func(hits []detectors.Hit, kind detectors.Kind) (out []string) {
			for _, h := range ofKind(hits, kind) {
				h.ID, h.Kind, h.IntoID = "", "", ""
				out = append(out, fmt.Sprintf("%+v", h))
			}
			slices.SortStableFunc(out, cmp.Compare)
			return out
		}
		same := func(what string, got, want []string) {
			for i := range max(len(got), len(want)) {
				if i >= len(got) || i >= len(want) || got[i] != want[i] {
					rt.Fatalf("%s: %d hits, want %d, from the %d-th on\n got %v\nwant %v", what, len(got), len(want), i, got[min(i, len(got)):min(i+1, len(got))], want[min(i, len(want)):min(i+1, len(want))])
				}
			}
		}
		same("the rule with a candidate", plain(hits[1], detectors.KindHit), plain(hits[0], detectors.KindHit))
		same(fmt.Sprint("candidate ", limit), plain(hits[1], detectors.KindCandidate), plain(hits[2], detectors.KindHit))
		ids := map[string]detectors.Kind{}
		for _, h := range hits[1] {
			if known, ok := ids[h.ID]; ok && known != h.Kind {
				rt.Fatalf("id %s is of %s and of %s", h.ID, known, h.Kind)
			}
			ids[h.ID] = h.Kind
		}
	})
}
