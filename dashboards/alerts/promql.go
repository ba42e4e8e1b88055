package alerts

import (
	"fmt"
	"strconv"
	"time"

	"github.com/weirhq/weir/internal/duration"
)

const day = 24 * time.Hour

// live selects the live stream: a replay counts the past, ends by itself, and wakes nobody. What a replay cannot export needs none.
const live = `stream="live"`

// refreshed is how far an alert looks back for a counter that has grown. Shorter and one scrape that fails hides it.
const refreshed = 15 * time.Minute

// grown is by how much the counters of a selector have grown lately, summed by labels. Increase alone does not see a count that came
// with its series: all of it is growth where the process is young, which counts much before it is scraped, and where the target
// was reached before without the series. What an older process has counted before Prometheus knew it, or could reach it again, is none.
func grown(by, selector string) string {
	w := duration.Format(refreshed)
	return fmt.Sprintf("sum by (%s) (\n"+
		"  (%s and on (job, instance) time() - process_start_time_seconds < %s)\n"+
		"  or (%s unless %s offset %s and on (job, instance) up offset %s == 1)\n"+
		"  or increase(%s[%s])\n) > 0",
		by, selector, seconds(refreshed), selector, selector, w, w, selector, w)
}

// number writes a threshold as PromQL takes it.
func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// seconds writes a duration as a number of seconds.
func seconds(d time.Duration) string { return number(d.Seconds()) }

// RuleInfo is an expression of value 1 for each rule that the matchers select, with the labels namespace, rule, owner and mode. Processes
// disagree about a rule after a change, and for long where one cannot hear of it; a join with two owners of a rule would fail for all
// rules. So each rule is there once, as the process says that knows its newest change.
func RuleInfo(matchers string) string {
	if matchers != "" {
		matchers = "{" + matchers + "}"
	}
	info := "weir_rule_info" + matchers
	newest := "max by (namespace, rule, job, instance) (weir_rule_changed_timestamp_seconds" + matchers + ")"
	return "group by (namespace, rule, owner, mode) (topk by (namespace, rule) (1, max by (namespace, rule, owner, mode) (" +
		info + " * on (namespace, rule, job, instance) group_left () " + newest + " or " + info + ")))"
}
