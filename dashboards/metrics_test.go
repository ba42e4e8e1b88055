package dashboards

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/prometheus"

	"github.com/weirhq/weir/dashboards/alerts"
)

// A metric that was renamed leaves panels that are empty for ever, and nobody is told.
func TestPanelsAskForMetricsThatAreExported(t *testing.T) {
	exported := exportedMetrics(t)
	recorded := recordedSeries(t)
	mention := regexp.MustCompile(`\$?[a-zA-Z_:][a-zA-Z0-9_:]*`)
	for _, e := range expressions(t) {
		for _, name := range mention.FindAllString(withoutTexts(e.expr), -1) {
			switch {
			case strings.HasPrefix(name, "$"): // a variable, and the colon of a subquery
			case strings.Contains(name, ":"):
				if !recorded[name] {
					t.Errorf("%s: %s: no recording rule makes %s", e.board, e.panel, name)
				}
			case strings.HasPrefix(name, "weir_"):
				m, ok := exported[name]
				if !ok {
					for _, suffix := range []string{"_bucket", "_sum", "_count"} {
						if base, found := strings.CutSuffix(name, suffix); found && exported[base].kind == "histogram" {
							m, ok = exported[base], true
						}
					}
				}
				if !ok || m.kind == "histogram" && exported[name].kind == "histogram" {
					t.Errorf("%s: %s: no process exports %s", e.board, e.panel, name)
				}
			}
		}
	}
}

// A matcher of a label that a metric does not have matches nothing, and grouping by one groups nothing.
func TestPanelsAskForLabelsThatMetricsHave(t *testing.T) {
	exported := exportedMetrics(t)
	selector := regexp.MustCompile(`(?:by \(([a-z, ]+)\) \((?:[a-z]+ ?\()?)?(weir_[a-z0-9_]+)\{([^}]*)\}`)
	matcher := regexp.MustCompile(`([a-z]+)(=|!=|=~|!~)"`)
	looked := 0
	for _, e := range expressions(t) {
		for _, s := range selector.FindAllStringSubmatch(e.expr, -1) {
			var labels []string
			if s[1] != "" {
				labels = strings.Split(s[1], ", ")
			}
			for _, m := range matcher.FindAllStringSubmatch(s[3], -1) {
				labels = append(labels, m[1])
			}
			has := append([]string{"namespace", "stream", "job", "instance"}, exported[s[2]].labels...)
			if base, found := strings.CutSuffix(s[2], "_bucket"); found {
				has = append(has, append([]string{"le"}, exported[base].labels...)...)
			}
			for _, l := range labels {
				if looked++; !slices.Contains(has, l) {
					t.Errorf("%s: %s: %s has no label %s", e.board, e.panel, s[2], l)
				}
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d labels were looked at", looked)
	}
}

// A replay that Prometheus scrapes, too, is hours behind, and finds what was over last year. None of that is on a board about now.
func TestPanelsShowTheLiveStream(t *testing.T) {
	exported := exportedMetrics(t)
	mention := regexp.MustCompile(`(weir_[a-z0-9_]+)(\{[^}]*\})?`)
	looked := 0
	for _, e := range expressions(t) {
		for _, m := range mention.FindAllStringSubmatch(e.expr, -1) {
			of, ok := exported[m[1]]
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if base, found := strings.CutSuffix(m[1], suffix); found && !ok {
					of = exported[base]
				}
			}
			process := m[1] == "weir_build_info" && strings.Contains(e.expr, "on (job, instance)") // one of whatever stream
			if !of.byReplays || process {
				continue
			}
			if looked++; !strings.Contains(m[2], liveStream) {
				t.Errorf("%s: %s: %s shows replays: %s", e.board, e.panel, m[1], e.expr)
			}
		}
	}
	if looked < 100 {
		t.Errorf("only %d selectors were looked at", looked)
	}
}

func TestEveryMetricByRuleStandsOnAPanel(t *testing.T) {
	var onPanels strings.Builder
	for _, e := range expressions(t) {
		onPanels.WriteString(e.expr + "\n")
	}
	byRule := 0
	for name, m := range exportedMetrics(t) {
		if !slices.Contains(m.labels, "rule") {
			continue
		}
		byRule++
		if !regexp.MustCompile(`\b` + name + `(_bucket|_sum|_count)?\b`).MatchString(onPanels.String()) {
			t.Errorf("%s has the label rule, and no panel shows it", name)
		}
	}
	if byRule < 8 {
		t.Errorf("docs/metrics.md has %d metrics by rule only", byRule)
	}
}

// metric is a row of docs/metrics.md, which is written from the registries of running processes.
type metric struct {
	kind      string
	labels    []string
	byReplays bool // a process that runs a replay exports it
}

func exportedMetrics(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{}
	row := regexp.MustCompile("(?m)^\\| `(weir_[a-z0-9_]+)` \\| ([a-z]+) \\| ([^|]*)\\|[^|]*\\| ([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(string(text), -1) {
		var labels []string
		for _, l := range strings.Split(m[3], ",") {
			labels = append(labels, strings.Trim(l, " `"))
		}
		all[m[1]] = metric{kind: m[2], labels: labels, byReplays: strings.Contains(m[4], "ingest")}
	}
	return all
}

func recordedSeries(t *testing.T) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, g := range alerts.Groups(alerts.RunbookURL) {
		for _, r := range g.Rules {
			all[r.Record] = true
		}
	}
	return all
}

// expression is what a panel asks Prometheus.
type expression struct{ board, panel, expr string }

func expressions(t *testing.T) []expression {
	t.Helper()
	var found []expression
	for _, d := range all(t) {
		for _, p := range decoded(t, d).Panels {
			if p.Panel == nil {
				continue
			}
			for _, target := range p.Panel.Targets {
				if q, ok := target.(*prometheus.Dataquery); ok {
					found = append(found, expression{d.Title, *p.Panel.Title, q.Expr})
				}
			}
		}
	}
	if len(found) < 50 {
		t.Fatalf("only %d expressions", len(found))
	}
	return found
}

// withoutTexts leaves out what stands in quotation marks.
func withoutTexts(expr string) string {
	return regexp.MustCompile(`"[^"]*"`).ReplaceAllString(expr, `""`)
}
