package route

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// atZero is a clock that stands still.
func atZero() traffic.Time { return 0 }

func TestRouteMetrics(t *testing.T) {
	tally, versions := newTally(), &versionShelf{}
	reg := prometheus.NewPedanticRegistry()
	if err := reg.Register(newRouteCollector(tally, versions, atZero)); err != nil {
		t.Fatal(err)
	}
	versions.advance(&routingVersion{number: 1, rules: []routedRule{
		{id: "a", key: []traffic.KeyField{{Field: traffic.FieldUser}}}, {id: "b", amount: amount{distinct: []traffic.KeyField{{Field: traffic.FieldUser}}}}, {id: "c", amount: amount{sum: true}},
	}})
	tally.bump(func(s *Stats) {
		s.Events, s.Chunks, s.OrderWaits, s.PrefetchedBytes = 12, 3, 7, 4096
		s.DeadLetters["empty"] = 2
		s.MissingIdentities[traffic.FieldIP][traffic.MissingBadIP] = 4
		s.Rules["a"] = RuleStats{Matched: 9, Behind: 2, Missing: [traffic.NumFields]int64{traffic.FieldDevice: 1}, Skipped: 1,
			Uncounted: [numUncounted]int64{distinctMissing: 5}}
		s.Sources[3] = SourceStats{Offset: 90, HighWatermark: 100}
		s.Sources[4] = SourceStats{Refused: true}
	})
	expectValues(t, valuesOf(t, reg), map[string]float64{
		"weir_route_events_total": 12, "weir_route_chunks_total": 3,
		"weir_route_order_waits_total": 7, "weir_route_intake_bytes": 4096,
		"weir_route_offset partition=3":                                            90,
		"weir_route_partition_refused partition=3":                                 0,
		"weir_route_partition_refused partition=4":                                 1,
		"weir_route_rule_key_missing_total field=device rule=a":                    1,
		"weir_route_rule_key_missing_total field=user rule=a":                      0,
		"weir_route_rule_value_missing_total reason=distinct_missing rule=a":       5,
		"weir_route_rule_value_missing_total reason=distinct_missing rule=b":       0,
		"weir_route_rule_value_missing_total reason=fraction rule=c":               0,
		"weir_rule_uncounted_events_total reason=missing_value rule=a stage=route": 5,
		"weir_rule_uncounted_events_total reason=missing_field rule=a stage=route": 1,
		"weir_rule_uncounted_events_total reason=missing_field rule=b stage=route": 0,
		"weir_route_rule_events_total outcome=behind rule=a":                       2,
		"weir_route_rule_events_total outcome=matched rule=b":                      0,
		"weir_route_identity_missing_total field=ip reason=ip_unparsable":          4,
	})
	versions.advance(&routingVersion{number: 2, rules: []routedRule{{id: "b"}}})
	for name := range valuesOf(t, reg) {
		if strings.Contains(name, "rule=") && !strings.Contains(name, "rule=b") {
			t.Errorf("a rule that is gone has left %s", name)
		}
	}
	versions.advance(&routingVersion{number: 3, rules: []routedRule{{id: "a"}, {id: "a", pending: true}, {id: "b"}}}) // which is no rule of its own
	expectValues(t, valuesOf(t, reg), map[string]float64{"weir_route_rule_events_total outcome=behind rule=a": 2})    // it goes on
}

// valuesOf are the values of all counters and gauges, by name and labels.
func valuesOf(t *testing.T, reg prometheus.Gatherer) map[string]float64 {
	t.Helper()
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
	return got
}

func expectValues(t *testing.T, got, want map[string]float64) {
	t.Helper()
	for name, v := range want {
		if has, ok := got[name]; !ok || has != v {
			t.Errorf("%s: got %v (there: %v), want %v", name, has, ok, v)
		}
	}
}

// TestRouteShowsHowFarItIsBehind: what lies in the log and is not routed is behind, by its number and by the age of the
// oldest; a partition that stops says so, and one that is refused grows older.
func TestRouteShowsHowFarItIsBehind(t *testing.T) {
	reg := prometheus.NewRegistry()
	calmWorld(t, func(w *world) {
		w.edit = func(o *Options) { o.Registerer = reg }
		w.append(1, 20)
		w.spoil(1, spoiled{from: 10, next: 14})
		w.commits[2] = ingest.Commit{}
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		rest(ctx, 5*time.Second)
		w.append(0, 3)
		rest(ctx, 20*time.Second)
		before := valuesOf(t, reg)["weir_stage_lag_seconds partition=1 stage=route"]
		rest(ctx, 10*time.Second)
		got := valuesOf(t, reg)
		expectValues(t, got, map[string]float64{
			"weir_stage_lag_records partition=0 stage=route": 0, "weir_stage_lag_seconds partition=0 stage=route": 0,
			"weir_stage_partition_halted partition=0 stage=route": 0, "weir_stage_lag_records partition=1 stage=route": 10,
			"weir_stage_partition_halted partition=1 stage=route": 1, "weir_stage_lag_seconds partition=1 stage=route": before + 10,
		})
		if before < 20 {
			t.Errorf("after 25 s the oldest event is said to be %v s old", before)
		}
		expectValues(t, got, map[string]float64{
			"weir_stage_lag_records partition=2 stage=route": 0, "weir_stage_partition_halted partition=2 stage=route": 0,
			"weir_route_partition_refused partition=2": 1,
		})
		if age := got["weir_stage_lag_seconds partition=2 stage=route"]; age < 30 || age > 36 {
			t.Errorf("a partition that was refused at the start is said to be %v s behind after 35 s", age)
		}
	})
	for name := range valuesOf(t, reg) {
		if strings.HasPrefix(name, "weir_stage_") {
			t.Errorf("a router that has stopped shows %s", name)
		}
	}
}

func TestNewRouterChecksItsOptions(t *testing.T) {
	good := newSimHost(newWorld())
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

// What a pending version watches is not told of a second time.
func TestPendingVersionsAreNotCounted(t *testing.T) {
	v := &routingVersion{rules: []routedRule{{id: "a"}, {id: "a", pending: true}}}
	b := chunkBuilder{counts: map[*routingVersion]*ruleCounts{}}
	c := b.countsOf(v)
	c.touched, c.stats[0].Matched, c.stats[1].Matched = []int{0, 1}, 3, 3
	s := newEventStats()
	b.sumRules(&s)
	if s.Rules["a"].Matched != 3 || c.stats[1].Matched != 0 {
		t.Errorf("%+v, %+v", s.Rules, c.stats)
	}
}
