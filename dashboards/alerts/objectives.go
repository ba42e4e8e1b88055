package alerts

import (
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

// objective is what clients and operators may count on, over objectivePeriod.
type objective struct {
	slo, burnAlert string
	budget         float64 // the share of events that may be bad
	errors, events string  // rates by namespace over five minutes
	bad, impact    string  // words of the alerts: what share is told, and what that means
}

const objectivePeriod = 30 * day

// blockWithin is the bound of the latency objective in seconds, one of the histogram's. Prometheus 3 writes it as 5.0.
const blockWithin = `le=~"5|5[.]0"`

// withheldLate are the blocks that were not written since they came too late: past max_lag, or past their own end. They have no latency.
const withheldLate = `sum by (namespace) (rate(weir_enforce_decisions_total{mode="block",action="withheld",reason=~"max_lag|expired"}[5m]))`

// blocksTimed are the blocks that have a latency. Each process that runs ENFORCE says how many, from its start.
const blocksTimed = "sum by (namespace) (rate(weir_event_to_block_seconds_count[5m]))"

// objectives are those of the installation. What the gates' availability cannot show is a gate that is down: WeirGateDown does.
func objectives() []objective {
	return []objective{
		{
			slo: "event_to_block", burnAlert: "WeirEventToBlockBudgetBurn", budget: 0.01,
			events: blocksTimed + "\n+ (" + withheldLate + " or 0 * " + blocksTimed + ")", // no rule, no decisions
			errors: blocksTimed + "\n" +
				"- sum by (namespace) (rate(weir_event_to_block_seconds_bucket{" + blockWithin + "}[5m]))\n" +
				"+ (" + withheldLate + " or 0 * " + blocksTimed + ")",
			bad:    "blocks came to Redis later than 5 seconds after the event, or not at all for coming too late",
			impact: "blocks come late or not at all",
		},
		{
			slo: "gate_availability", burnAlert: "WeirGateAvailabilityBudgetBurn", budget: 0.001,
			events: "sum by (namespace) (rate(weir_gate_decisions_total[5m]))",
			errors: `sum by (namespace) (rate(weir_gate_decisions_total{decision="fail_open"}[5m]))` + "\n" +
				"or 0 * sum by (namespace) (rate(weir_gate_decisions_total[5m]))", // no gate has failed yet
			bad:    "requests passed a gate unjudged",
			impact: "requests pass unjudged",
		},
	}
}

// Recorded series of the objectives, by namespace and slo.
const (
	sloTarget = "slo:weir_slo:objective_ratio"
	sloErrors = "namespace_slo:weir_slo_errors:rate5m"
	sloEvents = "namespace_slo:weir_slo_events:rate5m"
	sloRatio  = "namespace_slo:weir_slo_errors:ratio_rate" // and the window
	sloBudget = "namespace_slo:weir_slo_error_budget:remaining_ratio"
)

// rateWindow is that of the recorded rates.
const rateWindow = 5 * time.Minute

// shortEvery is how often the rates are recorded, so that each sample stands for so many seconds.
const shortEvery = time.Minute

// longEvery is how often ratios over a day and more are computed: they move slowly, and read many samples. Prometheus takes a sample
// for five minutes, within which one evaluation may be late.
const longEvery = 2 * time.Minute

// burn is a pair of windows of the SRE workbook's "multiwindow, multi-burn-rate alerts": the long one says that enough of the
// budget is gone to matter, the short one that it still goes.
type burn struct {
	long, short time.Duration
	rate        float64 // how many times too fast; 1 spends the budget in exactly the period
	severity    Severity
	hold        time.Duration
}

// burns spend 2 %, 5 %, 10 % and 10 % of the budget before they tell.
func burns() []burn {
	return []burn{
		{time.Hour, 5 * time.Minute, 14.4, Page, 2 * time.Minute},
		{6 * time.Hour, 30 * time.Minute, 6, Page, 5 * time.Minute},
		{day, 2 * time.Hour, 3, Ticket, 15 * time.Minute},
		{3 * day, 6 * time.Hour, 1, Ticket, 15 * time.Minute},
	}
}

// errorsLeast is how many bad events the long window must hold. With a few blocks an hour, one late block would be a share that
// spends the budget of days.
const errorsLeast = 5

// windows are all that the alerts compare, and the period, the shortest first.
func windows() []time.Duration {
	all := []time.Duration{objectivePeriod}
	for _, b := range burns() {
		all = append(all, b.long, b.short)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// ratio is the recorded share of bad events within a window.
func ratio(window time.Duration) string { return sloRatio + duration.Format(window) }

func (o objective) labels() map[string]string { return map[string]string{"slo": o.slo} }

// shortObjectiveRecords are the rates that everything else is made of, and the ratios of less than a day.
func shortObjectiveRecords() []Rule {
	var all []Rule
	for _, o := range objectives() {
		all = append(all,
			Rule{Record: sloTarget, Expr: "vector(" + number(1-o.budget) + ")", Labels: o.labels()},
			Rule{Record: sloErrors, Expr: o.errors, Labels: o.labels()},
			Rule{Record: sloEvents, Expr: o.events, Labels: o.labels()})
	}
	return append(all, ratioRecords(func(w time.Duration) bool { return w < day })...)
}

// longObjectiveRecords are the ratios of a day and more, and what is left of the budgets.
func longObjectiveRecords() []Rule {
	return append(ratioRecords(func(w time.Duration) bool { return w >= day }), Rule{
		Record: sloBudget,
		Expr:   fmt.Sprintf("1 - %s / on (slo) group_left () (1 - %s)", ratio(objectivePeriod), sloTarget),
	})
}

// ratioRecords average the recorded rates, which costs the same for any number of gates and processes. The share of a window
// without any event is not a number, and so nothing that could be above a threshold.
func ratioRecords(take func(time.Duration) bool) []Rule {
	var all []Rule
	for _, w := range windows() {
		if !take(w) {
			continue
		}
		expr := fmt.Sprintf("avg_over_time(%s[%s]) / avg_over_time(%s[%s])", sloErrors, duration.Format(w), sloEvents, duration.Format(w))
		if w == rateWindow {
			expr = sloErrors + " / " + sloEvents
		}
		all = append(all, Rule{Record: ratio(w), Expr: expr})
	}
	return all
}

// burnAlerts are an alert for each objective and pair of windows.
func burnAlerts() []alert {
	var all []alert
	for _, o := range objectives() {
		for _, b := range burns() {
			long := duration.Format(b.long)
			threshold := number(b.rate) + " * " + number(o.budget)
			of := fmt.Sprintf(`{slo="%s"}`, o.slo)
			all = append(all, alert{
				name: o.burnAlert, severity: b.severity, hold: b.hold, labels: map[string]string{"window": long},
				expr: fmt.Sprintf("%s%s > %s\nand %s%s > %s\nand sum_over_time(%s%s[%s]) * %s >= %s\nand %s%s offset %s",
					ratio(b.long), of, threshold, ratio(b.short), of, threshold, sloErrors, of, long, seconds(shortEvery), number(errorsLeast),
					sloEvents, of, duration.Format(b.short)), // a window that has just begun says nothing
				summary: fmt.Sprintf("{{ $labels.namespace }}: %s, at %s times the pace that 30 days allow", o.impact, number(b.rate)),
				detail:  fmt.Sprintf("Within %s, {{ $value | humanizePercentage }} of %s; %s %% may.", long, o.bad, number(100*o.budget)),
			})
		}
	}
	return all
}
