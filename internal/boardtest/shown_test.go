package boardtest

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
)

// shown is what one query of a panel says at a moment.
type shown struct {
	legend string // as it is written, with its {{labels}}
	promql string
	series []series
}

// counters finds what a query counts over time, with the range in which it does.
var counters = regexp.MustCompile(`(increase|rate) ?\((\w+(?:\{[^}]*\})?)\[([^\]]+)\](?: @ end\(\))?\)`)

// exactly has a query count by the counters themselves over the span, at both ends of which they stand still: increase() and rate()
// would reckon beyond the scrapes, and miss what a series is born with.
func exactly(promql string, s span) string {
	length := s.to.Sub(s.from)
	return counters.ReplaceAllStringFunc(promql, func(found string) string {
		parts := counters.FindStringSubmatch(found)
		counted := fmt.Sprintf("(%[1]s - (%[1]s offset %[2]dms or 0 * %[1]s))", parts[2], length.Milliseconds())
		if parts[1] == "rate" {
			counted = fmt.Sprintf("(%s / %g)", counted, length.Seconds())
		}
		return counted
	})
}

// show asks what a panel says of a span, with the variables chosen.
func (g *grafana) show(c *chosen, p *panel, s span) ([]shown, error) {
	var all []shown
	for _, q := range p.Targets {
		promql, err := c.expand(exactly(q.Expr, s), typePrometheus)
		if err != nil {
			return nil, err
		}
		found, err := g.prometheus.instant(promql, s.to)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", promql, err)
		}
		all = append(all, shown{q.LegendFormat, promql, found})
	}
	return all, nil
}

// wantRanges holds the ranges in which a panel counts against what it says: rates are by the step, increases of five minutes or of
// the time range, whichever it names.
func wantRanges(p *panel) error {
	const step, shown = "$__rate_interval", "$__range"
	want := map[string]string{"rate": step, "increase": shown}
	if strings.Contains(p.Description, "five minutes") {
		want["increase"] = "5m"
	}
	ofAll := false
	for _, q := range p.Targets {
		ofAll = ofAll || strings.Contains(q.Expr, "["+shown+"]") || strings.Contains(q.Expr, "["+shown+":") // or a subquery
		for _, m := range counters.FindAllStringSubmatch(q.Expr, -1) {
			if m[3] != want[m[1]] {
				return fmt.Errorf("%s counts in [%s], and by its description in [%s]", m[1], m[3], want[m[1]])
			}
		}
	}
	if strings.Contains(p.Description, "time range") && !ofAll {
		return errors.New("its description is about the time range, and no query is")
	}
	return nil
}

// value is what a series must say: no less than low, no more than high.
type value struct {
	labels    map[string]string
	low, high float64
}

// is a value that is known, of the labels given by pairs.
func is(n float64, labels ...string) value { return between(n, n, labels...) }

// between is a value that is known to lie within bounds.
func between(low, high float64, labels ...string) value {
	v := value{map[string]string{}, low, high}
	for pair := range slices.Chunk(labels, 2) {
		v.labels[pair[0]] = pair[1]
	}
	return v
}

func (v *value) text() string {
	if v.low == v.high {
		return fmt.Sprint(v.low)
	}
	return fmt.Sprintf("%v to %v", v.low, v.high)
}

// compare holds what is shown against what is true, and gives the number of values above 0 that are right. A series of 0 and no
// series say the same, but for a label that nothing has.
func compare(got []series, want []value) (right int, wrong []string) {
	left := slices.Clone(want)
	for _, s := range got {
		labels := maps.Clone(s.Metric)
		delete(labels, "__name__")
		at := slices.IndexFunc(left, func(v value) bool { return maps.Equal(v.labels, labels) })
		n := s.Value.value
		if at < 0 {
			if n != 0 {
				wrong = append(wrong, fmt.Sprintf("%v is %v, and nothing is known of it", labels, n))
			}
			continue
		}
		v := left[at]
		left = slices.Delete(left, at, at+1)
		slack := 1e-9 * max(1, math.Abs(n))
		if !(n >= v.low-slack && n <= v.high+slack) { // NaN is wrong
			wrong = append(wrong, fmt.Sprintf("%v is %v, want %s", labels, n, v.text()))
			continue
		}
		if n > 0 {
			right++
		}
	}
	for _, v := range left {
		if v.low > 0 {
			wrong = append(wrong, fmt.Sprintf("%v is not there, want %s", v.labels, v.text()))
		}
	}
	slices.SortFunc(wrong, cmp.Compare[string])
	return right, wrong
}
