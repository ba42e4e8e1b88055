package alerts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// drill is a scene in which an alert must not fire, then fires, then is over.
type drill struct {
	alert   string
	every   string   // between samples and evaluations; 1m if empty
	series  []string // NAME{LABELS} VALUES, the values as promtool has them
	quiet   string   // when nothing has happened yet
	fires   string
	over    string // when it has resolved
	notices []notice
}

// notice is what somebody is sent.
type notice struct {
	labels          string // k=v,…; severity is taken from the rule
	summary, detail string
}

// Parts of promtool's file.
type (
	testFile struct {
		RuleFiles []string    `yaml:"rule_files"`
		Every     string      `yaml:"evaluation_interval"`
		Order     []string    `yaml:"group_eval_order"` // any, without: then an alert may see the records of the evaluation before
		Tests     []testGroup `yaml:"tests"`
	}
	testGroup struct {
		Name     string        `yaml:"name"`
		Interval string        `yaml:"interval"`
		Series   []inputSeries `yaml:"input_series"`
		Alerts   []alertTest   `yaml:"alert_rule_test"`
	}
	inputSeries struct {
		Series string `yaml:"series"`
		Values string `yaml:"values"`
	}
	alertTest struct {
		At    string          `yaml:"eval_time"`
		Alert string          `yaml:"alertname"`
		Want  []expectedAlert `yaml:"exp_alerts,omitempty"`
	}
	expectedAlert struct {
		Labels      map[string]string `yaml:"exp_labels"`
		Annotations map[string]string `yaml:"exp_annotations"`
	}
)

// alertRules are the alerting rules by name and the label window, which the alerts of the objectives have.
func alertRules() map[[2]string]Rule {
	found := map[[2]string]Rule{}
	for _, g := range Groups(RunbookURL) {
		for _, r := range g.Rules {
			if r.Alert != "" {
				found[[2]string{r.Alert, r.Labels["window"]}] = r
			}
		}
	}
	return found
}

func TestEachAlertFiresAndResolves(t *testing.T) {
	all := alertRules()
	drilled := map[[2]string]bool{}
	for _, d := range drills() {
		name := d.alert
		for _, n := range d.notices {
			window := labelsOf(n.labels)["window"]
			drilled[[2]string{d.alert, window}] = true
			if window != "" {
				name += " " + window
			}
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d.run(t, all)
		})
	}
	for name := range all {
		if !drilled[name] {
			t.Errorf("no test lets %s fire", strings.TrimSpace(name[0]+" "+name[1]))
		}
	}
}

func (d drill) run(t *testing.T, all map[[2]string]Rule) {
	if d.quiet == "" || d.fires == "" || d.over == "" || len(d.notices) == 0 {
		t.Fatal("a drill says when the alert is quiet, fires and is over, and what it says")
	}
	var want []expectedAlert
	for _, n := range d.notices {
		labels := labelsOf(n.labels)
		rule, ok := all[[2]string{d.alert, labels["window"]}]
		if !ok {
			t.Fatalf("there is no such alert")
		}
		for name, value := range rule.Labels {
			labels[name] = value
		}
		want = append(want, expectedAlert{labels, map[string]string{
			"summary": n.summary, "description": n.detail, "runbook_url": RunbookURL + "#" + Anchor(d.alert),
		}})
	}
	testRules(t, d.every, d.series, []alertTest{{d.quiet, d.alert, nil}, {d.fires, d.alert, want}, {d.over, d.alert, nil}})
}

// The same scenes wake nobody where they are of a replay, which is always behind, stops in the middle, and then is gone.
func TestReplaysWakeNobody(t *testing.T) {
	t.Parallel()
	tried := map[string]bool{}
	for _, d := range drills() {
		replayed := slices.Clone(d.series)
		for i, s := range replayed {
			replayed[i] = strings.Replace(s, live, `stream="replay"`, 1)
		}
		if slices.Equal(replayed, d.series) {
			continue // no stream comes into it
		}
		tried[d.alert] = true
		t.Run(d.alert, func(t *testing.T) {
			t.Parallel()
			testRules(t, d.every, unlike(replayed), []alertTest{{d.fires, d.alert, nil}})
		})
	}
	if len(tried) < 20 {
		t.Errorf("only %d alerts were tried", len(tried))
	}
}

// unlike leaves out series that came before, which are an error to promtool.
func unlike(series []string) []string {
	var all []string
	named := map[string]bool{}
	for _, s := range series {
		name, _, _ := strings.Cut(s, "} ")
		if !named[name] {
			all = append(all, s)
		}
		named[name] = true
	}
	return all
}

// needed are the alerts that tests ask for, and the records that these are made of, in their groups. The others would only take time.
func needed(tests []alertTest) []Group {
	asked := map[string]bool{}
	for _, a := range tests {
		asked[a.Alert] = true
	}
	text := ""
	var some []Group
	for _, g := range slices.Backward(Groups(RunbookURL)) { // records stand before what is made of them
		var rules []Rule
		for _, r := range slices.Backward(g.Rules) {
			if asked[r.Alert] || r.Record != "" && strings.Contains(text, r.Record) {
				text += r.Expr + "\n"
				rules = append(rules, r)
			}
		}
		if len(rules) > 0 {
			slices.Reverse(rules)
			g.Rules = rules
			some = append(some, g)
		}
	}
	slices.Reverse(some)
	return some
}

func labelsOf(text string) map[string]string {
	labels := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			labels[name] = value
		}
	}
	return labels
}

// testRules has promtool evaluate over series what tests ask for.
func testRules(t *testing.T, every string, series []string, tests []alertTest) {
	t.Helper()
	groups := needed(tests)
	if every == "" {
		every = "1m"
	}
	folder := t.TempDir()
	group := testGroup{Name: t.Name(), Interval: every, Alerts: tests}
	for _, s := range series {
		at := strings.LastIndex(s, "} ") + 1
		if at == 0 {
			t.Fatalf("%s: a series is NAME{LABELS} VALUES", s)
		}
		group.Series = append(group.Series, inputSeries{s[:at], s[at+1:]})
	}
	var order []string
	for _, g := range groups {
		order = append(order, g.Name)
	}
	writeGroups(t, filepath.Join(folder, FileName), groups)
	text, err := yaml.Marshal(testFile{[]string{FileName}, every, order, []testGroup{group}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(folder, "test.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "test", "rules", path)
}

func writeGroups(t *testing.T, path string, groups []Group) {
	t.Helper()
	text, err := yaml.Marshal(map[string][]Group{"groups": groups})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
