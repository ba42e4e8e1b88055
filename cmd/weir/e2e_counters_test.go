package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/testbed"
)

// told are the hits of a rule that history has, by phase.
func (b *bed) told(rule string) map[string]int {
	b.t.Helper()
	out := map[string]int{}
	for _, h := range decode[[]struct {
		Phase string `json:"phase"`
	}](b, "history", "hits", "--rule", rule) {
		out[h.Phase]++
	}
	return out
}

func (b *bed) awaitHits(rule, want string) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		if got := fmt.Sprint(b.told(rule)); got != want {
			return fmt.Errorf("hits of %s: %s, want %s", rule, got, want)
		}
		return nil
	})
}

// request sends n requests of a device behind an address.
func (b *bed) requests(ip, device string, n int) {
	b.t.Helper()
	var text strings.Builder
	for range n {
		fmt.Fprintf(&text, `{"v":1,"time":%q,"ip":%q,"device":%q,"method":"POST","path":"/v1/guest-tokens","status":201}`+"\n",
			time.Now().UTC().Format(time.RFC3339Nano), ip, device)
	}
	if o := b.weirWith(text.String(), "ingest", "-", "--format", "weir", "--live"); o.code != exitOK {
		b.t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// A count that is reset begins at nothing while the stages run: the running hit closes, what comes is counted from one, and the next
// hit is another one. The rule beside it goes on.
func TestCounterIsReset(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+"---\n"+tokenRule))
	b.start("run")
	b.requests("198.51.100.7", "tv 8", 4)
	b.awaitHits("flood", "map[open:1]")
	b.awaitHits("tokens", "map[open:1]")

	out := b.ok("counters", "reset", "flood", "ip=198.51.100.7", "device=tv 8", "--reason", "ticket 4711")
	if !strings.HasPrefix(out, "rule flood: the count of 'ip=198.51.100.7%2F32&device=tv%208' begins at nothing in routing version ") ||
		!strings.Contains(out, "within some seconds\nwhile weir run is running") || strings.Contains(out, "blocks that stand") {
		t.Errorf("it says:\n%s", out)
	}
	others := 0
	testbed.Eventually(t, 30*time.Second, func() error { // until ROUTE has the version, and each partition a request under it
		for range 8 {
			others++
			b.requests(fmt.Sprintf("203.0.113.%d", others), "other", 1)
		}
		if got := b.told("flood"); got["closed"] != 1 {
			return fmt.Errorf("hits %v, want one closed", got)
		}
		return nil
	})
	b.requests("198.51.100.7", "tv 8", 3)
	b.requests("198.51.100.8", "next", 4) // and what came before it is counted
	b.awaitHits("flood", "map[closed:1 open:1]")
	b.requests("198.51.100.7", "tv 8", 1)
	b.awaitHits("flood", "map[closed:1 open:2]")
	if got := b.told("tokens"); got["closed"] != 0 {
		t.Errorf("hits of the other rule: %v", got)
	}
}

// Whatever cannot be reset is refused, with what is allowed; nothing is published.
func TestCounterResetIsRefused(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	fallback := strings.NewReplacer("id: flood", "id: clients", "key: [ip, device]\nlimit", "key: [{any: [route, host]}, ip]\nlimit", "block: {key: [ip, device], ttl: 10m}", "algorithm: first-seen\nlateness: 1s\nblock: {key: [ip], ttl: 10m}").Replace(floodRule)
	everybody := strings.NewReplacer("id: flood", "id: everybody", "key: [ip, device]\nlimit", "key: []\nlimit", "block: {key: [ip, device], ttl: 10m}", "").Replace(floodRule)
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+"---\n"+fallback+"---\n"+everybody))
	b.ok("rules", "promote", "clients", "--reason", "test")
	b.ok("rules", "promote", "flood", "--reason", "test")
	routing := func() int64 { return b.sql("SELECT 1 FROM {ns}.routing_versions") }
	before := routing()
	for _, tc := range []struct {
		args string
		code int
		want string
	}{
		{"floood ip=192.0.2.1 device=tv", exitError, `there is no rule "floood"; did you mean flood?`},
		{"flood", exitUsage, "SOURCE: got \"\", which is no source of this key: such a one reads \"ip&device\"; rule flood counts by [{field: ip, v4: 32, v6: 64}, device]: FIELD=VALUE for each field of that"},
		{"flood ip=192.0.2.1", exitUsage, "rule flood counts by [{field: ip, v4: 32, v6: 64}, device]"},
		{"flood ip=192.0.2.0/24 device=tv", exitUsage, "no source of this key"},
		{"flood ip=192.0.2.1 devise=tv", exitUsage, "did you mean device?"},
		{"flood ip=somewhere device=tv", exitUsage, "SOURCE: got ip=somewhere; allowed: an address or a range"},
		{"flood ip=192.0.2.1 device=sha256:" + strings.Repeat("0a", 32), exitUsage, "counts are not kept by digests"},
		{"everybody ip=192.0.2.1", exitUsage, "rule everybody counts by []"},
		{"clients host=API.example.com ip=192.0.2.1", exitError, "after a reset it may block more (algorithm first-seen, count events: without the events before it, one may be over that was not): demote it first"},
		{"flood ip=192.0.2.1 device=tv --reason …", exitUsage, "--reason is required"},
	} {
		args := append([]string{"counters", "reset", "--reason", "ticket 4711"}, strings.Fields(tc.args)...)
		if o := b.weir(args...); o.code != tc.code || !strings.Contains(o.stderr, tc.want) || o.stdout != "" {
			t.Errorf("%s: exit code %d, %s%s; want %d, %s", tc.args, o.code, o.stdout, o.stderr, tc.code, tc.want)
		}
	}
	if got := routing(); got != before {
		t.Errorf("routing version %d, was %d", got, before)
	}
	b.ok("rules", "demote", "clients", "--reason", "test")
	for i, tc := range []struct{ args, subject string }{
		{"flood ip=192.0.2.1 device=tv", "ip=192.0.2.1%2F32&device=tv"},
		{"flood ip=192.0.2.1%2F32&device=tv", "ip=192.0.2.1%2F32&device=tv"},
		{"flood ip=2001:db8::7 device=tv", "ip=2001%3Adb8%3A%3A%2F64&device=tv"},
		{"clients ip=192.0.2.1 host=API.example.com:443", "ip=192.0.2.1%2F32&host=api.example.com"},
		{"clients ip=192.0.2.1 route=Login", "ip=192.0.2.1%2F32&route=Login"},
		{"everybody", ""},
	} {
		args := append([]string{"counters", "reset", "--reason", "ticket 4711"}, strings.Fields(tc.args)...)
		done := decode[rulestore.CounterResetDone](b, args...)
		if string(done.Subject) != tc.subject || done.Routing != routing() || done.Rule != strings.Fields(tc.args)[0] {
			t.Errorf("%d, %s: %+v, newest version %d", i, tc.args, done, routing())
		}
	}
	if out := b.ok("counters", "reset", "flood", "ip=192.0.2.1", "device=tv", "--reason", "again"); !strings.Contains(out, "weir blocks release releases one") {
		t.Errorf("of a rule that blocks it says:\n%s", out)
	}
}
