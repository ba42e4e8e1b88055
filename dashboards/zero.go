package dashboards

import (
	"fmt"
	"regexp"
	"strings"
)

// metricName finds the first metric of weir in an expression.
var metricName = regexp.MustCompile(`weir_[a-z_]+`)

// witness is a metric that whoever exports the others of an expression always has: while there is none of it, nobody looks.
func witness(expr string) string {
	name := metricName.FindString(expr)
	for _, of := range []struct{ prefix, always string }{
		{"weir_gate_", "weir_blocklist_ready"},
		{"weir_blocklist_", "weir_blocklist_ready"},
		{"weir_route_", "weir_route_events_total"},
		{"weir_rule_uncounted_", "weir_route_events_total"},
		{"weir_detect_", "weir_detect_keys"},
		{"weir_enforce_", "weir_enforce_batch_seconds_count"},
		{"weir_blocks", "weir_enforce_batch_seconds_count"},
		{"weir_reconcile_", "weir_enforce_batch_seconds_count"},
	} {
		if strings.HasPrefix(name, of.prefix) {
			return of.always
		}
	}
	return "weir_stage_lag_records" // of every process that runs a stage
}

// zeroOf is 0 while Prometheus hears of those who would count an expression, and nothing otherwise: so a panel tells "it never happened" from
// "nobody looked". For a rate those are heard of whose rate could be had: more than one scrape lies in its window.
func zeroOf(expr string) string {
	heard := of(witness(expr))
	if strings.Contains(expr, "[$__rate_interval]") {
		heard = "delta(" + heard + "[$__rate_interval])"
	}
	return "0 * max (" + heard + ")"
}

// orZero is 0 for what counts nothing because it never happened. expr has no labels: beside one that has, it would be a series of its own.
func orZero(expr string) string { return "(" + expr + " or " + zeroOf(expr) + ")" }

// orNone is a series whose label says none for what by label counts nothing because it never happened.
func orNone(expr, label string) string {
	return fmt.Sprintf(`%s or %s unless on () (%s)`, expr, none(expr, label), expr)
}

func none(expr, label string) string {
	return fmt.Sprintf(`label_replace(%s, %q, "none", "", "")`, zeroOf(expr), label)
}

// happened counts by labels how often a counter's selector rose, and shows those that did. Where none did in the whole time range, it is a
// series whose label says none.
func happened(by, selector, label string) string {
	return fmt.Sprintf(`%s > 0 or %s unless on () %s > 0`,
		perStep(by, selector), none(perStep(by, selector), label), sum("", "increase("+selector+"[$__range] @ end())"))
}

// total adds up expressions without labels of which some may find nothing.
func total(exprs ...string) string {
	var each []string
	for i, expr := range exprs {
		each = append(each, fmt.Sprintf(`label_replace(%s, "of", "%d", "", "")`, expr, i))
	}
	return sum("", strings.Join(each, " or "))
}
