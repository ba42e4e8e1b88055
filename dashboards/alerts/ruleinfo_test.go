package alerts

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// Whatever processes say about a rule, and in whatever order Prometheus has it: each rule is there once, as who knows its newest change
// says, and a join with it answers.
func TestRuleInfoGivesEachRuleOnce(t *testing.T) {
	promtool := testbed.Program(t, "promtool")
	says := func(namespace, rule, owner, mode, version, instance, changed string) []string {
		series := []string{fmt.Sprintf(`weir_rule_info{namespace=%q,rule=%q,owner=%q,mode=%q,version=%q,job="weir",instance=%q} 1`, namespace, rule, owner, mode, version, instance)}
		if changed != "" {
			series = append(series, fmt.Sprintf(`weir_rule_changed_timestamp_seconds{namespace=%q,rule=%q,job="weir",instance=%q} %s`, namespace, rule, instance, changed))
		}
		return series
	}
	series := slices.Concat(
		says("weir", "edited", "web", "shadow", "1", "a", "1795348800.5"), says("weir", "edited", "accounts", "shadow", "2", "b", "1795348800.75"),
		says("weir", "promoted", "web", "block", "1", "a", "1795348900"), says("weir", "promoted", "web", "shadow", "1", "b", "1795348800"),
		says("weir", "same", "web", "shadow", "1", "a", "1795348800"), says("weir", "same", "web", "shadow", "1", "b", "1795348800"),
		says("other", "edited", "late", "block", "7", "c", "1795000000"),
		says("weir", "untold", "web", "shadow", "1", "a", ""), says("weir", "untold", "accounts", "block", "1", "b", "1"),
		// Seen by two Prometheus that share a store.
		[]string{`weir_rule_info{namespace="weir",rule="twice",owner="web",mode="shadow",version="1",job="weir",instance="a",replica="0"} 1`,
			`weir_rule_info{namespace="weir",rule="twice",owner="web",mode="shadow",version="1",job="weir",instance="a",replica="1"} 1`,
			`weir_rule_changed_timestamp_seconds{namespace="weir",rule="twice",job="weir",instance="a",replica="0"} 5`,
			`weir_rule_changed_timestamp_seconds{namespace="weir",rule="twice",job="weir",instance="a",replica="1"} 5`},
	)
	want := []string{
		`{namespace="other",rule="edited",owner="late",mode="block"}`, `{namespace="weir",rule="edited",owner="accounts",mode="shadow"}`,
		`{namespace="weir",rule="promoted",owner="web",mode="block"}`, `{namespace="weir",rule="same",owner="web",mode="shadow"}`,
		`{namespace="weir",rule="twice",owner="web",mode="shadow"}`, `{namespace="weir",rule="untold",owner="accounts",mode="block"}`,
	}
	ofWeir := slices.DeleteFunc(slices.Clone(want), func(s string) bool { return strings.Contains(s, "other") })
	var tests strings.Builder
	for range 2 {
		tests.WriteString("  - interval: 1m\n    input_series:\n")
		for _, s := range series {
			name, value, _ := strings.Cut(s, "} ")
			fmt.Fprintf(&tests, "      - {series: '%s}', values: '%sx9'}\n", name, value)
		}
		tests.WriteString("    promql_expr_test:\n")
		for expr, found := range map[string][]string{
			RuleInfo(""): want, RuleInfo(`namespace="weir"`): ofWeir,
			"sum by (namespace, rule) (weir_rule_info) * 0 + on (namespace, rule) group_left (owner, mode) " + RuleInfo(""): want,
		} {
			fmt.Fprintf(&tests, "      - expr: '%s'\n        eval_time: 5m\n        exp_samples:\n", expr)
			for _, labels := range found {
				fmt.Fprintf(&tests, "          - {labels: '%s', value: 1}\n", labels)
			}
		}
		slices.Reverse(series)
	}
	file := filepath.Join(t.TempDir(), "tests.yaml")
	if err := os.WriteFile(file, []byte("tests:\n"+tests.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(promtool, "test", "rules", file).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
