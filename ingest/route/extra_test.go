package route

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// extraRouting has rules that count by more than identities.
func extraRouting(t *testing.T) *rules.Routing {
	t.Helper()
	const text = `
{id: a-ip, owner: o, match: {}, key: [ip], limit: 1, window: 1m}
---
{id: b-user, owner: o, match: {path: "/users/{id}"}, key: ["{id}", ip], limit: 1, window: 1m}
---
{id: c-same, owner: o, match: {path: "/users/{id}"}, key: [ip], count: {distinct: ["{id}", host]}, limit: 1, window: 1m}
---
{id: d-other, owner: o, match: {path: "/{id}/*"}, key: ["{id}"], limit: 1, window: 1m}
---
{id: e-fall, owner: o, match: {}, key: ["api_key|attrs.tenant|ip"], limit: 1, window: 1m}
---
{id: f-group, owner: o, match: {}, key: [attrs.tenant], on_missing: group, limit: 1, window: 1m}
---
{id: g-bytes, owner: o, match: {}, key: [ip], count: {sum: bytes}, limit: 1, window: 1m}
`
	r := watchRouting()
	docs, err := rules.ParseFiles([]rules.File{{Name: "r", Src: []byte(text)}}, rules.Environment{Identity: r.Identity})
	if err != nil {
		t.Fatal(err)
	}
	r.Rules, r.RecordFormat = nil, rules.LanguageRecordFormat
	for _, d := range docs {
		v, _ := rules.NextVersion(nil, d)
		r.Rules = append(r.Rules, v)
	}
	return r
}

// A record carries what its rules need beside the identity and nothing else, and lies where the first field of their keys says.
func TestExtraValuesOfRecords(t *testing.T) {
	routing, opt := extraRouting(t), routedOptions(true)
	v := compiled(t, opt, routing)
	names := map[int]string{}
	for i, f := range routing.Extras().Fields {
		names[i] = fmt.Sprintf("%d%s", i, f.Field)
	}
	event := func(path, more string) string {
		return `{"v":1,"time":"` + noon.String() + `","ip":"192.0.2.1","host":"A.Example:8080","path":"` + path + `"` + more + `}`
	}
	end := int64(2)
	c := newBuilder(opt, &hintMemory{}).build([]*source{sourceAt(0, v, 0, end)}, filled(map[int]int64{0: end},
		traffic.Message{Offset: 0, Appended: noon, Value: []byte(event("/users/%37?x", `,"attrs":{"tenant":7.0,"other":1},"bytes":9`))},
		traffic.Message{Offset: 1, Appended: noon + 1, Value: []byte(event("/x", `,"api_key":"k"`))},
	))
	byRule := map[string]map[string]string{} // event and rule to the values of its record
	at := map[string]int{}
	for _, b := range c.batches {
		for _, value := range b.Values {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(value, &k); err != nil {
				t.Fatal(err)
			}
			values := map[string]string{}
			for _, x := range k.Extra {
				values[names[x.Index]] = x.Text
			}
			for _, r := range k.Rules {
				who := fmt.Sprintf("%d %s", k.Offset, routing.Rules[r].ID)
				byRule[who], at[who] = values, int(b.Partition)
			}
		}
	}
	of := func(who, field string) string { return byRule[who][field] }
	for who, want := range map[string]map[string]string{
		"0 b-user": {"0{id}": "7"}, "0 c-same": {"0{id}": "7", "1host": "a.example"}, "0 d-other": {"2{id}": "users"},
		"0 e-fall": {"3attrs.tenant": "7"}, "0 f-group": {"3attrs.tenant": "7"}, "1 e-fall": {}, "1 f-group": {},
	} {
		if byRule[who] == nil {
			t.Errorf("%s has no record", who)
		}
		for name, value := range want {
			if of(who, name) != value {
				t.Errorf("%s: %s is %q, want %q", who, name, of(who, name), value)
			}
		}
	}
	for who, values := range byRule { // nothing that no rule of the record uses
		need := map[string]bool{}
		for other, same := range byRule {
			if other[0] == who[0] && maps.Equal(same, values) && at[other] == at[who] {
				for _, u := range routing.Extras().ByRule[slices.IndexFunc(routing.Rules, func(v rules.Version) bool { return v.ID == other[2:] })] {
					need[names[u.Index]] = true
				}
			}
		}
		for name := range values {
			if !need[name] {
				t.Errorf("%s carries %s", who, name)
			}
		}
	}
	for who, message := range map[string]string{
		"0 b-user": "\x01{id}\x007", "0 d-other": "\x01{id}\x00users", "0 e-fall": "\x01attrs.tenant\x007", "1 e-fall": "\x01api_key\x00k",
		"0 c-same": "\x01ip\x00192.0.2.1/32", "1 f-group": "\x02attrs.tenant\x00\x00\x00",
	} {
		if want := targetByTheBook(string(simSecret), message, simKeyed); at[who] != want {
			t.Errorf("%s is in partition %d, want %d", who, at[who], want)
		}
	}
	stats := c.stats.Rules
	if s := stats["f-group"]; s.MissingExtra["attrs.tenant"] != 1 || s.Grouped != 1 || s.Skipped != 0 {
		t.Errorf("f-group: %+v", s)
	}
	if s := stats["g-bytes"]; s.Uncounted[uncounted(1)] != 1 {
		t.Errorf("g-bytes: %+v", s)
	}
	if got := stats["f-group"]; got.Lacking()["attrs.tenant"] != 1 {
		t.Errorf("lacking %v", got.Lacking())
	}
}

// A fallback of which the event has nothing is missing under its own name.
func TestLackingFallback(t *testing.T) {
	e, err := NewExplainer(extraRouting(t), true)
	if err != nil {
		t.Fatal(err)
	}
	got := e.Explain(&traffic.Message{Value: []byte(`{"v":1,"time":"` + noon.String() + `","path":"/users/8"}`), Appended: noon})
	lacking := map[int]string{}
	for _, r := range got.Rules {
		lacking[r.Index] = fmt.Sprintf("%v%t%s", r.Lacking, r.Counts, r.Why)
	}
	want := map[int]string{0: "[ip]falsemissing", 1: "[ip]falsemissing", 2: "[ip]falsemissing", 3: "[]true", 4: "[api_key|attrs.tenant|ip]falsemissing",
		5: "[attrs.tenant]true", 6: "[ip]falsemissing"}
	if !maps.Equal(lacking, want) {
		t.Errorf("got %v, want %v", lacking, want)
	}
}

// Routers of builds that know no such values are never given such a version.
func TestExtraKeysNeedARecordFormat(t *testing.T) {
	r := extraRouting(t)
	r.RecordFormat = rules.LanguageRecordFormat - 1
	if _, err := compile(r, routedOptions(true)); err == nil || !strings.Contains(err.Error(), "allowed from record format 5 on") {
		t.Errorf("compiled: %v", err)
	}
}

// The bound by which batches are cut holds for long values, too.
func TestBoundHoldsExtraValues(t *testing.T) {
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Prev: detectors.NoOffset, Time: noon, Rules: []int{1}}
	target := eventTarget{rules: k.Rules}
	for i := range 3000 {
		x := detectors.ExtraValue{Index: i * 20, Text: strings.Repeat("x", i%300+1)}
		k.Extra, target.extra = append(k.Extra, x), append(target.extra, x)
	}
	evidence := detectors.AppendEvidence(nil, &k)
	if size := len(detectors.AppendKeyed(nil, &k)); size > boundOf(evidence, &target) {
		t.Errorf("a record of %d bytes, bound %d", size, boundOf(evidence, &target))
	}
}

func BenchmarkRouteExtraKeys(b *testing.B) {
	for _, key := range []string{"ip", "attrs.tenant", "host", `"{id}"`, `"api_key|ip"`} {
		b.Run(strings.Trim(key, `"`), func(b *testing.B) {
			r := watchRouting()
			docs, err := rules.ParseFiles([]rules.File{{Name: "r", Src: []byte(`{id: a, owner: o, match: {path: "/users/{id}"}, key: [` + key + `], limit: 1, window: 1m}`)}}, rules.Environment{Identity: r.Identity})
			if err != nil {
				b.Fatal(err)
			}
			version, _ := rules.NextVersion(nil, docs[0])
			r.Rules, r.RecordFormat = []rules.Version{version}, rules.LanguageRecordFormat
			opt := routedOptions(true)
			v, err := compile(r, opt)
			if err != nil {
				b.Fatal(err)
			}
			reader := eventRouter{live: true, targets: newTargeter(opt.Secret, opt.KeyedPartitions)}
			m := &traffic.Message{Appended: noon.Add(time.Second), Value: []byte(`{"v":1,"time":"` + noon.String() + `","ip":"192.0.2.1","host":"a.example","path":"/users/7","attrs":{"tenant":"acme"}}`)}
			b.ReportAllocs()
			for b.Loop() {
				if got := reader.read(v, m, noon); got.fate != FateRouted {
					b.Fatal(got.fate)
				}
			}
		})
	}
}

// A request that reaches a block, and no rule, is held under the block's fields, of whatever kind the rule's key is: also as the
// first one that a reader reads.
func TestABlockHoldsWhatItsRuleDoesNotWatch(t *testing.T) {
	r := watchRouting()
	ip, host := traffic.KeyField{Field: traffic.FieldIP, V4: 32, V6: 64}, traffic.KeyField{Field: traffic.FieldHost}
	r.RecordFormat = rules.LanguageRecordFormat
	r.Rules = []rules.Version{{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "a", Owner: "tests", Match: rules.Match{Path: "/x", Statuses: []string{"404"}}, Key: []traffic.KeyField{host, ip}, Missing: rules.MissingSkip,
		Limit: 1, Window: time.Minute, MaxLag: time.Minute, Block: &rules.Block{Key: []traffic.KeyField{ip}, TTL: time.Minute, Extend: rules.ExtendNever},
	}}}
	reader, err := NewReader(r, []byte("s"), 64)
	if err != nil {
		t.Fatal(err)
	}
	partition := func(host string, status int) int {
		got := reader.Read(fmt.Appendf(nil, `{"v":1,"time":"%s","ip":"192.0.2.1","host":"%s","path":"/x","status":%d}`, noon, host, status))
		if len(got.Held) != 1 || got.Held[0].Rule != 0 {
			t.Fatalf("%s %d: %+v", host, status, got.Held)
		}
		return got.Held[0].Partition
	}
	b := partition("b.example", 200)
	if a := partition("a.example", 200); a == b {
		t.Errorf("both hosts at %d: this says nothing", a)
	}
	partition("a.example", 404)
	if got := partition("b.example", 200); got != b {
		t.Errorf("after another event the same request is at %d, not %d", got, b)
	}
}
