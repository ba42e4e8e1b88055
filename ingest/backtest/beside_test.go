package backtest

import (
	"path/filepath"
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
	if n == nil || n.Episodes+n.LeftOut != lower.Episodes || n.Sources > lower.Sources || n.LeftOut == 0 && n.Sources != lower.Sources || n.Episodes < detectors.MaxNearOpenings/2 {
		t.Errorf("near %+v, want %d sources, %d episodes", n, lower.Sources, lower.Episodes)
	}
	for _, r := range run("limit: 10\nnear: 0.8\ncandidate: {limit: 20}\n", Sweep{Field: SweepLimit, Limits: []int{10, 20}}).Rules {
		if r.Near != nil || r.Candidate != nil {
			t.Errorf("%s has %+v, %+v", r.Swept, r.Near, r.Candidate)
		}
	}
}
