package dashboards_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

const day = 24 * time.Hour

func (w *world) totals(count func(all []detectors.Hit) int) func(g *grafana) []string {
	return func(g *grafana) []string { return []string{line(count(w.chosen(g)))} }
}

// addressOf is the zero Prefix of a source that is no address.
func addressOf(h *detectors.Hit) netip.Prefix {
	if !strings.HasPrefix(string(h.Subject), "ip=") {
		return netip.Prefix{}
	}
	text, _, _ := strings.Cut(strings.TrimPrefix(readable(h.Subject), "ip="), " ")
	if !strings.Contains(text, "/") {
		text += "/32"
	}
	return netip.MustParsePrefix(text)
}

func networkOf(h *detectors.Hit) netip.Prefix {
	ip := addressOf(h)
	if !ip.IsValid() {
		return ip
	}
	bits := 24
	if ip.Addr().Is6() {
		bits = 48
	}
	return netip.PrefixFrom(ip.Addr(), bits).Masked()
}

func (w *world) networkRows(g *grafana) []string {
	groups := group(w.chosen(g), networkOf)
	delete(groups, netip.Prefix{})
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b netip.Prefix) int {
		return cmp.Or(cmp.Compare(len(distinct(groups[b], subjectOf)), len(distinct(groups[a], subjectOf))), cmp.Compare(len(groups[b]), len(groups[a])),
			cmp.Compare(a.String(), b.String()))
	})
	var rows []string
	for _, k := range keys {
		rows = append(rows, line(k, len(distinct(groups[k], subjectOf)), len(groups[k])))
	}
	return rows[:min(100, len(rows))]
}

// sourcesOverTime counts for each minute the sources that were over in it.
func (w *world) sourcesOverTime(g *grafana) []string {
	found := w.chosen(g)
	var rows []string
	for at := g.from.Truncate(g.interval); at.Before(g.to); at = at.Add(g.interval) {
		var over []detectors.Hit
		for i := range found {
			if h := &found[i]; h.First < traffic.At(at.Add(g.interval)) && h.Last >= traffic.At(at) && h.Last >= traffic.At(g.from) {
				over = append(over, *h)
			}
		}
		if len(over) > 0 {
			rows = append(rows, line(at, len(distinct(over, subjectOf))))
		}
	}
	return rows
}

func (w *world) byDay(g *grafana) []string {
	var rows []string
	for at := g.from.Truncate(day); at.Before(g.to); at = at.Add(day) {
		byRule := map[string][]detectors.Hit{}
		for _, h := range w.chosen(g) {
			if h.First < traffic.At(at.Add(day)) && h.Last >= traffic.At(at) {
				byRule[h.Rule] = append(byRule[h.Rule], h)
			}
		}
		for _, rule := range slices.Sorted(maps.Keys(byRule)) {
			rows = append(rows, line(at, rule, len(distinct(byRule[rule], subjectOf))))
		}
	}
	return rows
}

func (w *world) decisionsByDay(g *grafana) []string {
	counts := map[string]int{}
	for _, d := range w.decisions {
		if d.At < traffic.At(g.from) || d.At > traffic.At(g.to) {
			continue
		}
		what := string(d.Action)
		if d.Action == blocklist.ActionWithheld {
			what += ": " + d.Reason
		}
		counts[fmt.Sprintf("%d | %s", d.At.Std().Truncate(day).Unix(), what)]++
	}
	var rows []string
	for _, key := range slices.Sorted(maps.Keys(counts)) {
		rows = append(rows, fmt.Sprintf("%s | %d | ", key, counts[key]))
	}
	return rows
}

func (w *world) repeaters(g *grafana) []string {
	type source struct {
		subject traffic.Subject
		rule    string
	}
	groups := group(w.chosen(g), func(h *detectors.Hit) source {
		if h.Subject == "" {
			return source{rule: h.Rule} // all that matches a rule is no source that another one knows
		}
		return source{subject: h.Subject}
	})
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b source) int {
		return cmp.Or(cmp.Compare(len(groups[b]), len(groups[a])), cmp.Compare(events(groups[b]), events(groups[a])), cmp.Compare(a.subject, b.subject))
	})
	var rows []string
	for _, k := range keys {
		found := groups[k]
		if len(found) < 2 || len(rows) == 100 {
			continue
		}
		days := distinct(found, func(h *detectors.Hit) time.Time { return h.First.Std().Truncate(day) })
		byRule := distinct(found, func(h *detectors.Hit) string { return h.Rule })
		rows = append(rows, line(cmp.Or(readable(k.subject), "all that matches"), len(found), len(days), len(byRule), events(found)))
	}
	return rows
}

func (w *world) longest(g *grafana) []string {
	found := w.chosen(g)
	slices.SortFunc(found, func(a, b detectors.Hit) int {
		return cmp.Or(cmp.Compare(b.Last-b.First, a.Last-a.First), cmp.Compare(a.ID, b.ID))
	})
	var rows []string
	for _, h := range found[:min(100, len(found))] {
		rows = append(rows, line(h.ID, float64(h.Last-h.First)/1e6))
	}
	return rows
}

func (w *world) byRule(g *grafana) []string {
	groups := group(w.chosen(g), func(h *detectors.Hit) string { return h.Rule })
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(distinct(groups[b], subjectOf)), len(distinct(groups[a], subjectOf))), cmp.Compare(a, b))
	})
	var rows []string
	for _, k := range keys {
		rows = append(rows, line(k, len(distinct(groups[k], subjectOf)), len(groups[k]), events(groups[k]),
			w.wouldIn(g, k), w.refusedIn(g, k)))
	}
	return rows
}

// newest are the newest episodes with whom their blocks would hold.
func (w *world) newest(g *grafana) []string {
	var found [][]detectors.Hit
	for _, rows := range group(w.rows(g), w.runOf) {
		slices.SortFunc(rows, func(a, b detectors.Hit) int { return cmp.Or(cmp.Compare(b.Last, a.Last), cmp.Compare(a.ID, b.ID)) })
		found = append(found, rows)
	}
	slices.SortFunc(found, func(a, b []detectors.Hit) int {
		return cmp.Or(cmp.Compare(b[0].Last, a[0].Last), cmp.Compare(a[0].ID, b[0].ID))
	})
	var lines []string
	for _, rows := range found[:min(200, len(found))] {
		h := rows[0]
		for i := range rows {
			h.First, h.Count = min(h.First, rows[i].First), max(h.Count, rows[i].Count)
		}
		lines = append(lines, line(h.Rule, cmp.Or(readable(h.Subject), "all that matches"), h.Count, h.First, h.Last, holds(rows)))
	}
	return lines
}
