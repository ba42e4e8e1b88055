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
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v3"

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
	files, globErr := filepath.Glob(filepath.Join(repository, "examples/rules/*.yaml"))
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
	if len(good) < 10 {
		t.Fatalf("%d files and blocks", len(good))
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
