package backtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// sweptRule is a document of which a sweep tries limits: all that the language has beside a limit.
type sweptRule struct{ head, beside string }

func drawSweptRule(t *rapid.T, i int) sweptRule {
	var r sweptRule
	one := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	key := one("key", "[ip]", "[ip]", "[ip]", "[host]", "['{id}']", "[ip, attrs.tenant]", "['user|ip']")
	r.head = fmt.Sprintf("id: r%d\nowner: tests\nkey: %s\n", i, key)
	r.head += fmt.Sprintf("window: %ds\nlateness: %ds\n", rapid.IntRange(1, 90).Draw(t, "window"), rapid.SampledFrom([]int{0, 20, 60}).Draw(t, "lateness"))
	r.head += one("match", "match: {}\n", "match: {path: '/a/{id}'}\n", "match: {path: ['/a/{id}', '/b/{id}'], when: event.status < 500}\n")
	r.head += one("count", "", "", "", "count: {distinct: path}\n", "count: {sum: bytes}\n")
	r.head += one("algorithm", "", "", "", "algorithm: fixed\n", "algorithm: sliding-log\n")
	r.head += one("missing", "on_missing: skip\n", "on_missing: group\n")
	r.head += one("allow", "", "", "allow: [office]\n")
	r.head += one("tiers", "", "", "", "tiers: [{when: event.status == 404, limit: 1}, {when: 'event.host == \"b.example\"', limit: 6}]\n",
		"tiers: [{when: 'event.status / (event.status - 404) == 7', limit: 4}]\n") // which cannot be judged of a 404
	if key == "[ip]" {
		r.head += one("block", "", "block: {key: [ip], ttl: 30s, extend: on-hit}\n", "block: {key: [ip, device], ttl: 5m, extend: never}\n", "block: {key: [ip], ttl: 60s, extend: on-hit, match: {path: '/b/*'}}\n")
	}
	if strings.Contains(r.head, "distinct") {
		r.head = strings.Replace(r.head, "algorithm: sliding-log\n", "", 1)
	}
	if strings.Contains(r.head, "{id}") && strings.Contains(r.head, "match: {}") {
		r.head = strings.Replace(r.head, "match: {}", "match: {path: '/b/{id}'}", 1)
	}
	r.beside = one("beside", "", "", "near: 0.8\n", "candidate: {limit: 9}\n", "near: 0.5\ncandidate: {limit: 9}\n")
	return r
}

// A sweep says of each value what a backtest of a document with that value says: of rules whose limits share windows, and of those
// that stand alone for their tiers, counts or keys; and of what their blocks refuse.
func TestSweepIsOneBacktestForEachLimit(t *testing.T) {
	t.Parallel()
	over, ladders := 0, 0
	allow := []rules.AllowList{{ID: "office", Owner: "tests", Entries: []rules.AllowEntry{{Kind: rules.AllowCIDR, Value: "192.0.2.2", Reason: "r", Until: traffic.At(begin.Add(5 * time.Minute))}}}}
	rapid.Check(t, func(t *rapid.T) {
		var drawn []sweptRule
		var swept []string
		for i := range rapid.IntRange(1, 3).Draw(t, "rules") {
			drawn = append(drawn, drawSweptRule(t, i))
			swept = append(swept, drawn[i].head+drawn[i].beside+"limit: 3\n")
		}
		limits := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 200}), 2, 4, rapid.ID[int]).Draw(t, "limits")
		var log bytes.Buffer
		now := 0
		for range rapid.IntRange(1, 150).Draw(t, "events") {
			now += rapid.SampledFrom([]int{0, 0, 1, 2, 10, 50, 200}).Draw(t, "after")
			at := begin.Add(time.Duration(now-rapid.SampledFrom([]int{0, 0, 0, 1, 20, 60}).Draw(t, "late by")) * time.Second)
			fmt.Fprintf(&log, `{"v":1,"time":%q,"ip":"192.0.2.%d","method":"GET","path":%q,"status":%d,"host":%q,"user":%q,"device":%q,"bytes":%d,"attrs":{"tenant":%q}}`+"\n",
				at.Format(time.RFC3339), rapid.IntRange(1, 3).Draw(t, "ip"),
				rapid.SampledFrom([]string{"/a/7", "/a/8", "/b/7", "/c"}).Draw(t, "path"), rapid.SampledFrom([]int{200, 404, 500}).Draw(t, "status"),
				rapid.SampledFrom([]string{"a.example", "b.example"}).Draw(t, "host"), rapid.SampledFrom([]string{"", "ann"}).Draw(t, "user"),
				rapid.SampledFrom([]string{"", "tv"}).Draw(t, "device"), rapid.IntRange(0, 4).Draw(t, "bytes"), rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant"))
		}
		o := Options{Format: "weir", Allow: allow, Partitions: rapid.IntRange(1, 2).Draw(t, "partitions"), Workers: rapid.IntRange(1, 3).Draw(t, "workers")}
		alone := func(limit int) *Result {
			o := o
			var texts []string
			for _, r := range drawn {
				texts = append(texts, fmt.Sprintf("%slimit: %d\n", r.head, limit))
			}
			o.Rules = parseRules(t, texts...)
			return run1(t, o, inMemory("log", log.Bytes()))
		}
		all := o
		all.Rules, all.Sweep = parseRules(t, swept...), Sweep{Field: SweepLimit, Limits: limits}
		if p, err := newPlan(all); err == nil && slices.ContainsFunc(p.ladders, func(l []int) bool { return len(l) > 1 }) {
			ladders++
		}
		got := run1(t, all, inMemory("log", log.Bytes()))
		for v, limit := range limits {
			want := alone(limit)
			for i := range drawn {
				a, b := &got.Rules[i*len(limits)+v], &want.Rules[i]
				over += int(b.Episodes)
				if x, y := said(t, a), said(t, b); x != y || !maps.Equal(episodesOf(a), episodesOf(b)) {
					t.Fatalf("limit %d of\n%s\n got %s %v\nwant %s %v\n%s", limit, swept[i], x, episodesOf(a), y, episodesOf(b), log.Bytes())
				}
			}
		}
		// What stands beside a limit changes nothing of what its rule finds, and refuses.
		all.Sweep = Sweep{}
		beside := run1(t, all, inMemory("log", log.Bytes()))
		for i, want := range alone(3).Rules {
			if x, y := said(t, &beside.Rules[i]), said(t, &want); x != y {
				t.Fatalf("beside others:\n%s\n got %s\nwant %s", swept[i], x, y)
			}
		}
	})
	if over == 0 || ladders == 0 {
		t.Errorf("the logs prove nothing: %d episodes, %d ladders", over, ladders)
	}
}

// said is a result but for what the other values that are tried decide, and what stands beside the limit.
func said(t fataler, r *RuleResult) string {
	x := *r
	x.Version, x.Swept, x.Untried, x.Peaks, x.Near, x.Candidate = rules.Version{}, "", nil, nil, nil, nil
	text, err := json.Marshal(&x)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
