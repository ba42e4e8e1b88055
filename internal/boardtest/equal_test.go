package boardtest

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// counted is a number that history has, with what Prometheus would label it with.
type counted struct {
	labels map[string]string
	n      float64
}

// truths say for the metrics of the Over-limit review which rows of history they count. Each gives rule, owner, mode, action, reason
// and a number; what counts over time counts within the span.
func truths() map[string]string {
	const rule = `r.rule, r.owner, CASE r.mode WHEN 'off' THEN 'disabled' ELSE r.mode END`
	return map[string]string{
		"weir_build_info": `SELECT '', '', '', '', '', 0::bigint`, // no process is gone
		"weir_detect_episodes_total": `SELECT ` + rule + `, '', '', count(DISTINCT (h.lineage, h.subject, h.first)) FILTER (WHERE h.id IS NOT NULL) FROM {}.rules_v r
			LEFT JOIN {}.hits_v h ON h.rule = r.rule AND h.stream = 'live' AND h.first > $__timeFrom() AND h.first <= $__timeTo() GROUP BY 1, 2, 3`,
		"weir_detect_open_episodes": `SELECT ` + rule + `, '', '', count(DISTINCT (h.lineage, h.subject, h.first)) FILTER (WHERE h.id IS NOT NULL) FROM {}.rules_v r
			LEFT JOIN {}.hits_v h ON h.rule = r.rule AND h.stream = 'live' AND h.phase IN ('open', 'update') GROUP BY 1, 2, 3`,
		`weir_enforce_decisions_total block`: `SELECT ` + rule + `, d.action, d.reason, count(*) FROM {}.rules_v r
			JOIN {}.block_decisions_v d ON d.rule = r.rule AND d.stream = 'live' AND d.at > $__timeFrom() AND d.at <= $__timeTo() GROUP BY 1, 2, 3, 4, 5`,
		// In shadow nothing is decided that history could hold; nothing stands in the way of a block in this test.
		`weir_enforce_decisions_total shadow`: `SELECT ` + rule + `, 'would_write', '', count(*) FROM {}.rules_v r
			JOIN {}.hits_v h ON h.rule = r.rule AND h.stream = 'live' AND h.first > $__timeFrom() AND h.first <= $__timeTo()
			WHERE r.mode = 'shadow' GROUP BY 1, 2, 3`,
		`weir_blocks block`: `SELECT ` + rule + `, '', '', count(b.subject) FROM {}.rules_v r
			LEFT JOIN {}.blocks_v b ON b.rule = r.rule AND b.stream = 'live' GROUP BY 1, 2, 3`,
		`weir_blocks shadow`: `SELECT ` + rule + `, '', '', count(DISTINCT h.block_subject) FROM {}.rules_v r
			LEFT JOIN {}.hits_v h ON h.rule = r.rule AND h.stream = 'live' AND h.last + r.block_ttl > now() WHERE r.mode = 'shadow' GROUP BY 1, 2, 3`,
	}
}

// increases finds what a panel counts within its steps, and perStep what makes a count of it.
var increases = regexp.MustCompile(`rate\((weir_\w+\{[^}]*\})\[[^\]]*\]\)`)

// modes finds the modes of rules that a panel is about, the one first by whose name its truth goes: block stands for canary, too.
var modes = regexp.MustCompile(`mode=~?"(\w+)[^"]*"`)

const perStep = " * $__interval_ms / 1000"

// wantEqualCounts compares what Over-limit review shows of Prometheus with what history holds, from one scrape to another while the
// stream stands still. What is counted within steps is counted over the whole span, by the counters themselves: rate()
// would reckon beyond the scrapes.
func (g *grafana) wantEqualCounts(boards []*board, s span) {
	t := g.prometheus.t
	t.Helper()
	at := slices.IndexFunc(boards, func(b *board) bool { return b.UID == uidOverLimit })
	if at < 0 {
		t.Fatalf("there is no board %s", uidOverLimit)
	}
	c, err := g.choose(t.Context(), boards[at], s)
	if err != nil {
		t.Fatal(err)
	}
	history := g.history(c)
	compared := 0
	for _, q := range boards[at].questions() {
		if q.source != typePrometheus {
			continue
		}
		text := increases.ReplaceAllString(strings.ReplaceAll(q.text, perStep, ""), fmt.Sprintf("($1 - ($1 offset %dms or 0 * $1))", s.to.Sub(s.from).Milliseconds()))
		promql, err := c.expand(text, q.source)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := g.prometheus.instant(promql, s.to)
		if err != nil {
			t.Fatalf("%s: %v", promql, err)
		}
		mode := modes.FindStringSubmatch(promql)
		name := regexp.MustCompile(`weir_[a-z_]+`).FindString(promql)
		truth, known := history[name]
		if !known && mode != nil {
			truth, known = history[name+" "+mode[1]]
		}
		if !known {
			t.Errorf("%s: no SQL here counts what %s says", q.place, name)
			continue
		}
		if mode != nil {
			truth = slices.DeleteFunc(slices.Clone(truth), func(c counted) bool { return c.labels["mode"] != mode[1] }) // no rule is in canary here
		}
		compared += wantEqual(t, q.place, shown, truth)
	}
	t.Logf("%d numbers above 0 of %s are those of history", compared, uidOverLimit)
	if compared == 0 {
		t.Error("there was nothing to compare")
	}
}

// history counts the truths as who may read everything.
func (g *grafana) history(c *chosen) map[string][]counted {
	t := g.prometheus.t
	t.Helper()
	all := map[string][]counted{}
	for name, sql := range truths() {
		_, rows, err := g.rows(t.Context(), strings.ReplaceAll(sql, "{}", `"`+c.values["namespace"].values[0]+`"`), c.span)
		if err != nil {
			t.Fatal(err)
		}
		all[name] = []counted{}
		for _, row := range rows {
			labels := map[string]string{}
			for i, label := range []string{"rule", "owner", "mode", "action", "reason"} {
				labels[label], _ = row[i].(string)
			}
			n, isNumber := row[5].(int64)
			if !isNumber {
				t.Fatalf("%s counts %v", name, row[5])
			}
			all[name] = append(all[name], counted{labels, float64(n)})
		}
	}
	return all
}

// wantEqual compares each series with the rows of its labels, and all with all. It gives the number of series above 0.
func wantEqual(t *testing.T, place string, shown []series, truth []counted) (compared int) {
	t.Helper()
	var got, want float64
	for _, c := range truth {
		want += c.n
	}
	for _, s := range shown {
		var n float64
		for _, c := range truth {
			matching := true
			for label, value := range s.Metric {
				matching = matching && c.labels[label] == value
			}
			if matching {
				n += c.n
			}
		}
		if got += s.Value.value; math.Abs(s.Value.value-n) > 1e-6 {
			t.Errorf("%s %v: Prometheus has %v, history %v", place, s.Metric, s.Value.value, n)
		}
		if n > 0 {
			compared++
		}
	}
	if math.Abs(got-want) > 1e-6 {
		t.Errorf("%s: Prometheus has %v in all, history %v: %v", place, got, want, slices.Collect(maps.Values(byRule(truth))))
	}
	return compared
}

func byRule(truth []counted) map[string]string {
	out := map[string]string{}
	for _, c := range truth {
		out[c.labels["rule"]+c.labels["action"]+c.labels["reason"]] = fmt.Sprint(c.labels, c.n)
	}
	return out
}
