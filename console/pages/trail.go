package pages

import (
	"net/http"
	"net/url"

	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/traffic"
)

// auditPage is what people did, and why.
type auditPage struct {
	Period                      period
	Rule, Source, Actor, Action string // filters
	List                        []entryView
	Total                       string
	Next                        string // the next page; empty: this is the last one
	First                       string // the first page; empty: this is it
}

func (p *Pages) audit(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "30d")
	if err != nil {
		return err
	}
	q := r.URL.Query()
	v := &auditPage{Period: span, Rule: q.Get("rule"), Source: q.Get("source"), Actor: q.Get("actor"), Action: q.Get("action")}
	source, err := see.filterSource(v.Source)
	if err != nil {
		return err
	}
	place, err := placeAsked(see, r.URL)
	if err != nil {
		return err
	}
	found, err := p.o.Explorer.Audit(r.Context(), explore.AuditFilter{
		Rule: v.Rule, Source: source, Actor: v.Actor, Action: v.Action, Since: span.Since, Until: span.end(),
	}, explore.Page{Cursor: place})
	if err != nil {
		return err
	}
	v.List, v.Total = see.entries(found.Acts), total(found.Total)
	v.Next, v.First = cursors(see, r.URL, found.Next)
	for _, text := range []*string{&v.Rule, &v.Source, &v.Actor, &v.Action} {
		*text = shown.Text(*text)
	}
	return p.show(w, r, &shell{Name: "audit", Title: "Audit", Active: "audit", Body: v})
}

// cursors are the addresses of the next page and of the first one, empty for none.
func cursors(see *reading, here *url.URL, next string) (after, first string) {
	if next != "" {
		after = with(here, "cursor", see.masker.Cursor(see.visit.Actor, next), "did", "")
	}
	if here.Query().Get("cursor") != "" {
		first = with(here, "cursor", "")
	}
	return after, first
}

// placeAsked is the place that the link to a page's next one named, as the visitor was given it.
func placeAsked(see *reading, here *url.URL) (string, error) {
	text := here.Query().Get("cursor")
	place, err := see.masker.Place(see.visit.Actor, text)
	if err != nil {
		return "", &explore.BadFilterError{Field: "cursor", Got: text, Allowed: "what the link to the next page has"}
	}
	return place, nil
}

// entryView is one entry of the audit trail.
type entryView struct {
	At     traffic.Time
	Actor  string
	Via    string
	Action string
	Change string
	Object string
	Href   string // of what the object is about
	Reason string
	Detail string
}

func (r *reading) entry(e *audit.Numbered) entryView {
	about := func(text string) string { return shown.Text(r.masker.TextAbout(r.visit.Actor, text, e.Object)) }
	return entryView{
		At: traffic.At(e.At), Actor: r.text(e.Actor), Via: shown.Text(e.Via), Action: shown.Text(e.Action), Change: about(e.Change()),
		Object: r.objectWords(e.Object), Href: r.objectHref(e.Object),
		Reason: about(e.Reason), Detail: about(e.Detail),
	}
}

func (r *reading) entries(all []audit.Numbered) []entryView {
	out := make([]entryView, len(all))
	for i := range all {
		out[i] = r.entry(&all[i])
	}
	return out
}

// healthPage is how the installation does.
type healthPage struct {
	Period   period
	Problems []console.Problem
	Stages   []console.StageLag
	Gates    []console.Gate
	// GatesUnknown: Redis did not tell which there are.
	GatesUnknown bool
	Lag          int64
	Uncounted    []ruleUncounted
	Complete     bool // the figures of all reasons are known
	Rules        int
	Blocks       int
	Command      string
}

// ruleUncounted is what one rule did not count.
type ruleUncounted struct {
	Rule    string
	Figures []figure
}

func (p *Pages) health(w http.ResponseWriter, r *http.Request) error {
	see, err := p.read(r)
	if err != nil {
		return err
	}
	span, err := periodOf(r.URL, see.now, "24h")
	if err != nil {
		return err
	}
	pulse := p.o.Pulse()
	v := &healthPage{
		Period: span, Problems: pulse.Problems, Stages: pulse.Stages, Gates: pulse.Gates,
		GatesUnknown: pulse.GatesUnknown,
		Rules:        len(see.Rules), Blocks: len(see.Blocks), Command: p.o.Command + " doctor",
	}
	if see.redis != "" {
		v.Problems = append(v.Problems, console.Problem{Part: "Redis",
			Detail: "does not answer: blocks and releases are not shown"})
	}
	for _, s := range v.Stages {
		v.Lag += s.Records
	}
	missed, err := p.o.History.NotCounted(r.Context(), history.Live, span.Since)
	if err != nil {
		return err
	}
	v.Complete = missed.Complete
	for _, id := range see.ids() {
		if all := uncounted(known(missed.Figures(id))); len(all) > 0 {
			v.Uncounted = append(v.Uncounted, ruleUncounted{id, all})
		}
	}
	return p.show(w, r, &shell{Name: "health", Title: "Health", Active: "health", Live: true, Body: v})
}

// known leaves out figures that are not known: the page says once that there are such.
func known(f history.Figures) history.Figures {
	for _, one := range []*history.Figure{&f.Late, &f.OutOfOrder, &f.MissingField, &f.MissingValue} {
		*one = max(0, *one)
	}
	return f
}
