package metrics

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/internal/testbed"
)

const page = "../../../../docs/metrics.md"

const preface = `# Metrics

What each process serves at ` + "`/metrics`" + ` (` + "`http.listen`" + `), in Prometheus' format. *Exported by* is the command: ` + "`run`" + `, of which
a stage in parentheses says that only a process with this stage has it; ` + "`gate`" + `; ` + "`ingest`" + `, which serves metrics if ` + "`--http-listen`" + ` is
given, and of which ` + "`--replay`" + ` in parentheses says that only a replay has it. ` + "`dev`" + ` is all of them in one process, and what is marked so is only there. Beside these every process has those of Go
(` + "`go_…`" + `) and of the operating system (` + "`process_…`" + `).

Each has two labels beside those listed: ` + "`namespace`" + `, that of weir.yaml; and ` + "`stream`" + `, which is ` + "`replay`" + ` for all that
` + "`ingest --replay`" + ` serves, whatever the replay is called, and ` + "`live`" + ` for everything else. A replay is behind the clock by design, so
what asks about the present asks with ` + "`stream=\"live\"`" + `, as the [boards and alerts](dashboards.md) do. No label holds who somebody is: no address, user, device or block. The label
` + "`rule`" + ` is bounded by the rules that there are: one that goes takes its series along. Every series whose labels are known beforehand is there, at 0, when its process
starts, and those of a rule, partition, topic or group when it comes: ` + "`rate`" + ` sees the first event.

This page is written by ` + "`WEIR_TEST_UPDATE=1 go test ./cmd/weir/internal/metrics`" + `, and a test fails when it is not up to date.
`

// entry is a metric of the page.
type entry struct {
	metric
	by []process
}

func gather(t *testing.T) []entry {
	t.Helper()
	all := map[string]*entry{}
	for _, p := range processes(t) {
		if err := p.Register(service.NewRegistry("", "weir")); err != nil {
			t.Fatal(err)
		}
		for _, m := range p.metrics(t) {
			if !strings.HasPrefix(m.name, "weir_") {
				continue
			}
			m.labels = slices.DeleteFunc(m.labels, func(l string) bool { return l == "namespace" || l == "stream" }) // each has them
			known := all[m.name]
			if known == nil {
				known = &entry{metric: m}
				all[m.name] = known
			}
			if !slices.Equal(known.labels, m.labels) || known.help != m.help || known.kind != m.kind {
				t.Errorf("%s says of %s %+v, others say %+v", p.name, m.name, m, known.metric)
			}
			known.by = append(known.by, p)
		}
	}
	return slices.SortedFunc(func(yield func(entry) bool) {
		for _, e := range all {
			if !yield(*e) {
				return
			}
		}
	}, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
}

// exporters are the processes that have a metric: in words, since a stage alone is worth telling.
func (e entry) exporters() string {
	stages := map[string][]string{} // "": the whole command has it
	var names []string
	for _, p := range e.by {
		if p.name == "dev" && len(e.by) > 1 {
			continue // it has everything
		}
		if !slices.Contains(names, p.name) {
			names = append(names, p.name)
		}
		stages[p.name] = append(stages[p.name], p.part)
	}
	for i, name := range names {
		if parts := stages[name]; !slices.Contains(parts, "") && len(parts) < len(service.AllStages()) {
			names[i] += " (" + strings.Join(parts, ", ") + ")"
		}
	}
	return strings.Join(names, ", ")
}

// unit is the unit in a metric's name.
func (e entry) unit() string {
	words := strings.Split(strings.TrimSuffix(e.name, "_total"), "_")
	switch last := words[len(words)-1]; last {
	case "seconds", "bytes", "ratio":
		return last
	}
	return "" // a number of what the name says
}

// values are those of a closed label, where a metric has just one and the help text does not name them.
func (e entry) values() string {
	var closed []string
	for _, l := range e.labels {
		if !slices.Contains(openLabels(), l) {
			closed = append(closed, l)
		}
	}
	all := closedLabels()[e.name]
	if len(closed) != 1 || len(all) == 0 || slices.ContainsFunc(all, func(v string) bool { return strings.Contains(e.help, v) }) {
		return ""
	}
	return fmt.Sprintf(" By `%s`: %s.", closed[0], strings.Join(all, ", "))
}

func (e entry) row() string {
	labels := make([]string, len(e.labels))
	for i, l := range e.labels {
		labels[i] = "`" + l + "`"
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s | %s | %s |\n", e.name, e.kind, strings.Join(labels, ", "), e.unit(), e.exporters(), strings.ReplaceAll(e.help, "|", `\|`)+e.values())
}

func render(all []entry) string {
	var b strings.Builder
	b.WriteString(preface)
	sections := map[string][]entry{}
	for _, e := range all {
		section := strings.Join(strings.SplitN(e.name, "_", 3)[:2], "_")
		sections[section] = append(sections[section], e)
	}
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | type | labels | unit | exported by | what it says |\n|---|---|---|---|---|---|\n", section)
		for _, e := range sections[section] {
			b.WriteString(e.row())
		}
	}
	return b.String()
}

// docs/metrics.md tells all that a real installation's registries describe, and promtool has nothing to say against it.
func TestPageTellsWhatRegistriesDescribe(t *testing.T) {
	all := gather(t)
	got := render(all)
	if os.Getenv("WEIR_TEST_UPDATE") != "" {
		if err := os.WriteFile(page, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(page)
	if err != nil {
		t.Fatalf("%v (WEIR_TEST_UPDATE=1 go test ./cmd/weir/internal/metrics writes it)", err)
	}
	if got != string(want) {
		t.Errorf("%s is not up to date (WEIR_TEST_UPDATE=1 go test ./cmd/weir/internal/metrics); it should be\n%s", page, got)
	}
	metrics := make([]metric, len(all))
	for i, e := range all {
		metrics[i] = e.metric
		if !strings.HasSuffix(e.help, ".") {
			t.Errorf("%s: the help text %q is no sentence", e.name, e.help)
		}
	}
	check := exec.Command(testbed.Program(t, "promtool"), "check", "metrics")
	check.Stdin = strings.NewReader(exposition(metrics))
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
}
