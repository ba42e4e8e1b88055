package dashboards

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
)

// promQuery is one that a panel asks, with its place.
type promQuery struct {
	board, panel, kind, legend, expr string
	instant                          bool
}

func promQueries(t *testing.T) []promQuery {
	t.Helper()
	var queries []promQuery
	for _, d := range all(t) {
		for _, p := range decoded(t, d).Panels {
			if p.Panel == nil {
				continue
			}
			for _, target := range p.Panel.Targets {
				if q, ok := target.(*prometheus.Dataquery); ok {
					queries = append(queries, promQuery{d.UID, *p.Panel.Title, p.Panel.Type, *q.LegendFormat, q.Expr, *q.Instant})
				}
			}
		}
	}
	return queries
}

// While two processes disagree about a rule, every panel answers. A number is one number, and what has no label stands beside nothing that
// has.
func TestPanelsWhileProcessesDisagree(t *testing.T) {
	s := newScene(t, everything(t))
	for _, q := range promQueries(t) {
		if s.rules = "(a|b)"; q.board == uidRule {
			s.rules = "a"
		}
		place := q.board + "/" + q.panel + "/" + q.legend
		answer, err := s.ask(q.expr, !q.instant)
		if err != nil {
			t.Errorf("%s: %v", place, err)
			continue
		}
		shown := map[string]int{}
		for _, f := range answer {
			shown[legendOf(q.legend, f.Metric)]++
		}
		for name, n := range shown {
			if n > 1 && q.kind != "table" {
				t.Errorf("%s: %d series are called %s", place, n, name)
			}
			if strings.Contains(q.legend, "{{") && strings.Trim(name, " ") == strings.Trim(legendOf(q.legend, nil), " ") {
				t.Errorf("%s: a series without labels beside others: %q", place, name)
			}
		}
		if q.kind == "stat" && len(answer) != 1 && !strings.Contains(q.expr, "namespace_slo:") && q.legend != "{{mode}}" {
			t.Errorf("%s: %d numbers: %v", place, len(answer), answer)
		}
	}
}

// legendOf is how Grafana writes a legend.
func legendOf(legend string, labels map[string]string) string {
	for {
		before, rest, ok := strings.Cut(legend, "{{")
		if !ok {
			return legend
		}
		label, after, _ := strings.Cut(rest, "}}")
		legend = before + labels[label] + after
	}
}

// The owner and the mode of a rule are those of its newest change, and each rule is counted once, in one mode.
func TestEachRuleIsCountedOnce(t *testing.T) {
	s := newScene(t, everything(t))
	for _, tt := range []struct{ panel, want string }{
		{"Over limit by owner", "[accounts, block 2 web, shadow 2]"},
		{"Over limit now, rules in shadow", "[shadow 2]"}, {"Over limit now, blocking rules", "[block 2]"},
		{"Sources over limit, rules in shadow", "[b 2]"}, {"Sources over limit, blocking rules", "[a 2]"},
	} {
		queries := promQueries(t)
		q := queries[slices.IndexFunc(queries, func(q promQuery) bool { return q.board == uidOverLimit && q.panel == tt.panel })]
		answer, err := s.ask(q.expr, false)
		if err != nil {
			t.Errorf("%s: %v", tt.panel, err)
			continue
		}
		var got []string
		for _, f := range answer {
			got = append(got, fmt.Sprintf("%s %v", legendOf(q.legend, f.Metric), number(t, f.Value)))
		}
		slices.Sort(got)
		if fmt.Sprint(got) != tt.want {
			t.Errorf("%s says %v, want %s", tt.panel, got, tt.want)
		}
	}
}

// A panel of what is done by reason shows what was done; that nothing was done at all, it says.
func TestOnlyWhatHappenedIsShown(t *testing.T) {
	since := func(first int) func(int) (float64, bool) {
		return func(n int) (float64, bool) { return float64(max(0, n-first)), true }
	}
	const process = `job="weir",instance="run-1",namespace="weir",stream="live"`
	s := newScene(t, []told{
		{`weir_build_info{` + process + `}`, func(int) (float64, bool) { return 1, true }},
		{`weir_enforce_batch_seconds_count{` + process + `}`, since(0)},
		{`weir_enforce_decisions_total{` + process + `,rule="a",mode="block",action="written",reason=""}`, since(200)},
		{`weir_enforce_decisions_total{` + process + `,rule="a",mode="block",action="withheld",reason="full"}`, since(scrapes)},
		{`weir_enforce_decisions_total{` + process + `,rule="a",mode="shadow",action="would_write",reason=""}`, since(scrapes)},
		{`weir_enforce_withheld_total{` + process + `,reason="full"}`, since(scrapes)},
		{`weir_enforce_withheld_total{` + process + `,reason="max_lag"}`, since(200)},
	})
	asked := 0
	for _, q := range promQueries(t) {
		want := map[string]string{
			"Decisions about blocks": "[a written]", "Would-be decisions": "[none]", "Decisions, and what shadow would decide": "[block: written]",
			"Not blocked, by reason": "[none]", "Attempts withheld, by reason": "[max_lag]",
		}[q.panel]
		if want == "" {
			continue
		}
		asked++
		answer, err := s.ask(q.expr, true)
		if err != nil {
			t.Error(err)
		}
		var got []string
		for _, f := range answer {
			got = append(got, strings.TrimSpace(legendOf(q.legend, f.Metric)))
			bars := strings.Contains(q.expr, "$__interval_ms") // which leave out the steps in which nothing rose; lines begin at 0
			for i, v := range f.Values {
				above, happened := number(t, v) > 0, want != "[none]"
				if above && !happened || !above && happened && bars || above && i == 0 && !bars {
					t.Errorf("%s: %s is %v", q.panel, got[len(got)-1], v)
				}
			}
		}
		if fmt.Sprint(got) != want {
			t.Errorf("%s shows %v, want %s", q.panel, got, want)
		}
	}
	if asked != 5 {
		t.Errorf("%d panels were asked", asked)
	}
}

// Each event stands in one bar: the bars of a time range add up to what happened in it.
func TestBarsAddUp(t *testing.T) {
	const process = `job="weir",instance="run-1",namespace="weir",stream="live"`
	rises := func(n int) (float64, bool) { return 1000 + float64(max(0, min(n, 230)-140)/3), true } // 30 times
	one := func(int) (float64, bool) { return 1, true }
	s := newScene(t, []told{
		{`weir_build_info{` + process + `}`, one}, {`weir_rule_info{` + process + `,rule="a",owner="o",mode="block",version="1"}`, one},
		{`weir_enforce_decisions_total{` + process + `,rule="a",mode="block",action="written",reason=""}`, rises},
		{`weir_detect_hits_total{` + process + `,rule="a",kind="hit",phase="open"}`, rises},
		{`weir_detect_episodes_total{` + process + `,rule="a"}`, rises},
		{`weir_event_to_block_seconds_bucket{` + process + `,le="1"}`, rises}, {`weir_gate_check_seconds_bucket{` + process + `,le="1"}`, rises},
	})
	smeared := regexp.MustCompile(`increase\([^()]*\[\$__rate_interval\]`)
	wanted := map[string]bool{
		"Decisions about blocks": true, "Decisions, and what shadow would decide": true, "Episodes that began, blocking rules": true, "Episodes": true,
		"Event to block, all of them": true, "Time of a check, all of them": true,
	}
	for _, q := range promQueries(t) {
		if smeared.MatchString(q.expr) {
			t.Errorf("%s counts an event in several steps: %s", q.panel, q.expr)
		}
		if !wanted[q.panel] {
			continue
		}
		delete(wanted, q.panel)
		answer, err := s.ask(q.expr, true)
		if err != nil || len(answer) != 1 {
			t.Errorf("%s: %v, %v", q.panel, answer, err)
			continue
		}
		sum := 0.0
		for _, v := range answer[0].Values {
			sum += number(t, v)
		}
		if sum < 29.9 || sum > 30.1 {
			t.Errorf("the bars of %s add up to %v, want 30", q.panel, sum)
		}
	}
	if len(wanted) > 0 {
		t.Errorf("no panels %v", wanted)
	}
}

// A number is of those who count: while they are gone, nobody says 0 for them. Where they are there and nothing happened, it is 0.
func TestNobodySpeaksForWhoIsGone(t *testing.T) {
	ofGate := regexp.MustCompile(`^weir_(gate|blocklist)_`)
	for _, gone := range []string{"gate", "run", "nobody", "most scrapes"} {
		var present []told
		for _, one := range everything(t) {
			exporter := "run"
			if ofGate.MatchString(one.series) {
				exporter = "gate"
			}
			counter := strings.Contains(one.series, "_total{")
			always := strings.HasPrefix(one.series, "weir_route_") && !strings.Contains(one.series, "rule=") // these have no labels
			if strings.Contains(one.series, `instance="run-2"`) || strings.HasPrefix(one.series, "weir_build_info") || counter && !always {
				continue // one of each, whose counters of what seldom happens are not born
			}
			value := one.value
			present = append(present, told{strings.ReplaceAll(one.series, "run-1", exporter), func(n int) (float64, bool) {
				v, there := value(n)
				return v, there && (exporter != gone || n < 100) && (gone != "most scrapes" || n%4 == 1)
			}})
		}
		for _, exporter := range []string{"run", "gate"} {
			present = append(present, told{fmt.Sprintf(`weir_build_info{job="weir",instance=%q,namespace="weir",stream="live",version="1"}`, exporter), func(n int) (float64, bool) {
				return 1, exporter != gone || n < 100
			}})
		}
		s := newScene(t, present)
		zeros := 0
		for _, q := range promQueries(t) {
			if !strings.Contains(q.expr, "0 * max (") {
				continue
			}
			s.rules = map[bool]string{true: ".+", false: "a"}[q.board == uidGate]
			exporter := "run"
			if ofGate.MatchString(metricName.FindString(q.expr)) {
				exporter = "gate"
			}
			answer, err := s.ask(q.expr, false)
			if err != nil {
				t.Error(err)
				continue
			}
			if gone == "most scrapes" { // one a minute: too few for a rate
				if rate := strings.Contains(q.expr, "[$__rate_interval]"); rate == (len(answer) > 0) && !strings.Contains(q.expr, " > 0)") {
					t.Errorf("%s/%s (%s), with one scrape a minute: %v", q.board, q.panel, q.legend, answer)
				}
				continue
			}
			if gone == exporter && len(answer) > 0 || gone != exporter && len(answer) == 0 && !strings.Contains(q.expr, " > 0)") {
				t.Errorf("%s/%s (%s), while %s is gone: %v", q.board, q.panel, q.legend, gone, answer)
			}
			if len(answer) == 1 && number(t, answer[0].Value) == 0 {
				zeros++
			}
		}
		if gone == "nobody" && zeros < 20 {
			t.Errorf("only %d panels say 0", zeros)
		}
	}
}

// Stats are of now, and a board says itself that somebody is missing on it.
func TestProcessesGone(t *testing.T) {
	until := func(last int) func(int) (float64, bool) {
		return func(n int) (float64, bool) { return 1, n <= last }
	}
	info := func(metric, instance, stream string) string {
		return fmt.Sprintf(`%s{job="weir",instance=%q,namespace="weir",stream=%q}`, metric, instance, stream)
	}
	for _, tt := range []struct {
		last int // scrape of the process that ends
		want float64
	}{{scrapes, 0}, {scrapes - 24, 1}, {scrapes - 60, 0}} {
		s := newScene(t, []told{
			{info("weir_build_info", "run-1", "live"), until(tt.last)}, {info("weir_build_info", "run-2", "live"), until(scrapes)},
			{info("weir_build_info", "monday", "replay"), until(scrapes - 24)},
			{info("weir_blocklist_ready", "gate-1", "live"), until(tt.last)}, {info("weir_blocklist_ready", "gate-2", "live"), until(scrapes)},
		})
		asked := 0
		for _, q := range promQueries(t) {
			if q.kind == "stat" && !q.instant {
				t.Errorf("%s/%s keeps its last value when everything has ended", q.board, q.panel)
			}
			if q.legend != "gone" {
				continue
			}
			asked++
			answer, err := s.ask(q.expr, false)
			if err != nil || len(answer) != 1 || number(t, answer[0].Value) != tt.want {
				t.Errorf("%s/%s: %v (%v), want %v", q.board, q.panel, answer, err, tt.want)
			}
		}
		if asked != 3 {
			t.Errorf("%d panels tell of processes that are gone", asked)
		}
	}
}
