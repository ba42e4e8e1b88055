package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/rules"
)

// offline runs a command that needs no server.
func offline(t *testing.T, stdin string, args ...string) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), args, strings.NewReader(stdin), &out, &errs)
	return outcome{code, out.String(), errs.String()}
}

func eachCommand(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		if sub.Name() != "help" {
			eachCommand(sub, visit)
		}
	}
}

func TestEveryCommandHasAnExampleThatItTakes(t *testing.T) {
	a := &app{}
	eachCommand(a.root(), func(c *cobra.Command) {
		if c.Short == "" || c.Example == "" {
			t.Errorf("%s: short text %q, example %q", c.CommandPath(), c.Short, c.Example)
		}
		for _, line := range strings.Split(c.Example, "\n") {
			words := commandWords(line)
			if len(words) == 0 {
				t.Errorf("%s: example line %q does not call weir", c.CommandPath(), line)
				continue
			}
			found, rest, err := (&app{}).root().Find(words)
			if err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: example %q: %v", c.CommandPath(), line, err)
			}
			if c.HasParent() && !strings.HasPrefix(found.CommandPath(), c.CommandPath()) {
				t.Errorf("%s: example %q is of %s", c.CommandPath(), line, found.CommandPath())
			}
		}
	})
}

// commandWords are the words after `weir` in a line of shell, up to a redirection.
func commandWords(line string) []string {
	_, rest, found := strings.Cut(" "+line, " weir ")
	if !found {
		return nil
	}
	for _, end := range []string{" < ", " > ", " | "} {
		rest, _, _ = strings.Cut(rest, end)
	}
	var words []string
	for i, quoted := range strings.Split(rest, `"`) {
		if i%2 == 1 {
			words = append(words, quoted)
			continue
		}
		words = append(words, strings.Fields(quoted)...)
	}
	return words
}

func TestHelpIsAsRecorded(t *testing.T) {
	a := &app{}
	update := os.Getenv("WEIR_TEST_UPDATE") != ""
	eachCommand(a.root(), func(c *cobra.Command) {
		args := append(strings.Fields(c.CommandPath())[1:], "--help")
		got := offline(t, "", args...)
		if got.code != exitOK || got.stderr != "" {
			t.Errorf("%s --help: exit code %d, %s", c.CommandPath(), got.code, got.stderr)
		}
		file := filepath.Join("testdata", "help", strings.ReplaceAll(c.CommandPath(), " ", "-")+".txt")
		if update {
			if err := os.WriteFile(file, []byte(got.stdout), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatalf("%v (WEIR_TEST_UPDATE=1 go test ./cmd/weir -run %s writes it)", err, t.Name())
		}
		if got.stdout != string(want) {
			t.Errorf("%s --help differs from %s (WEIR_TEST_UPDATE=1 go test ./cmd/weir -run %s):\n%s", c.CommandPath(), file, t.Name(), got.stdout)
		}
	})
}

func TestExitCodes(t *testing.T) {
	good := writeFile(t, "good.yaml", tokenRule)
	bad := writeFile(t, "bad.yaml", "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: many\nwindow: 60s\ncolour: red\n")
	none := emptyFile(t)
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		stderr []string
	}{
		{"version", []string{"version"}, exitOK, nil},
		{"--version", []string{"--version"}, exitOK, nil},
		{"no command", nil, exitOK, nil},
		{"a family without its command", []string{"rules", "--config", none}, exitOK, nil},
		{"unknown command", []string{"ruls"}, exitUsage, []string{`weir: unknown command "ruls" for "weir"; did you mean rules?`, "weir: see weir --help"}},
		{"help of an unknown command", []string{"help", "ruls"}, exitUsage, []string{`weir: unknown command "ruls" for "weir"; did you mean rules?`, "weir: see weir --help"}},
		{"unknown subcommand", []string{"rules", "lst"}, exitUsage, []string{`unknown command "lst" for "weir rules"; did you mean list?`, "weir: see weir rules --help"}},
		{"unknown flag", []string{"run", "--stage", "x"}, exitUsage, []string{"unknown flag --stage; did you mean --stages?", "weir: see weir run --help"}},
		{"wrong output", []string{"rules", "list", "--output", "csv"}, exitUsage, []string{`--output: got "csv"; allowed: table, json`}},
		{"wrong stage", []string{"run", "--stages", "detekt", "--config", none}, exitUsage, []string{`--stages: got "detekt"; allowed: route, detect, record, enforce`}},
		{"unknown field", []string{"config", "show", "--config", none, "--set", "kafka.broker=x"}, exitUsage, []string{`no such field "kafka.broker"; did you mean kafka.brokers?`}},
		{"set without a value", []string{"config", "show", "--config", none, "--set", "kafka"}, exitUsage, []string{"allowed: FIELD=VALUE"}},
		{"missing file", []string{"config", "show", "--config", "none.yaml"}, exitUsage, []string{"none.yaml"}},
		{"neither replay nor live", []string{"ingest", "x", "--format", "json", "--config", none}, exitUsage, []string{"--replay NAME"}},
		{"both", []string{"ingest", "x", "--format", "json", "--live", "--replay", "r", "--config", none}, exitUsage, []string{"replay"}},
		{"a limit that is none", []string{"history", "hits", "--limit", "abc"}, exitUsage, []string{`--limit: got "abc"; allowed: a whole number`}},
		{"no argument", []string{"why"}, exitUsage, []string{"weir why: got nothing; allowed: ID|SOURCE"}},
		{"no format", []string{"ingest", "x", "--live", "--config", none}, exitUsage, []string{"--format is required; allowed: weir, json, combined"}},
		{"unknown format", []string{"ingest", "x", "--live", "--format", "csv", "--config", none}, exitUsage, []string{`--format: got "csv"`}},
		{"map of an unknown field", []string{"ingest", "x", "--live", "--format", "json", "--map", "tyme=ts", "--config", none}, exitUsage, []string{`"tyme"`}},
		{"map without json", []string{"ingest", "x", "--live", "--format", "combined", "--map", "time=ts", "--config", none}, exitUsage, []string{"map"}},
		{"bad replay name", []string{"ingest", none, "--format", "json", "--replay", "a/b", "--config", none}, exitUsage, []string{"--replay"}},
		{"missing archive", []string{"ingest", "none.log", "--format", "json", "--live", "--config", none}, exitError, []string{"none.log"}},
		{"bad speed", []string{"ingest", none, "--format", "json", "--live", "--speed", "-1", "--config", none}, exitUsage, []string{"--speed"}},
		{"counting again alone", []string{"migrate", "--count-again"}, exitUsage, []string{"about --recreated"}},
		{"resume without acceptance", []string{"partitions", "resume", "--keyed", "1", "--reason", "x"}, exitUsage, []string{"--accept-gap is required"}},
		{"resume without reason", []string{"partitions", "resume", "--keyed", "1", "--accept-gap"}, exitUsage, []string{"--reason is required"}},
		{"resume of both sides", []string{"partitions", "resume", "--keyed", "1", "--requests", "1", "--accept-gap", "--reason", "x"}, exitUsage, []string{"one of"}},
		{"bad since", []string{"history", "hits", "--since", "tomorow"}, exitUsage, []string{`--since: got "tomorow"; allowed: a duration back from now like 90m, 24h or 7d, today, yesterday`}},
		{"bad source", []string{"history", "hits", "--source", "ip=nowhere"}, exitUsage, []string{"--source"}},
		{"bad action", []string{"history", "decisions", "--action", "made"}, exitUsage, []string{`--action: got "made"`}},
		{"lint without files", []string{"rules", "lint", "--config", none}, exitUsage, []string{"-f is required"}},
		{"lint of good rules", []string{"rules", "lint", "-f", good, "--config", none}, exitOK, nil},
		{"lint of bad rules", []string{"rules", "lint", "-f", bad, "--config", none}, exitError, []string{bad + ":5:8: limit", bad + ":7:1: colour"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := offline(t, "", tc.args...)
			if got.code != tc.code {
				t.Errorf("exit code %d, want %d\n%s%s", got.code, tc.code, got.stdout, got.stderr)
			}
			for _, want := range tc.stderr {
				if !strings.Contains(got.stderr, want) {
					t.Errorf("said %q, want %q in it", got.stderr, want)
				}
			}
		})
	}
}

// weir --version says what weir version does.
func TestVersionIsAFlagToo(t *testing.T) {
	command, flag := offline(t, "", "version"), offline(t, "", "--version")
	if command.stdout == "" || flag != command {
		t.Errorf("weir --version: got %+v, want %+v", flag, command)
	}
}

func TestLintAsJSONListsAllProblems(t *testing.T) {
	bad := "id: x\nowner: y\nmatch: {}\nkey: [ip]\nlimit: many\nwindow: 60s\ncolour: red\n"
	got := offline(t, bad, "rules", "lint", "-f", "-", "--config", emptyFile(t), "--output", "json")
	if got.code != exitError || got.stderr != "" || strings.Count(got.stdout, `"line"`) != 2 || strings.Count(got.stdout, `"column"`) != 2 || !strings.Contains(got.stdout, `"field": "colour"`) {
		t.Errorf("exit code %d, stderr %q\n%s", got.code, got.stderr, got.stdout)
	}
}

// What is probably not meant is said, and is no problem: the exit code stays 0.
func TestLintWarns(t *testing.T) {
	odd := writeFile(t, "odd.yaml", "id: x\nowner: y\nmatch: {method: \"404\", path: login}\nkey: [ip]\nlimit: 1\nwindow: 60s\n")
	got := offline(t, "", "rules", "lint", "-f", odd, "--config", emptyFile(t))
	if got.code != exitOK || !strings.Contains(got.stdout, "warning: "+odd+`:3:17: match.method[0]: got "404"`) ||
		!strings.Contains(got.stdout, `match.path: got "login"`) || !strings.Contains(got.stdout, "1 rule without a problem") {
		t.Errorf("exit code %d, stderr %q\n%s", got.code, got.stderr, got.stdout)
	}
	got = offline(t, "", "rules", "lint", "-f", odd, "--config", emptyFile(t), "--output", "json")
	var report struct{ Problems, Warnings []rules.Problem }
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil || got.code != exitOK || len(report.Problems) != 0 || len(report.Warnings) != 2 {
		t.Errorf("exit code %d, %v\n%s", got.code, err, got.stdout)
	}
}

// A rule that reaches beyond what its owner is bound to is warned about, with its place.
func TestLintWarnsOfWhatReachesBeyond(t *testing.T) {
	conf := writeFile(t, "weir.yaml",
		"console: {bounds: [{owner: search, host: api.example.com, path: /v1/search/*}]}\n")
	text := "id: x\nowner: search\nmatch: {host: api.example.com, path: /v1/search/a}\nkey: [ip]\nlimit: 1\nwindow: " +
		"60s\n"
	within, beyond := writeFile(t, "r.yaml", text), writeFile(t, "b.yaml",
		strings.Replace(text, "host: api.example.com, ", "", 1))
	if got := offline(t, "", "rules", "lint", "-f", within, "--config", conf); got.code != exitOK ||
		got.stdout != "1 rule without a problem\n" {
		t.Errorf("within: %+v", got)
	}
	got := offline(t, "", "rules", "lint", "-f", beyond, "--config", conf)
	if want := "warning: " + beyond +
		`:3:8: match: got any method /v1/search/a (every host, since it names none), beyond ` +
		`what owner "search" is bound to, allowed any method /v1/search/*, host api.example.com; ` +
		`an admin alone may apply ` +
		"and promote it: console.bounds of the configuration\n1 rule without a problem\n"; got.code != exitOK ||
		got.stdout != want {
		t.Errorf("got  %+v\nwant %q", got, want)
	}
}

func TestConfigShowMasksSecrets(t *testing.T) {
	file := writeFile(t, "weir.yaml", "postgres: {url: 'postgres://u:hunter2@db:5432/weir'}\nkafka: {sasl: {mechanism: plain, username: u, password: hunter2}}\n")
	t.Setenv("WEIR_REDIS_URL", "redis://:hunter2@cache:6379/0")
	for _, output := range []string{"table", "json"} {
		got := offline(t, "", "config", "show", "--config", file, "--output", output, "--namespace", "other")
		if got.code != exitOK || strings.Contains(got.stdout+got.stderr, "hunter2") {
			t.Errorf("exit code %d, or a secret in:\n%s%s", got.code, got.stdout, got.stderr)
		}
		for _, want := range []string{"********", "--namespace", "WEIR_REDIS_URL", file + ":1"} {
			if !strings.Contains(got.stdout, want) {
				t.Errorf("%s lacks %q:\n%s", output, want, got.stdout)
			}
		}
	}
}

// A block that only the closing hit lengthens is foretold until when ENFORCE writes it: blocklist/enforce plays the
// same file.
func TestRulesTestForetellsBlocks(t *testing.T) {
	src, err := os.ReadFile(filepath.Join("..", "..", "internal", "story", "testdata", "closing-of-tuples.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	head, _, found := strings.Cut(string(src), "      blocks: ")
	file := filepath.Join(t.TempDir(), "rule.yaml")
	if err := os.WriteFile(file, []byte(head+"      blocks: []\n"), 0o600); err != nil || !found {
		t.Fatal(err, found)
	}
	got := offline(t, "", "rules", "test", file)
	for _, want := range []string{"device: a, until: 10m20s, released: false}   came", "device: b, until: 10m45s, released: false}   came"} {
		if got.code != exitError || !strings.Contains(got.stdout, want) {
			t.Errorf("exit code %d, no %q in\n%s", got.code, want, got.stdout)
		}
	}
}

// What tries rules needs no server, and says by its exit code what came of it.
func TestRulesAreTriedWithoutAServer(t *testing.T) {
	examples := filepath.Join("..", "..", "examples")
	broken := filepath.Join(t.TempDir(), "rule.yaml")
	const rule = "id: r\nowner: a\nmatch: {}\nkey: [ip]\nlimit: 1\nwindow: 1m\ntests:\n"
	for _, tt := range []struct {
		tests, stdin string
		args         []string
		code         int
		want         string
	}{
		{"", "", []string{"rules", "test", examples}, exitOK, "ok    " + filepath.Join(examples, "rules", "login-burst.yaml")},
		{"  - {name: a, timeline: [{at: 0s, ip: 192.0.2.1}], expect: {hits: [{count: 1}]}}\n", "", []string{"rules", "test", broken}, exitError, "--- FAIL: r/a"},
		{"  - {name: a, timelin: []}\n", "", []string{"rules", "lint", "-f", broken}, exitError, ""},
		{"  - {name: a, timelin: []}\n", "", []string{"rules", "test", broken}, exitError, ""},
		{"", "", []string{"rules", "test"}, exitUsage, ""},
		{"", "", []string{"rules", "test", examples, "--run", "("}, exitUsage, ""},
		{"", "{\"v\":1,\"time\":\"2026-01-01T00:00:00Z\",\"ip\":\"192.0.2.1\",\"method\":\"POST\",\"path\":\"/login\"}", []string{"rules", "explain", "login-burst", "-f", filepath.Join(examples, "rules"), "--event", "-"}, exitOK, "count 1 of limit 10: not over"},
		{"", "", []string{"rules", "explain", "login-burst", "-f", filepath.Join(examples, "rules")}, exitUsage, ""},
		{"", "", []string{"rules", "schema"}, exitOK, `"$schema": "https://json-schema.org/draft/2020-12/schema"`},
	} {
		if err := os.WriteFile(broken, []byte(rule+tt.tests), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := offline(t, tt.stdin, tt.args...); got.code != tt.code || !strings.Contains(got.stdout, tt.want) {
			t.Errorf("%v: got %+v", tt.args, got)
		}
	}
}
