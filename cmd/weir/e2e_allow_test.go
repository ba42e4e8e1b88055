package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

const allowFlood = floodRule + "allow: [office]\n---\nkind: allow\nid: office\nowner: identity\nentries:\n  - {cidr: 192.0.2.0/24, reason: the first office}\n"

// An entry that is added while the stages run takes effect at once, releases nobody and says who is held; one that is taken back
// lets the rule count again, unless the rule was promoted with it.
func TestAllowWhileTheStagesRun(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	if out := b.ok("rules", "lint", "-f", writeFile(t, "rules.yaml", allowFlood)); !strings.Contains(out, "1 rule and 1 allow list without a problem") {
		t.Errorf("lint: %s", out)
	}
	if o := b.weir("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule+"allow: [ofice]\n---\nkind: allow\nid: office\nowner: identity\nentries: []\n")); o.code != exitError ||
		!strings.Contains(o.stderr, `allow[0]: got "ofice", which no allow list has as its id`) || !strings.Contains(o.stderr, `did you mean "office"?`) {
		t.Errorf("a list that there is not: exit code %d, %s", o.code, o.stderr)
	}
	if out := b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", allowFlood)); !strings.Contains(out, "new       allow list office version 1, entries: 1") {
		t.Errorf("apply: %s", out)
	}
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	address := stages.awaitLog(`serving metrics and health" address=(\S+)`)
	b.flood("198.51.100.7", "tv-7")
	awaitBlocks(b, 1)

	out := b.ok("allow", "add", "office", "cidr=198.51.100.0/24", "--until", "2h", "--reason", "ticket 4711")
	for _, want := range []string{
		"allow list office: version 2, entries: 2; routing version ", `cidr "198.51.100.0/24" added, until `, ": ticket 4711",
		"named by flood; running stages take it within two seconds", "an entry releases nobody; these blocks hold until they end, or are released:",
		"weir blocks release flood ip=198.51.100.7/32 device=tv-7 --reason …",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("add: no %q in\n%s", want, out)
		}
	}
	if n := b.sql("SELECT 1 FROM {ns}.audit WHERE action = 'add-entry' AND object = 'allow list office' AND reason = 'ticket 4711'"); n != 1 {
		t.Errorf("%d entries of the audit trail", n)
	}
	version := regexp.MustCompile(`routing version (\d+)`).FindStringSubmatch(out)[1]
	awaitMetric(b, address, `weir_route_routing_version{`, func(v float64) bool { n, _ := strconv.ParseFloat(version, 64); return v >= n })
	b.flood("198.51.100.8", "tv-8") // let pass
	b.flood("203.0.113.9", "tv-9")  // by when this one is blocked, that one would be
	awaitMetric(b, address, `weir_route_allowed_events_total{list="office"`, func(v float64) bool { return v == 6 })
	for _, l := range awaitBlocks(b, 2) {
		if strings.Contains(string(l.Subject), "198.51.100.8") {
			t.Errorf("%s is blocked", l.Subject)
		}
	}

	// What was added after the promotion may be taken back, what was there before it may not.
	if out := b.ok("allow", "remove", "office", "cidr=198.51.100.0/24", "--reason", "moved"); !strings.Contains(out, `cidr "198.51.100.0/24" removed`) {
		t.Errorf("remove: %s", out)
	}
	for range 2 { // it is refused, and stays so
		if o := b.weir("allow", "remove", "office", "cidr=192.0.2.0/24", "--reason", "moved"); o.code != exitError ||
			!strings.Contains(o.stderr, `rule flood blocks, and cidr "192.0.2.0/24" was let pass when it was promoted on `) || !strings.Contains(o.stderr, "weir rules demote") {
			t.Errorf("remove: exit code %d, %s", o.code, o.stderr)
		}
	}
	testbed.Eventually(t, 30*time.Second, func() error { // counted again, once routers have the version
		b.flood("198.51.100.10", "tv-10")
		if n := len(decode[[]map[string]any](b, "blocks", "list")); n != 3 {
			return fmt.Errorf("%d blocks, want 3", n)
		}
		return nil
	})

	list := decode[[]map[string]any](b, "allow", "list")
	if len(list) != 1 || list[0]["version"] != 3.0 || fmt.Sprint(list[0]["rules"]) != "[flood]" {
		t.Errorf("list: %v", list)
	}
	if out := b.ok("allow", "show", "office"); !strings.Contains(out, "# named by flood\n# ended: 0 of 1 entries\nkind: allow\nid: office\n") || strings.Count(out, "ticket 4711") != 1 {
		t.Errorf("show: %s", out)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"add", "ofice", "cidr=192.0.2.1", "--reason", "x"}, exitError, `there is no allow list "ofice"; did you mean office?`},
		{[]string{"show", "offices"}, exitError, "did you mean office?"},
		{[]string{"add", "office", "ip=192.0.2.1", "--reason", "x"}, exitUsage, `SOURCE: got "ip=192.0.2.1"; allowed: KIND=VALUE with a kind of cidr, device, user, api_key, session; did you mean cidr?`},
		{[]string{"add", "office", "192.0.2.1", "--reason", "x"}, exitUsage, "allowed: KIND=VALUE"},
		{[]string{"add", "office", "cidr=192.0.2.1/24", "--reason", "x"}, exitError, "did you mean 192.0.2.0/24 or 192.0.2.1?"},
		{[]string{"add", "office", "user=ann", "--reason", "x"}, exitError, "which clients claim"},
		{[]string{"add", "office", "cidr=192.0.2.1"}, exitUsage, "--reason is required"},
		{[]string{"add", "office", "cidr=192.0.2.1", "--reason", "x", "--until", "2020-01-01T00:00:00Z"}, exitUsage,
			`--until: got "2020-01-01T00:00:00.000000Z"; allowed: a time after now`},
		{[]string{"add", "office", "cidr=192.0.2.1", "--reason", "x", "--until", "tomorrow"}, exitUsage, `--until: got "tomorrow"; allowed: a duration like`},
		{[]string{"remove", "office", "cidr=192.0.2.1", "--reason", "x"}, exitError, `got cidr "192.0.2.1/32", which is not in allow list office; it has cidr "192.0.2.0/24"`},
	} {
		if o := b.weir(append([]string{"allow"}, c.args...)...); o.code != c.code || !strings.Contains(o.stderr, c.want) {
			t.Errorf("%v: exit code %d, %s; want %d, %s", c.args, o.code, o.stderr, c.code, c.want)
		}
	}
	stages.end()
	without := b.withoutRedis()
	if out := without.ok("allow", "add", "office", "cidr=203.0.113.0/24", "--reason", "Redis is away"); !strings.Contains(out, "whether a block holds such a source is not known: ") {
		t.Errorf("without Redis: %s", out)
	}
}

// awaitMetric waits until a series, given by the beginning of its line, has a value that fits.
func awaitMetric(b *bed, address, series string, fits func(float64) bool) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		_, page := fetchPage(b.t, address, "/metrics")
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, series) {
				continue
			}
			if v, err := strconv.ParseFloat(strings.Fields(line)[1], 64); err == nil && fits(v) {
				return nil
			}
			return fmt.Errorf("%s", line)
		}
		return fmt.Errorf("no %s", series)
	})
}
