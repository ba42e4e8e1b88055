package rules

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/rules/promotion"
	"github.com/weirhq/weir/traffic"
)

var update = flag.Bool("update", false, "write the golden files of testdata anew")

func testEnvironment() Environment {
	return Environment{Identity: traffic.DefaultIdentityMap(), Conditions: testConditions()}
}

func testConditions() Conditions {
	language, err := condition.New()
	if err != nil {
		panic(err)
	}
	return language
}

// parse reads the rule documents of one file.
func parse(name string, src []byte, env Environment) ([]Document, error) {
	return ParseFiles([]File{{Name: name, Src: src}}, env)
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	if *update {
		if err := os.WriteFile(name, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: got\n%s\nwant\n%s", name, got, want)
	}
}

func TestParseEveryField(t *testing.T) {
	src, err := os.ReadFile("testdata/every-field.yaml")
	if err != nil {
		t.Fatal(err)
	}
	got, err := parse("every-field.yaml", src, testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	ip := traffic.KeyField{Field: traffic.FieldIP, V4: 24, V6: 56}
	want := []Document{{
		ID: "every-field", Owner: "Team Identity & Access",
		Match:   Match{Methods: []string{"POST", "PUT"}, Path: "/v1//users/{user_id}/sessions*", PathAs: PathRaw, PathCase: PathCaseIgnore},
		Key:     []traffic.KeyField{{Field: traffic.FieldDevice}, ip, {Field: traffic.FieldSession}},
		Missing: MissingGroup, Limit: 12, Window: 90 * time.Minute,
		Algorithm: AlgorithmLeakyBucket, Count: Count{Distinct: &traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}}, Burst: 20, Cooldown: 10 * time.Minute,
		Lateness: 15 * time.Minute, MaxLag: 90 * time.Second,
		Block:   &Block{Key: []traffic.KeyField{ip, {Field: traffic.FieldSession}}, TTL: 7 * 24 * time.Hour, Extend: ExtendNever},
		Allow:   []string{"office-egress", "partners"},
		Promote: &promotion.Gates{MinShadow: promotion.Span(72 * time.Hour), MaxKnownGood: 10, MinCoverage: 5000, MaxTrafficShare: 1250},
		Canary:  &promotion.Canary{Steps: []promotion.Share{25, 2000}, Hold: promotion.Span(2 * time.Hour)},
	}, {
		ID: "fewest-fields", Owner: "ops", Key: []traffic.KeyField{}, Missing: MissingSkip, Window: time.Second,
		Algorithm: AlgorithmSliding, Cooldown: DefaultCooldown, Lateness: DefaultLateness, MaxLag: DefaultMaxLag,
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParsePrefixesComeFromTheIdentityMap(t *testing.T) {
	const src = "id: a\nowner: b\nmatch: {}\nkey: [%KEY]\nlimit: 1\nwindow: 5m\nblock: {ttl: 1m}\n"
	env := testEnvironment()
	env.Identity.IP.V4, env.Identity.IP.V6 = 24, 48
	for _, c := range []struct {
		key    string
		env    Environment
		v4, v6 uint8
	}{
		{"ip", Environment{}, 32, 64},
		{"ip", env, 24, 48},
		{"{field: ip}", env, 24, 48},
		{"{field: ip, v4: 16}", env, 16, 48},
		{"{field: ip, v4: 16, v6: 128}", env, 16, 128},
	} {
		docs, err := parse("a.yaml", []byte(strings.Replace(src, "%KEY", c.key, 1)), c.env)
		if err != nil {
			t.Fatal(err)
		}
		want := []traffic.KeyField{{Field: traffic.FieldIP, V4: c.v4, V6: c.v6}}
		if !reflect.DeepEqual(docs[0].Key, want) || !reflect.DeepEqual(docs[0].Block.Key, want) {
			t.Errorf("key %s: got %v and block %v, want %v", c.key, docs[0].Key, docs[0].Block.Key, want)
		}
	}
}

// TestParseBad compares the messages for each file of testdata/bad with the .txt beside it.
func TestParseBad(t *testing.T) {
	files, err := filepath.Glob("testdata/bad/*.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("got %d files, %v", len(files), err)
	}
	for _, name := range files {
		t.Run(filepath.Base(name), func(t *testing.T) {
			src, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			docs, err := parse(filepath.Base(name), src, testEnvironment())
			var problems Problems
			if !errors.As(err, &problems) || docs != nil {
				t.Fatalf("got %d documents and %v, want no document and Problems", len(docs), err)
			}
			for _, p := range problems {
				if p.File == "" || p.Line < 1 || p.Got == "" || p.Allowed == "" {
					t.Errorf("a problem without place, got or allowed: %+v", p)
				}
			}
			golden(t, strings.TrimSuffix(name, ".yaml")+".txt", []byte(err.Error()+"\n"))
		})
	}
}

func TestParseVouchedBlockKey(t *testing.T) {
	const src = "id: a\nowner: b\nmatch: {}\nkey: [user]\nlimit: 1\nwindow: 5m\nblock: {ttl: 1m}\n"
	env := testEnvironment()
	if _, err := parse("a.yaml", []byte(src), env); err == nil || !strings.Contains(err.Error(), "identity.user.vouched: true") {
		t.Errorf("claimed user: got %v, want a refusal that says how to vouch", err)
	}
	env.Identity.User.Vouched = true
	if _, err := parse("a.yaml", []byte(src), env); err != nil {
		t.Errorf("vouched user: %v", err)
	}
	env.Identity.IP.Claimed = true
	src2 := strings.Replace(src, "[user]", "[ip]", 1)
	if _, err := parse("a.yaml", []byte(src2), env); err == nil || !strings.Contains(err.Error(), "identity.ip.claimed: false") {
		t.Errorf("claimed ip: got %v, want a refusal that says how to vouch", err)
	}
}

// hostileDocuments are meant to hurt a parser.
func hostileDocuments() map[string]string {
	const head = "id: a\nowner: b\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 5m\n"
	long := strings.Repeat("a", 1_000_000)
	return map[string]string{
		"NUL":                   head + "on_missing: s\x00kip\n",
		"invalid UTF-8":         head + "on_missing: sk\xffip\n",
		"UTF-16":                "\xff\xfei\x00d\x00",
		"escaped NUL in path":   strings.Replace(head, "{}", `{path: "/\0"}`, 1),
		"surrogate escape":      strings.Replace(head, "owner: b", `owner: "\ud800"`, 1),
		"1 MB id":               strings.Replace(head, "id: a", "id: "+long, 1),
		"1 MB owner":            strings.Replace(head, "owner: b", "owner: "+long, 1),
		"1 MB path":             strings.Replace(head, "{}", "{path: /"+long+"}", 1),
		"1 MB method":           strings.Replace(head, "{}", "{method: "+long+"}", 1),
		"1 MB window":           strings.Replace(head, "5m", long, 1),
		"1 MB of digits":        strings.Replace(head, "limit: 1", "limit: "+strings.Repeat("9", 1_000_000), 1),
		"1 MB key field":        strings.Replace(head, "[ip]", "["+long+"]", 1),
		"1 MB field name":       head + `"` + long + "\": 1\n",
		"file over 1 MiB":       head + "# " + long + long,
		"deep flow":             strings.Repeat("[", 500_000),
		"deep mappings":         strings.Repeat("{a: ", 200_000),
		"deep blocks":           strings.Repeat("- ", 400_000),
		"billion laughs":        "a: &a [x,x,x]\nb: &b [*a,*a,*a]\nc: &c [*b,*b,*b]\nd: [*c,*c,*c]\n",
		"many fields":           head + strings.Repeat("x: 1\n", 100_000),
		"many documents":        strings.Repeat("---\na: 1\n", 50_000),
		"overflowing duration":  strings.Replace(head, "5m", "9223372036854775807d", 1),
		"tag of the Go library": "!!binary aWQ6IGE=",
	}
}

// TestParseHostile: each must be refused, in few words. BenchmarkParseHostile shows that it is soon.
func TestParseHostile(t *testing.T) {
	for name, src := range hostileDocuments() {
		t.Run(name, func(t *testing.T) {
			docs, err := parse("hostile.yaml", []byte(src), testEnvironment())
			if err == nil || docs != nil {
				t.Fatalf("got %d documents and no error", len(docs))
			}
			if n := len(err.Error()); n > 64<<10 {
				t.Errorf("the message has %d bytes", n)
			}
			if !strings.HasPrefix(err.Error(), "hostile.yaml:") {
				t.Errorf("got %q, want a message that starts with the place", err.Error()[:80])
			}
		})
	}
}

func TestParseNothing(t *testing.T) {
	for _, src := range []string{"", "\n", "# only words\n", "---\n---\n", "\ufeff"} {
		if docs, err := parse("a.yaml", []byte(src), testEnvironment()); err != nil || len(docs) != 0 {
			t.Errorf("%q: got %v and %v, want nothing", src, docs, err)
		}
	}
}

func TestLoadDir(t *testing.T) {
	rule := func(id string) []byte {
		return []byte("id: " + id + "\nowner: b\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 5m\n")
	}
	tree := fstest.MapFS{
		"z.yaml":          {Data: rule("a-rule")},
		"team/y.yml":      {Data: append(append(rule("c-rule"), "---\n"...), rule("b-rule")...)},
		"README.md":       {Data: []byte("not: a rule")},
		".hidden.yaml":    {Data: []byte("not: a rule")},
		".git/x.yaml":     {Data: []byte("not: a rule")},
		"empty.yaml":      {Data: nil},
		"not-a-file.yaml": {Mode: os.ModeDir},
	}
	docs, err := LoadDir(tree, "rules", testEnvironment())
	if err != nil {
		t.Fatal(err)
	}
	if len(docs) != 3 || docs[0].ID != "a-rule" || docs[1].ID != "b-rule" || docs[2].ID != "c-rule" {
		t.Errorf("got %v, want a-rule, b-rule, c-rule", docs)
	}

	tree["dup.yaml"] = &fstest.MapFile{Data: rule("c-rule")}
	_, err = LoadDir(tree, "rules", testEnvironment())
	const want = `rules/team/y.yml:1:5: id: got "c-rule" a second time (first at rules/dup.yaml:1:5), allowed an id of its own for every rule`
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}

	tree["dup.yaml"] = &fstest.MapFile{Data: bytes.Repeat([]byte("#"), MaxFileBytes+1)}
	if _, err = LoadDir(tree, "", testEnvironment()); err == nil || !strings.HasPrefix(err.Error(), "dup.yaml:1:1: got a file that is too big") {
		t.Errorf("big file: got %v", err)
	}
	if _, err = LoadDir(fstest.MapFS{"a.txt": {}}, "", testEnvironment()); err == nil || !strings.Contains(err.Error(), "no rules") {
		t.Errorf("no rules: got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	more, _ := filepath.Glob("../examples/rules/*.yaml")
	for _, name := range append(append(files, "testdata/every-field.yaml"), more...) {
		src, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(src)
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		docs, err := parse("fuzz.yaml", src, testEnvironment())
		var problems Problems
		if err != nil && (!errors.As(err, &problems) || docs != nil) {
			t.Fatalf("got %v and %v", docs, err)
		}
		for _, p := range problems {
			if p.Line < 1 || p.Line > bytes.Count(src, []byte("\n"))+bytes.Count(src, []byte("\r"))+2 {
				t.Errorf("line %d of %q: %v", p.Line, src, p)
			}
		}
		for i := range docs {
			if err := docs[i].Validate(testEnvironment()); err != nil {
				t.Fatalf("parsed, but not valid: %v", err)
			}
			again, err := parse("again.yaml", []byte(docs[i].YAML()), testEnvironment())
			if err != nil || len(again) != 1 || !again[0].Equal(&docs[i]) {
				t.Fatalf("%s\nis read back as %v, %v", docs[i].YAML(), again, err)
			}
		}
	})
}

// The text of each rule is told from its neighbours', and says what the rule does.
func TestTextsOfRules(t *testing.T) {
	rule := func(id string) string {
		return "id: " + id + " # of the edge\nowner: o\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
	}
	const list = "kind: allow\nid: a\nowner: o\nentries: []\n"
	for name, test := range map[string]struct {
		src  string
		want map[string]string
	}{
		"alone":               {"# why\n" + rule("a"), map[string]string{"a": "# why\n" + rule("a")}},
		"alone behind a line": {"# licence\n---\n" + rule("a"), map[string]string{"a": "# licence\n---\n" + rule("a")}},
		"two": {"# one\n" + rule("a") + "---\n# two\n" + rule("b") + "\n", map[string]string{
			"a": "# one\n" + rule("a"), "b": "# two\n" + rule("b") + "\n"}},
		"on the line":     {rule("b") + "--- # two\n" + rule("a"), map[string]string{"a": " # two\n" + rule("a"), "b": rule("b")}},
		"flow":            {rule("b") + "--- {id: a, owner: o, match: {}, key: [ip], limit: 1, window: 1m}", map[string]string{"a": " {id: a, owner: o, match: {}, key: [ip], limit: 1, window: 1m}", "b": rule("b")}},
		"with a list":     {list + "---\n" + rule("a") + "---\n", map[string]string{"a": rule("a")}},
		"in a text":       {"owner: \"o ---\"\nid: a\nmatch: {route: '--- x'}\nkey: [ip]\nlimit: 1\nwindow: 1m\n", nil},
		"carriage return": {strings.ReplaceAll(rule("a")+"---\n"+rule("b"), "\n", "\r\n"), map[string]string{"a": strings.ReplaceAll(rule("a"), "\n", "\r\n"), "b": strings.ReplaceAll(rule("b"), "\n", "\r\n")}},
		"directive":       {"%YAML 1.1\n---\n" + rule("a"), map[string]string{}},
		"mark":            {"\ufeff" + rule("a"), map[string]string{}},
		"ended":           {rule("a") + "...\n---\n" + rule("b") + "...\n", map[string]string{"a": rule("a") + "...\n", "b": rule("b") + "...\n"}},
	} {
		if test.want == nil {
			test.want = map[string]string{"a": test.src}
		}
		set, err := ParseSet([]File{{Name: "r.yaml", Src: []byte(test.src)}}, testEnvironment())
		if err != nil || !maps.Equal(set.Texts, test.want) {
			t.Errorf("%s: %v\ngot  %q\nwant %q", name, err, set.Texts, test.want)
			continue
		}
		for _, d := range set.Rules {
			if text, ok := set.Texts[d.ID]; ok {
				if again, err := ParseFiles([]File{{Name: "r.yaml", Src: []byte(text)}}, testEnvironment()); err != nil || len(again) != 1 || !again[0].Equal(&d) {
					t.Errorf("%s: %q says otherwise: %+v, %v", name, text, again, err)
				}
			}
		}
	}
}

// A problem is where an editor finds it: at the value, at the name of an unknown field, and of an expression at the very spot,
// however it is written, unless escapes or joined lines lie before it.
func TestProblemsSayTheirLineAndColumn(t *testing.T) {
	env := testEnvironment()
	const around = "id: a\nowner: b\nkey: [ip]\nlimit: 1\nwindow: 1m\n"
	for _, tt := range []struct{ src, want string }{
		{"match: {method: [GET, 'ü', 5]}", `r.yaml:6:28: match.method[2]: got the number 5`},
		{"match: {pth: /}", "r.yaml:6:9: match.pth: got an unknown field"},
		{"match: {}\nnear: 99%\ncandidate: {limit: 1}", "r.yaml:7:7: near: got 0.99 of limit 1"},
		{`match: {when: event.plan == "ü" && event.pth == "x"}`, `r.yaml:6:36: match.when: got "event.pth", which no event has, allowed`},
		{`match: {when: 'event.plan == "" && event.pth == "x"'}`, `r.yaml:6:36: match.when: got "event.pth", which no event has, allowed`},
		{`match: {when: "event.plan == \"\" && event.pth == \"x\""}`, `r.yaml:6:38: match.when: got "event.pth", which no event has, allowed`},
		{`match: {when: "event.plan == \"\u0061\" && event.pth == \"x\""}`, `r.yaml:6:15: match.when: got "event.pth", which no event has (line 1, column 22 of the expression), allowed`},
		{"match:\n  when: |\n\n    event.plan == \"\" &&\n      event.pth == \"x\"", `r.yaml:10:7: match.when: got "event.pth", which no event has, allowed`},
		{"match:\n  when: >-\n    event.plan == \"\" &&\n    event.pth == \"x\"", `r.yaml:9:5: match.when: got "event.pth", which no event has, allowed`},
		{"match:\n  when: >-\n    event.plan == \"\" &&\n      event.pth == \"x\"", `r.yaml:7:9: match.when: got "event.pth", which no event has (line 2, column 3 of the expression), allowed`},
		{"match: {}\ntiers: [{when: ' event.pth == 1', limit: 2}]", `r.yaml:7:18: tiers[0].when: got "event.pth", which no event has, allowed`},
		{"match: {when: event.plan ==}", `r.yaml:6:28: match.when: got no CEL (mismatched input '<EOF>'), allowed`},
		{"match:\n  when: !event.plan", "r.yaml:7:9: got the YAML tag \"!event.plan\", allowed values without a tag; put the whole expression into quotes, or after |"},
		{"match: {}\nmax_lag: 5min", `r.yaml:7:10: max_lag: got "5min", allowed 1s to 1d, in units s m h d; did you mean 5m?`},
	} {
		_, err := ParseFiles([]File{{"r.yaml", []byte(around + tt.src + "\n")}}, env)
		if err == nil || !strings.Contains("\n"+err.Error(), "\n"+tt.want) {
			t.Errorf("%s:\ngot  %v\nwant %s", tt.src, err, tt.want)
			continue
		}
		ps := Problems(nil)
		if !errors.As(err, &ps) {
			t.Errorf("%s: got a %T", tt.src, err)
			continue
		}
		text, err := json.Marshal(ps[0])
		if err != nil || !strings.Contains(string(text), `"column":`) {
			t.Errorf("%s: as JSON %s, %v", tt.src, text, err)
		}
	}
	bad := Document{ID: "a", Owner: "b", Match: Match{When: "event.pth == 1"}, Missing: MissingSkip, Limit: 1, Window: time.Minute, MaxLag: time.Minute}
	if err := bad.Validate(env); err == nil || !strings.Contains(err.Error(), `match.when: got "event.pth", which no event has (line 1, column 1 of the expression), allowed`) {
		t.Errorf("of no file: got %v", err)
	}
}

// Elements of a key are judged each by itself, and what cannot be read is no reason to complain of what was said well.
func TestAllProblemsOfADocumentAreToldAtOnce(t *testing.T) {
	const src = `id: a
owner: b
match: {path: "/a/{id}"}
key: ["{ID}", path, status, attrs, attrs., attrs.a.b, "ip|device|ip", "user|ip", country, ipaddress]
limit: 10.0
near: 99%
candidate: {limit: 0}
window: 1m
block: {key: [host, devcie], ttl: 1m}
---
id: b
owner: b
match: {path: 5}
key: ["{id}"]
limit: 5
window: 1m
`
	_, err := ParseFiles([]File{{"r.yaml", []byte(src)}}, testEnvironment())
	ps := Problems(nil)
	if !errors.As(err, &ps) {
		t.Fatalf("got %v", err)
	}
	var got []string
	for _, p := range ps {
		got = append(got, fmt.Sprintf("%d:%d %s: %s; %s", p.Line, p.Column, p.Field, p.Got, p.Hint))
	}
	want := []string{
		`4:7 key[0]: {ID}, which is no segment of "/a/{id}"; `, `4:15 key[1]: path; `, `4:21 key[2]: "status"; `, `4:29 key[3]: "attrs"; name the member: attrs.NAME`,
		`4:36 key[4]: "attrs."; name the member: attrs.NAME`, `4:55 key[6]: ip a second time; `, `4:71 key[7]: ip a second time; `,
		`4:82 key[8]: "country"; a member of your own is in attrs: "attrs.country"`, `4:91 key[9]: "ipaddress"; did you mean "ip"?`, `5:8 limit: the number 10.0; `,
		`9:15 block.key[0]: host, which is no identity; a gate derives identities only; of a key with other fields, or with alternatives, name the identity that made the requests, such as ip`,
		`9:21 block.key[1]: "devcie"; did you mean "device"?`, `13:15 match.path: the number 5; put it in quotes to make it text`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
