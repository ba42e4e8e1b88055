package boardtest

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// values are what a panel must say: by the legend of a query and the values of its labels, joined by commas in the
// order of their names.
type values map[string]map[string]float64

// one is the value of a query that has no labels.
func one(legend string, n float64) values { return values{legend: {"": n}} }

// deciding is a panel by which an operator, or the owner of a rule, decides, and what is true of it: on the
// installation, as others than Prometheus know it, and of the stage's numbers.
type deciding struct {
	live   func(f *facts) values
	less   string // finds something where the stage may rightly say less than live; empty: it never may
	rule   string // that is chosen at the top of the board; empty: all
	staged values
}

// panelsThatDecide are they, by board and title.
func panelsThatDecide() map[string]deciding {
	return map[string]deciding{
		"weir-pipeline / Events in": {
			live: func(f *facts) values { return one("events", f.count("requests", nil)) }, staged: one("events", 30000),
		},
		"weir-pipeline / Hits by phase": {
			live: func(f *facts) values {
				hits := func(r *told) bool { return r.Kind == "hit" }
				return values{"{{phase}}": f.by("hits", hits, func(r *told) string { return r.Phase })}
			},
			less:   again("detect"),
			staged: values{"{{phase}}": {"open": 240, "closed": 110}},
		},
		"weir-pipeline / Decisions": {
			live: func(f *facts) values {
				return values{"{{action}}": f.by("blocks", nil, func(r *told) string { return r.Action })}
			},
			less:   again("enforce"),
			staged: values{"{{action}}": {"withheld": 919 + 300, "written": 4000}},
		},
		"weir-pipeline / Not blocked, by reason": {staged: values{"{{reason}}": {"full": 919, "max_lag": 300}}},
		"weir-pipeline / Dead letters": {
			live:   func(f *facts) values { return one("dead letters", float64(4*f.load.rounds)) },
			staged: one("dead letters", 26),
		},
		"weir-pipeline / Oldest waiting": {
			live: func(*facts) values { return one("lag", 0) }, staged: one("lag", 6),
		},
		"weir-pipeline / Watermark delay":     {staged: one("delay", 63)},
		"weir-pipeline / Stopped partitions":  {staged: one("stopped", 3+2+3+2)},
		"weir-pipeline / Evictions by reason": {staged: values{"{{reason}}": {"few": 707, "offender": 80}}},
		"weir-pipeline / Processes gone":      {staged: one("gone", 2)},
		"weir-pipeline / Losses": {
			staged: values{"{{stage}}: deleted": {"record": 57, "enforce": 500}, "detect: told": {"": 606}},
		},
		"weir-pipeline / Event to block, p99": { // of 100 30 took up to 0.1 s, and all up to 0.2 s
			staged: one("p99", 0.1+0.1*69/70),
		},
		"weir-pipeline / Uncounted events by reason": {staged: values{"{{reason}}": {"late": 12, "missing_field": 6}}},
		"weir-rule / Not counted, by reason": {
			rule: shippedRule,
			live: func(f *facts) values {
				return values{"{{reason}}": {"late": float64(f.load.rounds), "missing_field": float64(2 * f.load.rounds)}}
			},
			staged: values{"{{reason}}": {"late": 12, "missing_field": 6}},
		},
		"weir-gate / Decisions": {
			live:   func(f *facts) values { return values{"{{decision}}": f.checks()} },
			staged: values{"{{decision}}": {"pass": 110, "fail_open": 11, "refuse": 30}},
		},
		"weir-gate / Refused": {
			live: func(f *facts) values { return one("refused", f.share("refuse")) }, staged: one("refused", 30./151),
		},
		"weir-gate / Passed unjudged": {
			live: func(f *facts) values { return one("fail_open", f.share("fail_open")) }, staged: one("fail_open", 11./151),
		},
		"weir-gate / Gates not ready": {
			live: func(*facts) values { return one("not ready", 1) }, staged: one("not ready", 1), // the blind one
		},
		"weir-gate / Gates that only observe": {
			live: func(*facts) values { return one("observing", 1) }, staged: one("observing", 2),
		},
		"weir-gate / Gates gone":   {staged: one("gone", 1)},
		"weir-gate / Stalest gate": {staged: one("staleness", 33)},
		"weir-overlimit / Blocks": {
			live: func(f *facts) values { return one("block", f.blocks) }, staged: one("block", 5),
		},
		"weir-overlimit / Would-be blocks": {
			live: func(f *facts) values {
				return one("shadow", f.number(`SELECT count(DISTINCT (r.rule, h.block_subject))
					FROM {}.rules_v r JOIN {}.hits_v h USING (rule)
					WHERE r.mode = 'shadow' AND h.stream = 'live' AND h.last + r.block_ttl > now()`))
			},
			// Of an episode that is over ENFORCE knows no more once it was given its partitions anew, and what comes later than
			// max_lag would have been withheld. Both come of a machine that stands still.
			less: again("enforce") +
				` or sum(weir_enforce_decisions_total{mode="shadow", action="would_withhold", reason="max_lag"}) > 0`,
			staged: one("shadow", 11),
		},
		"weir-overlimit / Over limit now, rules in shadow": {live: openEpisodes("shadow"), staged: one("shadow", 4)},
		"weir-overlimit / Over limit now, blocking rules":  {live: openEpisodes("block"), staged: one("block", 103)},
	}
}

// again finds something where a stage was given its partitions anew, as happens on a machine that stands still: what it
// had sent and did not hear of it sends once more, so that its topic has more records than it has counted.
func again(stage string) string {
	return `sum(weir_kafka_group_generations_total{group=~".*[.]` + stage + `"}) > 1`
}

// openEpisodes counts those that history knows of rules in a mode.
func openEpisodes(mode string) func(f *facts) values {
	return func(f *facts) values {
		return one(mode, f.number(`SELECT count(DISTINCT (h.lineage, h.subject, h.first))
			FROM {}.rules_v r JOIN {}.hits_v h USING (rule)
			WHERE r.mode = '`+mode+`' AND h.stream = 'live' AND h.phase IN ('open', 'update')`))
	}
}

// decided is a panel with what is true of it.
type decided struct {
	board *board
	panel panel
	truth deciding
}

// decidingPanels finds those that are wanted, by place.
func decidingPanels(t *testing.T, boards []*board, wanted func(*deciding) bool) map[string]*decided {
	t.Helper()
	found, truths := map[string]*decided{}, panelsThatDecide()
	for _, b := range boards {
		for _, p := range b.all() {
			place := b.UID + " / " + p.Title
			if truth, ok := truths[place]; ok && wanted(&truth) {
				found[place] = &decided{b, p, truth}
			}
			delete(truths, place)
		}
	}
	for place := range truths {
		t.Errorf("there is no panel %s any more", place)
	}
	return found
}

// counters finds what a query counts over time.
var counters = regexp.MustCompile(`(?:increase|rate) ?\((\w+(?:\{[^}]*\})?)\[[^\]]+\](?: @ end\(\))?\)`)

// compare holds what a panel says of a namespace against what is true, since the processes began: counters stand
// for themselves, where rate() and increase() would reckon beyond the scrapes, and miss what a series is born with.
// A series of 0 and no series say the same.
func (g *grafana) compare(p *decided, namespace, rule string, s span, want values, less string) error {
	c := &chosen{span: s, values: map[string]choice{
		"namespace": {values: []string{namespace}, listed: true}, "rule": {all: ".+", listed: true},
	}}
	if rule != "" {
		c.values["rule"] = choice{values: []string{rule}, listed: true}
	}
	fewer, err := g.mayBeLess(less, s)
	if err != nil {
		return err
	}
	left := maps.Clone(want)
	var wrong []error
	for _, q := range p.panel.Targets {
		truth, known := left[q.LegendFormat]
		if !known {
			wrong = append(wrong, fmt.Errorf("%q: nothing here knows what it should say", q.LegendFormat))
			continue
		}
		delete(left, q.LegendFormat)
		promql, err := c.expand(counters.ReplaceAllString(q.Expr, "$1"), typePrometheus)
		if err != nil {
			return err
		}
		found, err := g.prometheus.instant(promql, s.to)
		if err != nil {
			return fmt.Errorf("%s: %w", promql, err)
		}
		if err := differ(found, truth, fewer); err != nil {
			wrong = append(wrong, fmt.Errorf("%q %w\n\t%s", q.LegendFormat, err, promql))
		}
	}
	for legend := range left {
		wrong = append(wrong, fmt.Errorf("%q is not asked any more", legend))
	}
	return errors.Join(wrong...)
}

// mayBeLess reports whether a query finds something, see deciding.less.
func (g *grafana) mayBeLess(query string, s span) (bool, error) {
	if query == "" {
		return false, nil
	}
	found, err := g.prometheus.instant(query, s.to)
	return len(found) > 0, err
}

// differ says where series are not what is true.
func differ(found []series, want map[string]float64, less bool) error {
	got := map[string]float64{}
	for i := range found {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(found[i].Metric)) {
			labels = append(labels, found[i].Metric[name])
		}
		key := strings.Join(labels, ",")
		if _, twice := got[key]; twice {
			return fmt.Errorf("says two things of %q", key)
		}
		got[key] = found[i].Value.value
	}
	var wrong []error
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if n := got[key]; !(math.Abs(n-want[key]) <= 1e-9*max(1, math.Abs(n)) || less && n < want[key]) { // NaN is wrong
			wrong = append(wrong, fmt.Errorf("%q is %v, want %v", key, n, want[key]))
		}
	}
	for key, n := range want {
		if _, there := got[key]; !there && n != 0 {
			wrong = append(wrong, fmt.Errorf("%q is not there, want %v", key, n))
		}
	}
	return errors.Join(wrong...)
}
