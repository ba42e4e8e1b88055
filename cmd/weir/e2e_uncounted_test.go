package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/history"
)

const uncountedRules = `id: by-device
owner: platform
match: {}
key: [device]
limit: 100
window: 1m
lateness: 10s
---
id: cost
owner: platform
match: {path: /b*}
key: [ip]
count: {sum: attrs.cost}
limit: 100
window: 1m
lateness: 10s
`

// leavingOut is a log of which rules leave out some: of 40 requests 5 name no device, 3 no cost, and 4 are minutes late, one of
// them without a device and a cost.
func leavingOut() string {
	var b strings.Builder
	line := func(at int, more string) {
		fmt.Fprintf(&b, `{"v":1,"time":"2024-05-01T10:%02d:%02dZ","ip":"198.51.100.7","path":"/b"%s}`+"\n", at/60, at%60, more)
	}
	for i := range 36 {
		more := `,"device":"tv","attrs":{"cost":2}`
		switch {
		case i%8 == 5: // 5, 13, 21, 29
			more = `,"attrs":{"cost":2}`
		case i == 8 || i == 20:
			more = `,"device":"tv","attrs":{"cost":"dear"}`
		}
		line(600+i, more)
	}
	for i := range 3 {
		line(i, `,"device":"tv","attrs":{"cost":0}`)
	}
	line(3, "")
	return b.String()
}

// What a rule did not count is in the summary of a replay, by reason: together with what was counted it is all that the rule
// watches.
func TestReplayTellsWhatWasNotCounted(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	args := []string{"ingest", writeFile(t, "log.jsonl", leavingOut()), "--format", "weir", "--reorder", "0", "--partitions", "1",
		"--rules", writeFile(t, "rules.yaml", uncountedRules), "--replay"}
	s := decode[stream.Summary](b, append(args, "n")...)
	want := map[string]history.Figures{
		"by-device": {Late: 3, MissingField: 5},
		"cost":      {Late: 3, MissingValue: 3},
	}
	for _, r := range s.Rules {
		if r.Matched != 40 || r.Uncounted != want[r.Rule] {
			t.Errorf("%s: of %d events %+v were not counted, want %+v of 40", r.Rule, r.Matched, r.Uncounted, want[r.Rule])
		}
	}
	sums := map[string]int64{}
	for _, u := range decode[[]history.UncountedSum](b, "history", "uncounted", "--replay", "n") {
		sums[u.Rule+" "+u.Reason] += u.Events
	}
	if got := fmt.Sprint(sums); got != "map[by-device late:3 by-device missing_field:5 cost late:3 cost missing_value:3]" {
		t.Errorf("history has %s", got)
	}
	table := b.ok(append(args, "table")...)
	for _, want := range []string{"MATCHED  LATE  OUT OF ORDER  MISSING FIELD  MISSING VALUE", "40       3     0             5              0"} {
		if !strings.Contains(table, want) {
			t.Errorf("the table lacks %q:\n%s", want, table)
		}
	}
	if o := b.weir("history", "uncounted", "--reason", "none"); o.code != exitUsage || !strings.Contains(o.stderr, "allowed: late, out_of_order, missing_field") {
		t.Errorf("exit code %d, %s", o.code, o.stderr)
	}
}

// Rules are listed with what they did not count. A stream whose processes may be older ones tells only of late events.
func TestRulesTellWhatTheyDidNotCount(t *testing.T) {
	t.Parallel()
	b := replayBed(t)
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", uncountedRules))
	for _, r := range decode[[]struct {
		Newest struct {
			Document struct {
				ID, Window, Lateness string
			}
		}
		Uncounted history.Figures `json:"uncounted_24h"`
	}](b, "rules", "list") {
		if r.Uncounted != (history.Figures{}) {
			t.Errorf("%s has not counted %+v of nothing", r.Newest.Document.ID, r.Uncounted)
		}
		if d := r.Newest.Document; d.Window != "1m" || d.Lateness != "10s" {
			t.Errorf("%s has a window of %s and a lateness of %s", d.ID, d.Window, d.Lateness)
		}
	}
	if list := b.ok("rules", "list"); !strings.Contains(list, "NOT COUNTED 24H") {
		t.Errorf("the list lacks a column:\n%s", list)
	}
	if shown := b.ok("rules", "show", "cost"); !strings.Contains(shown, "# not counted in the last 24 h: 0\n") {
		t.Errorf("the rule is shown without its figures:\n%s", shown)
	}
	unknown := history.UnknownFigures()
	unknown.Late = 12
	if got := uncountedText(&unknown); got != "late 12, out_of_order ?, missing_field ?, missing_value ?, budget ?" {
		t.Errorf("figures that are not known are shown as %q", got)
	}
}
