package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/internal/testbed"
)

// loadRules leave an event fifteen seconds to be acknowledged on a busy machine: what takes longer than the lateness, less five for other
// clocks, counts for certain nowhere, and is compared with nothing.
const loadRules = `
id: tokens-by-ip
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 6
window: 5s
lateness: 20s
---
id: by-device
owner: identity
match: {}
key: [device]
limit: 12
window: 4s
lateness: 22s
---
id: users-and-addresses
owner: identity
match: {path: "/v1/*"}
key: [user, {field: ip, v4: 32, v6: 64}]
limit: 10
window: 4s
lateness: 20s
---
id: everything
owner: edge
match: {}
key: []
limit: 100
window: 5s
---
id: edited
owner: edge
match: {path: /v1/stream}
key: [ip]
limit: 10
window: 5s
`

// countedRules count the same load in other ways.
const countedRules = `
---
id: tokens-fixed
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 6
window: 5s
lateness: 10s
algorithm: fixed
---
id: tokens-bucket
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 6
window: 5s
lateness: 10s
algorithm: token-bucket
---
id: addresses-of-devices
owner: identity
match: {}
key: [device]
count: {distinct: {field: ip, v4: 32, v6: 128}}
limit: 2
window: 10s
lateness: 10s
---
id: costs
owner: identity
match: {}
key: [ip]
count: {sum: attrs.cost}
limit: 6
window: 5s
`

// sql runs a statement in the installation's schema, which stands for {ns}, and gives the number of rows it touched.
func (b *bed) sql(statement string, args ...any) int64 {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.flag("--postgres-url"))
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	tag, err := conn.Exec(b.t.Context(), strings.ReplaceAll(statement, "{ns}", b.flag("--namespace")), args...)
	if err != nil {
		b.t.Fatalf("%s: %v", statement, err)
	}
	return tag.RowsAffected()
}

// closesSoon lets the episodes of a stream that has fallen silent close after seconds, not after a minute. It leaves an event time
// enough to be on its way on a busy machine.
func (b *bed) closesSoon() { b.flags = append(b.flags, "--set", "detect.idle_margin=10s") }

// verify runs weir loadgen verify and gives its verdicts by rule.
func (b *bed) verify(want int, args ...string) map[string]loadgen.Verdict {
	b.t.Helper()
	o := b.weir(append([]string{"loadgen", "verify", "--output", "json"}, args...)...)
	var answer verifiedLoad
	if err := json.Unmarshal([]byte(o.stdout), &answer); err != nil || o.code != want || answer.Verified != (want == exitOK) {
		b.t.Fatalf("verify %v: exit code %d, want %d, %v\n%s%s", args, o.code, want, err, o.stdout, o.stderr)
	}
	verdicts := map[string]loadgen.Verdict{}
	for _, v := range answer.Rules {
		verdicts[v.Rule] = v
	}
	return verdicts
}

// breakHistory changes history, wants verify to find that, and changes it back.
func (b *bed) breakHistory(table, statement string, found func(loadgen.Verdict) bool, args ...string) {
	b.t.Helper()
	b.sql("CREATE TABLE {ns}.kept AS SELECT * FROM " + table)
	if n := b.sql(statement); n < 1 {
		b.t.Fatalf("%s: %d rows", statement, n)
	}
	if v := b.verify(exitError, args...)["tokens-by-ip"]; v.Verdict != loadgen.Differs || !found(v) || len(v.Differences) != 1 {
		b.t.Errorf("%s: %s %+v", statement, v.Verdict, v.Comparison)
	}
	// In one transaction, which RECORD waits for: it writes hits of other traffic meanwhile.
	b.sql("LOCK TABLE " + table + "; DELETE FROM " + table + "; INSERT INTO " + table + " SELECT * FROM {ns}.kept; DROP TABLE {ns}.kept")
}

// breakings are ways in which a history can be wrong about the load of a truth: one source, or one row of it.
func (b *bed) breakings(stream, truth string, args ...string) {
	b.t.Helper()
	guilty, innocent := b.guiltyAndInnocent(stream, truth)
	table, where, key := "{ns}.hits", " WHERE stream = '"+stream+"' AND ", "stream"
	if stream == history.Live {
		table, where, key = "{ns}.hits_by_day", " WHERE ", "day"
	}
	of := where + "rule = 'tokens-by-ip' AND subject = '" + guilty + "' AND phase = 3"
	one := where + "id = (SELECT id FROM " + table + of + " ORDER BY first DESC LIMIT 1)"
	columns := strings.Join(append([]string{key}, strings.Fields(`rule rule_version lineage phase block_subject ip device user_id api_key session grouped
		rule_limit window_ms events peak first last seen_first seen_last cut generation source_partition source_offset keyed_partition
		into_id users devices samples samples_rank opened at_least reason known_good refused`)...), ", ")
	add := func(subject string) string {
		return "INSERT INTO " + table + " (id, subject, " + columns + ") SELECT 'added', '" + subject + "', " + columns + " FROM " + table + one
	}
	missing := func(v loadgen.Verdict) bool { return v.Missing == 1 }
	unequal := func(v loadgen.Verdict) bool { return v.Unequal == 1 }
	b.breakHistory(table, "DELETE FROM "+table+of, missing, args...)
	b.breakHistory(table, add(innocent), func(v loadgen.Verdict) bool { return v.Extra == 1 }, args...)
	if stream == history.Live {
		return // each look at a live stream takes seconds
	}
	b.breakHistory(table, "UPDATE "+table+" SET phase = 4"+of, missing, args...)
	b.breakHistory(table, "UPDATE "+table+" SET events = events + 1"+one, unequal, args...)
	b.breakHistory(table, "UPDATE "+table+" SET last = last - interval '1 microsecond'"+one, unequal, args...)
	b.breakHistory(table, add(guilty), unequal, args...)
}

// guiltyAndInnocent finds two subjects of a load among the clients that keep one address: one who is in history, one who
// is not.
func (b *bed) guiltyAndInnocent(stream, truth string) (guilty, innocent string) {
	b.t.Helper()
	read, err := loadgen.OpenTruth(truth)
	if err != nil {
		b.t.Fatal(err)
	}
	args := []string{"history", "hits", "--limit", "0", "--rule", "tokens-by-ip"}
	if name, ok := strings.CutPrefix(stream, "replay/"); ok {
		args = append(args, "--replay", name)
	}
	over := map[string]bool{}
	for _, h := range decode[[]map[string]any](b, args...) {
		over[fmt.Sprint(h["subject"])] = true
	}
	if err := read.Each(func(e *loadgen.Event, _ loadgen.Fate) {
		switch s := "ip=" + e.IP.String() + "%2F32"; {
		case e.IP.Is6() || e.Method != "POST":
		case over[s]:
			guilty = s
		default:
			innocent = s
		}
	}); err != nil || guilty == "" || innocent == "" {
		b.t.Fatalf("%q, %q, %v", guilty, innocent, err)
	}
	return guilty, innocent
}

// Two loads at a time, other traffic beside them, a rule edited under them: what history says is the truth, and a history
// that is wrong in one row is found out.
func TestLoadIsVerified(t *testing.T) {
	t.Parallel() // most of it is waiting
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.closesSoon()
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", loadRules))
	stages := b.start("run")
	dir := t.TempDir()
	inOrder, shuffled, stopped := filepath.Join(dir, "in-order"), filepath.Join(dir, "shuffled"), filepath.Join(dir, "stopped")

	others, over := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.otherTraffic(others) })
	defer running.Wait()
	defer over()
	endless := b.start("loadgen", "--duration", "1h", "--seed", "3", "--rate", "50", "--truth", stopped)
	shuffledIsWhole := make(chan struct{})
	running.Go(func() {
		defer close(shuffledIsWhole)
		o := b.weir("loadgen", "--duration", "12s", "--seed", "2", "--rate", "100", "--disorder", "4s", "--abuse-rate", "4", "--truth", shuffled)
		if o.code != exitOK {
			t.Errorf("exit code %d\n%s", o.code, o.stderr)
		}
	})
	summary := decode[loadSummary](b, "loadgen", "--duration", "15s", "--seed", "1", "--rate", "100", "--abuse-rate", "4", "--truth", inOrder)
	if !summary.Complete || summary.Events < 1500 || summary.Seed != 1 {
		t.Errorf("%+v", summary)
	}
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", strings.Replace(loadRules, "limit: 10\nwindow: 5s\n", "limit: 9\nwindow: 5s\n", 1)))
	endless.end() // as Ctrl-C would
	<-shuffledIsWhole

	for path, exact := range map[string]bool{inOrder: true, shuffled: false, stopped: true} {
		verdicts := b.verify(exitOK, "--truth", path)
		for rule, v := range verdicts {
			t.Logf("%s: %s %s %s %+v", filepath.Base(path), rule, v.Verdict, v.Reason, v.Comparison)
		}
		for _, rule := range []string{"tokens-by-ip", "by-device", "users-and-addresses"} {
			v := verdicts[rule]
			if v.Verdict != loadgen.Agrees || v.Found < 2 || v.Found != v.Sources || v.Open > 0 || exact && (v.Equal < 2 || v.Equal != v.Exact) {
				t.Errorf("%s: %s: %s %+v", path, rule, v.Verdict, v.Comparison)
			}
		}
		if v := verdicts["edited"]; v.Verdict != loadgen.NotJudged || v.Reason != "it was changed since the load began, from version 1 to 2" {
			t.Errorf("an edited rule: %+v", v)
		}
		if v := verdicts["everything"]; v.Verdict != loadgen.NotJudged || v.Shared == 0 {
			t.Errorf("a rule over all traffic: %+v", v)
		}
	}
	b.breakings(history.Live, inOrder, "--truth", inOrder)
	over()
	running.Wait()
	stages.end()
	b.recordTheRest()
	o := b.weir("loadgen", "verify", "--truth", inOrder)
	if o.code != exitOK || !strings.Contains(o.stdout, "history agrees with the truth on 3 rules") {
		t.Errorf("as a table: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	t.Logf("\n%s", o.stdout)

	// With no stage running, what is sent now is not in history, and that is no agreement.
	unrouted := filepath.Join(dir, "unrouted")
	b.ok("loadgen", "--duration", "1s", "--truth", unrouted)
	o = b.weir("loadgen", "verify", "--truth", unrouted, "--wait", "1s")
	if o.code != exitError || !strings.Contains(o.stderr, "history has not caught up") || !strings.Contains(o.stderr, "are not routed yet") {
		t.Errorf("without stages: exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	text, err := os.ReadFile(unrouted)
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := writeFile(t, "elsewhere", strings.Replace(string(text), `"namespace":"`, `"namespace":"not-`, 1))
	if o := b.weir("loadgen", "verify", "--truth", elsewhere); o.code != exitUsage || !strings.Contains(o.stderr, "allowed: --namespace not-") {
		t.Errorf("of another namespace: exit code %d\n%s", o.code, o.stderr)
	}
}

// recordTheRest records the hits that DETECT has sent and RECORD had not read when both were stopped.
func (b *bed) recordTheRest() {
	b.t.Helper()
	record := b.start("run", "--stages", "record")
	ctx, cancel := context.WithTimeout(b.t.Context(), time.Minute)
	defer cancel()
	if err := b.kafka().AwaitCaughtUp(ctx, ingest.Live.Group(b.flag("--namespace"), ingest.StageRecord), b.names().Hits); err != nil {
		b.t.Fatal(err)
	}
	record.end()
}

// otherTraffic is what other clients do meanwhile: it moves the watermark on, and some of it is over the limit.
func (b *bed) otherTraffic(ctx context.Context) {
	for n := 0; ctx.Err() == nil; n++ {
		for p := range 16 {
			o := b.weirWith(calls(fmt.Sprintf("203.0.113.%d", 16*(n%4)+p), 1+8*(p%2)), "ingest", "-", "--format", "weir", "--live")
			if o.code != exitOK && !o.stoodStill() && ctx.Err() == nil {
				b.t.Errorf("other traffic: exit code %d\n%s", o.code, o.stderr)
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// A stream of gateways that write Protocol Buffers: the same kind of load, the same kind of truth.
func TestLoadInProtobufIsVerified(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.closesSoon()
	b.flags = append(b.flags, "--set", "events.format=weir-protobuf")
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", protobufRules))
	stages := b.start("run")
	truth := filepath.Join(t.TempDir(), "truth")
	b.ok("loadgen", "--duration", "8s", "--seed", "4", "--rate", "100", "--abuse-rate", "4", "--truth", truth)
	verdicts := b.verify(exitOK, "--truth", truth)
	for _, rule := range []string{"tokens-by-ip", "by-device"} {
		if v := verdicts[rule]; v.Verdict != loadgen.Agrees || v.Found < 2 || v.Found != v.Sources {
			t.Errorf("%s: %s %s %+v", rule, v.Verdict, v.Reason, v.Comparison)
		}
	}
	stages.end()
}

const protobufRules = `
id: tokens-by-ip
owner: identity
match: {method: POST, path: /v1/guest-tokens}
key: [ip]
limit: 4
window: 3s
lateness: 20s
---
id: by-device
owner: identity
match: {}
key: [device]
limit: 8
window: 3s
lateness: 20s
`

// A load that is written to a file is verified in the replay that it was ingested as.
func TestLoadOfAReplayIsVerified(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	rule := writeFile(t, "rules.yaml", loadRules+countedRules)
	for _, tc := range []struct {
		name, partitions string
		flags            []string
	}{
		{"in-order", "1", nil}, {"spread", "3", nil}, {"shuffled", "1", []string{"--disorder", "9s"}}, {"too-late", "1", []string{"--disorder", "30s"}},
	} {
		if slowBuild && tc.name != "spread" {
			continue // the order of events, and commands one after the other, are nothing to the race detector; the run without it has these
		}
		dir := t.TempDir()
		events, truth := filepath.Join(dir, "load.jsonl"), filepath.Join(dir, "load.truth")
		b.ok(append([]string{"loadgen", "--to", events, "--truth", truth, "--seed", "9", "--duration", "3m"}, tc.flags...)...)
		b.ok("ingest", events, "--format", "weir", "--replay", tc.name, "--rules", rule, "--partitions", tc.partitions)
		verdicts := b.verify(exitOK, "--truth", truth, "--replay", tc.name)
		v := verdicts["tokens-by-ip"]
		t.Logf("%s: %+v", tc.name, v.Comparison)
		doubted, exact := tc.name == "too-late", len(tc.flags) == 0
		if v.Found < 3 || v.Found != v.Sources || (v.Doubted > 0) != doubted || (v.Equal > 0) != exact {
			t.Errorf("%s: %+v", tc.name, v.Comparison)
		}
		if v := verdicts["tokens-fixed"]; v.Verdict != loadgen.Agrees || v.Found < 3 || v.Found != v.Sources || (v.Equal > 0) != exact {
			t.Errorf("%s: fixed: %s %+v", tc.name, v.Verdict, v.Comparison)
		}
		bucket := verdicts["tokens-bucket"]
		if ordered := bucket.Verdict == loadgen.Agrees && bucket.Found >= 3 && bucket.Equal > 0; ordered != exact || bucket.Verdict == loadgen.Differs {
			t.Errorf("%s: token-bucket: %s %s %+v", tc.name, bucket.Verdict, bucket.Reason, bucket.Comparison)
		}
		if v := verdicts["addresses-of-devices"]; v.Verdict != loadgen.Agrees || v.Found < 1 || v.Found != v.Sources {
			t.Errorf("%s: distinct: %s %+v", tc.name, v.Verdict, v.Comparison)
		}
		if v := verdicts["costs"]; v.Verdict != loadgen.NotJudged || v.Reason != "no event of a load carries attrs.cost, which it adds up" {
			t.Errorf("%s: sum: %s %s", tc.name, v.Verdict, v.Reason)
		}
		if tc.name == "in-order" {
			b.breakings("replay/in-order", truth, "--truth", truth, "--replay", tc.name)
		} else if tc.name == "spread" {
			continue // the same load: in-order's replay is right about it, too
		} else if o := b.weir("loadgen", "verify", "--truth", truth, "--replay", "in-order"); o.code != exitError {
			t.Errorf("another load's replay: exit code %d\n%s", o.code, o.stdout)
		}
	}
}

func TestLoadgenCommandLine(t *testing.T) {
	dir := t.TempDir()
	truth, events := filepath.Join(dir, "truth"), filepath.Join(dir, "events")
	none := emptyFile(t)
	file := offline(t, "", "loadgen", "--to", events, "--truth", truth, "--events", "1000", "--seed", "7", "--begin", "2026-01-31T12:00:00Z")
	piped := offline(t, "", "loadgen", "--to", "-", "--events", "1000", "--seed", "7", "--begin", "2026-01-31T12:00:00Z", "--output", "json")
	written, err := os.ReadFile(events)
	if err != nil || file.code != exitOK || piped.code != exitOK || string(written) != piped.stdout || strings.Count(piped.stdout, "\n") != 1000 {
		t.Fatalf("%v, exit codes %d and %d, %d and %d bytes\n%s%s", err, file.code, piped.code, len(written), len(piped.stdout), file.stderr, piped.stderr)
	}
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--rate", "0"}, exitUsage, "--rate: got 0; allowed: 0.001 to 1000000"},
		{[]string{"--duration", "2d"}, exitUsage, "--duration: got 2d"},
		{[]string{"--disorder", "x"}, exitUsage, "--disorder: "},
		{[]string{"--seed", "-1"}, exitUsage, `--seed: got "-1"`},
		{[]string{"--patterns", "steady,fast"}, exitUsage, `--patterns: got "fast"`},
		{[]string{"--mix", "GET"}, exitUsage, `--mix: got "GET"; allowed: METHOD PATH`},
		{[]string{"--begin", "2026-01-31T12:00:00Z"}, exitUsage, "--begin and --proxies are for --to"},
		{[]string{"--to", "a", "--truth", "a"}, exitUsage, `got "a" for both`},
		{[]string{"--to", "-", "--begin", "noon"}, exitUsage, `--begin: got "noon"`},
		{[]string{"--to", "-", "--truth", truth}, exitError, truth + " exists; allowed: a new file"},
		{[]string{"--to", events}, exitError, events + " exists; allowed: a new file"},
		{[]string{"--to", filepath.Join(dir, "none", "x")}, exitError, "no such file or directory"},
		{[]string{"verify"}, exitUsage, "--truth is required"},
		{[]string{"verify", "--truth", "none"}, exitError, "--truth: open none"},
		{[]string{"verify", "--truth", none}, exitError, "no truth in it"},
		{[]string{"verify", "--truth", truth, "--wait", "soon"}, exitUsage, "--wait: "},
		{[]string{"verify", "--truth", truth, "--config", none}, exitUsage, "the load was written to a file; allowed: --replay NAME"},
	} {
		got := offline(t, "", append([]string{"loadgen"}, tc.args...)...)
		if got.code != tc.code || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("%v: exit code %d, want %d; said %q, want %q in it", tc.args, got.code, tc.code, got.stderr, tc.want)
		}
	}
}

// Every command that docs/loadgen.md shows is one that weir takes, and it names every flag.
func TestLoadgenPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/loadgen.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.SplitSeq(string(page), "\n") {
		if !strings.HasPrefix(line, "weir ") {
			continue
		}
		shown++
		words := commandWords(line)
		found, rest, err := (&app{}).root().Find(words)
		if err != nil || found.ParseFlags(rest) != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if shown < 6 {
		t.Errorf("%d commands found", shown)
	}
	for _, flag := range regexp.MustCompile(`--[a-z0-9-]+ `).FindAllString(loadgenCommand(&app{}).Flags().FlagUsages(), -1) {
		if !strings.Contains(string(page), "`"+strings.TrimSpace(flag)) {
			t.Errorf("docs/loadgen.md does not name %s", flag)
		}
	}
}
