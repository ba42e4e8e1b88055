package pages

import (
	"encoding/json"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
)

const running = history.StateRunning

// byEpisode lists episodes one by one; all other groups sum them up.
const byEpisode = "episode"

// question is what the explorer's address asks.
type question struct {
	filter explore.Filter
	by     string
	order  explore.Order
	top    int
	span   period
	place  string // where the page before ended; empty: the first page
}

// explorePage is the answer to a question about history.
type explorePage struct {
	Period period
	Redis  string
	// The filters, as they were given.
	Rule, Owner, Mode, Source, Field, State, Kind, By, Order string
	Top                                                      int
	Rules, Owners                                            []string
	Groups, Orders, Fields, States, Kinds, Modes, Tops       []choice
	Total                                                    string
	LeftOut                                                  string // what history does not have
	What                                                     string // what Total counts
	Episodes                                                 []episodeView
	Rows                                                     []groupView
	Chart                                                    template.HTML
	Requests                                                 *requestsView
	Next, First                                              string
	CSV, JSON                                                string
	MayExport                                                bool
	Did                                                      string
	Views                                                    *viewsView
}

// exploring is the page of the explorer, and what it is saved as.
type exploring struct{ *Pages }

// choice is one of several values of a filter.
type choice struct {
	Value, Text string
	Chosen      bool
}

// groupView is one row of sums.
type groupView struct {
	topView
	At      string // of an hour or a day
	Sources int64
	About   bool   // Sources is an estimate
	Drill   string // the same question about this group alone
}

// asked reads the explorer's address.
func (p exploring) asked(r *http.Request, see *reading) (*question, error) {
	q := r.URL.Query()
	span, err := periodOf(r.URL, see.now, "24h")
	if err != nil {
		return nil, err
	}
	a := &question{span: span, filter: explore.Filter{
		Rule: q.Get("rule"), Owner: q.Get("owner"), Mode: rules.Mode(q.Get("mode")), Field: q.Get("field"), State: history.State(q.Get("state")),
		Kind: detectors.Kind(q.Get("kind")), Since: span.Since, Until: span.end(),
	}}
	if a.filter.Source, err = see.filterSource(q.Get("source")); err != nil {
		return nil, err
	}
	if a.by, err = oneOf(q, "by", string(explore.ByRule), byEpisode, string(explore.ByRule), string(explore.BySource), string(explore.ByHour), string(explore.ByDay)); err != nil {
		return nil, err
	}
	order, err := oneOf(q, "order", string(explore.ByEvents), "events", "episodes", "sources", "peak", "last")
	if err != nil {
		return nil, err
	}
	a.order = explore.Order(order)
	if a.top, err = number(q, "top", 50, 1, explore.MostLimit); err != nil {
		return nil, err
	}
	a.place, err = placeAsked(see, r.URL)
	return a, err
}

func choices(chosen string, pairs ...string) []choice {
	var out []choice
	for i := 0; i+1 < len(pairs); i += 2 {
		out = append(out, choice{Value: pairs[i], Text: pairs[i+1], Chosen: pairs[i] == chosen})
	}
	return out
}

func (p exploring) page(w http.ResponseWriter, r *http.Request) error {
	return p.render(w, r, http.StatusOK, nil)
}

// render writes the page; refused is the form of a view that could not be kept, with why.
func (p exploring) render(w http.ResponseWriter, r *http.Request, status int, refused *viewsView) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	a, err := p.asked(r, see)
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &explorePage{
		Period: a.span, Redis: see.redis, Rule: q.Get("rule"), Owner: q.Get("owner"), Mode: q.Get("mode"), Source: q.Get("source"), Field: q.Get("field"), State: q.Get("state"),
		Kind: q.Get("kind"), By: a.by, Order: string(a.order), Top: a.top, Rules: see.ids(), MayExport: see.may(access.Export, ""), Did: did(q),
	}
	if v.Views, err = p.views(r, see, refused); err != nil {
		return err
	}
	v.offer(see)
	if err := p.answer(r, see, a, v); err != nil {
		return err
	}
	if v.Chart, err = p.find.overTime(r.Context(), a.filter, &v.Period); err != nil {
		return err
	}
	if v.Requests, err = p.find.requests(r.Context(), a.filter, &v.Period); err != nil {
		return err
	}
	export := *r.URL
	export.Path = "/explore.csv"
	v.CSV = with(&export, "cursor", "", "did", "")
	export.Path = "/explore.json"
	v.JSON = with(&export, "cursor", "", "did", "")
	v.Source = shown.Text(v.Source)
	return p.write(w, r, status, &shell{Name: "explore", Title: "Explore", Active: "explore", Body: v})
}

// offer fills in what filters can be.
func (v *explorePage) offer(see *reading) {
	owners := map[string]int64{}
	for _, rule := range see.Rules {
		owners[shown.Text(rule.Newest.Version.Owner)]++
	}
	v.Owners = sortedByCount(owners)
	slices.Sort(v.Owners)
	v.Groups = choices(v.By, "rule", "rule", "source", "source", "hour", "hour", "day", "day", byEpisode, "nothing: each episode")
	v.Orders = choices(v.Order, "events", "most events", "episodes", "most episodes", "sources", "most sources", "peak", "highest peak", "last", "latest")
	v.Fields = choices(v.Field, "", "any", "ip", "ip", "device", "device", "user", "user", "api_key", "api_key", "session", "session")
	v.States = choices(v.State, "", "all", "running", "running", "closed", "ended")
	v.Kinds = choices(v.Kind, "", "over the limit", "near", "near the limit", "candidate", "over a limit on trial")
	v.Modes = choices(v.Mode, "", "any", "block", "blocking", "canary", "canary", "shadow", "shadow", "off", "off")
	for _, n := range []int{10, 20, 50, 100, 500, 1000} {
		v.Tops = append(v.Tops, choice{Value: strconv.Itoa(n), Text: strconv.Itoa(n), Chosen: n == v.Top})
	}
}

// answer asks history and fills in the rows.
func (p exploring) answer(r *http.Request, see *reading, a *question, v *explorePage) error {
	page := explore.Page{Limit: a.top, Cursor: a.place}
	next := ""
	if a.by == byEpisode {
		found, err := p.o.Explorer.Hits(r.Context(), a.filter, page)
		if err != nil {
			return err
		}
		v.Episodes, v.Total, v.What, next = see.episodes(found.Hits), total(found.Total), "episodes", found.Next
		v.LeftOut = leftOut(&a.filter, found.LeftOut)
	} else {
		found, err := p.o.Explorer.Groups(r.Context(), a.filter, explore.Group(a.by), a.order, page)
		if err != nil {
			return err
		}
		v.Total, v.What, next = total(found.Total), a.by+"s", found.Next
		v.LeftOut = leftOut(&a.filter, found.LeftOut)
		for i := range found.Rows {
			v.Rows = append(v.Rows, see.group(r.URL, a, &found.Rows[i]))
		}
	}
	v.Next, v.First = cursors(see, r.URL, next)
	return nil
}

// group is a row of sums with the question that tells more about it.
func (r *reading) group(here *url.URL, a *question, g *explore.GroupRow) groupView {
	v := groupView{topView: r.groupedSource(g), Sources: g.Sources, About: g.SourcesAbout}
	switch explore.Group(a.by) {
	case explore.ByRule:
		v.Drill = with(here, "rule", g.Rule, "by", string(explore.BySource), "cursor", "")
	case explore.BySource:
		v.Drill = with(here, "rule", g.Rule, "source", v.Source.Of, "by", byEpisode, "cursor", "")
	case explore.ByHour:
		v.At = g.At.Std().UTC().Format("2006-01-02 15:04")
		v.Drill = with(here, "since", g.At.Std().UTC().Format("2006-01-02T15:04"), "until", g.At.Std().UTC().Add(time.Hour).Format("2006-01-02T15:04"), "by", byEpisode, "cursor", "")
	case explore.ByDay:
		v.At = g.At.Std().UTC().Format("2006-01-02")
		v.Drill = with(here, "since", v.At, "until", g.At.Std().UTC().Add(24*time.Hour).Format("2006-01-02"), "by", string(explore.ByHour), "cursor", "")
	}
	return v
}

// leftOut says what history does not have of what was asked for.
func leftOut(f *explore.Filter, l explore.LeftOut) string {
	if f.Source != "" || f.Field != "" {
		return l.OfAnyone()
	}
	return l.String()
}

// exportJSON answers the explorer's question as JSON, a page of it.
func (p exploring) exportJSON(w http.ResponseWriter, r *http.Request) error {
	see, a, err := p.export(r)
	if err != nil {
		return err
	}
	page := explore.Page{Limit: a.top, Cursor: a.place}
	var out any
	if a.by == byEpisode {
		found, err := p.o.Explorer.Hits(r.Context(), a.filter, page)
		if err != nil {
			return err
		}
		out = access.Show(see.mask, found)
	} else {
		found, err := p.o.Explorer.Groups(r.Context(), a.filter, explore.Group(a.by), a.order, page)
		if err != nil {
			return err
		}
		out = access.Show(see.mask, found)
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out) // the client is gone, or the value is one of ours and encodes
	return nil
}

func (p exploring) export(r *http.Request) (*reading, *question, error) {
	see, err := p.read(r)
	if err != nil {
		return nil, nil, err
	}
	a, err := p.asked(r, see)
	return see, a, err
}

// csvFigure is a number, or nothing where it is not known.
func csvFigure(f history.Figure) string {
	if f == history.UnknownFigure {
		return ""
	}
	return f.String()
}

// exportCSV answers the explorer's question as CSV (RFC 4180), a page of it.
func (p exploring) exportCSV(w http.ResponseWriter, r *http.Request) error {
	see, a, err := p.export(r)
	if err != nil {
		return err
	}
	page := explore.Page{Limit: a.top, Cursor: a.place}
	var rows [][]string
	if a.by == byEpisode {
		found, err := p.o.Explorer.Hits(r.Context(), a.filter, page)
		if err != nil {
			return err
		}
		rows = append(rows, []string{"id", "rule", "rule_version", "source", "phase", "limit", "events", "peak", "first", "last", "users", "devices"})
		found = access.Show(see.mask, found)
		for i := range found.Hits {
			h := &found.Hits[i]
			rows = append(rows, []string{
				h.ID, h.Rule, strconv.Itoa(h.RuleVersion), string(h.Subject), string(h.Phase), strconv.Itoa(h.Limit), strconv.FormatInt(h.Count, 10), strconv.Itoa(h.Peak),
				h.First.String(), h.Last.String(), strconv.Itoa(h.Users), strconv.Itoa(h.Devices),
			})
		}
	} else {
		found, err := p.o.Explorer.Groups(r.Context(), a.filter, explore.Group(a.by), a.order, page)
		if err != nil {
			return err
		}
		rows = append(rows, []string{"rule", "source", "at", "episodes", "sources", "events", "would_refuse",
			"refused", "peak", "first", "last", "sources_about"})
		for _, g := range access.Show(see.mask, found).Rows {
			at := ""
			if g.At != 0 {
				at = g.At.String()
			}
			rows = append(rows, []string{
				g.Rule, string(g.Source), at, strconv.FormatInt(g.Episodes, 10), strconv.FormatInt(g.Sources, 10),
				strconv.FormatInt(g.Events, 10),
				strconv.FormatInt(g.WouldRefuse, 10), csvFigure(g.Refused), strconv.FormatInt(g.Peak, 10),
				g.First.String(), g.Last.String(), strconv.FormatBool(g.SourcesAbout),
			})
		}
	}
	w.Header().Set("Content-Type", "text/csv; charset=utf-8")
	w.Header().Set("Content-Disposition", `attachment; filename="weir-`+a.by+`.csv"`)
	_ = shown.CSV(w, rows) // the client is gone
	return nil
}
