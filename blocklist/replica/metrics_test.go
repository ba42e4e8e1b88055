package replica

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A rule that blocks has a series, at 0 where it holds nobody; one that does not has it for as long as blocks of it are held.
func TestBlocksAreShownByRule(t *testing.T) {
	const now = traffic.Time(1_800_000_000_000_000)
	table := newTable()
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(newBlocksByRule(table))
	mode := func(rule string, generation int64, m rules.Mode) {
		table.setModes(rules.ModeState{Rule: rule, Mode: m, Generation: generation})
	}
	shows := func(when string, lines ...string) {
		t.Helper()
		want := ""
		if len(lines) > 0 {
			want = "# HELP weir_blocklist_blocks " + blocksHelp + "\n# TYPE weir_blocklist_blocks gauge\nweir_blocklist_blocks" +
				strings.Join(lines, "\nweir_blocklist_blocks") + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "weir_blocklist_blocks"); err != nil {
			t.Errorf("%s: %v", when, err)
		}
	}
	shows("at first")
	mode("r1", 1, rules.ModeBlock)
	mode("r2", 1, rules.ModeBlock)
	mode("r3", 1, rules.ModeShadow)
	for i := range 5 {
		putNumber(t, table, i, now.Add(time.Minute))
	}
	putNumber(t, table, 0, now.Add(2*time.Minute)) // the same block, raised
	shows("five blocks", `{rule="r1"} 5`, `{rule="r2"} 0`)
	mode("r1", 2, rules.ModeShadow)
	mode("r2", 2, rules.ModeOff)
	shows("demoted", `{rule="r1"} 5`)
	for i := range tableShards {
		table.sweep(i, now.Add(time.Minute))
	}
	shows("four have expired", `{rule="r1"} 1`)
	for i := range tableShards {
		table.sweep(i, now.Add(time.Hour))
	}
	shows("all have expired")
}
