package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/internal/testbed"
)

// over is a log in which n clients are each over the limit of smallRule, a minute apart.
func over(n int) string {
	var b strings.Builder
	at := time.Date(2024, 5, 17, 10, 0, 0, 0, time.UTC)
	for i := range n {
		for s := range 6 {
			fmt.Fprintf(&b, `{"v":1,"time":%q,"ip":"198.51.%d.%d","method":"GET","path":"/a"}`+"\n",
				at.Add(time.Duration(i)*time.Minute+time.Duration(s)*time.Second).Format(time.RFC3339), i/250, i%250)
		}
	}
	return b.String()
}

// A list that is not all there is says so, where no script takes it for data.
func TestACutListSaysSo(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	b.ok("ingest", writeFile(t, "log.jsonl", over(130)+leavingOut()), "--format", "weir", "--replay", "many", "--rules", writeFile(t, "r.yaml", smallRule+"---\n"+uncountedRules))
	for _, tc := range []struct {
		args []string
		want string // on standard error; empty: nothing
		rows int
	}{
		{[]string{"hits"}, "weir: the newest 100 of 130; --limit 0 shows all\n", 100},
		{[]string{"hits", "--limit", "0"}, "", 130},
		{[]string{"hits", "--limit", "130"}, "", 130},
		{[]string{"hits", "--limit", "129", "--rule", "small"}, "weir: the newest 129 of 130; --limit 0 shows all\n", 129},
		{[]string{"hits", "--limit", "1", "--source", "198.51.0.7"}, "", 1},
		{[]string{"uncounted", "--limit", "1"}, "weir: the newest 1 of ", 1},
		{[]string{"late", "--limit", "1"}, "weir: the newest 1 of ", 1},
		{[]string{"decisions"}, "", 0},
	} {
		args := append(append([]string{"history"}, tc.args...), "--replay", "many")
		table := b.weir(args...)
		asJSON := b.weir(append(args, "--output", "json")...)
		if table.code != exitOK || strings.Count(table.stdout, "\n") != tc.rows+1 || strings.Count(asJSON.stdout, "\n  {") != tc.rows {
			t.Errorf("%s: exit code %d, %d lines, %d in JSON, want %d", args, table.code, strings.Count(table.stdout, "\n"), strings.Count(asJSON.stdout, "\n  {"), tc.rows)
		}
		for _, said := range []string{table.stderr, asJSON.stderr} {
			if !strings.HasPrefix(said, tc.want) || tc.want == "" && said != "" {
				t.Errorf("%s: said %q, want %q", args, said, tc.want)
			}
		}
	}
}

// An empty answer would look like "nothing happened".
func TestWhatDoesNotExistIsAnError(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "r.yaml", smallRule+"---\n"+tokenRule))
	b.ok("ingest", writeFile(t, "small.log", small()), "--format", "combined", "--replay", "monday", "--rules", writeFile(t, "other.yaml", strings.Replace(smallRule, "id: small", "id: other", 1)))
	b.ok("rules", "apply", "--prune", "-f", writeFile(t, "t.yaml", tokenRule))
	tomorrow := time.Now().Add(24 * time.Hour).UTC().Format(time.RFC3339)
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"history", "hits", "--rule", "tokns"}, exitError, `there is no rule "tokns"; did you mean tokens?; weir rules list shows the rules`},
		{[]string{"history", "late", "--rule", "nosuch"}, exitError, `there is no rule "nosuch"; known: small, tokens; weir rules list`},
		{[]string{"history", "decisions", "--rule", "nosuch"}, exitError, `there is no rule "nosuch"`},
		{[]string{"history", "uncounted", "--rule", "Tokens"}, exitError, `did you mean tokens?`},
		{[]string{"history", "hits", "--rule", "small", "--replay", "monday"}, exitError, `there is no rule "small"; known: other`},
		{[]string{"history", "hits", "--replay", "munday"}, exitError, `there is no replay "munday"; did you mean monday?; weir history replays shows them`},
		{[]string{"history", "hits", "--source", "foo=bar"}, exitUsage, `"foo" is no field of a subject; allowed: ip, device, user, api_key, session`},
		{[]string{"history", "hits", "--source", "300.1.1.1"}, exitUsage, `source "300.1.1.1" is no address`},
		{[]string{"history", "decisions", "--source", "192.0.2.0/33"}, exitUsage, `is no address`},
		{[]string{"history", "hits", "--since", tomorrow}, exitUsage, "--since: got " + tomorrow + ", which lies ahead of now"},
		{[]string{"history", "decisions", "--action", "writtn"}, exitUsage, "did you mean written?"},
		{[]string{"history", "decisions", "--action", ""}, exitUsage, "--action: got \"\"; allowed: written"},
		{[]string{"history", "uncounted", "--reason", "lat"}, exitUsage, "did you mean late?"},
		{[]string{"blocks", "list", "--rule", "tokns"}, exitError, `there is no rule "tokns"`},
		{[]string{"rules", "promote", "tokns", "--reason", "test", "--yes", "--override", "tests"}, exitError, `there is no rule "tokns"; did you mean tokens?`},
		{[]string{"rules", "demote", "small", "--reason", "test"}, exitError, "removed on "},
		{[]string{"rules", "show", "tokns"}, exitError, `there is no rule "tokns"; did you mean tokens?`},
	} {
		o := b.weir(tc.args...)
		if o.code != tc.code || !strings.Contains(o.stderr, tc.want) || o.stdout != "" {
			t.Errorf("weir %s: exit code %d, %q %q; want %d, %q", strings.Join(tc.args, " "), o.code, o.stdout, o.stderr, tc.code, tc.want)
		}
	}
	for _, args := range [][]string{
		{"history", "hits", "--rule", "small"}, // it was removed, and has a history
		{"history", "hits", "--rule", "other", "--replay", "monday"}, {"rules", "show", "small"}, {"history", "hits", "--source", "session=a=b"},
	} {
		b.ok(args...)
	}
}

// A replay in which a rule counts nothing says what it would have to watch.
func TestReplayOfARuleThatMatchesNothingNamesTheRequests(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	file := writeFile(t, "small.log", small())
	// Without a block: one that no request can meet is refused.
	regex, _, _ := strings.Cut(strings.Replace(smallRule, "match: {}", `match: {method: POST, path: "^/a$"}`, 1), "block:")
	o := b.weir("ingest", file, "--format", "combined", "--replay", "regex", "--rules", writeFile(t, "r.yaml", regex))
	for _, want := range []string{"rule small matched none of 7 events: it watches POST ^/a$", "the most frequent requests of the file: GET /a (6), GET /b (1)", "nobody was over a limit"} {
		if o.code != exitOK || !strings.Contains(o.stdout, want) {
			t.Errorf("exit code %d, no %q in\n%s", o.code, want, o.stdout)
		}
	}
	if strings.Contains(o.stdout, "shows who, and when") || !strings.Contains(o.stderr, "looks like a regular expression (^ $)") || !strings.Contains(o.stderr, `did you mean "/a"?`) {
		t.Errorf("it says\n%s%s", o.stdout, o.stderr)
	}
	found := b.ok("ingest", file, "--format", "combined", "--replay", "found", "--rules", writeFile(t, "r.yaml", smallRule))
	if !strings.HasSuffix(found, "\nweir history hits --replay found shows who, and when\n") || strings.Contains(found, "most frequent") {
		t.Errorf("a replay that found somebody says\n%s", found)
	}
	s := decode[stream.Summary](b, "ingest", file, "--format", "combined", "--replay", "json", "--rules", writeFile(t, "r.yaml", regex))
	if len(s.Frequent) != 2 || s.Frequent[0] != (stream.FrequentRequest{Method: "GET", Path: "/a", Events: 6}) || len(s.Notes) != 2 {
		t.Errorf("as JSON: %+v %q", s.Frequent, s.Notes)
	}
}

func TestReplayWithoutAFieldOfTheKeySaysSo(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	file := writeFile(t, "small.log", small())
	for missing, want := range map[string]string{
		"skip": "rule small: all 7 lack device, a field of its key, so none of them was counted", "group": "rule small: all 7 lack device, a field of its key, so they share one window",
	} {
		rule := "id: small\nowner: platform\nmatch: {}\nkey: [device]\nlimit: 300\nwindow: 60s\non_missing: " + missing + "\n"
		if out := b.ok("ingest", file, "--format", "combined", "--replay", missing, "--rules", writeFile(t, "r.yaml", rule)); !strings.Contains(out, want) {
			t.Errorf("%s: no %q in\n%s", missing, want, out)
		}
	}
}

// A file in which no time is found names the members that it has, and nobody is sent to look for hits.
func TestReplayWithoutATimeNamesTheMembers(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	rule := writeFile(t, "r.yaml", smallRule)
	for _, tc := range []struct{ name, format, line, want string }{
		{"ts", "json", `{"ts":"2024-05-01T10:00:00Z","client":"198.51.100.7","status":200}`, "the first one has the members client, status, ts; did you mean --map time=ts?"},
		{"weir", "weir", `{"v":1,"ip":"198.51.100.7","attrs":{"a":1},"x":1714557600}`, "attrs, ip, v, x; did you mean --format json --map time=x?"},
		{"two", "json", `{"bytes":1714557600,"start_time":1714557600}`, "did you mean --map time=start_time?"},
		{"none", "json", `{"a":"b","c\u001b[2J":1}`, "has the members a, c·[2J\n"},
	} {
		o := b.weir("ingest", writeFile(t, "log.jsonl", strings.Repeat(tc.line+"\n", 3)), "--format", tc.format, "--replay", tc.name, "--rules", rule)
		if o.code != exitError || !strings.Contains(o.stdout, "no line has a time; ") || !strings.Contains(o.stdout, tc.want) || !strings.Contains(o.stderr, "not one line could be read") {
			t.Errorf("%s: exit code %d, no %q in\n%s%s", tc.name, o.code, tc.want, o.stdout, o.stderr)
		}
		if strings.Contains(o.stdout, "shows who, and when") || strings.Contains(o.stdout, "nobody was over") {
			t.Errorf("%s: nothing was read, and it says\n%s", tc.name, o.stdout)
		}
	}
	if replays := decode[[]streams.Stream](b, "history", "replays"); len(replays) != 4 {
		t.Errorf("%d replays", len(replays))
	}
}

// What comes into the live stream too late for every rule counts nowhere: whoever sends it is told so, and how much it was.
func TestIngestLiveSaysWhatIsTooLateToCount(t *testing.T) {
	t.Parallel()
	b := fullBed(t)
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "r.yaml", tokenRule+"lateness: 3m\n---\n"+smallRule))
	stages := b.start("run")
	testbed.Eventually(t, 30*time.Second, func() error { // nothing is behind: each partition's clock has come to its present
		present := 0
		for _, row := range decode[[]acts.Partition](b, "partitions", "list") {
			if row.Side == "keyed" && row.Watermark > service.Now().Add(-time.Hour) {
				present++
			}
		}
		if present != 4 {
			return fmt.Errorf("%d keyed partitions have come to the present, want 4", present)
		}
		return nil
	})
	for _, tc := range []struct {
		name, events string
		late         int64
		want         string
	}{
		{"old", over(2), 12, "12 of 12 events are too late for every rule and count nowhere, unless weir run is behind: they are old by more than 4m: the greatest lateness of 2 rules, 3m, and a margin of 1m\n"},
		{"partly", over(1) + calls("198.51.100.7", 4), 6, "6 of 10 events are too late"},
		{"new", calls("198.51.100.7", 4), 0, ""},
	} {
		o := b.weirWith(tc.events, "ingest", "-", "--format", "weir", "--live")
		if o.code != exitOK || !strings.Contains(o.stdout, tc.want) || tc.want == "" && strings.Contains(o.stdout, "late") {
			t.Errorf("%s: exit code %d, no %q in\n%s%s", tc.name, o.code, tc.want, o.stdout, o.stderr)
		}
		o = b.weirWith(tc.events, "ingest", "-", "--format", "weir", "--live", "--output", "json")
		var s stream.LiveSummary
		if err := json.Unmarshal([]byte(o.stdout), &s); err != nil || s.Late != tc.late {
			t.Errorf("%s: as JSON %d, %v\n%s", tc.name, s.Late, err, o.stdout)
		}
	}
	// It is true: what the same clients send now is counted, behind what they sent then, of which nothing is in a window.
	for _, ip := range []string{"198.51.0.0", "198.51.0.1"} {
		b.send(ip, 6)
		awaitHits(b, ip, 1)
	}
	for _, h := range decode[[]history.RecordedHit](b, "history", "hits", "--source", "198.51.0.0/24") {
		if h.First < service.Now().Add(-time.Hour) {
			t.Errorf("what was called too late has made a hit: %+v", h)
		}
	}
	stages.end()
}
