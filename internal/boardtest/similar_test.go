package boardtest

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// aside finds what a query says where nothing is, and which of many it shows.
var aside = regexp.MustCompile(` or 0 \* \w+ (?:by \([^)]*\) )?\((?:rate ?\()?[^)]*\)\)?| or label_replace\(.*$| and on \(.*$| > 0 or .*$`)

// similar are queries that differ from one in a single thing that somebody may get wrong: how it sums up, over what time, of which
// labels, and what it asks at all.
func similar(promql string) (all []string) {
	left := aside.FindAllStringIndex(promql, -1)
	put := func(from, to int, with string) {
		said := func(span []int) bool { return from >= span[0] && from < span[1] }
		if promql[from:to] != with && !slices.ContainsFunc(left, said) {
			all = append(all, promql[:from]+with+promql[to:])
		}
	}
	exchange := func(pattern string, with ...string) {
		for _, at := range regexp.MustCompile(pattern).FindAllStringSubmatchIndex(promql, -1) {
			for _, w := range with {
				put(at[2], at[3], w)
			}
		}
	}
	// Those have one series each: an installation that is well has one owner of a partition.
	single := []string{"by (instance", "sum by (partition)", "by (namespace, stage, partition)", "min by (namespace, partition)"}
	if !slices.ContainsFunc(single, func(by string) bool { return strings.Contains(promql, by) }) {
		exchange(`\b(sum|max|min) ?(?:by ?)?\(`, "sum", "max", "min")
	}
	exchange(`\b(rate|increase) ?\(`, "rate", "increase")
	exchange(`\[(5m|\$__range|\$__rate_interval)\]`, "5m", "$__range", "$__rate_interval")
	exchange(`histogram_quantile\(([0-9.]+)`, "0.5", "0.9", "0.99")
	exchange(`(?:decision|mode|action|stage|kind|slo|phase)(=|=~)"\w`, "!=", "!~")
	for _, at := range regexp.MustCompile(`, ?(?:decision|mode|action|stage|kind|slo|phase|stream)=~?"[^"]*"`).FindAllStringIndex(promql, -1) {
		if !strings.Contains(promql, "by (namespace, stage, partition)") { // no replay runs here: dashboards' own tests have one
			put(at[0], at[1], "")
		}
	}
	for _, at := range regexp.MustCompile(`\bweir_\w+`).FindAllStringIndex(promql, -1) {
		name := promql[at[0]:at[1]]
		for _, group := range alike {
			if !slices.Contains(group, name) {
				continue
			}
			for _, other := range group {
				put(at[0], at[1], other)
			}
		}
	}
	return all
}

// alike are metrics that are easily taken for each other.
var alike = [][]string{
	{"weir_build_info", "weir_blocklist_ready"},
	{"weir_route_events_total", "weir_route_records_total", "weir_detect_events_total", "weir_stage_records_total"},
	{"weir_route_unmatched_total", "weir_route_keyless_total", "weir_route_own_refusals_total"},
	{"weir_stage_partition_halted", "weir_stage_stranded_partition", "weir_route_partition_refused"},
	{"weir_blocks", "weir_blocklist_blocks", "weir_detect_open_episodes"},
	{"weir_blocklist_staleness_seconds", "weir_blocklist_behind_seconds"},
	{"weir_detect_watermark_delay_seconds", "weir_detect_skew_seconds", "weir_stage_lag_seconds", "weir_detect_snapshot_age_seconds"},
	{"weir_event_to_block_seconds_bucket", "weir_enforce_batch_seconds_bucket", "weir_stage_apply_seconds_bucket"},
	{"weir_rule_uncounted_events_total", "weir_route_rule_key_missing_total", "weir_route_rule_value_missing_total", "weir_route_rule_condition_errors_total", "weir_route_rule_tier_errors_total", "weir_route_allowed_events_total", "weir_route_rule_events_total", "weir_detect_rule_events_total"},
	{"weir_reconcile_failures_total", "weir_modes_failures_total", "weir_enforce_modes_fallback_total"},
	{"weir_kafka_fetch_errors_total", "weir_kafka_append_errors_total", "weir_kafka_commit_errors_total"},
	{"weir_redis_memory_bytes", "weir_redis_memory_max_bytes"},
	{"weir_detect_bytes", "weir_detect_budget_bytes"},
	{"weir_gate_no_address_total", "weir_gate_malformed_total", "weir_gate_missing_total"},
	{"weir_detect_hits_total", "weir_enforce_decisions_total", "weir_enforce_withheld_total", "weir_history_rows_recorded_total"},
}

// wantDifference tries queries that are similar to those of a panel. It gives their number and those that nothing here sees. A panel of
// which none is seen has no truth worth the name.
func (g *grafana) wantDifference(t *testing.T, place string, p *panel, scenes []scene) (tried int, unseen []string) {
	t.Helper()
	for i, q := range p.Targets {
		for _, promql := range similar(q.Expr) {
			other := *p
			other.Targets = slices.Clone(p.Targets)
			other.Targets[i].Expr = promql
			_, wrong := g.compareAll(&other, scenes)
			if slices.ContainsFunc(wrong, func(err error) bool { return strings.Contains(err.Error(), "parse error") }) {
				continue
			}
			if tried++; len(wrong) == 0 {
				unseen = append(unseen, place+" / "+q.LegendFormat+"\n\t"+promql)
			}
		}
	}
	if tried > 0 && len(unseen) == tried {
		t.Errorf("%s: it could as well ask %s", place, unseen[0])
	}
	return tried, unseen
}
