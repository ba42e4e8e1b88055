package dashboards_test

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Each SQL of each board is asked as weir_read, and answers; those of which the world below says what is true, answer that.
func TestSQLOfBoards(t *testing.T) {
	w := newWorld(t)
	conn := w.asReader(t)
	right, outcomes := w.right(), map[string]bool{}
	for _, b := range sqlBoards(t) {
		present, past := w.view(t, conn, b, 0), w.view(t, conn, b, day)
		for _, q := range b.queries {
			name := b.uid + "/" + q.name
			found := ask(t, conn, present.expand(t, q.text), name)
			if len(found) == 0 {
				t.Errorf("%s finds nothing", name)
				continue
			}
			for _, c := range q.columns {
				if _, there := found[0][c]; !there {
					t.Errorf("%s has no column %s, which the panel describes or links use", name, c)
				}
			}
			want, known := right[name]
			if !known {
				continue
			}
			delete(right, name)
			want.check(t, name, found, present)
			if !want.now {
				want.check(t, name+" of a day ago", ask(t, conn, past.expand(t, q.text), name), past)
			}
			for _, row := range found {
				if outcome, ok := row["outcome"].(string); ok {
					outcomes[outcome] = true
				}
			}
		}
	}
	for name := range right {
		t.Errorf("no panel %s", name)
	}
	for _, outcome := range []string{"held", "would be held", "would have been held", "no block is possible", "withheld: max_lag", "released", "was held",
		"would be withheld: never_block", "would be withheld: max_lag"} {
		if !outcomes[outcome] {
			t.Errorf("no source of this world is %s: the test is weaker than it looks", outcome)
		}
	}
}

// answer is what a panel must say: columns of its rows, and the rows as a naive count has them.
type answer struct {
	columns []string
	rows    func(g *grafana) []string
	total   bool // of a series over time, the sum is right
	now     bool // there is nothing of a day ago
}

func (a *answer) check(t *testing.T, name string, found []map[string]any, g *grafana) {
	t.Helper()
	got := lines(found, a.columns)
	if a.total {
		got = totals(found)
	}
	if want := a.rows(g); !slices.Equal(got, want) {
		t.Errorf("%s says\n%s\nand right is\n%s", name, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// totals sums up series.
func totals(found []map[string]any) []string {
	sums := map[string]float64{}
	for _, row := range found {
		metric, _ := row["metric"].(string)
		value, _ := row["value"].(float64)
		sums[metric] += value
	}
	var all []string
	for _, metric := range slices.Sorted(maps.Keys(sums)) {
		all = append(all, line(metric, sums[metric]))
	}
	return all
}

func ask(t *testing.T, conn *pgx.Conn, sql, what string) []map[string]any {
	t.Helper()
	rows, err := conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, sql)
	}
	found, err := pgx.CollectRows(rows, pgx.RowToMap)
	if err != nil {
		t.Fatalf("%s: %v\n%s", what, err, sql)
	}
	return found
}

// lines writes the columns of rows as text, in their order.
func lines(found []map[string]any, columns []string) []string {
	var all []string
	for _, row := range found {
		var cells []any
		for _, c := range columns {
			cells = append(cells, row[c])
		}
		all = append(all, line(cells...))
	}
	return all
}

func line(cells ...any) string {
	var b strings.Builder
	for _, c := range cells {
		switch v := c.(type) {
		case time.Time:
			c = v.UTC().Format(time.RFC3339Nano)
		case traffic.Time:
			c = v.Std().Format(time.RFC3339Nano)
		case pgtype.Numeric: // PostgreSQL's floor
			number, err := v.Float64Value()
			if err != nil {
				return err.Error()
			}
			c = int64(number.Float64)
		case nil:
			c = "-"
		}
		fmt.Fprintf(&b, "%v | ", c)
	}
	return b.String()
}

// right is what is true of the world, by board and title.
func (w *world) right() map[string]answer {
	say := func(columns string, rows func(g *grafana) []string) answer {
		return answer{columns: strings.Split(columns, ","), rows: rows}
	}
	once := func(columns string, cells ...any) answer {
		return answer{columns: strings.Split(columns, ","), now: true, rows: func(*grafana) []string { return []string{line(cells...)} }}
	}
	const sources = "rule,source,events over,episodes,peak,over since,last over,first in range,asked for,a block holds,blocks,outcome,until,id"
	return map[string]answer{
		"weir-overlimit/Rules, shadow beside blocking": say(
			"rule,owner,mode,limit,over now,sources,episodes,events over,would hold now,holds now,last over", w.ruleRows),
		"weir-overlimit/Top sources":          say(sources, w.sourceRows),
		"weir-rule/Top sources":               say(sources, w.sourceRows),
		"weir-rule/Mode":                      once("mode,version", "block", "version 1"),
		"weir-rule/Owner":                     once("owner", "identity"),
		"weir-rule/Limit":                     once("limit", 5),
		"weir-rule/Window and block":          once("window,block", 600, 1800),
		"weir-rule/Sources over limit":        say("time,sources", w.sourcesOverTime),
		"weir-rule/Changes of mode":           once("text,tags", "promote by ann: a week in shadow", "promote"),
		"weir-rule/Versions":                  once("text", "version 1 by ann: test"),
		"weir-rule/Not counted, from history": {total: true, rows: w.uncountedRows},
		"weir-history/Sources over limit":     say("value", w.totals(func(all []detectors.Hit) int { return len(distinct(all, subjectOf)) })),
		"weir-history/Events over":            say("value", w.totals(func(all []detectors.Hit) int { return int(events(all)) })),
		"weir-history/By rule":                say("rule,sources,episodes,events over,would refuse,refused", w.byRule),
		"weir-history/Refused, and would be":  say("refused,would be", w.refusedTotals),
		"weir-rule/Requests refused, and would have been": {total: true, rows: func(g *grafana) []string {
			if n := w.refusedIn(g, "login-burst"); n > 0 {
				return []string{line("refused by gates", n)}
			}
			return nil
		}},
		"weir-rule/False positives, at least": say("blocks released,refused requests known good", w.wrongly),
		"weir-history/Newest episodes":        say("rule,source,events over,over since,last over,a block holds", w.newest),
		"weir-history/Episodes":               say("value", w.totals(func(all []detectors.Hit) int { return len(all) })),
		"weir-history/Networks": say("value", w.totals(func(all []detectors.Hit) int {
			networks := distinct(all, networkOf)
			delete(networks, netip.Prefix{})
			return len(networks)
		})),
		"weir-history/By network":                say("network,sources,episodes", w.networkRows),
		"weir-history/Over-limit sources by day": say("time,metric,value", w.byDay),
		"weir-history/Repeat offenders":          say("source,episodes,days,rules,events over", w.repeaters),
		"weir-history/Longest episodes":          say("id,lasted", w.longest),
		"weir-history/Decisions by day":          say("time,metric,value", w.decisionsByDay),
	}
}

// refusedIn is what gates refused in the time range, of a rule; empty: of all.
func (w *world) refusedIn(g *grafana, rule string) (n int64) {
	for _, r := range w.refused {
		if (rule == "" || r.rule == rule) && !r.minute.Before(g.from) && !r.minute.After(g.to) {
			n += r.n
		}
	}
	return n
}

// wouldIn is what blocks alone would have refused, of the episodes that touch the time range.
func (w *world) wouldIn(g *grafana, rule string) (n int64) {
	rows := w.rows(g)
	for i := range rows {
		if rule == "" || rows[i].Rule == rule {
			n += rows[i].Refused
		}
	}
	return n
}

func (w *world) refusedTotals(g *grafana) []string {
	return []string{line(w.refusedIn(g, ""), w.wouldIn(g, ""))}
}

// wrongly are the false positives of the rule whose board is looked at.
func (w *world) wrongly(g *grafana) []string {
	const rule = "login-burst"
	type block struct {
		hit     string
		subject traffic.Subject
	}
	written, released := map[block]bool{}, map[block]bool{}
	for i := range w.decisions {
		switch d := &w.decisions[i]; {
		case d.Rule != rule:
		case d.Action == blocklist.ActionReleased:
			released[block{d.Hit, d.Subject}] = true
		case d.Action == blocklist.ActionWritten && !d.At.Std().Before(g.from) && !d.At.Std().After(g.to):
			written[block{d.Hit, d.Subject}] = true
		}
	}
	let := 0
	for b := range written {
		if released[b] {
			let++
		}
	}
	var good int64
	for _, r := range w.refused {
		if r.rule == rule && !r.minute.Before(g.from) && !r.minute.After(g.to) {
			good += r.good
		}
	}
	return []string{line(share(int64(let), int64(len(written))), share(good, w.refusedIn(g, rule)))}
}

// share is a part of a whole; nil: of nothing, or of what nobody judged.
func share(some, all int64) any {
	if all == 0 {
		return nil
	}
	return float64(some) / float64(all)
}

func (w *world) uncountedRows(g *grafana) []string {
	sums := map[string]int64{}
	for _, u := range w.uncounted {
		if !u.minute.Before(g.from) && !u.minute.After(g.to) {
			sums[u.reason] += u.events
		}
	}
	var rows []string
	for _, reason := range slices.Sorted(maps.Keys(sums)) {
		rows = append(rows, line(reason, float64(sums[reason])))
	}
	return rows
}

// rows are the rows about episodes that touch the time range, of the rules chosen; merged ones are none.
func (w *world) rows(g *grafana) []detectors.Hit {
	var all []detectors.Hit
	for i := range w.hits {
		h := &w.hits[i]
		if h.Phase != detectors.PhaseMerged && slices.Contains(g.variables["rule"], h.Rule) && h.Last >= traffic.At(g.from) && h.First <= traffic.At(g.to) {
			all = append(all, *h)
		}
	}
	return all
}

// run is what tells episodes apart. The world has one lineage of each rule.
type run struct {
	rule    string
	subject traffic.Subject
	first   traffic.Time
	closed  bool
}

func (w *world) runOf(h *detectors.Hit) run {
	first, retold := w.retold[h.ID]
	if !retold {
		first = h.First
	}
	return run{h.Rule, h.Subject, first, h.Phase == detectors.PhaseClosed}
}

// chosen are the episodes that rows are about.
func (w *world) chosen(g *grafana) []detectors.Hit {
	var all []detectors.Hit
	for _, rows := range group(w.rows(g), w.runOf) {
		h := rows[0]
		for i := range rows {
			h.First, h.Last = min(h.First, rows[i].First), max(h.Last, rows[i].Last)
			h.Count, h.Peak, h.ID = max(h.Count, rows[i].Count), max(h.Peak, rows[i].Peak), min(h.ID, rows[i].ID)
		}
		all = append(all, h)
	}
	slices.SortFunc(all, func(a, b detectors.Hit) int { return cmp.Compare(a.ID, b.ID) })
	return all
}

func group[K comparable](all []detectors.Hit, by func(h *detectors.Hit) K) map[K][]detectors.Hit {
	groups := map[K][]detectors.Hit{}
	for i := range all {
		groups[by(&all[i])] = append(groups[by(&all[i])], all[i])
	}
	return groups
}

func distinct[K comparable](all []detectors.Hit, by func(h *detectors.Hit) K) map[K]bool {
	found := map[K]bool{}
	for key := range group(all, by) {
		found[key] = true
	}
	return found
}

func subjectOf(h *detectors.Hit) traffic.Subject { return h.Subject }

func events(all []detectors.Hit) (sum int64) {
	for i := range all {
		sum += all[i].Count
	}
	return sum
}

func (w *world) document(rule string) *rules.Document {
	return &w.rules[slices.IndexFunc(w.rules, func(d rules.Document) bool { return d.ID == rule })]
}

// would is until when a block of h would hold, 0 where none is possible.
func (w *world) would(h *detectors.Hit) traffic.Time {
	switch {
	case h.Grouped || h.BlockSubject == "":
		return 0
	case w.document(h.Rule).Block.Extend == rules.ExtendOnHit:
		return h.Last.Add(ttl)
	}
	return h.First.Add(ttl)
}

// against is why no block of h would be written.
func (w *world) against(h *detectors.Hit) string {
	never := blocklist.NewNeverBlock(nil)
	lag := h.Seen.Sub(h.Last)
	if h.Phase == detectors.PhaseClosed {
		lag = seenFirst(h).Sub(h.Last)
	}
	parsed, err := blocklist.ParseSubject(h.BlockSubject) // some subjects of this world are not canonical
	switch {
	case err == nil && never.HoldsParsed(&parsed):
		return "never_block"
	case lag > w.document(h.Rule).MaxLag:
		return "max_lag"
	}
	return ""
}

// held are the blocks in force, with the time until when.
func (w *world) held(rule string) map[traffic.Subject]traffic.Time {
	standing := map[traffic.Subject]traffic.Time{}
	for _, d := range w.decisions {
		m := w.modes[d.Rule]
		acts := d.Action == blocklist.ActionWritten || d.Action == blocklist.ActionExtended
		if d.Rule != rule || m.Mode != rules.ModeBlock || d.Generation != m.Generation || !acts || d.Until <= traffic.At(w.now) {
			continue
		}
		released := slices.ContainsFunc(w.decisions, func(r blocklist.Decision) bool {
			return r.Action == blocklist.ActionReleased && r.Rule == d.Rule && r.Subject == d.Subject && r.Until > traffic.At(w.now) && (d.Since <= r.Since || d.Hit == r.Hit)
		})
		if !released {
			standing[d.Subject] = max(standing[d.Subject], d.Until)
		}
	}
	return standing
}

func (w *world) ruleRows(g *grafana) []string {
	type ruleRow struct {
		sources int
		rule    string
		line    string
	}
	var all []ruleRow
	ruleOf := func(h *detectors.Hit) string { return h.Rule }
	byRule, rowsOf := group(w.chosen(g), ruleOf), group(w.rows(g), ruleOf)
	for i := range w.rules {
		d := &w.rules[i]
		found := byRule[d.ID]
		mode := w.modes[d.ID].Mode
		over, would := map[traffic.Subject]bool{}, map[traffic.Subject]bool{}
		var last any
		for j := range rowsOf[d.ID] {
			h := &rowsOf[d.ID][j]
			if h.Phase != detectors.PhaseClosed && h.Last.Add(d.Window+d.UpdateEvery()+d.Lateness) > traffic.At(w.now) {
				over[h.Subject] = true
			}
			if mode == rules.ModeShadow && w.would(h) > traffic.At(w.now) && w.against(h) == "" {
				would[h.BlockSubject] = true
			}
			if known, ok := last.(traffic.Time); !ok || h.Last > known {
				last = h.Last
			}
		}
		n := len(distinct(found, subjectOf))
		all = append(all, ruleRow{n, d.ID, line(d.ID, d.Owner, mode, d.Limit, len(over), n, len(found), events(found), len(would), len(w.held(d.ID)), last)})
	}
	slices.SortFunc(all, func(a, b ruleRow) int { return cmp.Or(cmp.Compare(b.sources, a.sources), cmp.Compare(a.rule, b.rule)) })
	var rows []string
	for _, r := range all {
		rows = append(rows, r.line)
	}
	return rows
}

func readable(s traffic.Subject) string {
	text := strings.NewReplacer("%2F32", "", "%2F", "/", "%3A", ":", "%22", `"`, "%27", "'", "&", " ").Replace(string(s))
	if before, key, ok := strings.Cut(text, "api_key="); ok {
		text = before + "api_key=…" + key[len(key)-4:]
	}
	return text
}
