package detect

import (
	"fmt"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
)

// What detectors leave out is in the metrics by rule and reason, and nothing in a label tells who it was.
func TestWhatDetectorsLeftOutIsInTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := newMetrics(registry, "live")
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // two partitions
		m.add(detectors.Counts{}, detectors.Counts{}, []detectors.RuleUncounted{
			{Rule: "a", Reason: detectors.UncountedLate, Events: 3}, {Rule: "a", Reason: detectors.UncountedOutOfOrder, Events: 4},
			{Rule: "b", Reason: detectors.UncountedOutOfOrder, Events: 1},
		})
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		if f.GetName() != "weir_detect_rule_uncounted_total" {
			continue
		}
		for _, metric := range f.GetMetric() {
			line := ""
			for _, l := range metric.GetLabel() {
				line += l.GetName() + "=" + l.GetValue() + " "
			}
			got = append(got, line+fmt.Sprint(metric.GetCounter().GetValue()))
		}
	}
	want := []string{
		"reason=late rule=a stream=live 6", "reason=out_of_order rule=a stream=live 8", "reason=out_of_order rule=b stream=live 2",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}
