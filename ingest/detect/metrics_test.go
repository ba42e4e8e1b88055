package detect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const second = traffic.Time(time.Second / time.Microsecond)

// metricsBench has the metrics of a detector over a clock that the test moves.
type metricsBench struct {
	*metrics
	t        *testing.T
	registry *prometheus.Registry
	now      traffic.Time
}

func newMetricsBench(t *testing.T) *metricsBench {
	b := &metricsBench{t: t, registry: prometheus.NewPedanticRegistry(), now: 1000 * second}
	var err error
	b.metrics, err = newMetrics(&Options{
		Stream: "live", Budget: 5000, Registerer: b.registry, Clock: func() traffic.Time { return b.now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// shown are the series whose names begin so.
func (b *metricsBench) shown(prefixes ...string) (lines []string) {
	b.t.Helper()
	families, err := b.registry.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if !slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(f.GetName(), prefix) }) {
			continue
		}
		for _, m := range f.GetMetric() {
			line := strings.TrimPrefix(f.GetName(), "weir_")
			for _, l := range m.GetLabel() {
				line += " " + l.GetName() + "=" + l.GetValue()
			}
			lines = append(lines, fmt.Sprint(line, " ", m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	return lines
}

func (b *metricsBench) expect(got []string, want ...string) {
	b.t.Helper()
	if !slices.Equal(got, want) {
		b.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func versionOf(number int64, ids ...string) *rules.Routing {
	r := &rules.Routing{Number: number}
	for _, id := range ids {
		r.Rules = append(r.Rules, rules.Version{Document: rules.Document{ID: id}})
	}
	return r
}

// What detectors count and leave out, what they open and close, is in the metrics by rule: from 0 when the rule comes, and
// until it goes.
func TestMetricsFollowTheRules(t *testing.T) {
	b := newMetricsBench(t)
	names := []string{"weir_detect_rule", "weir_detect_open", "weir_detect_episodes", "weir_detect_losses", "weir_rule_"}
	b.expect(b.shown(append(names, "weir_detect_hits")...), "detect_losses_total 0")

	b.rules.follow(versionOf(2, "a", "b"))
	for range 2 { // two partitions
		b.rules.add("a", &detectors.RuleEvents{Counted: 50, Over: 7, Episodes: 4, Uncounted: [detectors.NumUncounted]int64{
			detectors.UncountedLate: 3, detectors.UncountedOutOfOrder: 4, detectors.UncountedMissingValue: 1,
		}})
	}
	b.rules.add("gone", &detectors.RuleEvents{Counted: 1})
	for _, phase := range []detectors.Phase{detectors.PhaseOpen, detectors.PhaseOpen, detectors.PhaseUpdate, detectors.PhaseMerged} {
		b.sent(&detectors.Hit{Kind: detectors.KindHit, Rule: "a", Phase: phase})
	}
	b.sent(&detectors.Hit{Kind: detectors.KindLate, Rule: "b"})
	b.sent(&detectors.Hit{Kind: detectors.KindUncounted, Rule: "b"})
	b.sent(&detectors.Hit{Kind: detectors.KindHit, Rule: "gone", Phase: detectors.PhaseOpen})
	b.sent(&detectors.Hit{Kind: detectors.KindLoss})
	b.rules.open(map[string]int64{"a": 2, "gone": 9})
	b.expect(b.shown("weir_detect_hits"),
		"detect_hits_total kind=hit phase=closed rule=a 0", "detect_hits_total kind=hit phase=closed rule=b 0",
		"detect_hits_total kind=hit phase=merged rule=a 1", "detect_hits_total kind=hit phase=merged rule=b 0",
		"detect_hits_total kind=hit phase=open rule=a 2", "detect_hits_total kind=hit phase=open rule=b 0",
		"detect_hits_total kind=hit phase=update rule=a 1", "detect_hits_total kind=hit phase=update rule=b 0",
		"detect_hits_total kind=late phase= rule=a 0", "detect_hits_total kind=late phase= rule=b 1",
		"detect_hits_total kind=uncounted phase= rule=a 0", "detect_hits_total kind=uncounted phase= rule=b 1")
	b.expect(b.shown(names...),
		"detect_episodes_total rule=a 8", "detect_episodes_total rule=b 0",
		"detect_losses_total 1",
		"detect_open_episodes rule=a 2", "detect_open_episodes rule=b 0",
		"detect_rule_events_total outcome=counted rule=a 100", "detect_rule_events_total outcome=counted rule=b 0",
		"detect_rule_events_total outcome=over rule=a 14", "detect_rule_events_total outcome=over rule=b 0",
		"rule_uncounted_events_total reason=late rule=a stage=detect 6", "rule_uncounted_events_total reason=late rule=b stage=detect 0",
		"rule_uncounted_events_total reason=missing_value rule=a stage=detect 2", "rule_uncounted_events_total reason=missing_value rule=b stage=detect 0",
		"rule_uncounted_events_total reason=out_of_order rule=a stage=detect 8", "rule_uncounted_events_total reason=out_of_order rule=b stage=detect 0")

	b.rules.follow(versionOf(4, "b", "c"))
	b.rules.follow(versionOf(3, "a")) // loaded later, and older
	b.rules.add("a", &detectors.RuleEvents{Counted: 1})
	b.sent(&detectors.Hit{Kind: detectors.KindHit, Rule: "a", Phase: detectors.PhaseClosed})
	b.rules.open(map[string]int64{"a": 1, "b": 3})
	b.expect(b.shown("weir_detect_open", "weir_detect_rule"),
		"detect_open_episodes rule=b 3", "detect_open_episodes rule=c 0",
		"detect_rule_events_total outcome=counted rule=b 0", "detect_rule_events_total outcome=counted rule=c 0",
		"detect_rule_events_total outcome=over rule=b 0", "detect_rule_events_total outcome=over rule=c 0")
	if left := slices.DeleteFunc(b.shown("weir_"), func(line string) bool { return !strings.Contains(line, "rule=a") }); len(left) > 0 {
		t.Errorf("a rule that is gone has left %q", left)
	}
	b.forget([]int{0})
	b.expect(b.shown("weir_detect_open"), "detect_open_episodes rule=b 0", "detect_open_episodes rule=c 0")
}

func TestMetricsOfAPartition(t *testing.T) {
	b := newMetricsBench(t)
	names := []string{"weir_detect_keys", "weir_detect_bytes", "weir_detect_budget", "weir_detect_stalled", "weir_detect_skew", "weir_detect_blind",
		"weir_detect_watermark", "weir_detect_snapshot_age"}
	b.partitions.took(3, storedSnapshot{})
	b.partitions.observe(3, partitionShown{watermark: traffic.BeforeTime, offset: 20, began: b.now})
	b.now += 4 * second
	b.expect(b.shown(names...), "detect_blind partition=3 0", "detect_budget_bytes partition=3 5000", "detect_bytes partition=3 0",
		"detect_keys partition=3 0", "detect_skew_seconds partition=3 0", "detect_snapshot_age_seconds partition=3 4", "detect_stalled_sources partition=3 0")

	b.partitions.observe(3, partitionShown{keys: 2, bytes: 100, stalled: 1, skew: 1500 * time.Millisecond, watermark: 990 * second, blind: true, offset: 40, began: b.now - 4*second})
	b.expect(b.shown(names...), "detect_blind partition=3 1", "detect_budget_bytes partition=3 5000", "detect_bytes partition=3 100",
		"detect_keys partition=3 2", "detect_skew_seconds partition=3 1.5", "detect_snapshot_age_seconds partition=3 4",
		"detect_stalled_sources partition=3 1", "detect_watermark_delay_seconds partition=3 14", "detect_watermark_seconds partition=3 990")

	b.partitions.stored(3, 30)
	b.now += 6 * second // nothing is observed meanwhile: it hangs
	ages := []string{"weir_detect_snapshot_age", "weir_detect_watermark_delay"}
	b.expect(b.shown(ages...), "detect_snapshot_age_seconds partition=3 6", "detect_watermark_delay_seconds partition=3 20")
	b.partitions.observe(3, partitionShown{watermark: traffic.EndOfTime, offset: 30})
	b.expect(b.shown(ages...), "detect_snapshot_age_seconds partition=3 0")

	b.forget([]int{3})
	b.expect(b.shown(names...))
}

// A rule has the series of warnings and of limits on trial while it has these; its pending version is no rule of its own.
func TestMetricsOfWhatStandsBesideALimit(t *testing.T) {
	b := newMetricsBench(t)
	r := versionOf(2, "plain", "trial", "trial", "warns")
	r.Rules[2].Pending, r.Rules[3].Near = true, 80
	b.rules.follow(r)
	for _, rule := range []string{"plain", "trial", "warns"} {
		for _, kind := range []detectors.Kind{detectors.KindNear, detectors.KindCandidate} {
			b.sent(&detectors.Hit{Kind: kind, Rule: rule, Phase: detectors.PhaseOpen})
		}
		b.rules.add(rule, &detectors.RuleEvents{NearLeftOut: 3})
	}
	got := slices.DeleteFunc(b.shown("weir_detect_hits", "weir_detect_near"), func(line string) bool {
		return !strings.Contains(line, "near") && !strings.Contains(line, "candidate")
	})
	b.expect(got,
		"detect_hits_total kind=candidate phase=closed rule=trial 0", "detect_hits_total kind=candidate phase=merged rule=trial 0",
		"detect_hits_total kind=candidate phase=open rule=trial 1", "detect_hits_total kind=candidate phase=update rule=trial 0",
		"detect_hits_total kind=near phase=closed rule=warns 0", "detect_hits_total kind=near phase=merged rule=warns 0",
		"detect_hits_total kind=near phase=open rule=warns 1", "detect_near_left_out_total rule=warns 3")
}
