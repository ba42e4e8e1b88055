package peers

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write docs/peers.md anew")

const page = "../../docs/peers.md"

const preface = `# Other programs' cases

Others have tested what a limit is before us. Their cases run through weir's production windows in ` + "`go test ./internal/peers`" + `, and so
that a case on which weir differs is told from one that was read wrongly, through a bucket that was written for that and shares no code
with them. Where the cases come from, and their licences, is in
[internal/peers/testdata](../internal/peers/testdata/README.md).

- **CrowdSec's own tests** (crowdsec-cases): each rule as a ` + "`leaky-bucket`" + ` with its capacity and leak speed, the key and the distinct value
  that CrowdSec itself derived, the events in order straight into the window, no lateness. The sources flagged must be those of its test.
- **CrowdSec on real logs** (crowdsec-real): twelve of its stock rules over four logs of real servers, three of which nobody abuses. The
  sources flagged must be those that CrowdSec flags: a peer's answer, not the truth.
- **gubernator, nginx, Envoy's ratelimit**: step by step, the verdict and where it is given what remains. gubernator's token and leaky
  buckets are weir's, a request over the limit takes nothing; its calendar minute is a minute, and RESET_REMAINING is a new window. nginx's
  ` + "`burst`" + ` is what goes beyond the first request, so the bucket holds one more. Envoy's rows hold no times: its mocked counter goes into a ` + "`fixed`" + `
  window as it is, and the verdict is held to it.

This page is written by ` + "`go test ./internal/peers -update`" + `, and a test fails when it is not up to date.

`

// tally is what is asserted of one set of cases.
type tally struct {
	set, what       string
	asserted, total int
}

// exception is a row, or one step of it, that is not asserted.
type exception struct{ set, row, step, reason string }

func countedCases(t *testing.T) (sets []tally, exceptions []exception) {
	t.Helper()
	at := map[string]int{}
	count := func(set, what string, e exception) {
		i, ok := at[set]
		if !ok {
			i, sets = len(sets), append(sets, tally{set: set, what: what})
			at[set] = i
		}
		sets[i].total++
		if e.reason == "" {
			sets[i].asserted++
			return
		}
		e.set = set
		exceptions = append(exceptions, e)
	}
	files := crowdsecFiles(t)
	for _, r := range append(crowdsecCases(t, files), crowdsecLogs(t, files)...) {
		count(r.set, "rules", exception{row: r.test + ", " + r.rule, step: "all", reason: r.excused()})
	}
	for _, s := range sequences(t) {
		program, row, _ := strings.Cut(s.ID, "/")
		for i := range s.Steps {
			count(program, "steps", exception{row: row, step: fmt.Sprintf("%d of %d", i+1, len(s.Steps)), reason: s.excused(i)})
		}
	}
	return sets, exceptions
}

// TestPage holds docs/peers.md to the cases.
func TestPage(t *testing.T) {
	sets, exceptions := countedCases(t)
	var b strings.Builder
	b.WriteString(preface + "## What is asserted\n\n| set | asserted | of |\n|---|---|---|\n")
	for _, s := range sets {
		fmt.Fprintf(&b, "| %s | %d %s | %d |\n", s.set, s.asserted, s.what, s.total)
	}
	b.WriteString("\n## What is not asserted\n\n| set | row | step | reason |\n|---|---|---|---|\n")
	slices.SortStableFunc(exceptions, func(x, y exception) int { return cmp.Compare(x.set, y.set) })
	for _, e := range exceptions {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", e.set, e.row, e.step, e.reason)
	}
	if *update {
		if err := os.WriteFile(page, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	shown, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(shown) != b.String() {
		t.Errorf("docs/peers.md is not up to date: go test ./internal/peers -update writes\n%s", b.String())
	}
}
