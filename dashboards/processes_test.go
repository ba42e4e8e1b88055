package dashboards

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirhq/weir/internal/testbed"
)

// expressionOf is what the one query of a panel asks, for two namespaces and the last day.
func expressionOf(t *testing.T, board, panel string) string {
	t.Helper()
	all := expressions(t)
	at := slices.IndexFunc(all, func(e expression) bool { return e.board == board && e.panel == panel })
	if at < 0 {
		t.Fatalf("there is no panel %s: %s", board, panel)
	}
	return strings.NewReplacer("$namespace", "weir|other", "$__range", "1d", "$__interval", "5m").Replace(all[at].expr)
}

// Each process that records tells of the same tables, and each that reconciles of what it found: more processes are not more of it.
func TestProcessesThatTellTheSameAreCountedOnce(t *testing.T) {
	type sample struct {
		Labels string  `yaml:"labels"`
		Value  float64 `yaml:"value"`
	}
	type exprTest struct {
		Expr string   `yaml:"expr"`
		At   string   `yaml:"eval_time"`
		Want []sample `yaml:"exp_samples"`
	}
	const board = "Pipeline health"
	size, growth, unasserted := expressionOf(t, board, "Size by table"), expressionOf(t, board, "Grows in a day"), expressionOf(t, board, "Not asserted")
	// Hits do not grow, while a process joins after 200 samples and another leaves after 400; decisions grow by 1 GiB a day.
	input := []map[string]string{
		{"series": `weir_history_size_bytes{namespace="weir",table="hits",instance="a"}`, "values": "1073741824x400 _x200"},
		{"series": `weir_history_size_bytes{namespace="weir",table="hits",instance="b"}`, "values": "_x200 1073741824x400"},
		{"series": `weir_history_size_bytes{namespace="weir",table="decisions",instance="a"}`, "values": "1073741824+3728270.2222222222x400 _x200"},
		{"series": `weir_history_size_bytes{namespace="weir",table="decisions",instance="b"}`, "values": "1073741824+3728270.2222222222x600"},
		{"series": `weir_history_size_bytes{namespace="other",table="hits",instance="c"}`, "values": "1073741824x600"},
		{"series": `weir_reconcile_unasserted{namespace="weir",instance="a"}`, "values": "12x600"},
		{"series": `weir_reconcile_unasserted{namespace="weir",instance="b"}`, "values": "12x300 7x300"},
	}
	var tests []exprTest
	for _, at := range []string{"26h", "35h", "45h"} {
		tests = append(tests, exprTest{"round (" + growth + " / 1024 ^ 2)", at, []sample{{"{}", 1024}}}, exprTest{unasserted, at, []sample{{"{}", 12}}},
			exprTest{"(" + size + ") == 2147483648", at, []sample{{`{table="hits"}`, 2147483648}}})
	}
	text, err := yaml.Marshal(map[string]any{"evaluation_interval": "5m", "tests": []any{map[string]any{
		"interval": "5m", "input_series": input, "promql_expr_test": tests,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testbed.Program(t, "promtool"), "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
