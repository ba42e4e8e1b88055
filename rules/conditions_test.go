package rules

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

const tieredRule = `id: spend
owner: models
match: {path: /v1/*, when: ' event.plan != "staff" '}
key: [api_key]
limit: 10
tiers:
  - {when: 'event.plan == "partner"', limit: 50}
  - when: |
      event.attrs.seats > 5
      && has(event.attrs.seats)
    limit: 20
window: 1m
`

func tiered(t *testing.T) Document {
	t.Helper()
	docs, err := parse("rule.yaml", []byte(tieredRule), testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	return docs[0]
}

func TestConditionsOfADocument(t *testing.T) {
	if MaxWhenBytes != condition.MaxBytes {
		t.Errorf("rules takes conditions of %d bytes, package condition of %d", MaxWhenBytes, condition.MaxBytes)
	}
	d := tiered(t)
	want := []Tier{{`event.plan == "partner"`, 50}, {"event.attrs.seats > 5\n&& has(event.attrs.seats)", 20}}
	if d.Match.When != `event.plan != "staff"` || !slices.Equal(d.Tiers, want) {
		t.Fatalf("got %q, %v", d.Match.When, d.Tiers)
	}
	again, err := parse("rule.yaml", []byte(d.YAML()), testEnvironment())
	if err != nil || !again[0].Equal(&d) {
		t.Errorf("%s\nis read as %+v, %v", d.YAML(), again, err)
	}
	stored, err := d.Canonical()
	if err != nil {
		t.Fatal(err)
	}
	read, err := DecodeDocument(stored)
	if err != nil || !read.Equal(&d) {
		t.Errorf("%s is read as %+v, %v", stored, read, err)
	}
	for name, change := range map[string]func(*Document){
		"when": func(d *Document) { d.Match.When += " || true" }, "a tier's limit": func(d *Document) { d.Tiers[1].Limit++ },
		"a tier's condition": func(d *Document) { d.Tiers[1].When = "true" }, "the order of tiers": func(d *Document) { slices.Reverse(d.Tiers) },
		"a tier less": func(d *Document) { d.Tiers = d.Tiers[:1] }, "no tier": func(d *Document) { d.Tiers = nil },
	} {
		other := tiered(t)
		change(&other)
		first, _ := NextVersion(nil, d)
		v, changed := NextVersion(&first, other)
		if d.Equal(&other) || !changed || v.Lineage != 1 || len(Diff(&d, &other)) != 1 {
			t.Errorf("%s: changed %v, lineage %d, %q", name, changed, v.Lineage, Diff(&d, &other))
		}
	}
	other := tiered(t)
	other.Match.When = "\n" + other.Match.When
	if !d.Equal(&other) {
		t.Error("white space around a condition makes a difference")
	}
}

// A program that cannot judge conditions refuses them; it never reads over them.
func TestConditionsNeedAJudge(t *testing.T) {
	_, err := parse("rule.yaml", []byte(tieredRule), Environment{Identity: traffic.DefaultIdentityMap()})
	if err == nil || strings.Count(err.Error(), "got a condition, which this program cannot judge, allowed rules without when and tiers") != 3 {
		t.Errorf("got %v", err)
	}
}

// Routers of builds that know no conditions would count everything.
func TestConditionsNeedARecordFormat(t *testing.T) {
	for name, change := range map[string]func(*Document){
		`when "true"`: func(d *Document) { d.Match.When = "true" },
		"tiers":       func(d *Document) { d.Tiers = []Tier{{"true", 5}} },
	} {
		v := Version{Document: storyRule(), Number: 1, Lineage: 1}
		change(&v.Document)
		r := Routing{RecordFormat: LanguageRecordFormat - 1, Rules: []Version{v}}
		if err := r.CheckRecordFormat(); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "from record format 5 on") {
			t.Errorf("%s: got %v", name, err)
		}
		r.RecordFormat++
		if err := r.CheckRecordFormat(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A rule that asks what the format never fills counts nothing, wherever it asks.
func TestWhatTheFormatNeverFills(t *testing.T) {
	for _, test := range []struct {
		format string
		fields map[string]string
		rule   string
		want   []string // place: field; effect
	}{
		{"combined", nil, "match: {host: a.example.com, route: films, status: 401}\nkey: [ip]",
			[]string{"match.host: host; no event matches", "match.route: route; no event matches"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip, attrs.tenant, plan, method, user_agent]", []string{
			"key[1]: attrs.tenant; every event lacks it, so the rule counts none", "key[2]: plan; every event lacks it, so the rule counts none"}},
		{"combined", nil, "match: {path: /a}\nkey: [\"route|ip\"]", []string{
			"key[0]: route; every event lacks it, and another alternative stands in for it, if any"}},
		{"combined", nil, "match: {path: /a}\nkey: [device]\non_missing: group", []string{"key[0]: device; every event lacks it, so all share one window, which blocks nobody"}},
		{"combined", nil, "match: {path: \"/a/{id}\"}\nkey: [user, \"{id}\"]\ncount: {distinct: [path, host]}", []string{"count.distinct: host; every event lacks it, so the rule counts none"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\ncount: {distinct: device}", []string{"count.distinct: device; every event lacks it, so the rule counts none"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\ncount: {sum: attrs.cost}", []string{"count.sum: attrs.cost; every event lacks it, so the rule counts none"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\ncount: {sum: latency_ms}", []string{"count.sum: latency_ms; every event lacks it, so the rule counts none"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\ncount: {sum: bytes}", nil},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\ntiers: [{when: event.status == 1, limit: 2}, {when: event.plan == 'a', limit: 3}]",
			[]string{"tiers[1].when: event.plan; it is empty, or missing, in every event"}},
		{"combined", nil, "match: {path: /a}\nkey: [ip]\nblock: {ttl: 1m, key: [ip, device], match: {host: a.example.com}}", []string{
			"block.key[1]: device; every event lacks it, so the rule blocks nobody",
			"block.match.host: host; gates know it, but a backtest finds nobody whom the block would hold"}},
		{"envoy", nil, "match: {path: /a}\nkey: [plan]", []string{"key[0]: plan; every event lacks it, so the rule counts none; events.map can name the member that has it"}},
		{"envoy", map[string]string{"plan": "tier"}, "match: {path: /a}\nkey: [plan]", nil},
		{"caddy", nil, "match: {path: /a}\nkey: [device]", nil}, // it may be in a header
		{"weir", nil, "match: {host: a.example.com, route: r}\nkey: [attrs.tenant]\ncount: {sum: latency_ms}", nil},
		{"", nil, "match: {host: a.example.com}\nkey: [attrs.tenant]", nil},
	} {
		env := testEnvironment()
		for _, src := range []*traffic.FieldSource{&env.Identity.Device, &env.Identity.User} {
			src.Header = "X-Some"
		}
		env.Format = Format{Name: test.format, Map: test.fields}
		var got []string
		env.Warn = func(p Problem) {
			if field, ok := strings.CutSuffix(p.Got, ", which events of the format "+test.format+" never have"); ok {
				got = append(got, p.Field+": "+field+"; "+p.Hint)
			}
		}
		src := "id: a\nowner: o\n" + test.rule + "\nlimit: 1\nwindow: 1m\n"
		if _, err := parse("rule.yaml", []byte(src), env); err != nil {
			t.Fatalf("%s\n%v", src, err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s\nformat %s: got %q, want %q", src, test.format, got, test.want)
		}
	}
}

func TestConditionsOnWhatNoEventHas(t *testing.T) {
	for _, test := range []struct {
		format, when string
		want         int
	}{
		{"combined", `event.plan == "free"`, 1}, {"combined", `event.attrs.a == 1 && event.headers["x"] == "1"`, 2}, {"combined", `event.status == 401`, 0},
		{"weir", `event.plan == "free"`, 0}, {"", `event.plan == "free"`, 0}, {"caddy", `event.device == "a"`, 0}, {"combined", `event.device == "a"`, 1},
		{"envoy", `event.plan == "free" || event.route == "a"`, 1},
	} {
		var warnings []string
		env := testEnvironment()
		env.Format.Name = test.format
		env.Warn = func(p Problem) { warnings = append(warnings, p.Error()) }
		d := "id: a\nowner: o\nmatch: {path: /a, when: '" + test.when + "'}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
		if _, err := parse("rule.yaml", []byte(d), env); err != nil {
			t.Fatal(err)
		}
		if len(warnings) != test.want {
			t.Errorf("%s, %s: %q", test.format, test.when, warnings)
		}
		for _, w := range warnings {
			if !strings.Contains(w, "rule.yaml:3:25: match.when: got event.") || !strings.Contains(w, "which events of the format "+test.format+" never have") {
				t.Errorf("got %s", w)
			}
		}
	}
}

// What comes out the same for every event is told at its spot in the file, in tiers too, and is no problem.
func TestConditionsThatAskNothing(t *testing.T) {
	const src = "id: a\nowner: o\nmatch:\n  path: /a\n  when: |\n    event.plan == \"free\"\n      || event.method == \"get\"\nkey: [ip]\nlimit: 10\nwindow: 1m\n" +
		"tiers:\n  - {when: 'event.status in [401]', limit: 5}\n  - {when: 'event.ip == \"10.0.0.0/8\"', limit: 20}\n"
	want := []string{
		`rule.yaml:7:26: match.when: got event.method == "get", which never holds, allowed a method in upper case, as conditions see each; write "GET"`,
		`rule.yaml:13:25: tiers[1].when: got event.ip == "10.0.0.0/8", which never holds, allowed an address in its canonical form, such as 203.0.113.9 or 2001:db8::1; ` +
			`conditions compare texts: event.ip.startsWith("10.") asks for 10.0.0.0/8`,
	}
	var got []string
	env := testEnvironment()
	env.Warn = func(p Problem) { got = append(got, p.Error()) }
	if _, err := parse("rule.yaml", []byte(src), env); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v\ngot  %s\nwant %s", err, strings.Join(got, "\n     "), strings.Join(want, "\n     "))
	}
}

// Who chooses what the condition of a tier reads chooses his limit, by a value that faults it, too.
func TestTiersOnWhatClientsChoose(t *testing.T) {
	const seats, device, plan = "{when: event.attrs.seats > 5, limit: %d}", "{when: 'event.device == \"a\"', limit: 50}", "{when: 'event.plan == \"a\"', limit: 50}"
	const allowed, leave = ", by which a client may choose his limit, allowed fields that the gateway establishes, such as event.plan; ",
		"have the gateway write it from what it knows itself, and then leave it so"
	for _, test := range []struct {
		name, tiers string
		vouched     bool
		want        []string
	}{
		{"a higher limit", fmt.Sprintf(seats, 50), false, []string{"tiers[0].when: got event.attrs.seats" + allowed + leave}},
		{"a lower limit", fmt.Sprintf(seats, 1), false, []string{"tiers[0].when: got event.attrs.seats" + allowed + leave}},
		{"the rule's limit", fmt.Sprintf(seats, 10), false, nil},
		{"the rule's limit, before another", fmt.Sprintf(seats, 10) + ", " + plan, false, []string{"tiers[0].when: got event.attrs.seats" + allowed + leave}},
		{"behind another", plan + ", " + fmt.Sprintf(seats, 20), false, []string{"tiers[1].when: got event.attrs.seats" + allowed + leave}},
		{"what the gateway establishes", plan, false, nil},
		{"what is asked for", `{when: 'event.path == "/a" || event.method == "GET" || event.status == 404', limit: 50}`, false, nil},
		{"headers", `{when: 'event.headers["x-app"] == "1" && event.user_agent == "a"', limit: 50}`, false, []string{"tiers[0].when: got event.headers.x-app, event.user_agent" + allowed + leave}},
		{"a claim", device, false, []string{"tiers[0].when: got event.device" + allowed + "set identity.device.vouched: true in the configuration if the gateway itself establishes it"}},
		{"what is vouched for", device, true, nil},
	} {
		var got []string
		env := testEnvironment()
		env.Identity.Device.Vouched = test.vouched
		env.Warn = func(p Problem) {
			p.File = ""
			got = append(got, p.Error())
		}
		if _, err := parse("rule.yaml", []byte("id: a\nowner: o\nmatch: {path: /a}\nkey: [ip]\nlimit: 10\nwindow: 1m\ntiers: \n  ["+test.tiers+"]\n"), env); err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s:\ngot  %q\nwant %q", test.name, got, test.want)
		}
	}
}
