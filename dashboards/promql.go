package dashboards

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/dashboards/alerts"
)

// of picks a metric of the installations chosen, of their live streams; more are further matchers.
func of(metric string, more ...string) string {
	matchers := inNamespace
	if ofReplays(metric) && !slices.Contains(more, liveStream) {
		matchers += ", " + liveStream
	}
	for _, m := range more {
		matchers += ", " + m
	}
	return metric + "{" + matchers + "}"
}

// liveStream leaves out replays, which are behind the clock by design.
const liveStream = `stream="live"`

// ofReplays reports whether a replay exports the metric, too, when Prometheus scrapes it. Which process there is, somebody may want to
// see of a replay as well.
func ofReplays(metric string) bool {
	return slices.ContainsFunc([]string{
		"weir_route_", "weir_detect_", "weir_stage_", "weir_rule_uncounted_", "weir_dead_letters_", "weir_kafka_", "weir_history_rows_",
	}, func(prefix string) bool { return strings.HasPrefix(metric, prefix) })
}

// rate is a counter's increase a second, summed; by are the labels that stay.
func rate(by, metric string, more ...string) string {
	return sum(by, "rate("+of(metric, more...)+"[$__rate_interval])")
}

// perStep is by how much a counter's selector rose in each step of a graph, summed. A window of $__rate_interval is longer than a step, so that
// it sees the rise from one scrape to the next; increase over it would put the same event into several steps.
func perStep(by, selector string) string {
	return sum(by, "rate("+selector+"[$__rate_interval])") + " * $__interval_ms / 1000"
}

// inRange is a counter's increase over the whole time range shown, summed.
func inRange(by, metric string, more ...string) string {
	return sum(by, "increase("+of(metric, more...)+"[$__range])")
}

// risen are the rates by labels of those that rose in the time range shown: of counters that begin at 0 for all that may ever happen, most do
// not. They are chosen once, at its end, so that none has gaps.
func risen(by, metric string, more ...string) string {
	return rate(by, metric, more...) + " and on (" + by + ") " + sum(by, "increase("+of(metric, more...)+"[$__range] @ end())") + " > 0"
}

// busiest are the rates of the ten rules that counted most in the time range shown. They are chosen once, at its end: chosen anew at each
// point, rules of equal rates come and go.
func busiest(metric string, more ...string) string {
	const each = "namespace, rule"
	return rate(each, metric, more...) + " and on (" + each + ") topk (10, " + sum(each, "increase("+of(metric, more...)+"[$__range] @ end())") + " > 0)"
}

func sum(by, expr string) string { return aggregate("sum", by, expr) }

func worst(by, metric string, more ...string) string {
	return aggregate("max", by, of(metric, more...))
}

// ofPartitions is a metric of a stage, once for each of its partitions. Who was cut off from Kafka shows a partition as it was, beside its new
// owner, and ever older: so the least is true.
func ofPartitions(metric string) string {
	return aggregate("min", "namespace, stage, partition", of(metric))
}

// stopped are the partitions of stages that have stopped, once each. Who was cut off from Kafka says so of none.
func stopped() string {
	return aggregate("max", "namespace, stage, partition", of("weir_stage_partition_halted"))
}

func aggregate(with, by, expr string) string {
	if by == "" {
		return with + " (" + expr + ")"
	}
	return with + " by (" + by + ") (" + expr + ")"
}

// eachRule is 1 for each rule chosen, with its labels namespace, owner and mode, for joins.
func eachRule() string { return alerts.RuleInfo(ofRules) }

// eachRuleIn is eachRule for those in a mode.
func eachRuleIn(mode string) string {
	return "(" + eachRule() + ` and on (namespace, rule, mode) weir_rule_info{` + ofRules + `, ` + ofMode(mode) + `})`
}

// ofMode selects what is of rules in a mode. A canary blocks people, so it is among those that block.
func ofMode(mode string) string {
	if mode == "block" {
		return `mode=~"block|canary"`
	}
	return `mode="` + mode + `"`
}

// processesGone counts processes that Prometheus heard of less than ten minutes ago, and does not hear of now.
func processesGone(title, which string) panel {
	heard := of(which, liveStream)
	gone := "count (count by (job, instance) (count_over_time(" + heard + "[10m])) unless on (job, instance) " + heard + ")"
	return stat(title, "Those that Prometheus heard of less than ten minutes ago, and does not now: they ended, or go on under another name. What they would tell is missing here.", unitCount,
		prom("("+gone+" or 0 * count ("+heard+"))", "gone")).thresholds(step{1, colourBad})
}

// quantile of a histogram, over all processes.
func quantile(q float64, metric string) string {
	return fmt.Sprintf("histogram_quantile(%g, %s)", q, rate("le", metric+"_bucket"))
}

// ofProcess limits a metric of the Go client to processes of weir, as theirs has no namespace.
func ofProcess(expr string) string {
	return expr + " and on (job, instance) " + of("weir_build_info")
}
