package peers

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/rules"
)

// sequence is one row of sequences.jsonl: a limiter's own test, step by step.
type sequence struct {
	ID, Algorithm, Behavior, Calendar string
	Limit, Burst                      int
	Window                            float64 `json:"window_ms"`
	PerSecond                         int     `json:"rate_per_s"`
	Rules                             []struct {
		Key       string
		PerMinute int `json:"rate_per_min"`
		PerSecond int `json:"rate_per_s"`
		Burst     int
	}
	Steps []step
}

// step is one request and what the limiter answered.
type step struct {
	At       float64 `json:"at_ms"`
	Hits     int64
	Limit    int    // where the request changes it
	Behavior string // of this request
	Args     string // the keys that the request has: a=1&b=1
	Now      int64  `json:"now_s"`
	Counter  []struct {
		After *int64 `json:"count_after"` // nil: the limiter's cache answers, without asking the counter
	}
	Limits []struct {
		Limit  int
		Unit   int64 `json:"unit_s"`
		Shadow bool
	}
	Expect struct {
		Over      *bool
		Remaining *int64
		Limited   *bool
	}
}

func (s *sequence) from(program string) bool { return strings.HasPrefix(s.ID, program+"/") }

// sequences reads the rows.
func sequences(t *testing.T) (rows []*sequence) {
	t.Helper()
	f, err := os.Open("testdata/sequences.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		var s sequence
		if err := json.Unmarshal(lines.Bytes(), &s); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, &s)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return rows
}

// document is the rule of a row that has one.
func (s *sequence) document() rules.Document {
	d := rules.Document{
		ID: "row", Limit: s.Limit, Burst: s.Burst, Window: time.Duration(s.Window * float64(time.Millisecond)),
		Count: rules.Count{Sum: "attrs.hits"}, Algorithm: rules.AlgorithmTokenBucket,
	}
	if s.Algorithm == "leaky_bucket" {
		d.Algorithm = rules.AlgorithmLeakyBucket
	}
	if s.Calendar == "GregorianMinutes" {
		d.Window = time.Minute
	}
	if s.from("nginx") {
		// burst there is what goes beyond the first request.
		d.Limit, d.Burst, d.Window = s.PerSecond, 1+s.Burst, time.Second
	}
	return d
}

// excused is why a step is not asserted, given those before it. Once a step is, all that depends on it are.
func (s *sequence) excused(i int) string {
	st := &s.Steps[i]
	switch {
	case s.from("gubernator") && slices.ContainsFunc(s.Steps[:i+1], func(st step) bool { return st.Hits < 0 }):
		return "negative hits, here or before: nothing can be taken out of a window"
	case s.from("gubernator") && strings.Contains(s.Behavior, "DRAIN_OVER_LIMIT") &&
		slices.ContainsFunc(s.Steps[:i+1], func(st step) bool { return st.Hits > int64(s.Limit) }):
		return "DRAIN_OVER_LIMIT: an over request empties what is left; with weir it takes nothing"
	case s.ID == "gubernator/TestChangeLimit/LEAKY_BUCKET" && i > 0:
		return "a changed limit clips what remains there; with weir what is in the bucket stays"
	case s.from("envoy-fixed-window") && st.Expect.Limited != nil && !*st.Expect.Limited:
		return "the request matches no limit"
	case s.from("envoy-fixed-window") && s.shadowed(i):
		return "shadow mode: over, and answered as if it were not; modes are not the window's matter"
	case s.ID == "nginx/limit_req_dry_run":
		return "says DELAYED and dry-run verdicts of three rules on one zone: a window delays nobody"
	case st.Expect.Over == nil:
		return "the row expects nothing of this step"
	}
	return ""
}

// shadowed reports whether a limit in shadow mode was passed at step i.
func (s *sequence) shadowed(i int) bool {
	st := &s.Steps[i]
	return st.Limits[0].Shadow && (st.Counter[0].After == nil || *st.Counter[0].After > int64(st.Limits[0].Limit))
}

// verify holds one answer to what the step expects.
func (s *sequence) verify(t *testing.T, i int, over bool, remaining int64) {
	t.Helper()
	want := s.Steps[i].Expect
	if over != *want.Over || want.Remaining != nil && remaining != *want.Remaining {
		text, _ := json.Marshal(want)
		t.Errorf("%s, step %d: got over %v, remaining %d, want %s", s.ID, i+1, over, remaining, text)
	}
}

// run gives a row to the windows of one maker and counts the steps that it asserts.
func (s *sequence) run(t *testing.T, empty maker) (asserted int) {
	t.Helper()
	switch {
	case s.from("envoy-fixed-window"):
		return s.runCounts(t, empty)
	case len(s.Rules) > 0:
		return s.runRules(t, empty)
	}
	w := empty(s.document())
	for i, st := range s.Steps {
		if st.Limit != 0 {
			w.setLimit(st.Limit, 0)
		}
		hits := st.Hits
		if st.Behavior == "RESET_REMAINING" { // the window is a new one, of which the request takes nothing
			w, hits = empty(s.document()), 0
			w.setLimit(st.Limit, 0)
		}
		over, remaining := w.add(milliseconds(st.At), max(hits, 0), "")
		if s.excused(i) == "" {
			s.verify(t, i, over, remaining)
			asserted++
		}
	}
	return asserted
}

// runRules gives each request to every rule whose key it has: it is over if it is over for one of them.
func (s *sequence) runRules(t *testing.T, empty maker) (asserted int) {
	t.Helper()
	windows := map[string]window{}
	for i, st := range s.Steps {
		anyOver := false
		for _, r := range s.Rules {
			for arg := range strings.SplitSeq(st.Args, "&") {
				if !strings.HasPrefix(arg, r.Key+"=") {
					continue // an empty key is not counted
				}
				if windows[arg] == nil {
					d := rules.Document{ID: "row", Algorithm: rules.AlgorithmLeakyBucket, Limit: r.PerSecond, Burst: 1 + r.Burst, Window: time.Second}
					if r.PerMinute > 0 {
						d.Limit, d.Window = r.PerMinute, time.Minute
					}
					windows[arg] = empty(d)
				}
				over, _ := windows[arg].add(milliseconds(st.At), st.Hits, "")
				anyOver = anyOver || over
			}
		}
		if s.excused(i) == "" {
			s.verify(t, i, anyOver, 0)
			asserted++
		}
	}
	return asserted
}

// runCounts gives a window the count that the mocked counter had after the step: the verdict is a function of it and the
// limit. Where the limiter's cache answers, the window of the step before is asked again.
func (s *sequence) runCounts(t *testing.T, empty maker) (asserted int) {
	t.Helper()
	var w window
	same := 0 // steps before this one that are about the same request: one step for each of its limits
	for i, st := range s.Steps {
		if same++; i == 0 || fmt.Sprint(counts(&s.Steps[i-1])) != fmt.Sprint(counts(&st)) || s.Steps[i-1].Now != st.Now {
			same = 0
		}
		which := same % len(st.Limits)
		units := int64(0)
		if after := st.Counter[which].After; after != nil {
			limit := st.Limits[which]
			w = empty(rules.Document{
				ID: "row", Algorithm: rules.AlgorithmFixed, Count: rules.Count{Sum: "attrs.hits"}, Limit: limit.Limit, Window: time.Duration(limit.Unit) * time.Second,
			})
			units = *after
		}
		over, remaining := w.add(st.Now*1e6, units, "")
		if s.excused(i) == "" {
			s.verify(t, i, over, remaining)
			asserted++
		}
	}
	return asserted
}

func counts(s *step) (out []int64) {
	for _, c := range s.Counter {
		if c.After == nil {
			out = append(out, -1)
		} else {
			out = append(out, *c.After)
		}
	}
	return out
}

// TestLimiters answers what gubernator, nginx and Envoy's ratelimit answer.
func TestLimiters(t *testing.T) {
	rows := sequences(t)
	for who, empty := range makers() {
		t.Run(who, func(t *testing.T) {
			asserted := map[string]int{}
			for _, s := range rows {
				program, _, _ := strings.Cut(s.ID, "/")
				asserted[program] += s.run(t, empty)
			}
			// 44 steps of the eight rows of gubernator without its own extras, and six that come before those.
			if got := fmt.Sprint(asserted); got != "map[envoy-fixed-window:26 gubernator:50 nginx:12]" {
				t.Errorf("asserted steps: %s", got)
			}
		})
	}
}
