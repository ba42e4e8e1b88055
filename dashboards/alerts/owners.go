package alerts

import (
	"fmt"
	"time"
)

// Recorded series, most of them by rule, which alerts and dashboards share.
const (
	ruleInfo       = "namespace_rule:weir_rule_info:topk1"
	eventsRead     = "namespace:weir_route_events:increase15m"
	episodesBegun  = "namespace_rule:weir_detect_episodes:increase15m"
	blocksWritten  = "namespace_rule:weir_enforce_blocks_written:increase1h"
	refusalsShare  = "namespace_rule:weir_gate_refusals:ratio_rate15m"
	matched        = "namespace_rule:weir_route_rule_events_matched:increase30m"
	historyBytes   = "namespace:weir_history_size_bytes:sum"
	writtenMean    = "namespace_rule:weir_enforce_blocks_written:avg1w"
	writtenHighest = "namespace_rule:weir_enforce_blocks_written:max_usual"
	writtenLowest  = "namespace_rule:weir_enforce_blocks_written:min_usual"
)

// records are the recording rules, but for those of the objectives.
func records() []Rule {
	// The hour is left out of the week that it is compared with.
	lastWeek := blocksWritten + " offset 1w"
	return []Rule{
		{Record: ruleInfo, Expr: RuleInfo("")},
		{Record: eventsRead, Expr: fmt.Sprintf(`sum by (namespace) (increase(weir_route_events_total{%s}[15m]))`, live)},
		{Record: episodesBegun, Expr: fmt.Sprintf(`sum by (namespace, rule) (increase(weir_detect_episodes_total{%s}[15m]))`, live)},
		// Only while the rule blocks: hours in shadow, without a block, are no part of its usual, nor are those of a canary, whose blocks grow
		// with each of its steps.
		{Record: blocksWritten, Expr: `sum by (namespace, rule) (increase(weir_enforce_decisions_total{mode="block",action="written"}[1h]))` + "\n" +
			"and on (namespace, rule) " + ruleInfo + `{mode="block"}`},
		{Record: writtenMean, Expr: fmt.Sprintf("avg_over_time(%s[1w] offset 1h)", blocksWritten)},
		// Where a rule is younger than a week, its mean stands alone.
		{Record: writtenHighest, Expr: fmt.Sprintf("%s >= %s\nor %s\nor %s", writtenMean, lastWeek, lastWeek, writtenMean)},
		{Record: writtenLowest, Expr: fmt.Sprintf("%s <= %s\nor %s\nor %s", writtenMean, lastWeek, lastWeek, writtenMean)},
		{Record: refusalsShare, Expr: `sum by (namespace, rule) (rate(weir_gate_decisions_total{decision="refuse"}[15m]))` + "\n" +
			"/ on (namespace) group_left () sum by (namespace) (rate(weir_gate_decisions_total[15m]))"},
		{Record: matched, Expr: fmt.Sprintf(`sum by (namespace, rule) (increase(weir_route_rule_events_total{%s,outcome="matched"}[30m]))`, live)},
		// Each process tells of the same tables. Snapshots are bounded by the budget, and come with the first traffic.
		{Record: historyBytes, Expr: `sum by (namespace) (max by (namespace, table) (weir_history_size_bytes{table!~"checkpoints|checkpoint_pieces"}))`},
	}
}

// ofOwner joins an expression by rule with whose rule it is, and in which mode. Rules of other modes drop out.
func ofOwner(expr, modes string) string {
	return fmt.Sprintf("(%s)\n* on (namespace, rule) group_left (owner, mode) %s{mode=~\"%s\"}", expr, ruleInfo, modes)
}

// blockedADayAgo keeps rules that blocked a day ago: one that was promoted since has no usual.
func blockedADayAgo() string {
	return fmt.Sprintf("and on (namespace, rule) %s{mode=\"block\"} offset 1d", ruleInfo)
}

// ownerAlerts tell the owners of rules what only they can judge. The label owner says who it is.
func ownerAlerts() []alert {
	return []alert{
		{
			name: "WeirShadowRuleFires", severity: Owner,
			// It rings for the first hour; what has rung in the day before is known.
			expr:    ofOwner(fmt.Sprintf("%s > 0\nunless on (namespace, rule) max_over_time(%s[1d] offset 1h) > 0", episodesBegun, episodesBegun), "shadow"),
			summary: "Rule {{ $labels.rule }}, in shadow, begins to fire",
			detail:  "{{ $value | humanize }} episodes of {{ $labels.rule }} began within 15 minutes, the first ones in a day. It is in shadow, so nobody is blocked.",
		},
		{
			name: "WeirBlockRateHigh", severity: Owner, hold: 15 * time.Minute,
			expr: ofOwner(fmt.Sprintf("%s / clamp_min(%s, 1) > %s\nand %s >= %s\n%s", blocksWritten, writtenHighest, number(unusualFactor),
				blocksWritten, number(unusualLeast), blockedADayAgo()), "block"),
			summary: "Rule {{ $labels.rule }} blocks {{ $value | humanize }} times as much as usual",
			detail:  "In the last hour {{ $labels.rule }} wrote {{ $value | humanize }} times as many blocks as in its usual hour of the week, and as in the same hour a week ago.",
		},
		{
			name: "WeirBlockRateLow", severity: Owner, hold: time.Hour,
			// While nothing is counted at all, it is not the rule, and operators know.
			expr: ofOwner(fmt.Sprintf("%s / %s < 1 / %s\nand %s >= %s\n%s\nand on (namespace) sum by (namespace) (increase(weir_detect_events_total{%s}[1h])) > 0",
				blocksWritten, writtenLowest, number(unusualFactor), writtenLowest, number(unusualLeast), blockedADayAgo(), live), "block"),
			summary: "Rule {{ $labels.rule }} blocks less than a fifth of its usual",
			detail:  "In the last hour {{ $labels.rule }} wrote {{ $value | humanizePercentage }} of the blocks of its usual hour of the week, and of the same hour a week ago.",
		},
		{
			name: "WeirRefusalShareHigh", severity: Owner, hold: 10 * time.Minute,
			expr: ofOwner(fmt.Sprintf("%s > %s\n"+`and sum by (namespace, rule) (increase(weir_gate_decisions_total{decision="refuse"}[15m])) >= %s`,
				refusalsShare, number(refusalsMost), number(refusalsLeast)), "block|canary"),
			summary: "Rule {{ $labels.rule }} refuses {{ $value | humanizePercentage }} of all requests",
			detail:  "For 15 minutes the gates of {{ $labels.namespace }} have refused {{ $value | humanizePercentage }} of all requests for blocks of {{ $labels.rule }}.",
		},
		{
			name: "WeirRuleMatchesNothing", severity: Owner, hold: 15 * time.Minute,
			expr: fmt.Sprintf("%s{mode!=\"disabled\"}\n"+
				`unless on (namespace, rule) sum by (namespace, rule) (increase(weir_route_rule_events_total{%s,outcome="matched"}[1d])) > 0`+"\n"+
				"and on (namespace, rule) %s{mode!=\"disabled\"} offset 1d\n"+
				"and on (namespace) sum by (namespace) (increase(weir_route_events_total{%s}[1d])) > %s", ruleInfo, live, ruleInfo, live, number(trafficLeast)),
			summary: "Rule {{ $labels.rule }} has matched no request for a day",
			detail:  "ROUTE of {{ $labels.namespace }} read requests all day, and none was one that {{ $labels.rule }} watches. Its method or path may not exist any more.",
		},
		{
			name: "WeirRuleKeyMissing", severity: Owner, hold: 15 * time.Minute,
			expr:    ofOwner(uncountedShare("missing_field|missing_value", missingMost), "shadow|canary|block"),
			summary: "Rule {{ $labels.rule }} leaves out {{ $value | humanizePercentage }} of its requests",
			detail:  "{{ $value | humanizePercentage }} of the requests that {{ $labels.rule }} watches lack a field of its key, or what it counts. They feed no window.",
		},
		{
			name: "WeirRuleEventsLate", severity: Owner, hold: 15 * time.Minute,
			expr:    ofOwner(uncountedShare("late|out_of_order", lateMost), "shadow|canary|block"),
			summary: "Rule {{ $labels.rule }} gets {{ $value | humanizePercentage }} of its requests too late",
			detail:  "{{ $value | humanizePercentage }} of the requests that {{ $labels.rule }} watches come later than its lateness allows. They feed no window.",
		},
	}
}

// uncountedShare is which share of a rule's requests was left out for one of the reasons, where it is more than most.
func uncountedShare(reasons string, most float64) string {
	return fmt.Sprintf("sum by (namespace, rule) (increase(weir_rule_uncounted_events_total{%s,reason=~\"%s\"}[30m]))\n/ %s > %s\nand %s >= %s",
		live, reasons, matched, number(most), matched, number(matchedLeast))
}
