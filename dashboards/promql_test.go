package dashboards

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirhq/weir/internal/testbed"
)

// The ten busiest rules of a time range are the same ten at each point of it, whoever is ahead at the moment: here a dozen, of which
// another half is each quarter of an hour.
func TestTheBusiestRulesStay(t *testing.T) {
	var file strings.Builder
	file.WriteString("evaluation_interval: 1m\ntests:\n  - interval: 1m\n    input_series:\n")
	for rule := range 12 {
		fast, slow := 100+rule, 1+rule
		if rule%2 == 0 {
			fast, slow = slow, fast
		}
		at, samples := 0, []string{}
		for quarter := range 4 {
			step := []int{fast, slow}[quarter%2]
			samples = append(samples, fmt.Sprintf("%d+%dx14", at, step))
			at += 15 * step
		}
		fmt.Fprintf(&file, "      - {series: 'weir_rule_uncounted_events_total{namespace=\"weir\",stream=\"live\",rule=\"r%02d\"}', values: '%s'}\n", rule, strings.Join(samples, " "))
	}
	// Another rule that leaves nothing out, and one of a replay.
	file.WriteString(`      - {series: 'weir_rule_uncounted_events_total{namespace="weir",stream="live",rule="idle"}', values: '0x60'}
      - {series: 'weir_rule_uncounted_events_total{namespace="weir",stream="replay",rule="past"}', values: '0+900x60'}
    promql_expr_test:
`)
	expr := strings.NewReplacer("$namespace", ".*", "$__rate_interval", "4m", "$__range", "55m").Replace(busiest("weir_rule_uncounted_events_total"))
	ask := func(expr string, want int) {
		fmt.Fprintf(&file, "      - {expr: '%s', eval_time: 58m, exp_samples: [{labels: '{}', value: %d}]}\n", expr, want)
	}
	ask("count ("+expr+")", 10)
	ask("count (count_over_time(("+expr+")[50m:1m]))", 10)
	ask("count (last_over_time(("+expr+`)[50m:1m]) and on (rule) label_replace(vector(1), "rule", "r11", "", ""))`, 1)
	path := filepath.Join(t.TempDir(), "test.yaml")
	if err := os.WriteFile(path, []byte(file.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(testbed.Program(t, "promtool"), "test", "rules", path).CombinedOutput(); err != nil {
		t.Errorf("promtool: %v\n%s", err, out)
	}
}
