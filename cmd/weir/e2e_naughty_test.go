package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/internal/naughty"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// naughtyRules count each event: by its address, and by what its client calls itself.
const naughtyRules = `
id: every-address
owner: tests
match: {}
key: [ip]
limit: 0
window: 1m
lateness: 1h
---
id: every-device
owner: tests
match: {}
key: [ip, device]
limit: 0
window: 1m
lateness: 1h
max_lag: 1h
block: {key: [ip, device], ttl: 1h}
`

// naughtyStrings are all of them at night, in a landing each eighth, and each 32nd under the race detector, to which
// texts are nothing.
func naughtyStrings(t *testing.T) []string {
	t.Helper()
	all, err := naughty.Strings()
	if err != nil {
		t.Fatal(err)
	}
	each := 8
	switch {
	case slowBuild:
		each = 32
	case testbed.AtNight():
		return all
	}
	var some []string
	for chunk := range slices.Chunk(all, each) {
		some = append(some, chunk[0])
	}
	return some
}

func naughtyAddress(i int) string { return fmt.Sprintf("198.18.%d.%d", i/250, i%250+1) }

// naughtyEvents are one event a string, in whose members it is: by the address one finds it again.
func naughtyEvents(t *testing.T, all []string) string {
	t.Helper()
	var out strings.Builder
	for i, s := range all {
		event, err := json.Marshal(map[string]any{
			"v": 1, "time": time.Now().UTC().Format(time.RFC3339Nano), "ip": naughtyAddress(i), "device": s, "user": s, "session": s, "api_key": s,
			"method": "GET", "path": "/" + s, "host": s, "user_agent": s, "plan": s, "gateway": s, "id": s, "attrs": map[string]string{"a": s},
		})
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(event, '\n'))
	}
	return out.String()
}

// linesOf are the lines of a table below its head, in each of which everything can be seen.
func linesOf(t *testing.T, name, text string) []string {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for _, line := range lines {
		if at := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }); at >= 0 {
			t.Errorf("%s: a line has what cannot be seen: %q", name, line)
		}
	}
	return lines[1:]
}

// noFormulas reads a CSV file as a spreadsheet would, and wants want rows and no cell that a spreadsheet computes.
func noFormulas(t *testing.T, name, text string, want int) {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != want+1 {
		t.Errorf("%s: %d rows, want %d below a head; %v", name, len(rows), want, err)
	}
	for _, row := range rows {
		for _, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@\t\r", rune(cell[0])) {
				t.Errorf("%s: a cell that a spreadsheet computes: %q", name, cell)
			}
		}
	}
}

// TestNaughtyStringsGoThrough sends texts that programs have stumbled over in every member of an event, and looks at each place where they
// come out: history, tables, JSON, CSV, the log, commands to copy.
func TestNaughtyStringsGoThrough(t *testing.T) {
	t.Parallel()
	all := naughtyStrings(t)
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", naughtyRules))
	b.ok("rules", "promote", "every-device", "--reason", "test", "--yes", "--override", "tests")
	stages := b.start("run")
	events := naughtyEvents(t, all)
	b.sendAll(events)

	var hits []asking.ShownHit
	testbed.Eventually(t, time.Minute, func() error {
		hits = decode[[]asking.ShownHit](b, "history", "hits", "--rule", "every-address", "--limit", "0")
		if len(hits) != len(all) {
			return fmt.Errorf("%d hits of %d events", len(hits), len(all))
		}
		return nil
	})
	byAddress := map[string]string{}
	for i, s := range all {
		byAddress[naughtyAddress(i)] = s
	}
	withEvidence := 0
	for _, h := range hits {
		if len(h.Evidence) > 0 { // of one rule and minute, samples are kept up to a bound
			checkSample(t, h, byAddress)
			withEvidence++
		}
	}
	if withEvidence == 0 {
		t.Error("no hit has evidence")
	}
	if got := linesOf(t, "history hits", b.ok("history", "hits", "--rule", "every-address", "--limit", "0")); len(got) != len(all) {
		t.Errorf("history hits: %d lines", len(got))
	}
	// Hits, blocks and decisions are three records of one thing, and come one after the other.
	var devices []asking.ShownHit
	var blocks []shownBlock
	testbed.Eventually(t, time.Minute, func() error {
		devices = decode[[]asking.ShownHit](b, "history", "hits", "--rule", "every-device", "--limit", "0")
		blocks = decode[[]shownBlock](b, "blocks", "list", "--limit", "0")
		decisions := linesOf(t, "history decisions", b.ok("history", "decisions", "--limit", "0"))
		if len(devices) < len(all)*9/10 || len(blocks) != len(devices) || len(decisions) != len(devices) { // some are no device: blanks, commas
			return fmt.Errorf("of %d devices %d have a hit, %d a block, %d a decision", len(all), len(devices), len(blocks), len(decisions))
		}
		return nil
	})
	if got := linesOf(t, "blocks list", b.ok("blocks", "list", "--limit", "0")); len(got) != len(blocks) {
		t.Errorf("blocks list: %d lines", len(got))
	}
	noFormulas(t, "history hits", b.ok("history", "hits", "--rule", "every-device", "--limit", "0", "--output", "csv"), len(devices))
	report := b.ok("backtest", writeFile(t, "events.jsonl", events), "--format", "weir", "-f", writeFile(t, "rules.yaml", naughtyRules), "--output", "csv")
	noFormulas(t, "backtest", report, len(hits)+len(devices))

	b.checkReleases(blocks)
	stages.end()
	for line := range strings.SplitSeq(strings.TrimSuffix(stages.log.String(), "\n"), "\n") {
		if !strings.HasPrefix(line, "time=") || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) || strings.Contains(line, "level=ERROR") {
			t.Errorf("the log has a line %q", line)
		}
	}
}

// checkSample wants the evidence of a hit to have the text that its client sent.
func checkSample(t *testing.T, h asking.ShownHit, byAddress map[string]string) {
	t.Helper()
	if len(h.Evidence) != 1 {
		t.Errorf("hit %s has %d samples", h.ID, len(h.Evidence))
		return
	}
	var sample traffic.Sample
	if err := json.Unmarshal(h.Evidence[0], &sample); err != nil {
		t.Errorf("hit %s: sample %s: %v", h.ID, h.Evidence[0], err)
		return
	}
	want, known := byAddress[sample.IP]
	if text := traffic.Printable(want); !known || !slices.Contains(sample.Cut, "user_agent") && sample.UserAgent != text {
		t.Errorf("%s sent the agent %q, history has %q", sample.IP, text, sample.UserAgent)
	}
}

// checkReleases pastes what weir why says to release each block into shells, and wants them to call weir with the very block, and
// nothing else to happen.
func (b *bed) checkReleases(blocks []shownBlock) {
	b.t.Helper()
	var script strings.Builder
	script.WriteString("weir() { printf '%s\\0' \"$@\"; printf '\\n\\0'; }\n")
	for _, block := range blocks {
		said := b.ok("why", block.Block.Hit)
		linesOf(b.t, "why", said)
		_, after, found := strings.Cut(said, "weir blocks release ")
		command, _, _ := strings.Cut(after, "\n")
		if !found {
			b.t.Errorf("why %s names no command:\n%s", block.Block.Hit, said)
			continue
		}
		script.WriteString("weir blocks release " + command + "\n")
	}
	path := writeFile(b.t, "pasted.sh", script.String())
	for _, shell := range []string{"sh", "bash"} {
		dir := b.t.TempDir()
		run := exec.Command(testbed.Program(b.t, shell), path)
		run.Dir = dir
		out, err := run.CombinedOutput()
		calls := strings.Split(strings.TrimSuffix(string(out), "\n\x00"), "\n\x00")
		if err != nil || len(calls) != len(blocks) {
			b.t.Fatalf("%s: %d calls of weir, want %d: %v\n%.2000s", shell, len(calls), len(blocks), err, out)
		}
		for i, call := range calls {
			words := strings.Split(strings.TrimSuffix(call, "\x00"), "\x00")
			if len(words) < 4 || strings.Join(words[:3], " ") != "blocks release every-device" {
				b.t.Errorf("%s calls weir with %q", shell, words)
				continue
			}
			end := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, "--") })
			if end < 0 {
				end = len(words)
			}
			if got, err := subject.Read(words[3:end], 32, 64); err != nil || got != blocks[i].Subject {
				b.t.Errorf("%s: %q is %s, %v; the block is of %s", shell, words[3:end], got, err, blocks[i].Subject)
			}
		}
		left, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil || len(left) > 0 {
			b.t.Errorf("%s has made %v", shell, left)
		}
	}
}

// Reasons are what people type: they are kept as they are, and shown on a line.
func TestNaughtyReasons(t *testing.T) {
	t.Parallel()
	b := standaloneBed(t)
	want := map[string]int{}
	act, next, refused := "promote", "demote", 0
	for _, s := range naughtyStrings(t) {
		words := []string{"rules", act, "tokens", "--reason=" + s, "--by=" + s}
		if act == "promote" {
			words = append(words, "--yes", "--override=tests")
		}
		o := b.weir(words...)
		linesOf(t, act, o.stdout+o.stderr)
		switch {
		case o.code == exitUsage && strings.Contains(o.stderr, "allowed: words that say why"):
			refused++
		case o.code == exitOK:
			act, next = next, act
			want[traffic.Printable(s)]++
			if next == "promote" && len(want)%8 == 0 {
				linesOf(t, "rules list", b.ok("rules", "list"))
			}
		default:
			t.Fatalf("reason %q: exit code %d: %s", s, o.code, o.stderr)
		}
	}
	if refused > 200 {
		t.Errorf("%d were refused", refused)
	}
	entries, err := b.store().Audit.Of(t.Context(), "rule tokens", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		want[e.Reason]--
	}
	for reason, missing := range want {
		if missing > 0 {
			t.Errorf("reason %q is not in the trail", reason)
		}
	}
	if _, err := os.Stat("/tmp/blns.fail"); err == nil { // what some of the list would make
		t.Error("a reason was run by a shell")
	}
}
