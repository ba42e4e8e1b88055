package pages

import (
	"cmp"
	"html/template"
	"net/http"
	"slices"
	"strings"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
)

// overviewRunning is how many running episodes the overview lists.
const overviewRunning = 10

// overviewPage is what is over a limit now, what rules in shadow would block beside what promoted ones block, and what is wrong.
type overviewPage struct {
	Period   period
	Redis    string
	Cut      bool // Held is at least what is held
	Problems []console.Problem
	Lag      int64

	Running  []episodeView
	RunTotal explore.Total
	Held     int
	Would    int64
	Sources  int64
	About    bool // Sources is an estimate
	Episodes int64
	Chart    template.HTML

	Query, Owner, Mode string // filters
	Owners             []string
	Modes              []choice
	Sort               []option
	Shadow, Block      ruleColumn
	All                int    // rules without filters
	Write              bool   // the visitor may write rules here
	Command            string // that applies rules
	Ingest             string // that sends an event
}

// ruleColumn is the rules that block, or those that do not.
type ruleColumn struct {
	Name   string // of its list, for the script
	Title  string
	Holds  string // the heading of what its blocks do
	Busy   []ruleRow
	Quiet  []ruleRow // that found nothing in the period
	Rules  int
	Filter bool // filters are set
}

// ruleRow is one rule in a list.
type ruleRow struct {
	ID, Owner string
	Mode      string
	Canary    string // where its canary stands; empty: it is in none
	FellBack  string // why its canary fell back; empty: it did not
	Counts    string // what it counts, in short
	Running   int64
	Sources   int64
	About     bool // Sources is an estimate
	Events    int64
	Holds     int64
	Blockless bool // it names no block
	Pending   int  // the version that waits; 0: none
}

func (p *Pages) overview(w http.ResponseWriter, r *http.Request) error {
	ctx := r.Context()
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "1h")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &overviewPage{
		Write:  see.forms && access.MayAny(see.visit.Actor, access.Apply) == nil,
		Period: span, Redis: see.redis, Cut: see.cut, Query: q.Get("q"), Owner: q.Get("owner"), All: len(see.Rules),
		Command: p.o.Command + " rules apply -f rules/ --reason \"…\"", Ingest: `echo '{"v":1,"ip":"203.0.113.9","method":"POST","path":"/login","status":401}' | ` + p.o.Command + " ingest -",
	}
	if v.Mode, err = oneOf(q, "mode", "", "off", "shadow", "canary", "block"); err != nil {
		return err
	}
	v.Modes = choices(v.Mode, "block", "blocking", "canary", "canary", "shadow", "shadow", "off", "off")
	by, err := oneOf(q, "sort", "worst", "worst", "name")
	if err != nil {
		return err
	}
	for _, one := range []option{{Text: "Worst first", Href: "worst"}, {Text: "By name", Href: "name"}} {
		v.Sort = append(v.Sort, option{Text: one.Text, Href: with(r.URL, "sort", one.Href), Chosen: one.Href == by})
	}
	v.Problems, v.Lag = p.problems(see)
	all := explore.Filter{Since: span.Since, Until: span.end()}
	if v.Running, v.RunTotal, err = p.find.running(ctx, see, explore.Filter{Since: see.now.Add(-runningWithin)}, overviewRunning); err != nil {
		return err
	}
	found, err := p.find.allRules(ctx, all)
	if err != nil {
		return err
	}
	now, err := p.find.allRules(ctx, explore.Filter{Since: see.now.Add(-runningWithin), State: running})
	if err != nil {
		return err
	}
	would, err := p.find.wouldHold(ctx, see)
	if err != nil {
		return err
	}
	if v.Chart, err = p.find.overTime(ctx, all, &v.Period); err != nil {
		return err
	}
	rows := see.ruleRows(found, now, would)
	for i := range rows {
		v.Sources += found[rows[i].ID].Sources
		v.About = v.About || found[rows[i].ID].SourcesAbout
		v.Episodes += found[rows[i].ID].Episodes
		if blocks(rules.Mode(rows[i].Mode)) {
			v.Held += int(rows[i].Holds)
		} else {
			v.Would += rows[i].Holds
		}
	}
	v.columns(rows, by)
	v.Query, v.Owner = shown.Text(v.Query), shown.Text(v.Owner)
	return p.show(w, r, &shell{Name: "overview", Title: "Overview", Active: "overview", Live: span.Open, Body: v})
}

// blocks reports whether a rule of this mode refuses anybody.
func blocks(m rules.Mode) bool { return m != rules.ModeShadow && m != rules.ModeOff }

// problems are what is wrong, and how far all stages are behind.
func (p *Pages) problems(see *reading) ([]console.Problem, int64) {
	pulse := p.o.Pulse()
	var lag int64
	for _, s := range pulse.Stages {
		lag += s.Records
	}
	found := slices.Clone(access.Show(see.mask, pulse.Problems))
	if see.short && !slices.ContainsFunc(found, func(one console.Problem) bool { return one.Part == "Redis" }) {
		found = append(found, redisProblem(see))
	}
	return found, lag
}

// ruleRows are all rules, with what they found, what goes on now, and what would be held.
func (r *reading) ruleRows(found, now map[string]explore.GroupRow, would map[string]int64) []ruleRow {
	held := map[string]int64{}
	for name, b := range r.Blocks {
		if b.InForce {
			held[name.Rule]++
		}
	}
	var out []ruleRow
	for _, id := range r.ids() {
		rule := r.Rules[id]
		d := &rule.Newest.Version.Document
		row := ruleRow{
			ID: id, Owner: shown.Text(d.Owner), Mode: string(rule.Mode), Canary: canaryShort(rule),
			FellBack: r.line(rule.FellBack()), Running: now[id].Episodes, Sources: found[id].Sources,
			About: found[id].SourcesAbout, Events: found[id].Events,
			Holds: would[id], Blockless: d.Block == nil, Counts: shown.Count(d.Limit) + " in " + shown.Span(d.Window) + " per " + orElse(keyWords(d.Key), "all"),
		}
		if blocks(rule.Mode) {
			row.Holds = held[id]
		}
		if rule.Pending != nil {
			row.Pending = rule.Pending.Version.Number
		}
		out = append(out, row)
	}
	return out
}

// columns sorts rules into those that block and those that do not, busy and quiet ones.
func (v *overviewPage) columns(rows []ruleRow, by string) {
	v.Shadow = ruleColumn{Name: "shadow", Title: "Shadow", Holds: "Would hold"}
	v.Block = ruleColumn{Name: "block", Title: "Blocking", Holds: "Holds"}
	v.Shadow.Filter = v.Query != "" || v.Owner != "" || v.Mode != ""
	v.Block.Filter = v.Shadow.Filter
	owners := map[string]int64{}
	slices.SortStableFunc(rows, func(a, b ruleRow) int {
		if by == "name" {
			return natural(a.ID, b.ID)
		}
		return cmp.Or(cmp.Compare(b.Running, a.Running), cmp.Compare(b.Holds, a.Holds), cmp.Compare(b.Sources, a.Sources), cmp.Compare(b.Events, a.Events), natural(a.ID, b.ID))
	})
	for _, row := range rows {
		owners[row.Owner]++
		if v.Owner != "" && row.Owner != v.Owner || v.Mode != "" && row.Mode != v.Mode || !strings.Contains(row.ID+" "+row.Owner, strings.ToLower(v.Query)) {
			continue
		}
		c := &v.Shadow
		if blocks(rules.Mode(row.Mode)) {
			c = &v.Block
		}
		c.Rules++
		if row.Sources+row.Running+row.Holds > 0 || row.Pending > 0 {
			c.Busy = append(c.Busy, row)
		} else {
			c.Quiet = append(c.Quiet, row)
		}
	}
	v.Owners = sortedByCount(owners)
	slices.Sort(v.Owners)
}

// natural orders names with numbers in them as people do: rule-2 before rule-10.
func natural(a, b string) int {
	for a != "" && b != "" {
		na, nb := digits(a), digits(b)
		if na > 0 && nb > 0 {
			x, y := strings.TrimLeft(a[:na], "0"), strings.TrimLeft(b[:nb], "0")
			if c := cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(x, y)); c != 0 {
				return c
			}
			a, b = a[na:], b[nb:]
			continue
		}
		if a[0] != b[0] {
			return cmp.Compare(a[0], b[0])
		}
		a, b = a[1:], b[1:]
	}
	return cmp.Compare(len(a), len(b))
}

// digits is how many digits text begins with.
func digits(text string) int {
	n := 0
	for n < len(text) && text[n] >= '0' && text[n] <= '9' {
		n++
	}
	return n
}
