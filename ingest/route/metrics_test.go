package route

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

func TestRouteMetrics(t *testing.T) {
	tally := newTally()
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(newRouteCollector(tally)); err != nil {
		t.Fatal(err)
	}
	tally.bump(func(s *Stats) {
		s.Events, s.Chunks, s.OrderWaits, s.PrefetchedBytes = 12, 3, 7, 4096
		s.DeadLetters["empty"] = 2
		s.MissingIdentities[traffic.FieldIP][traffic.MissingBadIP] = 4
		s.Rules["a"] = RuleStats{Matched: 9, Behind: 2, Missing: [traffic.NumFields]int64{traffic.FieldDevice: 1}, Skipped: 1,
			Uncounted: [numUncounted]int64{distinctMissing: 5}}
		s.Sources[3] = SourceStats{Offset: 90, HighWatermark: 100}
		s.Sources[4] = SourceStats{Refused: true}
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := f.GetName()
			for _, l := range m.GetLabel() {
				name += " " + l.GetName() + "=" + l.GetValue()
			}
			got[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
		}
	}
	for name, want := range map[string]float64{
		"weir_route_events_total": 12, "weir_route_chunks_total": 3, "weir_route_dead_letters_total reason=empty": 2,
		"weir_route_order_waits_total": 7, "weir_route_intake_bytes": 4096,
		"weir_route_lag_events partition=3":                               10,
		"weir_route_partition_refused partition=3":                        0,
		"weir_route_partition_refused partition=4":                        1,
		"weir_route_rule_key_missing_total field=device rule=a":           1,
		"weir_route_rule_uncounted_total reason=distinct_missing rule=a":  5,
		"weir_route_rule_uncounted_total reason=missing_field rule=a":     1,
		"weir_route_rule_events_total outcome=behind rule=a":              2,
		"weir_route_identity_missing_total field=ip reason=ip_unparsable": 4,
	} {
		if v, ok := got[name]; !ok || v != want {
			t.Errorf("%s: got %v (there: %v), want %v", name, v, ok, want)
		}
	}
	if _, ok := got["weir_route_lag_events partition=4"]; ok {
		t.Error("a refused partition has a lag, which nobody knows")
	}
}

func TestNewRouterChecksItsOptions(t *testing.T) {
	w := newWorld(1)
	good := newSimHost(w, "r", 1)
	tests := []struct {
		change func(*Options)
		want   string
	}{
		{func(o *Options) { o.Log = nil }, "option Log is required"},
		{func(o *Options) { o.Secret = nil }, "option Secret is required"},
		{func(o *Options) { o.KeyedPartitions = 0 }, "at least 1"},
		{func(o *Options) { o.KeyedPartitions = 4000 }, "Kafka allows 4096"},
		{func(o *Options) { o.Generation = -1 }, "Generation"},
	}
	for i, tt := range tests {
		opt := good.options()
		tt.change(&opt)
		if _, err := New(opt); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("case %d: got %v, want an error with %q", i, err, tt.want)
		}
	}
	if _, err := New(Options{}); err == nil {
		t.Error("no options at all are taken")
	}
}
