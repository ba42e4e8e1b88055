package dashboards

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A process that was cut off from Kafka shows its partitions as they were, and ever older, beside their new owners: what is shown is how the
// owners are, and each partition once.
func TestPartitionsAreShownOnce(t *testing.T) {
	is := func(value float64) func(int) (float64, bool) { return func(int) (float64, bool) { return value, true } }
	older := func(n int) (float64, bool) { return float64(600 + 15*n), true }
	series := []told{{`weir_build_info{job="weir",instance="owner",namespace="weir",stream="live"}`, is(1)}}
	tell := func(instance, stage, partition string, halted, records float64, age func(int) (float64, bool)) {
		labels := fmt.Sprintf(`{job="weir",instance=%q,namespace="weir",stream="live",stage=%q,partition=%q}`, instance, stage, partition)
		series = append(series, told{"weir_stage_partition_halted" + labels, is(halted)}, told{"weir_stage_lag_records" + labels, is(records)}, told{"weir_stage_lag_seconds" + labels, age})
	}
	tell("cut-off", "detect", "0", 0, 5000, older)
	tell("cut-off", "detect", "1", 0, 5000, older)
	tell("owner", "detect", "0", 0, 3, is(2))
	tell("owner", "detect", "1", 1, 4, is(7))
	tell("owner", "record", "0", 1, 5, is(9))
	for _, name := range []string{"halted", "lag_records", "lag_seconds"} { // of a replay, which is behind by less
		series = append(series, told{"weir_stage_" + strings.Replace(name, "halted", "partition_halted", 1) + `{job="weir",instance="replay",namespace="weir",stream="replay",stage="detect",partition="1"}`, is(0)})
	}
	s := newScene(t, series)
	asked := 0
	for _, q := range promQueries(t) {
		want := map[string]string{
			"Oldest waiting lag": "[lag 9]", "Stopped partitions stopped": "[stopped 2]", "Lag in time {{stage}}": "[detect 7 record 9]",
			"Lag in records {{stage}}": "[detect 7 record 5]", "Stopped partitions by stage {{stage}}: halted": "[detect: halted 1 record: halted 1]",
		}[q.panel+" "+q.legend]
		if want == "" {
			continue
		}
		asked++
		answer, err := s.ask(q.expr, false)
		if err != nil {
			t.Errorf("%s: %v", q.panel, err)
		}
		var got []string
		for _, f := range answer {
			got = append(got, fmt.Sprintf("%s %v", legendOf(q.legend, f.Metric), number(t, f.Value)))
		}
		slices.Sort(got)
		if fmt.Sprint(got) != want {
			t.Errorf("%s shows %v, want %s", q.panel, got, want)
		}
	}
	if asked != 5 {
		t.Errorf("%d panels were asked", asked)
	}
}
