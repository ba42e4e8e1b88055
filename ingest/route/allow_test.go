package route

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// listed is what an allow list says, asked entry by entry.
func listed(l *rules.AllowList, id *traffic.Identity, t traffic.Time) bool {
	for _, e := range l.Entries {
		if e.Until != 0 && t >= e.Until {
			continue
		}
		switch e.Kind {
		case rules.AllowCIDR:
			if id.IP.IsValid() && netip.MustParsePrefix(e.Value).Contains(id.IP) {
				return true
			}
		case rules.AllowDevice:
			if id.Device != "" && id.Device == e.Value {
				return true
			}
		case rules.AllowUser:
			if id.User != "" && id.User == e.Value {
				return true
			}
		case rules.AllowAPIKey:
			if id.APIKey != "" && id.APIKey == e.Value {
				return true
			}
		case rules.AllowSession:
			if id.Session != "" && id.Session == e.Value {
				return true
			}
		}
	}
	return false
}

// TestAllowIndex holds the look-up to the question asked entry by entry, at prefixes that contain each other, touch each other and
// reach to the ends of the address space.
func TestAllowIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		address := func() netip.Addr {
			low, high := rapid.Byte().Draw(t, "low"), rapid.SampledFrom([]byte{0, 10, 255}).Draw(t, "high")
			if rapid.Bool().Draw(t, "v6") {
				fill := [16]byte{0: high, 7: low, 15: low}
				if high == 255 {
					for i := range 15 {
						fill[i] = 255
					}
				}
				return netip.AddrFrom16(fill)
			}
			return netip.AddrFrom4([4]byte{high, high, high, low})
		}
		value := rapid.SampledFrom([]string{"ann", "bob", "k"})
		l := &rules.AllowList{ID: "l", Owner: "x"}
		seen := map[string]bool{}
		for range rapid.IntRange(0, 12).Draw(t, "entries") {
			e := rules.AllowEntry{Kind: rapid.SampledFrom(rules.AllowKinds()).Draw(t, "kind"), Value: value.Draw(t, "value"), Reason: "r"}
			if rapid.Bool().Draw(t, "prefix") {
				a := address()
				p, err := a.Prefix(rapid.IntRange(1, a.BitLen()).Draw(t, "bits"))
				if err != nil {
					t.Fatal(err)
				}
				e.Kind, e.Value = rules.AllowCIDR, p.String()
			} else if e.Kind == rules.AllowCIDR {
				e.Kind = rules.AllowUser
			}
			if rapid.Bool().Draw(t, "ends") {
				e.Until = traffic.Time(rapid.IntRange(1, 6).Draw(t, "until"))
			}
			if seen[string(e.Kind)+e.Value] {
				continue
			}
			seen[string(e.Kind)+e.Value] = true
			l.Entries = append(l.Entries, e)
		}
		x, err := newAllowIndex(l)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(id *traffic.Identity, at traffic.Time) {
			want := listed(l, id, at)
			if got := x.allows(id, at); got != want {
				t.Fatalf("%+v at %d of %+v: got %t, want %t", id, at, l.Entries, got, want)
			}
			e := x.entry(id, at)
			if (e != nil) != want || e != nil && !listed(&rules.AllowList{Entries: []rules.AllowEntry{*e}}, id, at) {
				t.Fatalf("%+v at %d of %+v: explained by %+v", id, at, l.Entries, e)
			}
		}
		for range 8 {
			id := &traffic.Identity{}
			if rapid.Bool().Draw(t, "has ip") {
				id.IP = address()
			}
			for _, to := range []*string{&id.Device, &id.User, &id.APIKey, &id.Session} {
				if rapid.Bool().Draw(t, "has") {
					*to = value.Draw(t, "of it")
				}
			}
			ask(id, traffic.Time(rapid.IntRange(-1, 7).Draw(t, "at")))
		}
		for _, e := range l.Entries { // the edges of each prefix, and their neighbours
			p, ok := e.Prefix()
			if !ok {
				continue
			}
			end := p.Addr().AsSlice()
			for i := range end {
				host := 8*(i+1) - p.Bits()
				switch {
				case host >= 8:
					end[i] = 255
				case host > 0:
					end[i] |= 1<<host - 1
				}
			}
			most, _ := netip.AddrFromSlice(end)
			for _, a := range []netip.Addr{p.Addr(), p.Addr().Prev(), most, most.Next()} {
				if a = a.Unmap(); a.IsValid() { // as events have it
					ask(&traffic.Identity{IP: a}, traffic.Time(rapid.IntRange(0, 7).Draw(t, "then")))
				}
			}
		}
	})
}

// allowRouting is watchRouting with lists: rules 0 and 2 name office, 1 names both, 3 partners, 4 none.
func allowRouting() *rules.Routing {
	r := watchRouting()
	r.Identity.User.Vouched = true
	for i, names := range [][]string{{"office"}, {"office", "partners"}, {"office"}, {"partners"}, nil} {
		r.Rules[i].Allow = names
	}
	r.WithAllow([]rules.AllowList{
		{ID: "partners", Owner: "x", Entries: []rules.AllowEntry{{Kind: rules.AllowUser, Value: "ann", Reason: "a partner"}, {Kind: rules.AllowCIDR, Value: "192.0.2.1", Reason: "too"}}},
		{ID: "office", Owner: "x", Entries: []rules.AllowEntry{
			{Kind: rules.AllowCIDR, Value: "192.0.2.0/24", Reason: "the office", Until: noon}, {Kind: rules.AllowCIDR, Value: "192.0.2.1", Reason: "its printer", Until: noon - 10},
		}},
	})
	return r
}

// TestAllowedEvents: an event is judged by its own time, the end is outside, and only the rules that name the list leave it out.
func TestAllowedEvents(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, allowRouting())
	reader := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
	event := func(at traffic.Time, members string) []byte {
		return fmt.Appendf(nil, `{"v":1,"time":"%s",%s}`, at, members)
	}
	const whole = `"ip":"192.0.2.1","device":"tv","path":"/v1/all"`
	for _, c := range []struct {
		name    string
		value   []byte
		fate    Fate
		counted []int
		lists   map[int]string // by rule
	}{
		{"before the end", event(noon-1, whole+`,"user":"bob"`), FateKeyless, nil, map[int]string{0: "office", 1: "office", 2: "office", 3: "partners"}},
		{"at the end", event(noon, whole+`,"user":"bob"`), FateRouted, []int{0, 2}, map[int]string{1: "partners", 3: "partners"}},
		{"long before", event(noon-1_000_000_000, `"ip":"192.0.2.200","device":"tv","path":"/v1/all"`), FateRouted, []int{3}, map[int]string{0: "office", 1: "office", 2: "office"}},
		{"by name", event(noon, `"ip":"198.51.100.1","device":"tv","user":"ann","path":"/v1/all"`), FateRouted, []int{0, 2}, map[int]string{1: "partners", 3: "partners"}},
		{"without its key", event(noon-1, `"ip":"192.0.2.9","path":"/v1/x"`), FateRouted, []int{3}, map[int]string{0: "office", 1: "office"}},
		{"nobody", event(noon-1, `"path":"/v1/all"`), FateRouted, []int{2, 3}, nil},
		{"a rule without lists", event(noon-1, `"ip":"192.0.2.1","device":"tv","path":"/v2"`), FateRouted, []int{4}, nil},
		{"a time from the future is its append time", event(noon.Add(time.Hour), whole), FateKeyless, nil, map[int]string{0: "office", 1: "office", 2: "office", 3: "partners"}},
	} {
		for range 2 { // memory that is used again must not show
			got := reader.read(v, &traffic.Message{Appended: noon - 5, Value: c.value}, traffic.BeforeTime)
			var in []int
			for _, target := range got.targets {
				in = append(in, target.rules...)
			}
			lists := map[int]string{}
			for i := range got.watched {
				if w := &got.watched[i]; w.allowed >= 0 {
					lists[w.rule] = v.allow[w.allowed].id
				}
			}
			if got.fate != c.fate || !sameRules(in, c.counted) || len(lists)+len(c.lists) > 0 && !reflect.DeepEqual(lists, c.lists) {
				t.Errorf("%s: fate %d, counted %v, lists %v; want %d, %v, %v", c.name, got.fate, in, lists, c.fate, c.counted, c.lists)
			}
		}
	}
}

func sameRules(got, want []int) bool {
	in := map[int]bool{}
	for _, r := range got {
		in[r] = true
	}
	for _, r := range want {
		if !in[r] {
			return false
		}
	}
	return len(in) == len(want) && len(got) == len(want)
}

// TestAllowedEventsAreCountedByRuleAndList, and by nothing that says something is missing.
func TestAllowedEventsAreCountedByRuleAndList(t *testing.T) {
	opt := routedOptions(true)
	v := compiled(t, opt, allowRouting())
	b := newBuilder(opt, &hintMemory{})
	counts, sum := b.countsOf(v), newEventStats()
	for _, members := range []string{
		`"ip":"192.0.2.1","device":"tv","path":"/v1/x"`, // rules 0 and 1 by office, rule 3 by partners
		`"ip":"192.0.2.2","path":"/v1/x"`,               // 0 and 1 by office: it lacks no device
		`"ip":"203.0.113.1","device":"tv","user":"ann","path":"/v1/x"`,
	} {
		value := fmt.Appendf(nil, `{"v":1,"time":"%s",%s}`, noon-1, members)
		sum.count(counts, b.reader.read(v, &traffic.Message{Appended: noon, Value: value}, noon.Add(time.Hour)))
	}
	b.sumRules(&sum)
	wantRules := map[string]RuleStats{
		"a-ip": {Matched: 3, Behind: 3, BehindComplete: 1}, "b-ip-device": {Matched: 3, Behind: 3},
		"d-user": {Matched: 3, Behind: 3, Grouped: 1, Missing: [traffic.NumFields]int64{traffic.FieldUser: 1}},
	}
	wantLists := map[RuleList]int64{{"a-ip", "office"}: 2, {"b-ip-device", "office"}: 2, {"b-ip-device", "partners"}: 1, {"d-user", "partners"}: 2}
	if !reflect.DeepEqual(sum.Rules, wantRules) || !reflect.DeepEqual(sum.Allowed, wantLists) {
		t.Errorf("got  %+v, %v\nwant %+v, %v", sum.Rules, sum.Allowed, wantRules, wantLists)
	}
	again := newEventStats()
	if b.sumRules(&again); len(again.Allowed) > 0 {
		t.Errorf("given twice: %v", again.Allowed)
	}

	tally, versions := newTally(), &versionShelf{}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(newRouteCollector(tally, versions, atZero)); err != nil {
		t.Fatal(err)
	}
	versions.advance(v)
	tally.bump(func(s *Stats) { s.EventStats.add(&sum) })
	tally.bump(func(s *Stats) { s.EventStats.add(&sum) })
	got := valuesOf(t, reg)
	expectValues(t, got, map[string]float64{
		"weir_route_allowed_events_total list=office rule=a-ip":                              4,
		"weir_route_allowed_events_total list=partners rule=b-ip-device":                     2,
		"weir_route_allowed_events_total list=office rule=c-all":                             0, // it begins at 0
		"weir_rule_uncounted_events_total reason=missing_field rule=b-ip-device stage=route": 0,
	})
	for name := range got {
		if strings.HasPrefix(name, "weir_route_allowed_events_total") && strings.Contains(name, "e-other") {
			t.Errorf("a rule without lists has %s", name)
		}
	}
	if left := tally.leftOut(); left[leftOut{"b-ip-device", 0}] != 0 {
		t.Errorf("told as left out: %v", left)
	}
}

func TestExplainTellsWhichListLetsPass(t *testing.T) {
	e, err := NewExplainer(allowRouting(), true)
	if err != nil {
		t.Fatal(err)
	}
	value := fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"192.0.2.1","device":"tv","path":"/v1/x"}`, noon-11)
	got := e.Explain(&traffic.Message{Appended: noon, Value: value})
	if len(got.Rules) != 3 || got.Fate != FateKeyless {
		t.Fatalf("got %+v", got)
	}
	if r := got.Rules[0]; r.Counts || r.Why != "allowed" || r.Allowed != "office" || r.Entry == nil || r.Entry.Reason != "the office" { // which ends last
		t.Errorf("got %+v, entry %+v", r, r.Entry)
	}
	value = fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"192.0.2.1","device":"tv","path":"/v1/x"}`, noon)
	if got := e.Explain(&traffic.Message{Appended: noon, Value: value}); !got.Rules[0].Counts || got.Rules[0].Allowed != "" || got.Rules[0].Entry != nil {
		t.Errorf("at the end: %+v", got.Rules[0])
	}
}

// TestCompileRefusesUnknownLists: a version that is not whole counts nobody's partner.
func TestCompileRefusesUnknownLists(t *testing.T) {
	for name, change := range map[string]func(r *rules.Routing){
		"no list":   func(r *rules.Routing) { r.Allow = r.Allow[1:] },
		"no prefix": func(r *rules.Routing) { r.Allow[0].Entries[0].Value = "192.0.2" },
		"no kind":   func(r *rules.Routing) { r.Allow[0].Entries[0].Kind = "plan" },
	} {
		r := allowRouting()
		change(r)
		if _, err := compile(r, routedOptions(true)); err == nil {
			t.Errorf("%s: compiled", name)
		}
	}
}

// BenchmarkAllow asks a list for events that are not on it.
func BenchmarkAllow(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		for _, family := range []string{"v4", "v6", "user"} {
			b.Run(fmt.Sprintf("%s/%d", family, n), func(b *testing.B) {
				l := &rules.AllowList{ID: "l", Owner: "x"}
				random := rand.New(rand.NewPCG(1, 2))
				for i := range n {
					e := rules.AllowEntry{Kind: rules.AllowUser, Value: fmt.Sprint("user-", i), Reason: "r"}
					switch family {
					case "v4":
						e.Kind, e.Value = rules.AllowCIDR, fmt.Sprintf("10.%d.%d.0/28", i>>8, i&255)
					case "v6":
						e.Kind, e.Value = rules.AllowCIDR, fmt.Sprintf("2001:db8:%x::/48", i)
					}
					l.Entries = append(l.Entries, e)
				}
				x, err := newAllowIndex(l)
				if err != nil {
					b.Fatal(err)
				}
				ids := make([]traffic.Identity, 1024)
				for i := range ids {
					ids[i] = traffic.Identity{IP: netip.AddrFrom4([4]byte{10, byte(random.IntN(256)), byte(random.IntN(256)), 77}), User: fmt.Sprint("u", i)}
					if family == "v6" {
						ids[i].IP = netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb9, byte(random.IntN(256)), byte(i)})
					}
				}
				b.ReportAllocs()
				i := 0
				for b.Loop() {
					if x.allows(&ids[i&1023], noon) {
						b.Fatal("let pass")
					}
					i++
				}
			})
		}
	}
}
