package pages

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"slices"
	"time"

	"github.com/weirhq/weir/console/chart"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Explorer is the questions that pages ask of history.
type Explorer interface {
	// Hits lists episodes, those with the newest last over event first.
	Hits(ctx context.Context, q explore.Filter, p explore.Page) (explore.Hits, error)
	// Groups sums up the episodes that f selects.
	Groups(ctx context.Context, q explore.Filter, by explore.Group, order explore.Order, p explore.Page) (explore.Groups, error)
	// Began counts the episodes that f selects by when they began, in steps of so long.
	Began(ctx context.Context, f explore.Filter, step time.Duration) ([]explore.Began, error)
	// Requests sums up what gates refused, and what rules that refused nobody would have, in steps of so long.
	Requests(ctx context.Context, f explore.Filter, step time.Duration) (explore.Requests, error)
	// Pivots tells with which other identities a source was seen, in its newest episodes.
	Pivots(ctx context.Context, source string, q explore.Filter) (explore.Pivots, error)
	// Behind tells who is behind a source.
	Behind(ctx context.Context, source string, since traffic.Time) (explore.Behind, error)
	// Story tells all about the hit whose id, or the beginning of it, is given; nil where there is none.
	Story(ctx context.Context, id string) (*explore.Story, error)
	// Audit lists what people did, newest first.
	Audit(ctx context.Context, f explore.AuditFilter, p explore.Page) (explore.Acts, error)
}

var _ Explorer = (*explore.Explorer)(nil)

// finder asks for what several pages show.
type finder struct{ Explorer }

// total is how many there are, in words.
func total(t explore.Total) string {
	if t.More {
		return "more than " + shown.Count(t.N)
	}
	return shown.Count(t.N)
}

// topView is an over-limit source with what its episodes come to.
type topView struct {
	Source      sourceView
	Rule        string
	Href        string // of its newest evidence
	Count       int64
	WouldRefuse int64
	Refused     history.Figure // by gates
	Peak        int64
	Episodes    int64
	First       traffic.Time
	Last        traffic.Time
	Running     bool
	Outcome     outcomeView
}

// groupedSource is one row of a question by source.
func (r *reading) groupedSource(g *explore.GroupRow) topView {
	h := detectors.Hit{Rule: g.Rule, Subject: g.Source, First: g.First, Last: g.Last}
	h.BlockSubject = r.blockSubject(g.Rule, g.Source)
	v := topView{
		Source: r.source(g.Source), Rule: g.Rule, Count: g.Events, WouldRefuse: g.WouldRefuse, Refused: g.Refused,
		Peak: g.Peak, Episodes: g.Episodes, First: g.First, Last: g.Last, Outcome: r.outcome(&h),
	}
	if rule := r.Rules[g.Rule]; rule != nil {
		v.Running = g.Last.Add(rule.Newest.Version.Window) > r.now
	}
	return v
}

// blockSubject is whom a rule's block of a source would hold; empty where the source alone does not say so.
func (r *reading) blockSubject(rule string, s traffic.Subject) traffic.Subject {
	known := r.Rules[rule]
	if known == nil || known.Newest.Version.Block == nil {
		return ""
	}
	d := &known.Newest.Version.Document
	if slices.Equal(d.Key, d.Block.Key) {
		return s.Stored()
	}
	named, err := s.Named(d.Key)
	if err != nil {
		return ""
	}
	held, lacking := traffic.MakeSubjectOf(&named.Identity, named, d.Block.Key)
	if lacking > 0 {
		return ""
	}
	return held.Stored()
}

const (
	// hourly is up to which length of a period charts have columns of some hours; beyond it, of days.
	hourly = 14 * 24 * time.Hour
	// finely is up to which length they have finer ones, which are counted from rows: hours and days are read from sums.
	finely = 12 * time.Hour
)

// overTime draws when the episodes of a filter began.
func (f finder) overTime(ctx context.Context, q explore.Filter, span *period) (template.HTML, error) {
	step := span.Step()
	from := traffic.At(span.Since.Std().UTC().Truncate(step))
	values := make([]float64, int(span.Until.Sub(from)/step)+1)
	began, err := f.Began(ctx, q, step)
	if err != nil {
		return "", err
	}
	sum := int64(0)
	for _, b := range began {
		at := max(b.At, from) // what began before counts in the first column
		if i := int(at.Sub(from) / step); i < len(values) {
			values[i] += float64(b.Episodes)
			sum += b.Episodes
		}
	}
	c := chart.Columns{
		Name: fmt.Sprintf("Episodes by when they began, %s in all, a column for each %s", shown.Count(sum), shown.Span(step)), Unit: "episodes per " + shown.Span(step),
		From: from, Step: step, Series: []chart.Series{{Name: "episodes", Class: "curve", Values: values}},
	}
	return c.SVG(), nil
}

// requestsView is a chart of requests that gates refused, and of those that blocks would have refused, with what it
// cannot show.
type requestsView struct {
	Title         string
	Chart, Legend template.HTML
	Note          string // what is not known; empty: all is
}

// requests draws what came of requests over time; nil where there is nothing to draw. What was refused and what would
// have been stand beside each other, and are never one column: they are of different requests.
func (f finder) requests(ctx context.Context, q explore.Filter, span *period) (*requestsView, error) {
	step := max(span.Step(), time.Minute)
	from := traffic.At(span.Since.Std().UTC().Truncate(step))
	found, err := f.Requests(ctx, q, step)
	if err != nil {
		return nil, err
	}
	refused := make([]float64, int(span.Until.Sub(from)/step)+1)
	would := make([]float64, len(refused))
	var sums [2]int64
	for _, s := range found.Steps {
		if i := int(max(s.At, from).Sub(from) / step); i < len(refused) {
			refused[i], would[i] = refused[i]+float64(s.Refused), would[i]+float64(s.WouldRefuse)
			sums[0], sums[1] = sums[0]+s.Refused, sums[1]+s.WouldRefuse
		}
	}
	v := &requestsView{}
	switch {
	case found.RefusedUntold && found.WouldUntold:
		v.Note = "What gates refused is not known: it does not come back to the log."
	case found.RefusedUntold:
		v.Note = "What gates refused is not known, and not drawn: it does not come back to the log."
	case found.WouldUntold:
		v.Note = "What blocks would have refused is kept by rule and minute: of sources it is not drawn."
	}
	if sums[0]+sums[1] == 0 {
		if !found.RefusedUntold {
			return nil, nil
		}
		v.Title = "Requests refused by gates"
		return v, nil
	}
	c := chart.Columns{
		Name: fmt.Sprintf("Requests, a column for each %s: %s refused by gates", shown.Span(step),
			shown.Count(sums[0])),
		Unit: "requests per " + shown.Span(step), From: from, Step: step, Apart: true,
		Series: []chart.Series{{Name: "refused by gates", Class: "refused", Values: refused}},
	}
	v.Title = "Requests refused by gates"
	if !found.WouldUntold {
		v.Title = "Requests: refused, and would have been refused"
		c.Name += fmt.Sprintf("; %s that would have been refused, at times at which the rule blocked nobody",
			shown.Count(sums[1]))
		c.Series = append(c.Series, chart.Series{Name: "would have been refused, while the rule blocked nobody",
			Class: "would", Values: would})
	}
	v.Chart, v.Legend = c.SVG(), c.Legend()
	return v, nil
}

// sum is what the episodes of a filter come to, with one rule or one source in it.
func sum(rows []explore.GroupRow) (out explore.GroupRow) {
	for _, g := range rows {
		out.Episodes += g.Episodes
		out.Sources += g.Sources
		out.SourcesAbout = out.SourcesAbout || g.SourcesAbout
		out.Events += g.Events
		out.WouldRefuse += g.WouldRefuse
		out.Peak = max(out.Peak, g.Peak)
	}
	return out
}

// wouldHold counts, for each rule in shadow, the sources that its block would hold now, had it been promoted with its newest version: those
// that were over the limit within the time that it blocks for. At most: some were released, or are never blocked. There is a question
// for each different time, of which installations have few.
func (f finder) wouldHold(ctx context.Context, see *reading) (map[string]int64, error) {
	byTTL := map[time.Duration][]string{}
	for id, r := range see.Rules {
		if d := &r.Newest.Version.Document; r.Mode == rules.ModeShadow && d.Block != nil {
			byTTL[d.Block.TTL] = append(byTTL[d.Block.TTL], id)
		}
	}
	out := map[string]int64{}
	for ttl, ids := range byTTL {
		q := explore.Filter{Since: see.now.Add(-ttl), Counted: true}
		if len(ids) == 1 {
			q.Rule = ids[0]
		}
		found, err := f.allRules(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			out[id] = found[id].Sources
		}
	}
	return out, nil
}

// allRules sums up the episodes of a filter by rule, of all rules.
func (f finder) allRules(ctx context.Context, q explore.Filter) (map[string]explore.GroupRow, error) {
	out := map[string]explore.GroupRow{}
	page := explore.Page{Limit: explore.MostLimit}
	for {
		found, err := f.Groups(ctx, q, explore.ByRule, explore.ByEvents, page)
		if err != nil {
			return nil, err
		}
		for _, g := range found.Rows {
			out[g.Rule] = g
		}
		if page.Cursor = found.Next; page.Cursor == "" {
			return out, nil
		}
	}
}

// running lists the episodes of a filter that go on now, those with the most events first, and how many there are.
func (f finder) running(ctx context.Context, see *reading, q explore.Filter, limit int) ([]episodeView, explore.Total, error) {
	q.State = running
	found, err := f.Hits(ctx, q, explore.Page{Limit: explore.MostLimit})
	if err != nil {
		return nil, explore.Total{}, err
	}
	slices.SortStableFunc(found.Hits, func(a, b history.RecordedHit) int { return cmp.Compare(b.Count, a.Count) })
	return see.episodes(found.Hits[:min(len(found.Hits), limit)]), found.Total, nil
}

// exploreHref is the explorer with a rule's episodes of a period.
func exploreHref(rule string, span *period, pairs ...string) string {
	u := url.URL{Path: "/explore"}
	return with(&u, append([]string{"rule", rule, "since", span.Choice, "until", span.End}, pairs...)...)
}
