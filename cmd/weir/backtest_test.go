package main

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/weirhq/weir/cmd/weir/internal/report"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/backtest"
)

// burstRule is that of the acceptance tests: more than 10 requests of an address in (t-60s, t].
const burstRule = `
id: burst
owner: tests
match: {}
key: [ip]
limit: 10
window: 60s
block: {ttl: 10m}
`

// apacheLog is a log that nobody on this project wrote.
func apacheLog(t *testing.T) string {
	t.Helper()
	file, err := filepath.Abs("../../internal/acceptance/testdata/logs/elastic-apache.log.gz")
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// backtested is what --output json says.
type backtested struct {
	Files   []string
	Format  string
	Reorder string
	Since   string
	Until   string
	Lines   int64
	Events  int64
	LeftOut int64 `json:"left_out"`
	Refused map[string]int64
	Rules   []struct {
		Rule                             string
		Swept                            string
		Sources, Episodes, Over, Matched int64
		Uncounted                        map[string]int64
		Block                            *struct{ Refused, Held int64 }
		Top                              []struct{ Subject string }
		TopCut                           int64 `json:"top_cut"`
		Hits                             []struct {
			Subject string
			Count   int64
		}
	}
}

// onlyWarns reports whether nothing is said but what is probably not meant in a rule.
func onlyWarns(said string) bool {
	for line := range strings.Lines(said) {
		if !strings.HasPrefix(line, "weir: warning: ") {
			return false
		}
	}
	return true
}

func backtestJSON(t *testing.T, stdin string, args ...string) backtested {
	t.Helper()
	got := offline(t, stdin, append(append([]string{"backtest"}, args...), "--output", "json")...)
	var b backtested
	if err := json.Unmarshal([]byte(got.stdout), &b); err != nil || got.code != exitOK || !onlyWarns(got.stderr) {
		t.Fatalf("exit code %d, %v, said %q\n%s", got.code, err, got.stderr, got.stdout)
	}
	return b
}

// A log, a rule and nothing else: who was over, as known from the sorted log.
func TestBacktestOfARealLog(t *testing.T) {
	rule := writeFile(t, "rule.yaml", burstRule)
	log := apacheLog(t)
	t.Chdir(t.TempDir())
	b := backtestJSON(t, "", log, "--format", "combined", "-f", rule, "--reorder", "15m")
	r := b.Rules[0]
	if b.Events != 10000 || b.Reorder != "15m" || len(b.Rules) != 1 || r.Sources != 79 || r.Episodes != 108 || r.Over != 1729 || r.Matched != 10000 || len(r.Top) != 10 || r.TopCut != 69 {
		t.Errorf("%d events, %+v", b.Events, r)
	}
	var sum int64
	for _, h := range r.Hits {
		sum += h.Count
	}
	if len(r.Hits) != 108 || sum != 1729 {
		t.Errorf("%d hits with %d events", len(r.Hits), sum)
	}

	all := backtestJSON(t, "", log, "--format", "combined", "--rules", rule, "--top", "100").Rules[0]
	if len(all.Top) != 79 || all.TopCut != 0 {
		t.Errorf("--top 100 shows %d, and leaves out %d", len(all.Top), all.TopCut)
	}
}

// The limits of a sweep have a row each, in the order in which they were given, in every form.
func TestBacktestSweeps(t *testing.T) {
	rule := writeFile(t, "rule.yaml", burstRule)
	args := []string{apacheLog(t), "--format", "combined", "-f", rule, "--sweep", "limit=20,10"}
	b := backtestJSON(t, "", args...)
	if len(b.Rules) != 2 || b.Rules[0].Swept != "limit=20" || b.Rules[0].Sources != 50 || b.Rules[1].Swept != "limit=10" || b.Rules[1].Sources != 79 || b.Rules[0].Hits != nil {
		t.Errorf("%+v", b.Rules)
	}
	rows := backtestCSV(t, args...)
	if len(rows) != 3 || !slices.Equal(rows[0][:3], []string{"rule", "limit", "sources"}) || !slices.Equal(rows[2][:3], []string{"burst", "10", "79"}) {
		t.Errorf("%q", rows)
	}
	got := offline(t, "", append([]string{"backtest"}, args...)...)
	if got.code != exitOK || !strings.Contains(got.stdout, "RULE   LIMIT  SOURCES") || strings.Contains(got.stdout, "SAMPLE") {
		t.Errorf("exit code %d, said %q\n%s", got.code, got.stderr, got.stdout)
	}
	b = backtestJSON(t, "", apacheLog(t), "--format", "combined", "-f", rule, "--sweep", "window=1m, 1h")
	if len(b.Rules) != 2 || b.Rules[0].Swept != "window=1m" || b.Rules[0].Sources != 79 || b.Rules[1].Swept != "window=1h" || b.Rules[1].Sources <= 79 {
		t.Errorf("%+v", b.Rules)
	}
}

func backtestCSV(t *testing.T, args ...string) [][]string {
	t.Helper()
	got := offline(t, "", append(append([]string{"backtest"}, args...), "--output", "csv")...)
	rows, err := csv.NewReader(strings.NewReader(got.stdout)).ReadAll()
	if err != nil || got.code != exitOK || !strings.Contains(got.stderr, " events of ") {
		t.Fatalf("exit code %d, %v, said %q\n%s", got.code, err, got.stderr, got.stdout)
	}
	return rows
}

// Standard input may be the log, plain or compressed, or the rules.
func TestBacktestReadsStandardInput(t *testing.T) {
	log, err := os.ReadFile(apacheLog(t))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(log))
	if err != nil {
		t.Fatal(err)
	}
	plain, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	rule := writeFile(t, "rule.yaml", burstRule)
	for name, b := range map[string]backtested{
		"plain": backtestJSON(t, string(plain), "-", "--format", "combined", "-f", rule),
		"gzip":  backtestJSON(t, string(log), "-", "--format", "combined", "-f", rule),
		"rules": backtestJSON(t, burstRule, apacheLog(t), "--format", "combined", "-f", "-"),
	} {
		if b.Rules[0].Sources != 79 || name != "rules" && b.Files[0] != "stdin" {
			t.Errorf("%s: %+v of %v", name, b.Rules[0], b.Files)
		}
	}
}

// Since is in, until is out; an event that is neither is counted as left out.
func TestBacktestOfAPartOfALog(t *testing.T) {
	rule := writeFile(t, "rule.yaml", burstRule)
	log := func(at string) string { return `{"v":1,"ip":"192.0.2.1","time":"` + at + `"}` + "\n" }
	b := backtestJSON(t, log("2026-01-31T11:59:59Z")+log("2026-01-31T12:00:00Z")+log("2026-01-31T12:59:59Z")+log("2026-01-31T13:00:00Z"),
		"-", "--format", "weir", "-f", rule, "--since", "2026-01-31T12:00:00Z", "--until", "2026-01-31T14:00:00+01:00")
	if b.Events != 2 || b.LeftOut != 2 || b.Lines != 4 || b.Rules[0].Matched != 2 || b.Since != "2026-01-31T12:00:00.000000Z" || b.Until != "2026-01-31T13:00:00.000000Z" {
		t.Errorf("%+v", b)
	}
}

// A configuration says how events are written and whose they are; flags go before it.
func TestBacktestWithAConfiguration(t *testing.T) {
	conf := writeFile(t, "weir.yaml", "events: {format: json, map: {time: ts, user: who}}\nidentity: {ip: {v4: 24}}\n")
	rule := writeFile(t, "rule.yaml", "id: users\nowner: tests\nmatch: {}\nkey: [ip, user]\nlimit: 0\nwindow: 60s\n")
	const line = `{"ts":"2026-01-31T12:00:00Z","ip":"192.0.2.77","who":"alice","name":"bob"}` + "\n"
	if b := backtestJSON(t, line, "-", "-f", rule, "--config", conf); b.Format != "json" || b.Rules[0].Top[0].Subject != "ip=192.0.2.0%2F24&user=alice" {
		t.Errorf("%+v", b)
	}
	if b := backtestJSON(t, line, "-", "-f", rule, "--config", conf, "--map", "time=ts,user=name"); b.Rules[0].Top[0].Subject != "ip=192.0.2.0%2F24&user=bob" {
		t.Errorf("%+v", b)
	}
	if got := offline(t, line, "backtest", "-", "-f", rule, "--config", conf, "--format", "weir"); got.code != exitError {
		t.Errorf("exit code %d: the map of the file was kept for another format?\n%s", got.code, got.stdout+got.stderr)
	}
	long := strings.Replace(line, "bob", strings.Repeat("b", 1024), 1)
	if b := backtestJSON(t, line+long, "-", "-f", rule, "--config", conf, "--set", "events.max_event_bytes=1024"); b.Events != 1 || b.Refused["oversized"] != 1 {
		t.Errorf("%+v", b)
	}
}

// What a rule asks that the log never has is said of the log's format, whatever the configured one is.
func TestBacktestKnowsWhatItsLogNeverHas(t *testing.T) {
	rule := writeFile(t, "rule.yaml", "id: tenants\nowner: tests\nmatch: {path: /v1/*}\nkey: [attrs.tenant]\nlimit: 0\nwindow: 60s\n")
	const says = "key[0]: got attrs.tenant, which events of the format combined never have"
	got := offline(t, "", "backtest", apacheLog(t), "--format", "combined", "-f", rule)
	if got.code != exitOK || !strings.Contains(got.stderr, says) {
		t.Errorf("exit code %d, said %q", got.code, got.stderr)
	}
	conf := writeFile(t, "weir.yaml", "events: {format: combined}\n")
	const line = `{"v":1,"time":"2026-01-31T12:00:00Z","ip":"192.0.2.77","path":"/v1/a","attrs":{"tenant":"a"}}` + "\n"
	if got := offline(t, line, "backtest", "-", "-f", rule, "--config", conf, "--format", "weir"); got.code != exitOK || strings.Contains(got.stderr, "never have") {
		t.Errorf("exit code %d, said %q of another format", got.code, got.stderr)
	}
	if got := offline(t, "", "rules", "lint", "-f", rule, "--config", conf); got.code != exitOK || !strings.Contains(got.stdout, says) {
		t.Errorf("exit code %d, said %q", got.code, got.stdout)
	}
}

// Whom no block may hold, none would have held: private addresses, and those of the configuration.
func TestBacktestHoldsNobodyWhoIsNeverBlocked(t *testing.T) {
	rule := writeFile(t, "rule.yaml", strings.Replace(burstRule, "limit: 10", "limit: 1", 1))
	for ip, want := range map[string]int64{"203.0.113.7": 2, "10.0.0.1": 0, "198.51.100.9": 0} {
		line := `{"v":1,"ip":"` + ip + `","time":"2026-01-31T12:00:00Z"}` + "\n"
		b := backtestJSON(t, strings.Repeat(line, 4), "-", "--format", "weir", "-f", rule, "--set", "never_block=198.51.100.0/24")
		if r := b.Rules[0]; r.Sources != 1 || r.Block.Refused != want {
			t.Errorf("%s: %d sources, %+v refused, want %d", ip, r.Sources, r.Block, want)
		}
	}
}

// What is late depends on the partitions that a log is taken for, as in ingest.
func TestBacktestTakesALogForItsPartitions(t *testing.T) {
	rule := writeFile(t, "rule.yaml", burstRule)
	const log = `{"v":1,"ip":"203.0.113.7","time":"2026-01-31T12:10:00Z"}` + "\n" + `{"v":1,"ip":"203.0.113.8","time":"2026-01-31T12:00:00Z"}` + "\n"
	for partitions, want := range map[string]int64{"1": 1, "64": 0} {
		if r := backtestJSON(t, log, "-", "--format", "weir", "-f", rule, "--partitions", partitions).Rules[0]; r.Uncounted["late"] != want {
			t.Errorf("%s partitions: %v, want %d late", partitions, r.Uncounted, want)
		}
	}
}

// The page is written in one step, beside the other output; an old one stays until then.
func TestBacktestWritesAPage(t *testing.T) {
	rule, page := writeFile(t, "rule.yaml", burstRule), filepath.Join(t.TempDir(), "report.html")
	if err := os.WriteFile(page, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := offline(t, "nothing\n", "backtest", "-", "--format", "combined", "-f", rule, "--html", page); got.code != exitError {
		t.Errorf("exit code %d: %s", got.code, got.stderr)
	}
	if text, err := os.ReadFile(page); err != nil || string(text) != "old" {
		t.Errorf("a run that read nothing leaves %q, %v", text, err)
	}
	if b := backtestJSON(t, "", apacheLog(t), "--format", "combined", "-f", rule, "--html", page); b.Rules[0].Sources != 79 {
		t.Errorf("%+v", b.Rules[0])
	}
	text, err := os.ReadFile(page)
	if err != nil || !strings.HasPrefix(string(text), "<!doctype html>") || !strings.HasSuffix(string(text), "</html>\n") || !strings.Contains(string(text), "limit 10: 79 sources over it") {
		t.Errorf("%v\n%.2000s", err, text)
	}
	if info, err := os.Stat(page); err != nil || info.Mode() != 0o644 {
		t.Errorf("its mode is %v, %v", info.Mode(), err)
	}
	over := filepath.Join(filepath.Dir(page), "folder")
	if err := errors.Join(os.Mkdir(over, 0o700), os.WriteFile(filepath.Join(over, "x"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := (&report.Report{Result: &backtest.Result{}}).WritePage(over); err == nil {
		t.Error("a folder was replaced")
	}
	left, err := filepath.Glob(filepath.Join(filepath.Dir(page), ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%v stay behind, %v", left, err)
	}
}

// What can be read counts, what cannot is told by reason and place; the exit code is 1 only when nothing could be read.
func TestBacktestOfABadLog(t *testing.T) {
	rule := writeFile(t, "rule.yaml", burstRule)
	whole, err := os.ReadFile(apacheLog(t))
	if err != nil {
		t.Fatal(err)
	}
	torn := filepath.Join(t.TempDir(), "torn.log.gz")
	if err := os.WriteFile(torn, whole[:len(whole)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	got := offline(t, "", "backtest", torn, "--format", "combined", "-f", rule)
	if got.code != exitOK || !strings.Contains(got.stdout, "not read, truncated: 1\n") || !strings.Contains(got.stdout, torn+":") || !strings.Contains(got.stdout, "RULE ") {
		t.Errorf("torn: exit code %d, said %q\n%s", got.code, got.stderr, got.stdout)
	}
	got = offline(t, "\x00\x01\n{}\n", "backtest", "-", "--format", "combined", "-f", rule, "--output", "csv")
	if got.code != exitError || !strings.Contains(got.stderr, "weir: not read, malformed: 2") || !strings.Contains(got.stderr, "stdin:1: ") || strings.Count(got.stdout, "\n") != 1 {
		t.Errorf("nothing: exit code %d, said %q\n%s", got.code, got.stderr, got.stdout)
	}
	for _, form := range backtestFormats() {
		if got := offline(t, "", "backtest", "-", "--format", "combined", "-f", rule, "--output", form); got.code != exitOK || form == "table" && !strings.Contains(got.stdout, "0 events of 0 lines") ||
			!strings.HasSuffix(got.stderr, "weir: nothing to count: the log is empty\n") {
			t.Errorf("an empty log: exit code %d, said %q\n%s", got.code, got.stderr, got.stdout)
		}
	}
	got = offline(t, "", "backtest", torn, "--format", "combined", "-f", rule, "--since", "2026-01-01T00:00:00Z")
	if got.code != exitOK || !strings.Contains(got.stderr, "weir: not one event is within --since and --until: ") {
		t.Errorf("before the beginning: exit code %d, said %q\n%s", got.code, got.stderr, got.stdout)
	}
	var out, said bytes.Buffer
	if code := run(t.Context(), []string{"backtest", "-", "--format", "combined", "-f", rule}, iotest.ErrReader(errors.New("the pipe is gone")), &out, &said); code != exitError || !strings.Contains(said.String()+out.String(), "the pipe is gone") {
		t.Errorf("exit code %d, said %q\n%s", code, said.String(), out.String())
	}
}

// A client that calls itself a formula, markup or an escape sequence is a text in every form.
func TestBacktestOfAHostileLog(t *testing.T) {
	rule := writeFile(t, "rule.yaml", "id: devices\nowner: tests\nmatch: {}\nkey: [device]\nlimit: 0\nwindow: 60s\n")
	names := []string{"=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", `a","b`, "<script>alert(1)</script>", "\x1b[2J", "\u202etxt", "'; rm -rf /", "|calc", "＝1"}
	var log strings.Builder
	for _, name := range names {
		line, err := json.Marshal(map[string]any{"v": 1, "time": "2026-01-31T12:00:00Z", "device": name, "path": name, "user_agent": name, "method": name})
		if err != nil {
			t.Fatal(err)
		}
		log.Write(append(line, '\n'))
	}
	file, page := writeFile(t, "hostile.jsonl", log.String()), filepath.Join(t.TempDir(), "report.html")
	rows := backtestCSV(t, file, "--format", "weir", "-f", rule, "--html", page)
	if len(rows) != len(names)+1 {
		t.Errorf("%d rows", len(rows))
	}
	for _, row := range rows[1:] {
		if !strings.HasPrefix(row[1], "device=") || strings.Trim(row[1], "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~%=") != "" {
			t.Errorf("a source is %q", row[1])
		}
	}
	text, err := os.ReadFile(page)
	if err != nil || strings.Contains(string(text), "<script") || strings.ContainsAny(string(text), "\x1b\u202e") {
		t.Errorf("%v\n%s", err, text)
	}
	got := offline(t, "", "backtest", file, "--format", "weir", "-f", rule)
	if got.code != exitOK || strings.ContainsAny(got.stdout, "\x1b\u202e\r\t") {
		t.Errorf("exit code %d\n%q", got.code, got.stdout)
	}
}

func TestBacktestShowsHowFarItIs(t *testing.T) {
	var shown terminal.Progress
	follow(&shown)(backtest.Progress{Bytes: 3, Events: 4})
	if shown.Bytes.Load() != 3 || shown.Events.Load() != 4 {
		t.Errorf("%d bytes, %d events", shown.Bytes.Load(), shown.Events.Load())
	}
}

// Every mistake says what was got and what is allowed, before a log is opened.
func TestBacktestFlags(t *testing.T) {
	rule, log := writeFile(t, "rule.yaml", burstRule), writeFile(t, "log.jsonl", "")
	with := func(more ...string) []string {
		return append([]string{"backtest", log, "--format", "weir", "-f", rule}, more...)
	}
	many := "limit=0"
	for range maxSwept {
		many += ",0"
	}
	for _, tc := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"no log", []string{"backtest", "--format", "weir", "-f", rule}, exitUsage, "a log file is required, - for standard input, or --from-live"},
		{"live and a file", []string{"backtest", log, "--from-live", "-f", rule}, exitUsage, "--from-live reads the live requests and no file"},
		{"live in a format", []string{"backtest", "--from-live", "--format", "weir", "-f", rule}, exitUsage, "--format: it is for files"},
		{"live sorted", []string{"backtest", "--from-live", "--reorder", "1m", "-f", rule}, exitUsage, "--reorder: it is for files"},
		{"live in other partitions", []string{"backtest", "--from-live", "--partitions", "2", "-f", rule}, exitUsage, "--partitions: it is for files"},
		{"live without rules", []string{"backtest", "--from-live"}, exitUsage, "-f is required"},
		{"live at no rate", []string{"backtest", "--from-live", "--max-rate", "fast", "-f", rule}, exitUsage, `--max-rate: got "fast"; allowed: a number of bytes like 64MiB`},
		{"a rate for a file", with("--max-rate", "1MiB"), exitUsage, "--max-rate: it is for --from-live"},
		{"no rules", []string{"backtest", log, "--format", "weir"}, exitUsage, "-f is required: a file or directory of rules"},
		{"no format", []string{"backtest", log, "-f", rule}, exitUsage, "--format is required; allowed: weir, json, combined"},
		{"unknown format", []string{"backtest", log, "-f", rule, "--format", "combned"}, exitUsage, `--format: got "combned"; allowed: weir, json, combined, nginx, envoy, caddy, traefik, haproxy, ecs; did you mean combined?`},
		{"a format that is no line", []string{"backtest", log, "-f", rule, "--format", "protobuf"}, exitUsage, `--format: got "protobuf"`},
		{"map of an unknown field", []string{"backtest", log, "-f", rule, "--format", "json", "--map", "tyme=ts"}, exitUsage, `"tyme"`},
		{"map without json", []string{"backtest", log, "-f", rule, "--format", "combined", "--map", "time=ts"}, exitUsage, "map"},
		{"output", with("--output", "xml"), exitUsage, `--output: got "xml"; allowed: table, json, csv`},
		{"reorder", with("--reorder", "soon"), exitUsage, `--reorder: got "soon"`},
		{"partitions", with("--partitions", "65"), exitUsage, "--partitions: got 65; allowed: 1 to 64"},
		{"no partitions", with("--partitions", "0"), exitUsage, "--partitions: got 0; allowed: 1 to 64"},
		{"top", with("--top", "0"), exitUsage, "--top: got 0; allowed: 1 and more; --output csv has every episode, and no list of sources"},
		{"top below", with("--top", "-1"), exitUsage, "--top: got -1; allowed: 1 and more"},
		{"since", with("--since", "tomorrow"), exitUsage, `--since: got "tomorrow"; allowed: `},
		{"until", with("--until", "tomorrow"), exitUsage, `--until: got "tomorrow"; allowed: `},
		{"since after until", with("--since", "1h", "--until", "2h"), exitUsage, "allowed: a time after --since"},
		{"until at since", with("--since", "2026-01-31T12:00:00Z", "--until", "2026-01-31T12:00:00Z"), exitUsage, "--until: got 2026-01-31T12:00:00Z; allowed: a time after --since"},
		{"sweep of nothing", with("--sweep", "limit"), exitUsage, `--sweep: limit: got ""; allowed: whole numbers from 0 to 1000000`},
		{"sweep of another field", with("--sweep", "ttl=1m"), exitUsage, `--sweep: got "ttl=1m"; allowed: limit=5,10,20 or window=1m,5m,1h`},
		{"sweep of no number", with("--sweep", "limit=5,x"), exitUsage, `--sweep: limit: got "x"`},
		{"sweep of too much", with("--sweep", "limit=1000001"), exitUsage, `--sweep: limit: got "1000001"`},
		{"sweep below", with("--sweep", "limit=-1"), exitUsage, `--sweep: limit: got "-1"`},
		{"sweep twice", with("--sweep", "limit=5,05"), exitUsage, "--sweep: got 05 twice; allowed: each value once"},
		{"sweep of a window without a unit", with("--sweep", "window=60"), exitUsage, `--sweep: window: got "60"; allowed: 1s to 31d, in units s m h d`},
		{"sweep of a window too short", with("--sweep", "window=0s"), exitUsage, `--sweep: window: got "0s"`},
		{"sweep of a window too long", with("--sweep", "window=32d"), exitUsage, `--sweep: window: got "32d"`},
		{"sweep of a window twice", with("--sweep", "window=60s,1m"), exitUsage, "--sweep: got 1m twice"},
		{"sweep of too many", with("--sweep", many), exitUsage, "--sweep: got 101 values; allowed: 100 at most"},
		{"page in no folder", with("--html", filepath.Join(t.TempDir(), "none", "x.html")), exitUsage, "--html: "},
		{"page over a folder", with("--html", t.TempDir()), exitUsage, "is no regular file"},
		{"page over the log", with("--html", log), exitUsage, "is read; allowed: another file to write"},
		{"page over the rules", with("--html", rule), exitUsage, "is read; allowed: another file to write"},
		{"missing log", []string{"backtest", "none.log", "none2.log", "--format", "weir", "-f", rule}, exitError, "none2.log"},
		{"a folder", []string{"backtest", t.TempDir(), "--format", "weir", "-f", rule}, exitError, "is a directory; allowed: files, or - for standard input"},
		{"standard input twice", []string{"backtest", "-", "-", "--format", "weir", "-f", rule}, exitError, "- is given twice"},
		{"standard input for both", []string{"backtest", "-", "--format", "weir", "-f", "-"}, exitUsage, "- is given for the log and for -f"},
		{"missing rules", []string{"backtest", log, "--format", "weir", "-f", "none.yaml"}, exitError, "none.yaml"},
		{"bad rules", []string{"backtest", log, "--format", "weir", "-f", writeFile(t, "bad.yaml", "id: x\nlimit: many\n")}, exitError, "bad.yaml:2:8: limit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := offline(t, "", append(tc.args, "--config", emptyFile(t))...)
			if got.code != tc.code || !strings.Contains(got.stderr, tc.want) || got.stdout != "" {
				t.Errorf("exit code %d, want %d; said %q, want %q in it\n%s", got.code, tc.code, got.stderr, tc.want, got.stdout)
			}
		})
	}
}
