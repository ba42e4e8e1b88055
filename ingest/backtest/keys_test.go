package backtest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirhq/weir/internal/oracle"
	"github.com/weirhq/weir/traffic"
)

// TestKeysOfAnyField: episodes of rules with keys and counts of any fields are those of the oracle's own reading of them.
func TestKeysOfAnyField(t *testing.T) {
	t.Parallel()
	const pattern, other = "/users/{id}/posts/{n}", "/users/{n}/posts/{id}"
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		one := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
		keys := [][]string{
			{"ip"}, {"host"}, {"method", "ip"}, {"route"}, {"plan", "user_agent"}, {"{id}"}, {"ip", "{n}"}, {"attrs.tenant"}, {"attrs.u.v", "device"},
			{"api_key|ip"}, {"attrs.tenant|{id}|user", "method"}, {"user|device"}, {"host", "{id}", "attrs.tenant", "api_key|ip"},
		}
		counts := map[string][]string{"events": nil, "{sum: bytes}": nil, "{sum: latency_ms}": nil, "{distinct: path}": {"path"}, "{distinct: [path, user_agent]}": {"path", "user_agent"},
			"{distinct: attrs.u.v}": {"attrs.u.v"}, "{distinct: [session, attrs.w|plan]}": {"session", "attrs.w|plan"}}
		type rule struct {
			key            []string
			count, pattern string
			limit          int
		}
		var drawn []rule
		var texts []string
		for i := range rapid.IntRange(1, 4).Draw(t, "rules") {
			r := rule{key: rapid.SampledFrom(keys).Draw(t, "key"), count: one("count", slices.Sorted(maps.Keys(counts))...), limit: rapid.IntRange(0, 4).Draw(t, "limit"), pattern: one("pattern", pattern, other)}
			if strings.Contains(r.count, "sum") {
				r.limit *= 100
			}
			for _, field := range counts[r.count] {
				if slices.Contains(r.key, field) {
					r.count = "events"
				}
			}
			drawn = append(drawn, r)
			texts = append(texts, fmt.Sprintf("id: r%d\nowner: tests\nmatch: {path: %q}\nkey: [%s]\nlimit: %d\nwindow: 60s\ncount: %s\n", i, r.pattern, `"`+strings.Join(r.key, `", "`)+`"`, r.limit, r.count))
		}
		steps := make([]map[string][]oracle.Step, len(drawn))
		for i := range steps {
			steps[i] = map[string][]oracle.Step{}
		}
		var lines []byte
		now := int64(1000)
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			now += rapid.SampledFrom([]int64{0, 1, 5, 40}).Draw(t, "after")
			e := oracle.Said{Fields: map[string]any{}, IP: one("ip", "192.0.2.1", "192.0.2.1", "2001:db8::1", "")}
			set := func(name string, values ...string) {
				if v := one(name, values...); v != "" {
					e.Fields[name] = v
				}
			}
			set("device", "", "tv")
			set("user", "", "ann", "192.0.2.1/32")
			set("api_key", "", "k1", "k=2&ip")
			set("session", "s1", "s2")
			set("method", "GET", "post", "")
			set("host", "a.example", "A.Example:443", "b.example.", "")
			set("route", "", "posts", "users")
			set("plan", "", "free")
			set("user_agent", "curl/8", "Mozilla/5.0 (X)", "")
			e.Fields["path"] = "/users/" + one("id", "7", "8", "%37", "a%20b") + "/posts/" + one("n", "7", "9") + one("query", "", "?q=1")
			e.Fields["bytes"] = rapid.SampledFrom([]int{0, 60, 150}).Draw(t, "bytes")
			e.Fields["latency_ms"] = rapid.SampledFrom([]float64{0, 0.4, 0.5, 99.6, 250}).Draw(t, "latency")
			e.Fields["attrs"] = rapid.SampledFrom([]any{
				map[string]any{}, map[string]any{"tenant": "acme", "u": map[string]any{"v": 7}}, map[string]any{"tenant": "7", "u": map[string]any{"v": "7"}},
				map[string]any{"tenant": 7, "w": true}, map[string]any{"tenant": nil, "w": []int{1}, "u": 5}, map[string]any{"tenant": map[string]any{}},
			}).Draw(t, "attrs")
			lines = fmt.Appendf(lines, `{"v":1,"time":%q,%s}`+"\n", begin.Add(time.Duration(now)*time.Second).Format(time.RFC3339Nano), e.JSON())
			for i, r := range drawn {
				subject := e.SubjectOf(r.key, r.pattern)
				s := oracle.Step{Time: now, Limit: int64(r.limit), Units: 1}
				switch {
				case subject == "":
					continue
				case r.count == "{sum: bytes}":
					s.Units = int64(e.Fields["bytes"].(int))
				case r.count == "{sum: latency_ms}":
					s.Units = map[float64]int64{0: 0, 0.4: 0, 0.5: 1, 99.6: 100, 250: 250}[e.Fields["latency_ms"].(float64)]
				case counts[r.count] != nil:
					if s.Value = e.SubjectOf(counts[r.count], r.pattern); s.Value == "" {
						continue
					}
				}
				if s.Units > 0 {
					steps[i][subject] = append(steps[i][subject], s)
				}
			}
		}
		o := Options{Format: "weir", Partitions: rapid.IntRange(1, 3).Draw(t, "partitions"), Workers: rapid.IntRange(1, 3).Draw(t, "workers"), Rules: parseRules(t, texts...)}
		got := run1(t, o, inMemory("one", lines))
		second := func(s int64) traffic.Time { return traffic.Time(begin.Add(time.Duration(s) * time.Second).UnixMicro()) }
		for i, r := range drawn {
			d := oracle.Definition{Algorithm: "sliding", Distinct: counts[r.count] != nil, Window: 60}
			type whose struct {
				subject     traffic.Subject
				first, last traffic.Time
			}
			want, have := map[whose]int{}, map[whose]int{}
			for subject, list := range steps[i] {
				for _, e := range d.Episodes(d.Judge(list), 24*60*60) {
					want[whose{traffic.Subject(subject), second(e.First), second(e.Last)}]++
					found++
				}
			}
			for e, n := range episodesOf(&got.Rules[i]) {
				have[whose{e.subject, e.first, e.last}] += n
			}
			if !maps.Equal(want, have) {
				t.Fatalf("%s\n got %v\nwant %v\n%s", texts[i], have, want, lines)
			}
		}
	})
	if found == 0 {
		t.Error("nobody was ever over: the test says nothing")
	}
}
