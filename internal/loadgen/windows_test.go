package loadgen

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// counting is one way in which a rule may count, over a load that has sources that are over by it and sources that are not.
type counting struct {
	algorithm rules.Algorithm
	kind      rules.CountKind
	above     bool // sliding with a limit above the one at which it is exact
}

func (c counting) String() string {
	return strings.Join(strings.Fields(fmt.Sprintf("%s %s %s", c.algorithm, c.kind, map[bool]string{true: "above"}[c.above])), " ")
}

func everyCounting() []counting {
	var all []counting
	for _, a := range rules.Algorithms() {
		for _, k := range a.Counts() {
			all = append(all, counting{a, k, false})
			if a == rules.AlgorithmSliding && k != rules.CountSum {
				all = append(all, counting{a, k, true})
			}
		}
	}
	return all
}

// orderless reports whether who is over does not depend on the order of events.
func (c counting) orderless() bool {
	switch c.algorithm {
	case rules.AlgorithmFixed, rules.AlgorithmSlidingLog:
		return true
	case rules.AlgorithmSliding:
		return !c.above || c.kind != rules.CountDistinct
	}
	return false
}

// rule counts requests of addresses, or devices of networks, that some of the load's are over.
func (c counting) rule(t testing.TB) rules.Version {
	key, count, limit, window := "ip", "events", 5, "10s"
	switch {
	case c.kind == rules.CountSum:
		count = "{sum: attrs.cost}"
	case c.kind == rules.CountDistinct && c.above:
		key, count, limit, window = "{field: ip, v4: 24, v6: 56}", "{distinct: device}", 140, "20s"
	case c.kind == rules.CountDistinct:
		key, count, limit = "{field: ip, v4: 28, v6: 60}", "{distinct: device}", 6
	case c.above:
		key, limit, window = "{field: ip, v4: 28, v6: 60}", 150, "30s"
	}
	return parseRule(t, fmt.Sprintf("id: tokens\nowner: identity\nmatch: {}\nkey: [%s]\nlimit: %d\nwindow: %s\nlateness: 60s\nalgorithm: %s\ncount: %s\n",
		key, limit, window, c.algorithm, count))
}

// load is one of which some sources are over the rule, and some are not.
func (c counting) load() Settings {
	s := settings(9)
	s.IPv6 = 0.1
	if c.above {
		s.Viewers, s.Rate, s.Zipf = 600, 120, 0
	}
	return s
}

// detected is what the windows themselves find in a load of which each address is on one partition of requests.
func detected(t testing.TB, truth *Truth, v rules.Version, partitions int) []Found {
	t.Helper()
	p := detectors.NewPartition(detectors.Config{Sources: partitions, Generation: 1, Secret: detectors.Secret{9}})
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{v}}))
	offsets, progress := make([]int64, partitions), make([]traffic.Time, partitions)
	for i := range progress {
		progress[i] = traffic.BeforeTime
	}
	var batch []detectors.Record
	now := dawn
	record := func(k detectors.Keyed) {
		now++
		k.Generation, k.Version = 1, 1
		k.Offset, k.Prev = offsets[k.Source], offsets[k.Source]-1
		batch = append(batch, detectors.Record{Appended: now, Keyed: k})
	}
	err := truth.Each(func(e *Event, _ Fate) {
		id := traffic.Identity{IP: e.IP, Device: e.Device, User: e.User, Session: e.Session}
		fields := slices.Clone(v.Key)
		if v.Count.Distinct != nil {
			fields = append(fields, *v.Count.Distinct)
		}
		if _, missing := traffic.MakeSubject(&id, fields); missing > 0 || v.Count.Sum != "" || !v.Match.Reaches(&rules.Target{Method: e.Method, Path: e.Path}) {
			return // ROUTE leaves it out
		}
		h := fnv.New32a()
		_, _ = h.Write(e.IP.AsSlice())
		s := int(h.Sum32()) % partitions
		at := truth.Header.Started.Add(e.Time)
		progress[s] = max(progress[s], at)
		record(detectors.Keyed{Kind: detectors.KeyedEvent, Source: s, Time: at, Progress: progress[s], Rules: []int{0}, Identity: id})
		offsets[s]++
	})
	if err != nil {
		t.Fatal(err)
	}
	for s := range partitions {
		record(detectors.Keyed{Kind: detectors.KeyedTick, Source: s, Time: traffic.EndOfTime})
	}
	_, hits, err := p.FoldAll(batch, nil)
	if err != nil {
		t.Fatal(err)
	}
	var found []Found
	for i := range hits {
		if h := &hits[i]; h.Kind == detectors.KindHit && h.Phase == detectors.PhaseClosed {
			found = append(found, Found{h.Subject, h.First, h.Last, h.Count, true, h.AtLeast})
		}
	}
	return found
}

// Each algorithm, with each way of counting, is judged by the oracle of its own: what the windows find in a load is never
// contradicted, whatever the order of its events, and a history that is wrong in one place is.
func TestEveryWayOfCountingIsJudgedByItsOwnOracle(t *testing.T) {
	for _, c := range everyCounting() {
		t.Run(c.String(), func(t *testing.T) {
			for _, way := range []struct {
				name       string
				disorder   time.Duration
				partitions int
			}{{"in order", 0, 1}, {"spread", 0, 3}, {"shuffled", 20 * time.Second, 1}, {"spread and shuffled", 20 * time.Second, 3}} {
				s := c.load()
				s.Disorder = way.disorder
				v, truth := c.rule(t), truthOf(t, s)
				found := detected(t, truth, v, way.partitions)
				x := expectOne(t, truth, v, way.partitions)
				said := x.Judge(found)
				t.Logf("%s: %s %s %+v", way.name, said.Verdict, said.Reason, said.Comparison)
				switch {
				case c.kind == rules.CountSum:
					if said.Verdict != NotJudged || !strings.Contains(said.Reason, "carries attrs.cost, which it adds up") {
						t.Errorf("%s: %s, %q", way.name, said.Verdict, said.Reason)
					}
				case c.orderless() || way.name == "in order":
					exact := way.name == "in order" && !c.above
					if said.Verdict != Agrees || said.Sources < 1 || said.Found != said.Sources || exact && said.Exact != said.Sources || said.Disordered > 0 {
						t.Errorf("%s: %s %+v", way.name, said.Verdict, said.Comparison)
					}
				case way.name != "spread": // some sources are in order there
					if said.Verdict != NotJudged || !strings.Contains(said.Reason, "depends on the order") || said.Disordered == 0 || said.Unsure == 0 {
						t.Errorf("%s: %s %q %+v", way.name, said.Verdict, said.Reason, said.Comparison)
					}
				case said.Verdict == Differs:
					t.Errorf("%s: %+v", way.name, said.Comparison)
				}
				plantErrors(t, way.name, x, found)
			}
		})
	}
}

// plantErrors makes a right history wrong in one place, in every way, and wants it to be found out.
func plantErrors(t *testing.T, name string, x *Expectation, right []Found) {
	t.Helper()
	differs := func(what string, wrong []Found) {
		t.Helper()
		if v := x.Judge(wrong); v.Verdict != Differs {
			t.Errorf("%s, %s: %s %q %+v", name, what, v.Verdict, v.Reason, v.Comparison)
		}
	}
	differs("a client that the load does not have", append(slices.Clone(right), Found{Subject: "device=load-9-d100000", First: dawn, Last: dawn, Count: 1, Closed: true}))
	innocent := slices.Sorted(func(yield func(string) bool) {
		for subject, j := range x.sources {
			if !j.perhaps && !yield(subject) {
				return
			}
		}
	})
	if len(innocent) > 0 {
		differs("a source that was never over", append(slices.Clone(right), Found{Subject: traffic.Subject(innocent[0]), First: dawn, Last: dawn, Count: 1, Closed: true}))
	} else if x.Fed > 0 && x.Disordered == 0 {
		t.Errorf("%s: the load has no source that is never over", name)
	}
	for i, f := range right {
		j := x.sources[string(f.Subject)]
		if j == nil || !j.perhaps {
			t.Fatalf("%s: %+v", name, f)
		}
		change := func(what string, edit func(*Found)) {
			t.Helper()
			wrong := slices.Clone(right)
			edit(&wrong[i])
			differs(what, wrong)
		}
		change("a count beyond all events", func(f *Found) { f.Count += 1 << 20 })
		if !f.AtLeast { // else its times are bounds
			change("a beginning before the load's", func(f *Found) { f.First = x.earliest })
		}
		if len(j.must) > 0 {
			differs("a source that is not found", slices.DeleteFunc(slices.Clone(right), func(o Found) bool { return o.Subject == f.Subject }))
		}
		if j.exact {
			change("one event less", func(f *Found) { f.Count-- })
			change("a later beginning", func(f *Found) { f.First++ })
			change("an end that is later", func(f *Found) { f.Last++ })
		}
		if t.Failed() {
			return
		}
	}
}

// Sets of more values than they hold exactly are estimates: a right history agrees, and one that accuses the innocent does not.
func TestManyValuesAreJudgedByTheirBounds(t *testing.T) {
	s := settings(9)
	s.IPv6, s.Viewers, s.Rate, s.Zipf, s.Duration = 0.02, 3000, 300, 0, 30*time.Second
	truth := truthOf(t, s)
	for _, algorithm := range []rules.Algorithm{rules.AlgorithmSliding, rules.AlgorithmFixed, rules.AlgorithmFirstSeen, rules.AlgorithmLeakyBucket} {
		for _, limit := range []int{100, 300} {
			v := parseRule(t, fmt.Sprintf("id: tokens\nowner: identity\nmatch: {}\nkey: [{field: ip, v4: 20, v6: 52}]\nlimit: %d\nwindow: 10s\n"+
				"algorithm: %s\ncount: {distinct: device}\n", limit, algorithm))
			x := expectOne(t, truth, v, 1)
			found := detected(t, truth, v, 1)
			said := x.Judge(found)
			t.Logf("%s, limit %d: %s %+v", algorithm, limit, said.Verdict, said.Comparison)
			if said.Verdict == Differs || (said.Verdict == Agrees) != (said.Sources > 0) || len(found) < 1 || limit > exactLimit && said.Exact > 0 && said.Sources > 0 {
				t.Errorf("%s, limit %d: %s %+v", algorithm, limit, said.Verdict, said.Comparison)
			}
			plantErrors(t, string(algorithm), x, found)
		}
	}
}

// Windows that an earlier version of the rule has left may be counted as that version said.
func TestEarlierLimitsOfALineageLoosenTheJudgement(t *testing.T) {
	v, truth := counting{rules.AlgorithmSliding, rules.CountEvents, false}.rule(t), truthOf(t, settings(9))
	identities := traffic.DefaultIdentityMap()
	for _, tc := range []struct {
		limits []int
		exact  bool
	}{{nil, true}, {[]int{4, 6}, true}, {[]int{4, exactLimit + 1}, false}} {
		all, err := truth.Expect([]Rule{{Version: v, Limits: tc.limits}}, &identities, 1)
		if err != nil {
			t.Fatal(err)
		}
		said := all[0].Judge(detected(t, truth, v, 1))
		if said.Verdict != Agrees || said.Sources < 1 || (said.Exact > 0) != tc.exact {
			t.Errorf("after limits %v: %s %+v", tc.limits, said.Verdict, said.Comparison)
		}
	}
}

// What the oracle cannot say anything of is not judged, and is told why.
func TestWhatIsNotJudgedSaysWhy(t *testing.T) {
	truth := truthOf(t, settings(9))
	unknown := counting{rules.AlgorithmSliding, rules.CountEvents, false}.rule(t)
	unknown.Algorithm = "tiers"
	with := func(change func(*rules.Version)) rules.Version {
		v := counting{rules.AlgorithmSliding, rules.CountEvents, false}.rule(t)
		change(&v)
		return v
	}
	for _, tc := range []struct {
		rule rules.Version
		want string
	}{
		{unknown, "there is no oracle for algorithm tiers"},
		{with(func(v *rules.Version) { v.Match.Hosts = []string{"api.test"} }), "there is no oracle for a match by more than method and path"},
		{with(func(v *rules.Version) { v.Match.When = "event.status == 401" }), "there is no oracle for conditions"},
		{with(func(v *rules.Version) { v.Tiers = []rules.Tier{{When: "event.status == 401", Limit: 9}} }), "there is no oracle for conditions"},
		{with(func(v *rules.Version) { v.Allow = []string{"office"} }), "there is no oracle for allow lists"},
		{parseRule(t, "id: a\nowner: b\nmatch: {path: /elsewhere}\nkey: [ip]\nlimit: 3\nwindow: 10s\n"), "it counts no event of the load"},
		{parseRule(t, "id: a\nowner: b\nmatch: {}\nkey: []\nlimit: 3\nwindow: 10s\n"), "its key does not tell the load from other traffic"},
		{parseRule(t, "id: a\nowner: b\nmatch: {}\nkey: [ip]\nlimit: 3\nwindow: 10s\nalgorithm: fixed\ncount: {distinct: api_key}\n"), "no event of the load carries the api_key that it counts"},
	} {
		x := expectOne(t, truth, tc.rule, 1)
		if said := x.Judge(nil); said.Verdict != NotJudged || said.Reason != tc.want {
			t.Errorf("%s: %s %q, want %q", tc.rule.ID, said.Verdict, said.Reason, tc.want)
		}
	}
}

// A rule that blocks by more than its key has a hit for each block of an episode.
func TestHitsOfOneEpisodeAreJoined(t *testing.T) {
	v := counting{rules.AlgorithmFixed, rules.CountEvents, false}.rule(t)
	v.Block = &rules.Block{Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}, {Field: traffic.FieldDevice}}}
	truth := truthOf(t, settings(9))
	x := expectOne(t, truth, v, 1)
	right := x.asFound()
	other := right[0]
	other.Count--
	other.Last--
	if said := x.Judge(append(slices.Clone(right), other)); said.Verdict != Agrees || said.Sources < 1 {
		t.Errorf("a hit of another block: %s %+v", said.Verdict, said.Comparison)
	}
	v.Block.Key = v.Block.Key[:1]
	x = expectOne(t, truth, v, 1)
	if said := x.Judge(append(slices.Clone(right), other)); said.Verdict != Differs {
		t.Errorf("an episode twice: %s %+v", said.Verdict, said.Comparison)
	}
}
