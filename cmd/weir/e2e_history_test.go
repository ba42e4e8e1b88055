package main

import (
	"encoding/csv"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/internal/testbed"
)

// An analyst's questions are answered as tables, as JSON and as CSV, and what clients send is a formula nowhere.
func TestQuestionsAboutHistory(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	var lines strings.Builder
	at := time.Date(2024, 5, 17, 10, 0, 0, 0, time.UTC)
	for i := range 5 {
		for s := range 4 + i {
			fmt.Fprintf(&lines, `{"v":1,"time":%q,"ip":"198.51.100.%d","device":"=cmd|' /C calc'!A0","user":"u%d","method":"GET","path":"/=1+1\u001b[31m"}`+"\n",
				at.Add(time.Duration(i)*30*time.Minute+time.Duration(s)*time.Second).Format(time.RFC3339), i%2, i)
		}
	}
	lines.WriteString("no JSON\n")
	rule := writeFile(t, "r.yaml", "id: by-device\nowner: platform\nmatch: {}\nkey: [ip, device]\nlimit: 3\nwindow: 60s\nblock: {key: [ip], ttl: 10m}\n")
	b.ok("ingest", writeFile(t, "log.jsonl", lines.String()), "--format", "weir", "--replay", "monday", "--rules", rule)
	of := func(args ...string) []string {
		return append(append([]string{"history"}, args...), "--replay", "monday")
	}

	for _, tc := range []struct {
		args []string
		want []string // words of each row behind the head
	}{
		{of("top"), []string{"by-device 5 2 15 8 "}},
		{of("top", "--by", "hour"), []string{"2024-05-17T12:00:00Z 1 1 5 ", "2024-05-17T11:00:00Z 2 2 7 ", "2024-05-17T10:00:00Z 2 2 3 "}},
		{of("top", "--by", "day", "--until", "2024-05-17T11:00"), []string{"2024-05-17T00:00:00Z 2 2 3 "}},
		{of("sources"), []string{"by-device 'ip=198.51.100.0%2F32&device=", "by-device 'ip=198.51.100.1%2F32&device="}},
		{of("hits", "--since", "2024-05-17T11:20", "--until", "2024-05-18"), []string{"by-device ", "by-device "}},
		{of("hits", "--limit", "1"), []string{"by-device "}},
	} {
		rows := strings.Split(strings.TrimSpace(b.ok(tc.args...)), "\n")[1:]
		if len(rows) != len(tc.want) {
			t.Errorf("%q: %d rows, want %d\n%s", tc.args, len(rows), len(tc.want), strings.Join(rows, "\n"))
			continue
		}
		for i, want := range tc.want {
			if row := strings.Join(strings.Fields(rows[i]), " ") + " "; !strings.HasPrefix(row, want) {
				t.Errorf("%q: row %q, want %q", tc.args, row, want)
			}
		}
	}
	if o := b.weir(of("hits", "--limit", "2")...); !strings.Contains(o.stderr, "weir: the newest 2 of 5; --limit 0 shows all") {
		t.Errorf("a cut list says %q", o.stderr)
	}

	text := b.ok(append(of("hits"), "--output", "csv")...)
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil || len(rows) != 6 || len(rows[0]) < 20 {
		t.Fatalf("CSV: %d rows, %v\n%s", len(rows), err, text)
	}
	for _, row := range rows[1:] {
		for i, cell := range row {
			if cell != "" && strings.ContainsRune("=+-@\t", rune(cell[0])) || strings.ContainsAny(cell, "\x1b\n\r") {
				t.Errorf("%s: %q", rows[0][i], cell)
			}
		}
	}
	if device := rows[1][8]; device != "'=cmd|' /C calc'!A0" {
		t.Errorf("device %q", device)
	}

	hits := decode[[]asking.ShownHit](b, of("hits")...)
	if len(hits) != 5 || hits[0].Events != 5 || hits[0].IP != "198.51.100.0/32" || len(hits[0].Evidence) == 0 || !strings.HasPrefix(string(hits[0].Evidence[0]), "{") {
		t.Errorf("as JSON: %+v", hits)
	}
	shown := b.ok("history", "show", hits[0].ID[:12])
	for _, want := range []string{"HIT", hits[0].ID, "RULE", "by-device", "GET /=1+1", "device=="} {
		if !strings.Contains(shown, want) || strings.Contains(shown, "\x1b") {
			t.Errorf("show lacks %q:\n%s", want, shown)
		}
	}
	story := b.ok(of("timeline", "198.51.100.1")...)
	for _, want := range []string{"over the limit", "seen with, in 2 episodes:", "user ", "u1", "u3"} {
		if !strings.Contains(story, want) {
			t.Errorf("the timeline lacks %q:\n%s", want, story)
		}
	}
	b.weir("ingest", writeFile(t, "bad.jsonl", "no JSON\n"), "--format", "weir", "--live")
	testbed.Eventually(t, 20*time.Second, func() error {
		letters := b.ok("history", "dead", "--reason", "malformed")
		if !strings.Contains(letters, "malformed") || !strings.Contains(letters, "no JSON") {
			return fmt.Errorf("no dead letter in\n%s", letters)
		}
		return nil
	})
	b.ok("rules", "apply", "-f", rule, "--reason", "a trial")
	if acts := b.ok("history", "audit", "--rule", "by-device", "--since", "1h"); !strings.Contains(acts, "a trial") || !strings.Contains(acts, "rule by-device") {
		t.Errorf("the audit lacks the act:\n%s", acts)
	}
	for want, args := range map[string][]string{
		`--reason: got "malfrmed"; allowed: malformed; did you mean malformed?`: {"history", "dead", "--reason", "malfrmed"},
		`there is no action "promot"`:                                           {"history", "audit", "--action", "promot"},
		`there is no owner "platfrm"; did you mean pla`:                         of("top", "--owner", "platfrm"),
		`--by: got "houer"`:                                                     of("top", "--by", "houer"),
		`--until: got "2024-01-01"; allowed: a time af`:                         of("hits", "--since", "2024-02-01", "--until", "2024-01-01"),
		`no hit in history has an id that begins with 01234567; weir why`:       {"history", "show", "01234567"},
		`history has no block and no hit of ip=192.0.2.99`:                      {"why", "ip=192.0.2.99"},
	} {
		if o := b.weir(args...); o.code == exitOK || !strings.Contains(o.stderr, want) {
			t.Errorf("weir %q: exit code %d, %s; want %s", args, o.code, o.stderr, want)
		}
	}
}
