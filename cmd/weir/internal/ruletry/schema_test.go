package ruletry

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/condition"
	"github.com/weirhq/weir/traffic"
)

const repository = "../../../.."

// published is the schema as editors get it: as JSON, compiled by a library that knows nothing of weir.
func published(t *testing.T) *jsonschema.Schema {
	t.Helper()
	text, err := json.Marshal(Schema())
	if err != nil {
		t.Fatal(err)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("rule.schema.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("rule.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// judged is what a schema says of the documents of a text; one that is not YAML is refused by its reader.
func judged(t *testing.T, s *jsonschema.Schema, src string) (verdicts []error) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(src))
	for {
		var node yaml.Node
		var value any
		err := d.Decode(&node)
		if err == nil {
			timesAreText(&node)
			err = node.Decode(&value)
		}
		switch {
		case errors.Is(err, io.EOF):
			return verdicts
		case err != nil && strings.Contains(err.Error(), "already defined"):
			verdicts = append(verdicts, err)
			continue
		case err != nil:
			return append(verdicts, err)
		case value == nil:
			continue
		}
		text, err := json.Marshal(value)
		if err != nil {
			verdicts = append(verdicts, err) // a name that is no text
			continue
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		verdicts = append(verdicts, s.Validate(doc))
	}
}

// timesAreText makes times what editors take them for, whose YAML knows none.
func timesAreText(n *yaml.Node) {
	if n.Tag == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, part := range n.Content {
		timesAreText(part)
	}
}

// rulesShown are the rules of all documents of the repository, by place, and whether they are shown as wrong.
func rulesShown(t *testing.T) (good, wrong map[string]string) {
	t.Helper()
	good, wrong = map[string]string{}, map[string]string{}
	block := regexp.MustCompile("(?ms)^```yaml([^\n]*)\n(.*?)^```$")
	err := filepath.WalkDir(filepath.Join(repository, "docs"), func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".md" {
			return err
		}
		text, err := os.ReadFile(name)
		for i, found := range block.FindAllStringSubmatch(string(text), -1) {
			at := fmt.Sprintf("%s block %d", name, i)
			switch {
			case strings.Contains(found[1], "wrong"):
				wrong[at] = found[2]
			case regexp.MustCompile(`(?m)^id: `).MatchString(found[2]) && regexp.MustCompile(`(?m)^owner: `).MatchString(found[2]):
				good[at] = found[2]
			}
		}
		return err
	})
	stories, globErr := filepath.Glob(filepath.Join(repository, "examples/stories/*.yaml"))
	for _, name := range stories {
		text, readErr := os.ReadFile(name)
		var story struct{ Rules []yaml.Node }
		readErr = errors.Join(readErr, yaml.Unmarshal(text, &story))
		for i := range story.Rules {
			if story.Rules[i].Kind != yaml.MappingNode {
				continue // the name of a file, which is among the examples
			}
			rule, encodeErr := yaml.Marshal(&story.Rules[i])
			good[fmt.Sprintf("%s rule %d", name, i)], readErr = string(rule), errors.Join(readErr, encodeErr)
		}
		err = errors.Join(err, readErr)
	}
	files, rulesErr := filepath.Glob(filepath.Join(repository, "examples/rules/*.yaml"))
	globErr = errors.Join(globErr, rulesErr)
	for _, name := range append(files, filepath.Join(repository, "rules/testdata/every-field.yaml")) {
		text, readErr := os.ReadFile(name)
		good[name], err = string(text), errors.Join(err, readErr)
	}
	if err := errors.Join(err, globErr); err != nil {
		t.Fatal(err)
	}
	return good, wrong
}

func TestSchemaTakesEveryRuleThatIsShown(t *testing.T) {
	s := published(t)
	good, _ := rulesShown(t)
	if len(good) < 40 {
		t.Fatalf("%d files, blocks and rules of stories", len(good))
	}
	for at, src := range good {
		verdicts := judged(t, s, src)
		if len(verdicts) == 0 {
			t.Errorf("%s: no document", at)
		}
		for i, err := range verdicts {
			if err != nil {
				t.Errorf("%s, document %d: %v", at, i, err)
			}
		}
	}
}

// The documents that a schema cannot refuse, and why. A line too many is an error as well.
func TestSchemaRefusesEveryBadRule(t *testing.T) {
	beyond := map[string]string{
		"block-keys.yaml 0": "which fields the gateway vouches for is in the configuration",
		"block-keys.yaml 1": "the prefix lengths of one list are those of another",
		"duplicates.yaml 1": "each of two documents with one id is a good one",
		"duplicates.yaml 2": "the same",
		"allow.yaml 6":      "each of two lists with one id is a good one",
		"keys.yaml 5":       "which fields the gateway vouches for is in the configuration",
		"keys.yaml 6":       "the same",
		"keys.yaml 7":       "what stands between | is one text for a schema",
		"keys.yaml 8":       "what is counted is not compared with the key",
	}
	s := published(t)
	files, err := filepath.Glob(filepath.Join(repository, "rules/testdata/bad/*.yaml"))
	if err != nil || len(files) < 8 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	refused := 0
	for _, name := range files {
		src, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for i, err := range judged(t, s, string(src)) {
			at := fmt.Sprintf("%s %d", filepath.Base(name), i)
			reason, known := beyond[at]
			switch {
			case err == nil && !known:
				t.Errorf("%s is taken, and is wrong", at)
			case err != nil && known:
				t.Errorf("%s is refused, and was said to be beyond a schema: %s", at, reason)
			}
			delete(beyond, at)
			refused++
		}
	}
	_, wrong := rulesShown(t)
	for at, src := range wrong {
		for _, err := range judged(t, s, src) {
			refused++
			if err == nil && !strings.Contains(src, "when:") { // what is within a condition is beyond a schema: its types are CEL's
				t.Errorf("%s is taken, and is shown as wrong:\n%s", at, src)
			}
		}
	}
	if len(beyond) > 0 || refused < 25 {
		t.Errorf("%d documents were looked at; not found: %v", refused, beyond)
	}
}

// The schema and the loader agree on each member of the language, one step to both sides of what is allowed.
func TestSchemaAndLoaderAgree(t *testing.T) {
	const rule = "owner: b\nlimit: 2\nwindow: 1m\nid: "
	const list = "kind: allow\nowner: b\nid: "
	s := published(t)
	env := rules.Environment{Identity: traffic.DefaultIdentityMap(), AllowLists: []string{"offices", "partners"}}
	env.Identity.User.Vouched = true
	var err error
	if env.Conditions, err = condition.New(); err != nil {
		t.Fatal(err)
	}
	for body, good := range map[string]bool{
		rule + "a\nmatch: {}\nkey: [ip]\nkind: rule": true, rule + "a\nmatch: {}\nkey: [ip]\nkind: alow": false, rule + "a\nmatch: {}\nkey: [ip]\nkind: 1": false,
		rule + "a\nmatch: {}\nkey: [ip]\nallow: [offices, partners]": true, rule + "a\nmatch: {}\nkey: [ip]\nallow: offices": false,
		rule + "a\nmatch: {}\nkey: [ip]\nallow: []": false, rule + "a\nmatch: {}\nkey: [ip]\nallow: [offices, offices]": false, rule + "a\nmatch: {}\nkey: [ip]\nallow: [Offices]": false,

		rule + "a\nmatch: {}\nkey: [host, method, route, plan, user_agent, attrs.a.b]": true, rule + "a\nmatch: {}\nkey: [path]": false, rule + "a\nmatch: {}\nkey: [attrs.a..b]": false,
		rule + "a\nmatch: {}\nkey: [attrs.]": false, rule + "a\nmatch: {}\nkey: [referer]": false, rule + "a\nmatch: {}\nkey: ['attrs.a b', ip]": true,
		rule + "a\nmatch: {path: '/u/{id}'}\nkey: ['{id}']": true, rule + "a\nmatch: {}\nkey: ['{id}']": false, rule + "a\nmatch: {path: '/u/{id}'}\nkey: [{id}]": false, rule + "a\nmatch: {path: '/u/{id}'}\nkey: ['{}']": false,
		rule + "a\nmatch: {}\nkey: [api_key|user|ip]": true, rule + "a\nmatch: {}\nkey: [api_key|]": false, rule + "a\nmatch: {}\nkey: [api_key||ip]": false, rule + "a\nmatch: {}\nkey: [attrs.a|attrs.b.c]": true,
		rule + "a\nmatch: {}\nkey: [{field: api_key|ip, v4: 24}]": true, rule + "a\nmatch: {}\nkey: [{field: api_key|user, v4: 24}]": false, rule + "a\nmatch: {}\nkey: [{field: ip, v4: 33}]": false,
		rule + "a\nmatch: {}\nkey: [{any: [api_key, ip], v4: 24}]": true, rule + "a\nmatch: {}\nkey: [{any: [api_key, {field: ip, v4: 24}]}]": true, rule + "a\nmatch: {}\nkey: [{any: [api_key]}]": false,
		rule + "a\nmatch: {}\nkey: [{any: api_key}]": false, rule + "a\nmatch: {}\nkey: [{any: [api_key, user], v4: 24}]": false, rule + "a\nmatch: {}\nkey: [{any: [api_key, user|ip]}]": false,
		rule + "a\nmatch: {}\nkey: [{any: [api_key, ip], field: ip}]": false, rule + "a\nmatch: {}\nkey: [{v4: 24}]": false, rule + "a\nmatch: {}\nkey: [{any: [api_key, path]}]": false,
		rule + "a\nmatch: {}\nkey: [ip, device, user, api_key, session, host, method, route]": true, rule + "a\nmatch: {}\nkey: [ip, device, user, api_key, session, host, method, route, plan]": false,
		rule + "a\nmatch: {}\nkey: [ip, host]\nblock: {key: [ip], ttl: 5m}": true, rule + "a\nmatch: {}\nkey: [ip, host]\nblock: {ttl: 5m}": false, rule + "a\nmatch: {}\nkey: [ip, host]\nblock: {key: [ip, host], ttl: 5m}": false,
		rule + "a\nmatch: {}\nkey: [user|ip]\nblock: {key: [user|ip], ttl: 5m}": false, rule + "a\nmatch: {}\nkey: [user|ip]\nblock: {key: [ip], ttl: 5m}": true,

		rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: path}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: [host, path]}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: []}": false,
		rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: [host, host]}": false, rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: attrs.sku}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: paths}": false,
		rule + "a\nmatch: {}\nkey: [device]\ncount: {distinct: {field: ip, v4: 24}}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {distinct: {any: [user, device]}}": true,
		rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: bytes}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: latency_ms}": true, rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: attrs.usage.tokens}": true,
		rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: latency}": false, rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: attrs.}": false, rule + "a\nmatch: {}\nkey: [ip]\ncount: {sum: bytes, distinct: path}": false,
		rule + "a\nmatch: {when: event.status == 401}\nkey: [ip]\ntiers: [{when: 'event.plan == \"free\"', limit: 1}]\nnear: 0.8\ncandidate: {limit: 3}": true,
		rule + "a\nmatch: {}\nkey: [ip]\ntiers: []": false, rule + "a\nmatch: {}\nkey: [ip]\ntiers: [{limit: 1}]": false, rule + "a\nmatch: {}\nkey: [ip]\ncandidate: 3": false, rule + "a\nmatch: {}\nkey: [ip]\nnear: 2": false,

		list + "a\nentries: []": true, list + "a": false, list + "a\nentries: {}": false, list + "A\nentries: []": false, list + "a\nentries: []\nkey: [ip]": false,
		list + "a\nentries: [{cidr: 192.0.2.0/24, reason: us}, {cidr: '2001:db8::/32', reason: us, until: 2026-12-31T00:00:00Z}, {cidr: 192.0.2.7, reason: b}, {user: ann, reason: c}]": true,
		list + "a\nentries: [{cidr: 192.0.2.0/24}]": false, list + "a\nentries: [{reason: us}]": false, list + "a\nentries: [{cidr: 192.0.2.7, user: ann, reason: us}]": false,
		list + "a\nentries: [{ip: 192.0.2.7, reason: us}]": false, list + "a\nentries: [192.0.2.7]": false, list + "a\nentries: [{cidr: 0.0.0.0/0, reason: us}]": false, list + "a\nentries: [{cidr: '::/0', reason: us}]": false,
		list + "a\nentries: [{cidr: 192.0.2.0/33, reason: us}]": false, list + "a\nentries: [{cidr: 'fe80::1%eth0', reason: us}]": false, list + "a\nentries: [{cidr: '::ffff:192.0.2.1', reason: us}]": false,
		list + "a\nentries: [{user: ann, reason: us, until: 2026-12-31}]": false, list + "a\nentries: [{user: ann, reason: us, until: 2026-12-31T00:00:00}]": false, list + "a\nentries: [{user: ann, reason: us, until: 2026-12-31T01:00:00.5+01:00}]": true,
		list + "a\nentries: [{user: ann, reason: ''}]": false, list + "a\nentries: [{user: ' ann', reason: us}]": false, list + "a\nentries: [{user: 7, reason: us}]": false,
	} {
		verdicts := judged(t, s, body+"\n")
		_, err := rules.ParseSet([]rules.File{{Name: "a.yaml", Src: []byte(body + "\n")}}, env)
		if len(verdicts) != 1 || (verdicts[0] == nil) != good || (err == nil) != good {
			t.Errorf("%s\nthe schema says %v, the loader %v; want good %v", body, verdicts, err, good)
		}
	}
}

// What stands in tests is in the schema as well: one step away from a good test is refused.
func TestSchemaKnowsTests(t *testing.T) {
	const head = "id: a\nowner: b\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\ntests:\n"
	s := published(t)
	for body, good := range map[string]bool{
		"  - {name: a, timeline: [], expect: {hits: []}}": true,
		"  - {name: a, each: {ip: 192.0.2.1, status: 401, attrs: {x: {y: 1}}}, timeline: [{at: 0s, times: 2, every: 1s, comes: 1m30s, latency_ms: 3}], expect: {hits: [{rule: a, ip: 192.0.2.1, count: 1, peak: 2, first: 1s, last: 1s, updates: 0, phase: closed, grouped: false}], uncounted: [{why: late, count: 1}], blocks: [{until: 1h, released: false}]}}": true,
		"  - {name: a, timeline: [], expect: {hits: [], blocks: [{host: a.example}]}}": false, // a gate holds identities
		"  - {name: a, timeline: [], expect: {hits: [{path: /a}]}}":                    false,
		"  - {name: a, timeline: [], expect: {hits: [{attrs.: a}]}}":                   false,
		"  {}":                                                                    false,
		"  - {timeline: [], expect: {hits: []}}":                                  false,
		"  - {name: a, expect: {hits: []}}":                                       false,
		"  - {name: a, timeline: []}":                                             false,
		"  - {name: a, timeline: [], expect: {}}":                                 false,
		"  - {name: '', timeline: [], expect: {hits: []}}":                        false,
		"  - {name: a, timeline: [{ip: 192.0.2.1}], expect: {hits: []}}":          false,
		"  - {name: a, timeline: [{at: 0s, times: 2}], expect: {hits: []}}":       false,
		"  - {name: a, timeline: [{at: 0}], expect: {hits: []}}":                  false,
		"  - {name: a, timeline: [{at: 0s, kill: route}], expect: {hits: []}}":    false,
		"  - {name: a, timeline: [{at: 0s, status: 4xx}], expect: {hits: []}}":    false,
		"  - {name: a, timeline: [], expect: {hits: [{counts: 1}]}}":              false,
		"  - {name: a, timeline: [], expect: {hits: [], uncounted: [{why: no}]}}": false,
		"  - {name: a, timeline: [], expect: {hits: [], blocks: [{until: 5}]}}":   false,
	} {
		verdicts := judged(t, s, head+body+"\n")
		if _, _, err := readSource(head + body + "\n"); len(verdicts) != 1 || (verdicts[0] == nil) != good || (err == nil) != good {
			t.Errorf("%s: the schema says %v, the reader %v; want good %v", body, verdicts, err, good)
		}
	}
}

// A hit is named by the fields of the rule's key, whichever these are.
func TestSchemaKnowsHitsByOtherFields(t *testing.T) {
	const head = "id: a\nowner: b\nmatch: {path: '/u/{id}'}\nkey: [host, method, 'route|plan', user_agent, '{id}', attrs.a.b, attrs.x-y]\nlimit: 1\nwindow: 1m\ntests:\n  - name: a\n    timeline: []\n    expect: {hits: ["
	s := published(t)
	for _, fact := range []string{"host: a.example", "method: GET", "route: r", "plan: 7", "user_agent: b", "'{id}': 7", "attrs.a.b: x", "attrs.x-y: 1.5"} {
		src := head + "{" + fact + ", count: 2}]}\n"
		verdicts := judged(t, s, src)
		if _, _, err := readSource(src); err != nil || len(verdicts) != 1 || verdicts[0] != nil {
			t.Errorf("%s: the schema says %v, the reader %v; want it taken", fact, verdicts, err)
		}
	}
}

// anyDocument makes documents, most of them good.
type anyDocument struct{ *rapid.T }

// bad reports whether the next value is to be a bad one.
func (t anyDocument) bad() bool { return rapid.IntRange(0, 39).Draw(t.T, "bad") == 39 }

func pick[T any](t anyDocument, name string, of ...T) T {
	return of[rapid.IntRange(0, len(of)-1).Draw(t.T, name)]
}

// maybe gives a member one of these values, or leaves it out, as it does more often than not.
func (t anyDocument) maybe(into map[string]any, name string, good []any, bad ...any) {
	switch {
	case rapid.IntRange(0, 3).Draw(t.T, name+" said") != 3:
	case t.bad():
		into[name] = pick(t, name, bad...)
	default:
		into[name] = pick(t, name, good...)
	}
}

// need is maybe for a member that there must be.
func (t anyDocument) need(into map[string]any, name string, good []any, bad ...any) {
	switch {
	case !t.bad():
		into[name] = pick(t, name, good...)
	case rapid.Bool().Draw(t.T, name+" left out"):
	default:
		into[name] = pick(t, name, bad...)
	}
}

func (t anyDocument) span() (good, bad []any) {
	return []any{"1m", "90s", "1h30m", "1d"}, []any{"60", 60, "1.5m", "1m1h", "m", "", "-1m", "1m 30s", "0s", "32d", true}
}

func (t anyDocument) match(ofRule bool) map[string]any {
	m := map[string]any{}
	t.maybe(m, "method", []any{"GET", "get", []any{"GET", "POST"}}, "G T", []any{}, 7, []any{"GET", "GET"}, "", strings.Repeat("A", 65))
	t.maybe(m, "path", []any{"/a", []any{"/a", "/b"}, "/u/{id}", "/u/{id}/x", "/a/*", "/a*", "/*.php", "/*/b", "/a/", "/", "/é", "/*"},
		"a", "/a//b", "/%61", "/a/../b", "", "/a?b", "/a*b", "/{id", "/{1}", []any{}, 7, []any{"/a", "/a"}, []any{"/a", 7}, "//a", "/./a", "/"+strings.Repeat("a", 2048))
	t.maybe(m, "except", []any{"/b", []any{"/b", "/c/*"}}, "/b//c", "", 7, []any{}, "/*")
	t.maybe(m, "host", []any{"a.example", "*.example", []any{"a.example", "b.example"}, "[::1]", "a_b-c", "192.0.2.1", "localhost"},
		"a.example:80", "*", "A.example", "[::1]:80", "a/b", "", "a.example.", 7, "a..b", "é.example", "*.*.a", "a b", ".a", strings.Repeat("a", 300))
	t.maybe(m, "route", []any{"r", []any{"r", "s"}, "a route"}, "", strings.Repeat("r", 257), 7, "a\tb")
	if m["path"] != nil || m["except"] != nil || t.bad() {
		t.maybe(m, "path_as", []any{"raw", "normal"}, "other", 7, "")
		t.maybe(m, "path_case", []any{"ignore", "exact"}, "other", "")
	}
	if ofRule || t.bad() {
		t.maybe(m, "status", []any{401, "401", "4xx", "4XX", []any{401, "5xx"}}, "600", 600, 99, []any{}, "", "4x1", 401.5, []any{401, 401})
		t.maybe(m, "when", []any{"true", "event.status == 401", " event.plan == 'a' "}, "", "  ", 7)
	}
	return m
}

func (t anyDocument) key(name string, identities bool, path any) any {
	bad := []any{"{1}", "attrs.", "attrs.a..b", "path", "status", "api_key|", "", 7, map[string]any{"field": "ip", "v6": 0}, map[string]any{"field": "device", "v4": 24},
		map[string]any{"field": "ip", "v5": 1}, map[string]any{"v4": 24}, map[string]any{"any": []any{"user"}}, "{id}", "ip"}
	key := []any{"ip", "device", map[string]any{"field": "user"}, "api_key", "session"}
	if !identities {
		key = append(key, "host", "method", "route", "plan", "user_agent", "attrs.a", "attrs.a.b", "plan|route", map[string]any{"any": []any{"attrs.b", "attrs.c"}})
		if text, ok := path.(string); ok && strings.Contains(text, "{id}") {
			key = append(key, "{id}", "{id}")
		}
	}
	key = rapid.Permutation(key).Draw(t.T, name)[:rapid.IntRange(1, 3).Draw(t.T, name+" fields")]
	key[0] = pick[any](t, name+"[0]", key[0], "ip", map[string]any{"field": "ip", "v4": 24}, map[string]any{"field": "ip", "v4": 24, "v6": 48})
	switch {
	case !t.bad():
		return key
	case rapid.Bool().Draw(t.T, name+" bare"):
		return pick[any](t, name+" bare", "ip", 7, map[string]any{}, []any{}, "[ip]", nil)
	}
	return append(key, pick(t, name+" bad", bad...))
}

// rule is a rule with any members.
func (t anyDocument) rule() map[string]any {
	good, bad := t.span()
	d := map[string]any{}
	t.maybe(d, "kind", []any{"rule"}, "alow", 1)
	t.need(d, "id", []any{"a", "a-1"}, "A", "", "-a", 7, strings.Repeat("a", 65), "a_b", "a\n")
	t.need(d, "owner", []any{"b", "the team", "é"}, "", " b", "b ", 7, strings.Repeat("x", 129), "a\tb", "a\u202eb")
	match := t.match(true)
	t.need(d, "match", []any{match}, nil, "all", []any{})
	d["key"] = t.key("key", false, match["path"])
	t.need(d, "limit", []any{2, 20, 1000000}, 1000001, -1, "2", 2.5, nil)
	t.need(d, "window", good, bad...)
	t.maybe(d, "on_missing", []any{"skip", "group"}, "drop", "")
	t.maybe(d, "algorithm", []any{"sliding", "fixed", "first-seen", "sliding-counter", "sliding-log", "token-bucket", "leaky-bucket"}, "tumbling", "")
	t.maybe(d, "count", []any{"events", map[string]any{"sum": "bytes"}, map[string]any{"sum": "attrs.cost"}, map[string]any{"distinct": "path"}, map[string]any{"distinct": []any{"path", "attrs.sku"}}},
		"distinct", 7, map[string]any{}, map[string]any{"sum": "cost"}, map[string]any{"sum": "attrs."}, map[string]any{"distinct": []any{}}, map[string]any{"distinct": "plan", "sum": "bytes"})
	if strings.HasSuffix(fmt.Sprint(d["algorithm"]), "bucket") || t.bad() {
		t.maybe(d, "burst", []any{1, 20}, 0, 1000001, "20")
	} else {
		t.maybe(d, "near", []any{0.8, "80%", 0.99}, "0.8", 80, 0, 1, "0%", "100%", true)
		t.maybe(d, "tiers", []any{[]any{map[string]any{"when": "true", "limit": 3}}}, []any{}, []any{map[string]any{"when": "true"}}, []any{map[string]any{"when": "true", "limit": "3"}},
			map[string]any{"when": "true", "limit": 3}, []any{map[string]any{"when": "", "limit": 3}}, []any{map[string]any{"when": "true", "limit": 3, "window": "1m"}})
	}
	t.maybe(d, "cooldown", good, bad...)
	t.maybe(d, "lateness", append(good, "0s"), "", 60, "2d")
	t.maybe(d, "max_lag", good, bad...)
	t.maybe(d, "candidate", []any{map[string]any{"limit": 3}}, map[string]any{}, 3, map[string]any{"limit": -1}, map[string]any{"limit": 3, "window": "1m"})
	t.maybe(d, "allow", []any{[]any{"offices"}, []any{"offices", "partners"}}, []any{"offices", "offices"}, []any{}, "offices", []any{"Offices"}, []any{7})
	if rapid.Bool().Draw(t.T, "blocks") {
		b := map[string]any{"key": t.key("block.key", true, nil)}
		if t.bad() {
			delete(b, "key")
		}
		t.need(b, "ttl", good, bad...)
		t.maybe(b, "extend", []any{"never", "on-hit"}, "on-attempt", "")
		if rapid.Bool().Draw(t.T, "block.match said") {
			b["match"] = t.match(false)
		}
		d["block"] = b
	}
	if t.bad() {
		d["wnidow"] = "1m"
	}
	return d
}

// beyondSchema are problems that the schema does not claim to find, by what is said of them.
func beyondSchema(p rules.Problem) (why string) {
	text := p.Error()
	for said, why := range map[string]string{
		" a second time":                         "what stands between | and in any is one text, or one list, for a schema",
		"which is no segment of ":                "a pattern is not compared with another text",
		"which leaves out all that path matches": "the same",
		"for failed attempts (":                  "which statuses are failures is beyond it",
		"claimed by the client only":             "which fields the gateway vouches for is in the configuration",
		", as in the rule's key, or a plain ip":  "the prefix lengths of one list are those of another",
		"which no request can meet":              "a path without / is met by CONNECT alone",
		"got 32d":                                "it cannot add up a duration",
		"got 2d":                                 "the same",
		"got \"32d\"":                            "the same",
	} {
		if strings.Contains(text, said) {
			return why
		}
	}
	return ""
}

// Whatever the loader takes the schema takes, and whatever the loader refuses the schema refuses, but for what it does not claim.
func TestSchemaAndLoaderAgreeOnAnyRule(t *testing.T) {
	s := published(t)
	env := rules.Environment{Identity: traffic.DefaultIdentityMap(), AllowLists: []string{"offices", "partners"}}
	env.Identity.User.Vouched, env.Identity.Device.Vouched, env.Identity.APIKey.Vouched, env.Identity.Session.Vouched = true, true, true, true
	var err error
	if env.Conditions, err = condition.New(); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(rt *rapid.T) {
		src, err := json.Marshal(anyDocument{rt}.rule())
		if err != nil {
			rt.Fatal(err)
		}
		verdicts := judged(t, s, string(src))
		_, err = rules.ParseSet([]rules.File{{Name: "a.yaml", Src: src}}, env)
		var problems rules.Problems
		if errors.As(err, &problems); len(verdicts) != 1 || (err != nil) != (len(problems) > 0) {
			rt.Fatalf("%s\n%v, %v", src, verdicts, err)
		}
		claimed := slices.ContainsFunc(problems, func(p rules.Problem) bool { return beyondSchema(p) == "" })
		switch {
		case err == nil && verdicts[0] != nil:
			rt.Fatalf("%s\nthe loader takes it, the schema says %v", src, verdicts[0])
		case claimed && verdicts[0] == nil:
			rt.Fatalf("%s\nthe schema takes it, the loader says %v", src, err)
		}
	})
}
