package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history"
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

// requestsOf are n requests of a device behind an address.
func requestsOf(ip, device string, n int) string {
	return strings.Repeat(fmt.Sprintf(`{"v":1,"time":%q,"ip":%q,"device":%q,"method":"POST","path":"/v1/guest-tokens","status":201}`+"\n",
		time.Now().UTC().Format(time.RFC3339Nano), ip, device), n)
}

// requests sends n requests of a device behind an address.
func (b *bed) requests(ip, device string, n int) {
	b.t.Helper()
	b.sendAll(requestsOf(ip, device, n))
}

// sendAll sends events into the live stream.
func (b *bed) sendAll(events string) {
	b.t.Helper()
	if o := b.weirWith(events, "ingest", "-", "--format", "weir", "--live"); o.code != exitOK {
		b.t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
}

// A count that is reset begins at nothing while the stages run: the running hit closes, what comes is counted from one, and the next
// hit is another one. The rule beside it goes on.
func TestCounterIsReset(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", hourly(floodRule)+"---\n"+hourly(tokenRule)))
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
			b.requests(fmt.Sprintf("198.18.%d.%d", others/250, others%250), "other", 1)
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
	reasons := map[string]int{}
	for _, h := range decode[[]history.RecordedHit](b, "history", "hits", "--rule", "flood") {
		reasons[string(h.Phase)+" "+h.Reason]++
		if told := strings.Contains(b.ok("why", h.ID), "it was closed since its count was reset"); told != (h.Reason != "") {
			t.Errorf("weir why of %+v tells of a reset: %t", h, told)
		}
	}
	if got := fmt.Sprint(reasons); got != "map[closed reset:1 open :2]" || strings.Count(b.ok("history", "hits", "--rule", "flood"), "closed, reset") != 1 {
		t.Errorf("history says why they closed: %s\n%s", got, b.ok("history", "hits", "--rule", "flood"))
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
	b.ok("rules", "promote", "clients", "--reason", "test", "--yes", "--override", "tests")
	b.ok("rules", "promote", "flood", "--reason", "test", "--yes", "--override", "tests")
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

// hourly counts for an hour, so that what came does not leave the window on a machine that stands still meanwhile.
func hourly(rule string) string { return strings.Replace(rule, "window: 60s", "window: 1h", 1) }

const shadowsBeside = floodRule + "near: 0.7\ncandidate: {limit: 9}\n"

// awaitShown gives what weir counters show says, once it does: the partition has to be taken and reported, and its owner to answer within
// two seconds.
func (b *bed) awaitShown(args ...string) (said string) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		o := b.weir(append([]string{"counters", "show", "flood"}, args...)...)
		if said = o.stdout; o.code != exitOK {
			return fmt.Errorf("exit code %d, %s", o.code, o.stderr)
		}
		return nil
	})
	return said
}

// awaitCount gives what weir counters show says of a device, once so much is counted.
func (b *bed) awaitCount(ip, device string, want int64) (got api.Count) {
	b.t.Helper()
	testbed.Eventually(b.t, 30*time.Second, func() error {
		text := b.awaitShown("ip="+ip, "device="+device, "--output", "json")
		got = api.Count{}
		if err := json.Unmarshal([]byte(text), &got); err != nil || len(got.Windows) == 0 || got.Windows[0].Count != want {
			return fmt.Errorf("%+v, %v, want %d counted", got, err, want)
		}
		return nil
	})
	return got
}

// address is where a process serves its metrics.
func (p *process) address() string {
	p.b.t.Helper()
	return p.awaitLog(`msg="serving metrics and health" address=(\S+)`)
}

func TestCounterIsShown(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", hourly(shadowsBeside)))
	if o := b.weir("counters", "show", "flood", "ip=198.51.100.7", "device=tv"); o.code != exitError || !strings.Contains(o.stderr, "nobody has reported keyed partition") {
		t.Errorf("while nothing runs: exit code %d, %s", o.code, o.stderr)
	}
	stages := b.start("run")
	b.requests("198.51.100.7", "tv 8", 2)
	if got := b.awaitCount("198.51.100.7", "tv 8", 2); got.AsOf == 0 || got.Owner == "" || got.Subject != "ip=198.51.100.7%2F32&device=tv%208" || len(got.Windows) != 3 ||
		got.Windows[0].Limit != 3 || got.Windows[1].Of != "near" || got.Windows[1].Count != 2 || got.Windows[2].Limit != 9 || len(got.Windows[0].Episodes) != 0 {
		t.Errorf("%+v", got)
	}
	b.requests("198.51.100.7", "tv 8", 3)
	b.awaitCount("198.51.100.7", "tv 8", 5)
	over := b.awaitShown("ip=198.51.100.7", "device=tv 8")
	for _, want := range []string{"rule flood, shadow: the count of 'ip=198.51.100.7%2F32&device=tv%208', in keyed partition ", "as of 20", "OF         VERSION  COUNT", "limit      1        5"} {
		if !strings.Contains(over, want) {
			t.Errorf("no %q in\n%s", want, over)
		}
	}
	if nobody := b.awaitShown("ip=203.0.113.1", "device=new", "--at", "http://"+stages.address()+"/"); !strings.Contains(nobody, "\nnothing counted\n") || !strings.Contains(nobody, "none") {
		t.Errorf("of who never came:\n%s", nobody)
	}
	for args, want := range map[string]string{
		"floood ip=192.0.2.1 device=tv": `there is no rule "floood"; did you mean flood?`,
		"flood --at ftp://x":            "--at: got \"ftp://x\"; allowed: http://HOST:PORT",
	} {
		if o := b.weir(append([]string{"counters", "show"}, strings.Fields(args)...)...); o.code == exitOK || !strings.Contains(o.stderr, want) {
			t.Errorf("%s: exit code %d, %s; want %s", args, o.code, o.stderr, want)
		}
	}
	_, metrics := fetchPage(t, stages.address(), "/metrics")
	if !strings.Contains(metrics, `weir_counters_requests_total{code="200"`) {
		t.Error("no metric tells of the questions")
	}
}

// Two processes share the partitions: each source is asked of the one that has it, also after the other has gone; who is asked of a
// partition that it has not says who has it. Whatever a client sends, it is told what is allowed, and nothing of it comes back.
func TestCounterIsShownByItsOwner(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", hourly(floodRule)))
	processes := []*process{b.start("run"), b.start("run", "--stages", "detect")}
	source := func(i int) string { return fmt.Sprintf("198.51.100.%d", i) }
	const sources = 16 // whose partitions hang on the secret of the installation: not all of them are one process's
	var events strings.Builder
	for i := range sources {
		events.WriteString(requestsOf(source(i), "tv", i%3+1))
	}
	b.sendAll(events.String())
	ask := func(address, query string) (code int, body string) {
		return fetchPage(t, address, "/v1/counters"+query)
	}
	query := func(i int) string { return "?rule=flood&key=" + url.QueryEscape("ip="+source(i)+"%2F32&device=tv") }
	testbed.Eventually(t, 40*time.Second, func() error { // until each has some: the one that comes first has all for a while
		var codes [2]map[int]int
		for n, p := range processes {
			codes[n] = map[int]int{}
			for i := range sources {
				code, _ := ask(p.address(), query(i))
				codes[n][code]++
			}
		}
		all := 0
		for n := range codes {
			has := codes[n][http.StatusOK]
			if all += has; has == 0 || codes[1-n][http.StatusMisdirectedRequest] != has {
				return fmt.Errorf("answers by code: %v", codes)
			}
		}
		if all != sources {
			return fmt.Errorf("answers by code: %v", codes)
		}
		return nil
	})
	owners := map[string]bool{}
	for i := range sources {
		owners[b.awaitCount(source(i), "tv", int64(i%3+1)).Owner] = true
		for _, p := range processes {
			code, body := ask(p.address(), query(i))
			var said service.NotCounted
			if err := json.Unmarshal([]byte(body), &said); err != nil {
				t.Fatalf("%s: %v", body, err)
			}
			if code == http.StatusMisdirectedRequest && (said.Partition == nil || said.Problem == "") {
				t.Errorf("%d %s", code, body)
			}
		}
	}
	if len(owners) != 2 {
		t.Errorf("answered by %v, want by two", owners)
	}
	for bad, code := range map[string]int{
		"": 400, "?rule=flood": 400, "?rule=flood&key=a&key=b": 400, "?rule=flood&key=a&more=b": 400, "?rule=flood&key=%zz": 400,
		"?rule=flood&key=<script>": 400, "?rule=flood&key=ip%3D192.0.2.1": 400, "?rule=<script>&key=": 404, "?rule=flood&key=" + strings.Repeat("a", 9<<10): 414,
	} {
		got, body := ask(processes[0].address(), bad)
		if got != code || strings.Contains(body, "script") || !json.Valid([]byte(body)) {
			t.Errorf("%.60s: %d %.200s, want %d", bad, got, body, code)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+processes[0].address()+"/v1/counters"+query(1), strings.NewReader("x"))
	if err != nil {
		t.Fatal(err)
	}
	if got := exchange(t, r).status; got != http.StatusMethodNotAllowed {
		t.Errorf("POST is answered with %d", got)
	}
	b.countedByServer(source(0), 1)
	processes[1].end()
	for i := range sources {
		testbed.Eventually(t, 40*time.Second, func() error { // until the one that is left has all, and has reported them
			o := b.weir("counters", "show", "flood", "ip="+source(i), "device=tv", "--output", "json")
			if o.code != exitOK || !strings.Contains(o.stdout, fmt.Sprintf(`"count": %d`, i%3+1)) {
				return fmt.Errorf("source %d: exit code %d, %s%s", i, o.code, o.stdout, o.stderr)
			}
			return nil
		})
	}
}

// countedByServer asks for one count with a token alone: what is said is what is said on the stores, and a viewer may
// ask.
func (b *bed) countedByServer(ip string, want int64) {
	b.t.Helper()
	web := b.start("console", "--console-listen", "127.0.0.1:0", "--set", "console.tokens="+token("vera", "viewer", ""))
	defer web.end()
	vera := b.at("http://"+web.awaitLog(`serving the console" address=(\S+)`), "vera")
	show := []string{"counters", "show", "flood", "ip=" + ip, "device=tv"}
	here, there := b.ok(show...), vera.ok(show...)
	if counts := func(said string) string { return strings.Split(said, "\nOF ")[1] }; counts(here) != counts(there) {
		b.t.Errorf("the count is here\n%s\nand through the server\n%s", here, there)
	}
	if got := decode[api.Count](vera, show...); got.Windows[0].Count != want || got.Owner == "" {
		b.t.Errorf("through the server: %+v", got)
	}
	for says, args := range map[string][]string{
		"did you mean flood?":        {"counters", "show", "flod", "ip=" + ip, "device=tv"},
		"rule flood counts by":       {"counters", "show", "flood", "ip=" + ip},
		"leave it out with --server": append(slices.Clone(show), "--at", "http://192.0.2.1"),
	} {
		if o := vera.weir(args...); o.code == exitOK || !strings.Contains(o.stderr, says) {
			b.t.Errorf("%v: exit code %d, %s", args, o.code, o.stderr)
		}
	}
}

// An owner that hangs, is gone, or is no weir that knows the question is named, within seconds; nothing that it says reaches the terminal
// as it is.
func TestCounterOfAnOwnerThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", floodRule))
	mute, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = mute.Close() }() // connections wait in its queue and are never answered
	serve := func(code int, body string) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "http://192.0.2.1/")
			w.WriteHeader(code)
			_, _ = w.Write([]byte(body))
		}))
		t.Cleanup(s.Close)
		return s.URL
	}
	for name, tc := range map[string]struct{ at, want string }{
		"hangs":          {"http://" + mute.Addr().String(), "does not answer: "},
		"gone":           {"http://" + nowhere(t), "does not answer: "},
		"an older build": {serve(404, "404 page not found\n"), "answers 404, which no weir does that detects and knows this question"},
		"elsewhere":      {serve(302, ""), "answers 302"},
		"another page":   {serve(200, "<html>"), "gives no answer of a weir that detects"},
		"another answer": {serve(200, `{"rule": "other"}`), "not what was asked for"},
		"an escape":      {serve(400, `{"problem": "\u001b[31mred"}`), "[31mred"},
	} {
		o := b.weir("counters", "show", "flood", "ip=198.51.100.7", "device=tv", "--at", tc.at)
		if o.code != exitError || !strings.Contains(o.stderr, tc.want) || strings.Contains(o.stderr, "\x1b") {
			t.Errorf("%s: exit code %d, %s; want %s", name, o.code, o.stderr, tc.want)
		}
	}
	// Where it is reported, it is said who has reported it, and when.
	b.sql(`INSERT INTO {ns}.partition_states (stream, side, partition, owner, state, reason, log_offset, log_end, epoch, gap_source, gap_offset, address)
		SELECT 'live', 'keyed', n, 'old' || chr(27), 'running', '', 0, 0, 1, -1, -1, $1 FROM generate_series(0, 63) n`, "http://"+nowhere(t))
	if o := b.weir("counters", "show", "flood", "ip=198.51.100.7", "device=tv"); o.code != exitError || !strings.Contains(o.stderr, "(old·, which reported keyed partition ") {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
	b.sql("UPDATE {ns}.partition_states SET address = ''")
	if o := b.weir("counters", "show", "flood", "ip=198.51.100.7", "device=tv"); o.code != exitError || !strings.Contains(o.stderr, "which does not say where it answers: name its http.listen address with --at") {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
}
