package loadgen

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestWatchesAsRulesDo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segment := rapid.SampledFrom([]string{"a", "b", "ab", "a.b", ".b", "{x}", "{x}y", "*"})
		join := func(what string) (s string) {
			for _, part := range rapid.SliceOfN(segment, 0, 4).Draw(t, what) {
				s += "/" + part
			}
			return s
		}
		m := rules.Match{Path: join("pattern") + rapid.SampledFrom([]string{"", "", "/", "*", "/a*", "/*.b"}).Draw(t, "end")}
		m.Methods = rapid.SliceOfN(rapid.SampledFrom([]string{"GET", "POST"}), 0, 2).Draw(t, "methods")
		d := rules.Document{ID: "a", Owner: "b", Match: m, Key: []traffic.KeyField{{Field: traffic.FieldUser}}, Window: time.Minute,
			Missing: rules.MissingSkip, MaxLag: time.Minute}
		if d.Validate(rules.Environment{Identity: traffic.DefaultIdentityMap()}) != nil {
			t.Skip("no rule has this match")
		}
		c := Call{Method: rapid.SampledFrom([]string{"GET", "POST", "get"}).Draw(t, "method"), Path: join("path") + rapid.SampledFrom([]string{"", "", "/"}).Draw(t, "slash")}
		if got, want := watches(&m, &c), m.Reaches(&rules.Target{Method: c.Method, Path: c.Path}); got != want {
			t.Fatalf("%+v of %+v: %v, rules say %v", c, m, got, want)
		}
	})
}

func TestSourcesAsHistoryWritesThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		fields := rapid.Permutation([]traffic.Field{traffic.FieldIP, traffic.FieldDevice, traffic.FieldUser, traffic.FieldAPIKey, traffic.FieldSession}).Draw(t, "fields")
		v := &rules.Version{Document: rules.Document{Missing: rapid.SampledFrom([]rules.OnMissing{rules.MissingSkip, rules.MissingGroup}).Draw(t, "missing")}}
		for _, f := range fields[:rapid.IntRange(0, 5).Draw(t, "number of fields")] {
			k := traffic.KeyField{Field: f}
			if f == traffic.FieldIP {
				k.V4, k.V6 = uint8(rapid.IntRange(1, 32).Draw(t, "v4")), uint8(rapid.IntRange(1, 128).Draw(t, "v6"))
			}
			v.Key = append(v.Key, k)
		}
		identities := traffic.DefaultIdentityMap()
		if rapid.Bool().Draw(t, "no source of devices") {
			identities.Device = traffic.FieldSource{}
		}
		for _, e := range allEvents(s) {
			id := traffic.Identity{IP: e.IP, Device: e.Device, User: e.User, Session: e.Session}
			if !identities.Carries(traffic.FieldDevice) {
				id.Device = ""
			}
			subject, missing := traffic.MakeSubject(&id, v.Key)
			got := sourceOf(v, &e, &identities)
			if fed := missing == 0 || v.Missing == rules.MissingGroup; got.fed != fed || fed && got.subject != string(subject) {
				t.Fatalf("%+v of %+v, want %s with %d missing", got, e, subject, missing)
			}
		}
	})
}

const tokenRule = `
id: tokens
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [%s]
limit: %d
window: 10s
lateness: %s
`

// asFound is what a history that is right holds.
func (x *Expectation) asFound() []Found {
	var all []Found
	for subject, j := range x.sources {
		for _, e := range j.must {
			all = append(all, Found{Subject: traffic.Subject(subject), First: traffic.Time(e.First), Last: traffic.Time(e.Last), Count: e.Count, Closed: true})
		}
	}
	slices.SortFunc(all, func(a, b Found) int { return int(a.First - b.First) })
	return all
}

func expectOne(t testing.TB, truth *Truth, v rules.Version, partitions int) *Expectation {
	t.Helper()
	identities := traffic.DefaultIdentityMap()
	all, err := truth.Expect([]Rule{{Version: v}}, &identities, partitions)
	if err != nil {
		t.Fatal(err)
	}
	return all[0]
}

// Whatever the load: a history that is right agrees, and one that is wrong in one place does not.
func TestCompareFindsEveryDifference(t *testing.T) {
	others := []Found{
		{"ip=203.0.113.7%2F32", dawn, dawn.Add(time.Second), 9, true, false},
		{"device=load-7-d1", dawn, dawn.Add(time.Second), 9, true, false},
		{"", dawn, dawn.Add(time.Second), 9, true, false},
	}
	compared := 0
	rapid.Check(t, func(rt *rapid.T) {
		s := drawSettings(rt)
		s.Seed = 0xabc
		v := parseRule(t, fmt.Sprintf(tokenRule, rapid.SampledFrom([]string{"ip", "device", "user, ip"}).Draw(rt, "key"),
			rapid.IntRange(0, 6).Draw(rt, "limit"), "30s"))
		x := expectOne(t, truthOf(t, s), v, 1)
		right := append(x.asFound(), others...)
		if c := x.Compare(right); !c.Agrees() || c.Found != c.Sources || c.Equal != c.Exact || c.Unsure > 0 {
			rt.Fatalf("what is right differs: %+v", c)
		}
		mine := len(right) - len(others)
		if mine == 0 {
			return
		}
		compared++
		i := rapid.IntRange(0, mine-1).Draw(rt, "which")
		exact := x.sources[string(right[i].Subject)].exact
		change := func(what string, f func(*Found)) {
			wrong := slices.Clone(right)
			f(&wrong[i])
			if c := x.Compare(wrong); c.Agrees() {
				rt.Fatalf("%s of %+v is not found (exact: %v): %+v", what, right[i], exact, c)
			}
		}
		change("an episode before its time", func(f *Found) { f.First = x.earliest })
		change("an invented count", func(f *Found) { f.Count += 1 << 20 })
		change("another client", func(f *Found) { f.Subject = traffic.Subject("device=load-abc-d100000") })
		if exact {
			change("one event more", func(f *Found) { f.Count++ })
			change("one event less", func(f *Found) { f.Count-- })
			change("a later beginning", func(f *Found) { f.First++ })
			change("an earlier end", func(f *Found) { f.Last-- })
			if c := x.Compare(slices.Delete(slices.Clone(right), i, i+1)); c.Agrees() {
				rt.Fatalf("without %+v: %+v", right[i], c)
			}
		}
		gone := slices.DeleteFunc(slices.Clone(right), func(f Found) bool { return f.Subject == right[i].Subject })
		if c := x.Compare(gone); c.Missing != 1 || c.Agrees() {
			rt.Fatalf("without %s: %+v", right[i].Subject, c)
		}
		for subject, j := range x.sources {
			if !j.perhaps {
				if c := x.Compare(append(right, Found{Subject: traffic.Subject(subject), First: dawn, Last: dawn, Count: 1, Closed: true})); c.Extra != 1 || c.Agrees() {
					rt.Fatalf("with %s, which was never over: %+v", subject, c)
				}
				break
			}
		}
	})
	if compared == 0 {
		t.Error("no load had a source over the limit")
	}
}

func TestOpenEpisodesMayBeBehind(t *testing.T) {
	x := expectOne(t, truthOf(t, settings(9)), parseRule(t, fmt.Sprintf(tokenRule, "ip", 5, "60s")), 4)
	right := x.asFound()
	last := len(right) - 1
	right[last].Closed = false
	right[last].Count--
	right[last].Last--
	if c := x.Compare(right); !c.Agrees() || c.Open != 1 {
		t.Errorf("an open episode that is behind: %+v", c)
	}
	right[last].Count += 2
	if c := x.Compare(right); c.Agrees() {
		t.Errorf("an open episode with more events than there were: %+v", c)
	}
}

func TestEpisodesFromBeforeTheLoadAreNotJudged(t *testing.T) {
	x := expectOne(t, truthOf(t, settings(9)), parseRule(t, fmt.Sprintf(tokenRule, "ip", 5, "60s")), 4)
	right := x.asFound()
	all := x.Compare(right).Sources
	right[0].First = x.earliest - 1
	if c := x.Compare(right); !c.Agrees() || c.Before != 1 || c.Sources != all-1 {
		t.Errorf("%+v", c)
	}
}

// A load in order, of which each address is on one partition, is exact but for keys that span addresses.
func TestWhatIsExact(t *testing.T) {
	for _, tc := range []struct {
		key        string
		disorder   time.Duration
		partitions int
		inexact    bool
	}{
		{"device", 0, 1, false}, {"device", 0, 3, true}, {"{field: ip, v6: 128}", 0, 3, false}, {"device", time.Second, 1, true},
	} {
		s := settings(9)
		s.Disorder = tc.disorder
		c := Comparison{}
		if x := expectOne(t, truthOf(t, s), parseRule(t, fmt.Sprintf(tokenRule, tc.key, 3, "60s")), tc.partitions); x != nil {
			c = x.Compare(x.asFound())
		}
		if c.Sources == 0 || (c.Exact < c.Sources) != tc.inexact {
			t.Errorf("%+v: %d of %d sources are exact", tc, c.Exact, c.Sources)
		}
	}
}

func TestLateEventsAreDoubted(t *testing.T) {
	s := settings(9)
	s.Disorder = 20 * time.Second
	for lateness, doubted := range map[string]bool{"0s": true, "5s": true, "20s": false, "60s": false} {
		x := expectOne(t, truthOf(t, s), parseRule(t, fmt.Sprintf(tokenRule, "ip", 3, lateness)), 1)
		if got := x.Doubted > 0; got != doubted || x.Doubted == x.Fed {
			t.Errorf("lateness %s: %d of %d events doubted", lateness, x.Doubted, x.Fed)
		}
		if c := x.Compare(nil); doubted && c.Unsure == 0 || c.Missing != c.Sources {
			t.Errorf("lateness %s: nothing found, and %+v", lateness, c)
		}
	}
}

// In a live stream, others' clocks may be ahead: what came close to the lateness is doubted.
func TestLiveEventsAreDoubtedByTheirAcknowledgement(t *testing.T) {
	s := settings(9)
	h := Header{Namespace: "weir", Partitions: 2}
	text, _, err := written(t, s, h, &memorySink{})
	if err != nil {
		t.Fatal(err)
	}
	truth := parsed(t, text) // all acknowledged at the end of its 90 s
	for lateness, want := range map[string][2]float64{"60s": {0.3, 0.5}, "2m": {0, 0}, "20s": {0.8, 0.9}} {
		x := expectOne(t, truth, parseRule(t, fmt.Sprintf(tokenRule, "ip", 3, lateness)), 2)
		if share := float64(x.Doubted) / float64(x.Fed); share < want[0] || share > want[1] {
			t.Errorf("lateness %s: a share of %.2f is doubted, want %v", lateness, share, want)
		}
	}
}

func TestSharedWindowsAreNotJudged(t *testing.T) {
	truth := truthOf(t, settings(9))
	for key, shared := range map[string]bool{"": true, "{field: ip, v4: 8, v6: 16}": true, "{field: ip, v4: 24, v6: 48}": false, "device": false} {
		x := expectOne(t, truth, parseRule(t, fmt.Sprintf(tokenRule, key, 3, "60s")), 1)
		if (x.Shared > 0) != shared || (x.Fed > 0) == shared {
			t.Errorf("key [%s]: %d events judged, %d shared", key, x.Fed, x.Shared)
		}
	}
	grouped := parseRule(t, fmt.Sprintf(tokenRule, "user", 3, "60s")+"on_missing: group\n")
	if x := expectOne(t, truth, grouped, 1); x.Shared == 0 || x.Fed == 0 {
		t.Errorf("users that are missing: %d events judged, %d shared", x.Fed, x.Shared)
	}
}

func BenchmarkExpect(b *testing.B) {
	s := settings(1)
	s.Rate, s.Duration, s.Viewers = 1000, 100*time.Second, 1000
	truth := truthOf(b, s)
	v := parseRule(b, fmt.Sprintf(tokenRule, "ip", 3, "60s"))
	for b.Loop() {
		if x := expectOne(b, truth, v, 1); x.Fed < 20_000 {
			b.Fatalf("%d events", x.Fed)
		}
	}
	b.ReportMetric(float64(b.N)*float64(truth.End.Events)/b.Elapsed().Seconds(), "events/s")
}
