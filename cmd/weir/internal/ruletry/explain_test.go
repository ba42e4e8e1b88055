package ruletry

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const tokens = `id: guest-token-flood
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip, device]
limit: 2
window: 5m
block: {ttl: 15m}
`

// event is one line in weir's own format.
func event(at time.Duration, more string) string {
	when := traffic.Time(1_767_225_600_000_000).Add(at) // 2026-01-01T00:00:00Z
	return `{"v":1,"time":"` + when.String() + `","ip":"192.0.2.7",` + more + "}\n"
}

func TestExplainTellsWhyARuleFires(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": tokens})
	const fits = `"device":"tv-1","method":"POST","path":"/v1/guest-tokens"`
	events := event(0, fits) + event(10*time.Second, fits) + event(20*time.Second, `"device":"tv-1","method":"POST","path":"/v1//guest-tokens"`) +
		event(21*time.Second, `"method":"POST","path":"/v1/guest-tokens"`) + event(22*time.Second, `"device":"tv-1","method":"GET","path":"/v1/guest-tokens"`) +
		event(-10*time.Minute, fits) + "nonsense\n" + event(6*time.Minute, fits)
	got := call(t, "table", events, "explain", "guest-token-flood", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-")
	if got.err != nil {
		t.Fatal(got.err)
	}
	parts := strings.Split("\n"+got.stdout, "\nline ")
	want := []string{
		"count 1 of limit 2: not over", "count 2 of limit 2: not over", "count 3 of limit 2: over",
		"not counted: the key's device is missing, and on_missing is skip", "not counted: the match does not hold",
		"not counted: late: older, by more than lateness 1m, than the newest event before it", "not counted: it cannot be read: ", "count 1 of limit 2: not over",
	}
	if len(parts) != len(want)+1 {
		t.Fatalf("got\n%s", got.stdout)
	}
	for i, sentence := range want {
		if !strings.Contains(parts[i+1], "\n  "+sentence) {
			t.Errorf("line %d: got\n%s\nwant %s", i+1, parts[i+1], sentence)
		}
	}
	const third = `3: 2026-01-01T00:00:20Z POST /v1//guest-tokens
  CLAUSE        RULE              EVENT                        HELD
  match.method  POST              POST                         yes
  match.path    /v1/guest-tokens  /v1//guest-tokens            yes
  key           ip                192.0.2.7/32                 yes
  key           device            tv-1                         yes
  count         events            1                            yes
  limit         2 in 5m           3                            no
  block         key               ip=192.0.2.7/32 device=tv-1  -
  count 3 of limit 2: over`
	if parts[3] != third {
		t.Errorf("got\n%s\nwant\n%s", parts[3], third)
	}
	var all []explained
	got = call(t, "json", events, "explain", "guest-token-flood", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-")
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 8 || !all[2].Over || *all[2].Count != 3 || all[4].Watched || all[4].Clauses[0].Held || !all[4].Clauses[1].Held {
		t.Errorf("%v, %v: %+v", err, got.err, all)
	}
}

func TestExplainTakesOneEventOverSeveralLinesAndOtherFormats(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": strings.Replace(tokens, "[ip, device]", "[ip]", 1)})
	from := []string{"explain", "guest-token-flood", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-"}
	for name, tt := range map[string]struct {
		stdin, want string
		more        []string
	}{
		"indented": {"{\n \"v\": 1, \"time\": \"2026-01-01T00:00:00Z\",\n \"ip\": \"192.0.2.7\", \"method\": \"POST\", \"path\": \"/v1/guest-tokens\"\n}\n", "line 1: 2026-01-01T00:00:00Z POST", nil},
		"combined": {`192.0.2.7 - - [01/Jan/2026:00:00:00 +0000] "POST /v1/guest-tokens HTTP/1.1" 200 5 "-" "x"` + "\n", "count 1 of limit 2", []string{"--format", "combined"}},
		"mapped":   {`{"ts":"2026-01-01T00:00:00Z","client":"192.0.2.7","method":"POST","path":"/v1/guest-tokens"}`, "count 1 of limit 2", []string{"--format", "json", "--map", "time=ts,ip=client"}},
	} {
		got := call(t, "table", tt.stdin, append(from, tt.more...)...)
		if got.err != nil || !strings.Contains(got.stdout, tt.want) {
			t.Errorf("%s: got %v\n%s", name, got.err, got.stdout)
		}
	}
	for want, args := range map[string][]string{
		"--event is required":                 {"explain", "a", "-f", filepath.Join(dir, "rule.yaml")},
		"- is given twice":                    {"explain", "a", "-f", "-", "--event", "-"},
		`there is no rule "guest-token-flod"`: {"explain", "guest-token-flod", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-"},
		"did you mean combined":               append(from, "--format", "combind"),
		"--map":                               append(from, "--format", "json", "--map", "x"),
	} {
		if got := call(t, "table", "{}", args...); got.err == nil || !strings.Contains(got.err.Error(), want) {
			t.Errorf("%v: got %v, want %s", args, got.err, want)
		}
	}
	if got := call(t, "table", strings.Repeat("x\n", maxEvents+1), from...); got.err == nil || !strings.Contains(got.err.Error(), "more than 1000 lines") {
		t.Errorf("got %v", got.err)
	}
	if got := call(t, "table", " \n", from...); got.err == nil || !strings.Contains(got.err.Error(), "got nothing") {
		t.Errorf("got %v", got.err)
	}
}

// The counts are those of the definitions of the windows, by code that shares nothing with them.
func TestCountsAreThoseOfTheDefinitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		algorithm := rapid.SampledFrom([]string{"sliding", "fixed", "sliding-log"}).Draw(t, "algorithm")
		count := rapid.SampledFrom([]string{"events", "{distinct: device}", "{sum: attrs.cost}"}).Draw(t, "count")
		if algorithm == "sliding-log" && count == "{distinct: device}" {
			count = "events"
		}
		limit := rapid.SampledFrom([]int{0, 2, 5, 200}).Draw(t, "limit")
		src := fmt.Sprintf("id: r\nowner: a\nmatch: {}\nkey: [ip]\nlimit: %d\nwindow: 1m\nalgorithm: %s\ncount: %s\nlateness: 1m\n", limit, algorithm, count)
		docs, err := rules.ParseFiles([]rules.File{{Name: "r", Src: []byte(src)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
		if err != nil {
			t.Fatal(err)
		}
		v, _ := rules.NextVersion(nil, docs[0])
		type step struct {
			at     int64 // seconds
			device string
			cost   int
		}
		var steps []step
		var lines [][]byte
		at := int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "events") {
			at += rapid.Int64Range(0, 30).Draw(t, "gap")
			s := step{at, rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device"), rapid.IntRange(1, 500).Draw(t, "cost")}
			steps = append(steps, s)
			lines = append(lines, []byte(strings.TrimSpace(event(time.Duration(at)*time.Second, fmt.Sprintf(`"device":%q,"attrs":{"cost":%d}`, s.device, s.cost)))))
		}
		all, err := explainAll(&rules.Routing{
			Stream: "x", Number: 1, RecordFormat: rules.ReadingRecordFormat, SecretID: "explain", Rules: []rules.Version{v}, Identity: traffic.DefaultIdentityMap(),
			Format: rules.Format{Name: format.Weir, MaxEventBytes: format.DefaultMaxEventBytes},
		}, &beside{}, lines)
		if err != nil {
			t.Fatal(err)
		}
		for i, s := range steps {
			want, seen := 0, map[string]bool{}
			for _, o := range steps[:i+1] {
				within := o.at > s.at-60
				if algorithm == "fixed" {
					within = o.at/60 == s.at/60 // the first event's midnight begins a window
				}
				switch {
				case !within:
				case count == "events":
					want++
				case count == "{distinct: device}":
					if !seen[o.device] {
						want++
					}
					seen[o.device] = true
				default:
					want += o.cost
				}
			}
			x := &all[i]
			if x.Count == nil || *x.Count != want || x.Over != (want > limit) && algorithm != "sliding" {
				t.Fatalf("%s\nevent %d: got %s, want %d: %+v", src, i, x.Verdict, want, steps[:i+1])
			}
			if limit <= 128 && x.Over != (want > limit) {
				t.Fatalf("%s\nevent %d: got %s, want %d: %+v", src, i, x.Verdict, want, steps[:i+1])
			}
		}
	})
}

// Bad lines, whatever they are, are told, and take nothing with them.
func FuzzExplain(f *testing.F) {
	docs, err := rules.ParseFiles([]rules.File{{Name: "r", Src: []byte(tokens)}}, rules.Environment{Identity: traffic.DefaultIdentityMap()})
	if err != nil {
		f.Fatal(err)
	}
	v, _ := rules.NextVersion(nil, docs[0])
	f.Add([]byte(event(0, `"device":"tv-1","method":"POST","path":"/v1/guest-tokens"`) + "x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		lines, err := readEvents(strings.NewReader(string(text)), format.DefaultMaxEventBytes)
		if err != nil || len(lines) > 50 {
			return
		}
		all, err := explainAll(&rules.Routing{
			Stream: "x", Number: 1, RecordFormat: rules.ReadingRecordFormat, SecretID: "explain", Rules: []rules.Version{v}, Identity: traffic.DefaultIdentityMap(),
			Format: rules.Format{Name: format.Weir, MaxEventBytes: format.DefaultMaxEventBytes},
		}, &beside{}, lines)
		if err != nil || len(all) != len(lines) {
			t.Fatalf("%d of %d lines, %v", len(all), len(lines), err)
		}
	})
}

func TestExplainTellsConditionsAndTiers(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": "id: r\nowner: a\nmatch: {method: POST, when: event.status >= 400}\nkey: [ip]\nlimit: 9\nwindow: 1m\ntiers: [{when: 'event.plan == \"free\"', limit: 0}]\n"})
	events := event(0, `"method":"POST","status":200`) + event(0, `"method":"GET","status":500`) + event(0, `"method":"POST","status":500`) + event(0, `"method":"POST","status":500,"plan":"free"`)
	var all []explained
	got := call(t, "json", events, "explain", "r", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-")
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.err != nil || len(all) != 4 {
		t.Fatalf("%v, %v", err, got.err)
	}
	said := ""
	for _, x := range all {
		said += fmt.Sprintf("%v %s %q %s; ", x.Clauses[1].Held, x.Clauses[1].Got, x.Tier, x.Verdict)
	}
	const want = `false it does not hold "" not counted: the match does not hold; false not asked, since another clause does not hold "" not counted: the match does not hold; ` +
		`true it holds "" count 1 of limit 9: not over; true it holds "event.plan == \"free\"" count 2 of limit 0: over; `
	if said != want {
		t.Errorf("got  %s\nwant %s", said, want)
	}
}

// A tier that cannot be judged is told, with the limit that counts instead.
func TestExplainTellsTiersThatCannotBeJudged(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{"rule.yaml": "id: r\nowner: a\nmatch: {}\nkey: [ip]\nlimit: 9\nwindow: 1m\ntiers: [{when: event.attrs.seats > 5, limit: 20}, {when: event.attrs.staff, limit: 1}]\n"})
	events := event(0, `"attrs":{"seats":"6"}`) + event(0, `"attrs":{"staff":"yes"}`)
	var all []explained
	args := []string{"explain", "r", "-f", filepath.Join(dir, "rule.yaml"), "--event", "-"}
	got := call(t, "json", events, args...)
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || got.err != nil || len(all) != 2 {
		t.Fatalf("%v, %v", err, got.err)
	}
	for i, want := range []explained{{Tier: "event.attrs.seats > 5", Unjudged: "type", Limit: 20}, {Unjudged: "type", Limit: 9}} {
		if x := all[i]; !x.Counts || x.Tier != want.Tier || x.Unjudged != want.Unjudged || x.Limit != want.Limit {
			t.Errorf("line %d: %+v", i+1, x)
		}
	}
	shown := unaligned(call(t, "", events, args...).stdout)
	for _, want := range []string{"event.attrs.seats > 5 a tier cannot be judged (type): limit 20,", "the rule's own limit a tier cannot be judged (type): limit 9,"} {
		if !strings.Contains(shown, want) {
			t.Errorf("%s\nhas not %q", shown, want)
		}
	}
}

// What a key and a count have of an event is shown for every kind of field, and counted as the windows do.
func TestExplainTellsFieldsOfEveryKind(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "rule.yaml")
	head := "id: r\nowner: a\nmatch: {path: '/users/{id}'}\nlimit: 1\nwindow: 1m\n"
	const seven = `"path":"/users/7","host":"A.example:443"`
	for _, tt := range []struct {
		name, rule string
		events     []string
		want       []string // the rows of key and count of each event, and its verdict
	}{
		{"attrs", "key: [attrs.tenant.id]", []string{`"attrs":{"tenant":{"id":"acme"}},` + seven, `"attrs":{"tenant":{"id":"other"}},` + seven, `"attrs":{"tenant":{"id":"acme"}},` + seven, seven}, []string{
			"key attrs.tenant.id acme yes, count events 1 yes, count 1 of limit 1: not over", "key attrs.tenant.id other yes, count events 1 yes, count 1 of limit 1: not over",
			"key attrs.tenant.id acme yes, count events 1 yes, count 2 of limit 1: over", "key attrs.tenant.id missing no, not counted: the key's attrs.tenant.id is missing, and on_missing is skip"}},
		{"fallback", "key: [api_key|ip]", []string{`"api_key":"k",` + seven, seven, `"api_key":"192.0.2.7",` + seven, seven}, []string{
			"key api_key|ip api_key: k yes, count events 1 yes, count 1 of limit 1: not over", "key api_key|ip ip: 192.0.2.7/32 yes, count events 1 yes, count 1 of limit 1: not over",
			"key api_key|ip api_key: 192.0.2.7 yes, count events 1 yes, count 1 of limit 1: not over", "key api_key|ip ip: 192.0.2.7/32 yes, count events 1 yes, count 2 of limit 1: over"}},
		{"fallback without any", "key: [user|attrs.tenant]", []string{seven}, []string{"key user|attrs.tenant missing no, not counted: the key's user|attrs.tenant is missing, and on_missing is skip"}},
		{"param", "key: ['{id}', host]", []string{seven, `"path":"/users//7","host":"a.example"`, `"path":"/users/8","host":"a.example"`}, []string{
			"key {id} 7 yes, key host a.example yes, count events 1 yes, count 1 of limit 1: not over", "key {id} 7 yes, key host a.example yes, count events 1 yes, count 2 of limit 1: over",
			"key {id} 8 yes, key host a.example yes, count events 1 yes, count 1 of limit 1: not over"}},
		{"distinct path", "key: [ip]\ncount: {distinct: path}", []string{`"path":"/users/7?a"`, `"path":"/users/7?b"`, `"path":"/users/8"`}, []string{
			"key ip 192.0.2.7/32 yes, count {distinct: path} /users/7 yes, count 1 of limit 1: not over", "key ip 192.0.2.7/32 yes, count {distinct: path} /users/7 yes, count 1 of limit 1: not over",
			"key ip 192.0.2.7/32 yes, count {distinct: path} /users/8 yes, count 2 of limit 1: over"}},
		{"tuple", "key: [ip]\ncount: {distinct: [host, 'user|device']}", []string{`"user":"ann",` + seven, `"device":"ann",` + seven, `"device":"ann",` + seven, seven}, []string{
			"key ip 192.0.2.7/32 yes, count {distinct: [host, {any: [user, device]}]} host: a.example, user: ann yes, count 1 of limit 1: not over",
			"key ip 192.0.2.7/32 yes, count {distinct: [host, {any: [user, device]}]} host: a.example, device: ann yes, count 2 of limit 1: over",
			"key ip 192.0.2.7/32 yes, count {distinct: [host, {any: [user, device]}]} host: a.example, device: ann yes, count 2 of limit 1: over",
			"key ip 192.0.2.7/32 yes, not counted: it has no value of {distinct: [host, {any: [user, device]}]}"}},
		{"sum", "key: [ip]\ncount: {sum: bytes}", []string{`"bytes":1,` + seven, `"bytes":3,` + seven, seven}, []string{
			"key ip 192.0.2.7/32 yes, count {sum: bytes} 1 yes, count 1 of limit 1: not over", "key ip 192.0.2.7/32 yes, count {sum: bytes} 3 yes, count 4 of limit 1: over",
			"key ip 192.0.2.7/32 yes, not counted: it has no value of {sum: bytes}"}},
	} {
		write(t, dir, map[string]string{"rule.yaml": head + tt.rule + "\n"})
		events := ""
		for i, more := range tt.events {
			events += event(time.Duration(i)*time.Second, more)
		}
		got := call(t, "table", events, "explain", "r", "-f", path, "--event", "-")
		parts := strings.Split("\n"+got.stdout, "\nline ")
		if got.err != nil || len(parts) != len(tt.want)+1 {
			t.Errorf("%s: %v\n%s", tt.name, got.err, got.stdout)
			continue
		}
		for i, want := range tt.want {
			var said []string
			for _, row := range strings.Split(parts[i+1], "\n") {
				words := strings.Join(strings.Fields(row), " ")
				if strings.HasPrefix(words, "key ") || strings.HasPrefix(words, "count ") || strings.HasPrefix(words, "not counted") {
					said = append(said, words)
				}
			}
			if text := strings.Join(said, ", "); text != want {
				t.Errorf("%s, event %d:\ngot  %s\nwant %s", tt.name, i+1, text, want)
			}
		}
	}
	var all []explained
	write(t, dir, map[string]string{"rule.yaml": head + "key: [api_key|ip, '{id}']\n"})
	got := call(t, "json", event(0, `"api_key":"k",`+seven), "explain", "r", "-f", path, "--event", "-")
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 1 || all[0].Subject != "api_key=k&%7Bid%7D=7" || all[0].Key[0].Chosen != "api_key" || all[0].Key[1].Value != "7" {
		t.Errorf("%v, %v: %+v", err, got.err, all)
	}
}

func TestExplainTellsWhichListLetsAnEventPass(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, map[string]string{
		"rule.yaml": "id: r\nowner: a\nmatch: {method: POST}\nkey: [ip]\nlimit: 1\nwindow: 1h\nallow: [partners, offices]\n",
		"lists.yaml": "kind: allow\nid: offices\nowner: a\nentries:\n  - {cidr: 192.0.2.0/24, reason: our office, until: 2026-01-01T00:01:00Z}\n" +
			"---\nkind: allow\nid: partners\nowner: a\nentries: [{cidr: 198.51.100.0/24, reason: a partner}]\n",
	})
	events := event(0, `"method":"POST"`) + event(0, `"method":"GET"`) + event(30*time.Second, `"method":"POST"`) + event(time.Minute, `"method":"POST"`) +
		event(time.Minute, `"method":"POST"`) + strings.Replace(event(time.Minute, `"method":"POST"`), "192.0.2.7", "198.51.100.7", 1)
	args := []string{"explain", "r", "-f", filepath.Join(dir, "rule.yaml"), "-f", filepath.Join(dir, "lists.yaml"), "--event", "-"}
	got := call(t, "table", events, args...)
	said := ""
	for _, row := range strings.Split(got.stdout, "\n") {
		words := strings.Join(strings.Fields(row), " ")
		if strings.HasPrefix(words, "allow ") || strings.Contains(words, "count") {
			said += words + "\n"
		}
	}
	const want = `allow offices, partners on offices: cidr "192.0.2.0/24" until 2026-01-01T00:01:00Z no
not counted: the allow list offices lets it pass: our office
not counted: the match does not hold
allow offices, partners on offices: cidr "192.0.2.0/24" until 2026-01-01T00:01:00Z no
not counted: the allow list offices lets it pass: our office
allow offices, partners on none yes
count events 1 yes
count 1 of limit 1: not over
allow offices, partners on none yes
count events 1 yes
count 2 of limit 1: over
allow offices, partners on partners: cidr "198.51.100.0/24" no
not counted: the allow list partners lets it pass: a partner
`
	if got.err != nil || said != want {
		t.Errorf("%v: got\n%s\nwant\n%s", got.err, said, want)
	}
	var all []explained
	got = call(t, "json", events, args...)
	if err := json.Unmarshal([]byte(got.stdout), &all); err != nil || len(all) != 6 || all[0].Why != "allowed" || all[0].Counts ||
		*all[0].Allowed != (letPass{"offices", `cidr "192.0.2.0/24"`, "our office", all[3].Time}) || all[3].Allowed != nil || all[5].Allowed.Until != 0 {
		t.Errorf("%v, %v: %s", err, got.err, got.stdout)
	}
}

// TestExplainKnowsTheBudget: whether a condition is judged follows from the conditions of all rules that are given,
// as it does where events are routed.
func TestExplainKnowsTheBudget(t *testing.T) {
	dir := t.TempDir()
	const many = 60
	rule := func(id, owner, more string) string {
		return "id: " + id + "\nowner: " + owner + "\nmatch: {path: /x" + more +
			"}\nkey: [device]\nlimit: 2\nwindow: 5m\n"
	}
	var texts []string
	for i := range many {
		texts = append(texts, rule(fmt.Sprintf("dear-%02d", i), "one",
			fmt.Sprintf(`, when: 'event.user_agent.matches("(?i)bot%d[/ ][0-9]+") || true'`, i)))
	}
	texts = append(texts, rule("other", "two", `, when: 'event.user_agent.matches("(?i)cat[/ ][0-9]+") || true'`),
		rule("plain", "one", ""),
		strings.TrimSuffix(rule("tiered", "one", ""), "limit: 2\nwindow: 5m\n")+
			"limit: 2\nwindow: 5m\ntiers:\n  - {when: 'event.user_agent.matches(\"(?i)fox[/ ][0-9]+\") || "+
			"event.user_agent.matches(\"(?i)elk[/ ][0-9]+\")', limit: 9}\n")
	write(t, dir, map[string]string{"all.yaml": strings.Join(texts, "---\n"), "alone.yaml": texts[many-1]})
	explained := func(id, file string, agent int) explained {
		t.Helper()
		events := event(0, `"device":"tv-1","method":"GET","path":"/x","user_agent":"`+strings.Repeat("x", agent)+`"`)
		got := call(t, "json", events, "explain", id, "-f", filepath.Join(dir, file), "--event", "-")
		var all []explained
		if err := json.Unmarshal([]byte(got.stdout), &all); got.err != nil || err != nil || len(all) != 1 {
			t.Fatalf("%s: %v, %v, %s", id, got.err, err, got.stdout)
		}
		return all[0]
	}
	last := fmt.Sprintf("dear-%02d", many-1)
	for _, c := range []struct {
		rule, file string
		agent      int
		counts     bool
	}{
		{last, "all.yaml", 60, true}, {last, "alone.yaml", 8000, true}, {last, "all.yaml", 8000, false},
		{"dear-00", "all.yaml", 8000, true}, {"other", "all.yaml", 8000, true}, {"plain", "all.yaml", 8000, true},
	} {
		x := explained(c.rule, c.file, c.agent)
		if x.Counts != c.counts || x.Watched != c.counts || (x.Why == whyBeyond) == c.counts {
			t.Errorf("%s of %s, a user agent of %d: got counted %v, %q; allowed: %v", c.rule, c.file, c.agent, x.Counts,
				x.Why, c.counts)
		}
		for _, clause := range x.Clauses {
			if clause.Name == "match.when" && clause.Held != c.counts {
				t.Errorf("%s of %s: match.when: %+v; allowed: held %v", c.rule, c.file, clause, c.counts)
			}
		}
	}
	if x := explained("tiered", "all.yaml", 8000); !x.Counts || x.Unjudged != "budget" || x.Limit != 9 {
		t.Errorf("tiers: got %+v; allowed: counted by the greatest limit", x)
	}
}
