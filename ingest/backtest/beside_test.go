package backtest

import (
	"bytes"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// What a candidate finds in a log is what the rule finds with that limit, what is near is what a limit one below the share
// finds, and the rule's own figures stay as they are. A sweep, which tries limits itself, has neither.
func TestWhatStandsBesideALimit(t *testing.T) {
	t.Parallel()
	const base = "id: burst\nowner: tests\nmatch: {}\nkey: [ip]\nwindow: 60s\nlateness: 60s\n"
	file := onDisk(t, filepath.Join("..", "..", "internal", "acceptance", "testdata", "logs", "elastic-apache.log.gz"))
	run := func(rule string, sweep Sweep) *Result {
		return run1(t, Options{
			Format: "combined", Identity: traffic.DefaultIdentityMap(), Reorder: 15 * time.Minute, Sweep: sweep, Rules: parseRules(t, base+rule),
		}, file)
	}
	plain := run("limit: 10\n", Sweep{}).Rules[0]
	both := run("limit: 10\nnear: 0.8\ncandidate: {limit: 20}\n", Sweep{}).Rules[0]
	if plain.Near != nil || plain.Candidate != nil {
		t.Errorf("a rule without them has %+v, %+v", plain.Near, plain.Candidate)
	}
	if both.Sources != plain.Sources || both.Episodes != plain.Episodes || both.Over != plain.Over || both.Counted != plain.Counted {
		t.Errorf("beside others the rule finds %d, %d, %d, %d", both.Sources, both.Episodes, both.Over, both.Counted)
	}
	higher := run("limit: 20\n", Sweep{}).Rules[0]
	if c := both.Candidate; c == nil || c.Sources != higher.Sources || c.Episodes != higher.Episodes || c.Over != higher.Over || c.Sources == 0 {
		t.Errorf("candidate %+v, want %d, %d, %d", c, higher.Sources, higher.Episodes, higher.Over)
	}
	lower := run("limit: 7\n", Sweep{}).Rules[0]
	n := both.Near
	if n == nil || n.Episodes+n.LeftOut != lower.Episodes || n.Sources != lower.Sources || n.LeftOut != 0 {
		t.Errorf("near %+v, want %d sources, %d episodes", n, lower.Sources, lower.Episodes)
	}
	for _, r := range run("limit: 10\nnear: 0.8\ncandidate: {limit: 20}\n", Sweep{Field: SweepLimit, Limits: []int{10, 20}}).Rules {
		if r.Near != nil || r.Candidate != nil || !slices.Equal(r.Untried, []string{"near", "candidate"}) {
			t.Errorf("%s has %+v, %+v, without %q", r.Swept, r.Near, r.Candidate, r.Untried)
		}
	}
}

// A log of hours has its warnings minute by minute of its events, as they would have been sent, and not those of one minute.
func TestWarningsOfALogOfHours(t *testing.T) {
	t.Parallel()
	const minutes, each, burst = 240, 20, 2000
	var log bytes.Buffer
	near := func(at time.Time, ip string) {
		for range 8 {
			log.WriteString(lineOf(at, ip, "", "", "/"))
		}
	}
	for m := range minutes {
		for n := range each {
			near(begin.Add(time.Duration(m)*time.Minute+time.Duration(n)*time.Second), fmt.Sprintf("10.0.%d.%d", m, n))
		}
	}
	run := func() *BesideResult {
		return run1(t, Options{Format: "weir", Identity: traffic.DefaultIdentityMap(),
			Rules: parseRules(t, "id: burst\nowner: tests\nmatch: {}\nkey: [ip]\nlimit: 10\nnear: 0.8\nwindow: 60s\n")}, inMemory("log", log.Bytes())).Rules[0].Near
	}
	if got := run(); got == nil || got.Episodes != minutes*each || got.LeftOut != 0 {
		t.Errorf("got %+v, want %d", got, minutes*each)
	}
	for n := range burst {
		near(begin.Add(minutes*time.Minute), fmt.Sprintf("172.16.%d.%d", n/250, n%250))
	}
	if got := run(); got.Episodes != minutes*each+keyedPartitions*detectors.MaxNearOpenings || got.Episodes+got.LeftOut != minutes*each+burst {
		t.Errorf("with a flood: got %+v", got)
	}
}
