package console

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// MetricsPulse reads a Pulse out of the metrics that the stages of this process register. problems may be nil; it is
// asked with every Pulse and must answer at once.
func MetricsPulse(from prometheus.Gatherer, problems func() []Problem) func() Pulse {
	return func() Pulse {
		// What could be gathered counts, also where one collector failed.
		families, _ := from.Gather()
		p := pulseOf(families)
		if problems != nil {
			p.Problems = slices.Concat(problems(), p.Problems)
		}
		return p
	}
}

func pulseOf(families []*dto.MetricFamily) Pulse {
	var p Pulse
	stages := map[string]int64{}
	stopped := map[string]string{
		"weir_route_partition_refused": "requests", "weir_route_partition_halted": "requests", "weir_detect_halted": "keyed",
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			switch n := int64(value(m)); f.GetName() {
			case "weir_route_events_total":
				p.Events += n
			case "weir_route_records_total":
				p.Keyed += n
			case "weir_detect_hits_total":
				if label(m, "kind") == "hit" && label(m, "phase") == "open" {
					p.Hits += n
				}
			case "weir_enforce_decisions_total":
				if label(m, "action") == "written" {
					p.Blocks += n
				}
			case "weir_route_partition_refused", "weir_route_partition_halted", "weir_detect_halted":
				if n > 0 {
					p.Problems = append(p.Problems, Problem{
						Part: "Partition " + stopped[f.GetName()] + "/" + label(m, "partition"), Detail: "has stopped; weir partitions list --stopped says why",
					})
				}
			case "weir_route_lag_events":
				stages["route"] += n
			case "weir_detect_lag_records":
				stages["detect"] += n
			case "weir_stage_lag_records":
				stages[label(m, "stage")] += n
			}
		}
	}
	for _, name := range []string{"route", "detect", "record", "record-blocks", "enforce"} { // the way of an event
		if n, ok := stages[name]; ok {
			p.Stages = append(p.Stages, StageLag{Stage: name, Records: n})
		}
	}
	return p
}

func value(m *dto.Metric) float64 {
	if m.GetCounter() != nil {
		return m.GetCounter().GetValue()
	}
	return m.GetGauge().GetValue()
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
