package api

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
)

// Explorer is the questions of history that a Reader passes on.
type Explorer interface {
	Hits(ctx context.Context, f explore.Filter, p explore.Page) (explore.Hits, error)
	Groups(ctx context.Context, f explore.Filter, by explore.Group, order explore.Order, p explore.Page) (explore.Groups, error)
	Timeline(ctx context.Context, source string, f explore.Filter, p explore.Page) (explore.Timeline, error)
	Pivots(ctx context.Context, source string, f explore.Filter) (explore.Pivots, error)
	Story(ctx context.Context, id string) (*explore.Story, error)
	Decisions(ctx context.Context, f explore.DecisionFilter, p explore.Page) (explore.Decisions, error)
	Audit(ctx context.Context, f explore.AuditFilter, p explore.Page) (explore.Acts, error)
	Streams(ctx context.Context) ([]streams.Stream, error)
	Late(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.LateSums, error)
	Uncounted(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.UncountedSums, error)
	Refused(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.RefusedSums, error)
}

var _ Explorer = (*explore.Explorer)(nil)

// Counted is a page of a list that says how many items all pages have, as far as anybody counts.
type Counted[T any] struct {
	Page[T]
	Total explore.Total `json:"total"`
	// LeftOut is in no item, and not in Total: of episodes, and of sums of them.
	LeftOut *explore.LeftOut `json:"left_out,omitempty"`
}

// Happened is one thing that happened to a source: its member hit, decision or act says what.
type Happened struct{ explore.Entry }

// Act is an entry of the audit trail with its number.
type Act struct{ audit.Numbered }

// listed answers with a page, as JSON or as a file.
func listed[T any](c *call, page Counted[T], name string, head []string, row func(*T) []string) (any, error) {
	if !c.asFile {
		return page, nil
	}
	page = access.Show(c.mask, page)
	f := &csvFile{name: name, rows: [][]string{head}, next: page.Next}
	for i := range page.Items {
		f.rows = append(f.rows, row(&page.Items[i]))
	}
	return f, nil
}

// counted is a page of items.
func counted[T any](items []T, total explore.Total, next string) Counted[T] {
	if items == nil {
		items = []T{}
	}
	return Counted[T]{Page: Page[T]{items, next}, Total: total}
}

// page is the part of a list that is asked for.
func (c *call) page() (explore.Page, error) {
	limit, err := c.limit()
	if err != nil {
		return explore.Page{}, err
	}
	place, err := c.place()
	return explore.Page{Limit: limit, Cursor: place}, err
}

// filter reads the parameters that select episodes.
func (c *call) filter() (f explore.Filter, err error) {
	f = explore.Filter{
		Kind: detectors.Kind(c.values["kind"]), Rule: c.values["rule"], Owner: c.values["owner"], Mode: rules.Mode(c.values["mode"]),
		Field: c.values["field"], State: history.State(c.values["state"]), Merged: c.flag("merged"),
	}
	if f.Since, f.Until, err = explore.ParseSpan(c.values["since"], c.values["until"], c.o.Reader.Clock().Std()); err != nil {
		return f, err
	}
	if name := c.values["replay"]; name != "" {
		stream := ingest.Replay(name)
		if err := stream.Check(); err != nil {
			return f, &acts.Invalid{Field: "replay", Got: name, Allowed: "the name of a replay: " + err.Error()}
		}
		f.Stream = string(stream)
	}
	f.Source, err = c.source()
	return f, err
}

// sourceAllowed says what the parameter source takes.
const sourceAllowed = "an address, a prefix, FIELD=VALUE, a value of any field, or a canonical subject, with pseudonyms for values that are not shown"

// source is the source that the actor means; the errors about it have his own words only.
func (c *call) source() (string, error) {
	text := c.values["source"]
	if text == "" {
		return "", nil
	}
	plain, err := c.mask.ResolveSource(text)
	if err == nil {
		if _, err = history.ParseSource(plain); err != nil && plain != text {
			err = fmt.Errorf("what the pseudonym stands for is no source")
		}
	}
	if err != nil {
		return "", &acts.Invalid{Field: "source", Got: text, Allowed: sourceAllowed + ": " + err.Error()}
	}
	return plain, nil
}

func historyHits(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Hits(c.r.Context(), f, p)
	if err != nil {
		return nil, err
	}
	page := counted(found.Hits, found.Total, found.Next)
	page.LeftOut = &found.LeftOut
	return listed(c, page, "hits", hitHead(), hitCells)
}

func hitHead() []string {
	return strings.Fields(`stream id kind rule rule_version phase subject block_subject grouped limit window_ms events at_least peak
		first last users devices would_refuse known_good reason`)
}

func hitCells(h *history.RecordedHit) []string {
	return []string{
		h.Stream, h.ID, string(h.Kind), h.Rule, strconv.Itoa(h.RuleVersion), string(h.Phase), string(h.Subject), string(h.BlockSubject),
		strconv.FormatBool(h.Grouped), strconv.Itoa(h.Limit), number(h.WindowMS), number(h.Count), strconv.FormatBool(h.AtLeast), strconv.Itoa(h.Peak),
		h.First.String(), h.Last.String(), strconv.Itoa(h.Users), strconv.Itoa(h.Devices), number(h.Refused), strconv.Itoa(int(h.Good)), h.Reason,
	}
}

func number(n int64) string { return strconv.FormatInt(n, 10) }

// figure is a number, or nothing where it is not known.
func figure(f history.Figure) string {
	if f == history.UnknownFigure {
		return ""
	}
	return f.String()
}

// historySums sums up by what by says; empty: the parameter does.
func historySums(by explore.Group) func(c *call) (any, error) {
	return func(c *call) (any, error) {
		p, err := c.page()
		if err != nil {
			return nil, err
		}
		f, err := c.filter()
		if err != nil {
			return nil, err
		}
		group := by
		if group == "" {
			group = explore.Group(c.values["by"])
		}
		if group == "" {
			group = explore.ByRule
		}
		found, err := c.o.Reader.Explorer.Groups(c.r.Context(), f, group, explore.Order(c.values["order"]), p)
		if err != nil {
			return nil, err
		}
		head := []string{"rule", "subject", "at", "episodes", "sources", "events", "would_refuse", "refused", "peak",
			"first", "last", "sources_about"}
		page := counted(found.Rows, found.Total, found.Next)
		page.LeftOut = &found.LeftOut
		return listed(c, page, "by-"+string(group), head, func(g *explore.GroupRow) []string {
			at := ""
			if g.At != 0 {
				at = g.At.String()
			}
			return []string{
				g.Rule, string(g.Source), at, number(g.Episodes), number(g.Sources), number(g.Events),
				number(g.WouldRefuse), figure(g.Refused), number(g.Peak),
				g.First.String(), g.Last.String(), strconv.FormatBool(g.SourcesAbout),
			}
		})
	}
}

func historyTimeline(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	f, err := c.ofSource()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Timeline(c.r.Context(), f.Source, f, p)
	if err != nil {
		return nil, err
	}
	page := Page[Happened]{Items: []Happened{}, Next: found.Next}
	for _, e := range found.Entries {
		page.Items = append(page.Items, Happened{e})
	}
	if !c.asFile {
		return page, nil
	}
	page = access.Show(c.mask, page)
	file := &csvFile{name: "timeline", rows: [][]string{{"at", "what", "rule", "subject", "id", "events", "action", "until", "by", "object", "reason"}}, next: page.Next}
	for i := range page.Items {
		file.rows = append(file.rows, happenedCells(&page.Items[i]))
	}
	return file, nil
}

func happenedCells(e *Happened) []string {
	switch {
	case e.Hit != nil:
		return []string{e.At.String(), e.What, e.Hit.Rule, string(e.Hit.Subject), e.Hit.ID, number(e.Hit.Count), "", "", "", "", e.Hit.Reason}
	case e.Decision != nil:
		d := e.Decision
		return []string{e.At.String(), e.What, d.Rule, string(d.Subject), d.Hit, "", string(d.Action), d.Until.String(), d.By, "", d.Reason}
	}
	return []string{e.At.String(), e.What, "", "", "", "", e.Act.Action, "", e.Act.Actor, e.Act.Object, e.Act.Reason}
}

// ofSource is a filter with a source, which is required.
func (c *call) ofSource() (explore.Filter, error) {
	f, err := c.filter()
	if err == nil && f.Source == "" {
		err = &acts.Invalid{Field: "source", Allowed: sourceAllowed}
	}
	return f, err
}

func historyPivots(c *call) (any, error) {
	f, err := c.ofSource()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Pivots(c.r.Context(), f.Source, f)
	if err != nil {
		return nil, err
	}
	if !c.asFile {
		return found, nil
	}
	found = access.Show(c.mask, found)
	file := &csvFile{name: "seen-with", rows: [][]string{{"field", "value", "episodes", "events", "first", "last", "rules"}}}
	for i := range found.Of {
		v := &found.Of[i]
		file.rows = append(file.rows, []string{v.Field, v.Value, number(v.Episodes), number(v.Events), v.First.String(), v.Last.String(), strings.Join(v.Rules, " ")})
	}
	return file, nil
}

func historyDecisions(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Decisions(c.r.Context(), explore.DecisionFilter{
		Stream: f.Stream, Rule: f.Rule, Source: f.Source, Action: blocklist.Action(c.values["action"]), Since: f.Since, Until: f.Until,
	}, p)
	if err != nil {
		return nil, err
	}
	head := []string{"stream", "id", "at", "action", "reason", "rule", "subject", "hit", "since", "until", "by"}
	return listed(c, counted(found.Decisions, found.Total, found.Next), "decisions", head,
		func(d *history.RecordedDecision) []string {
			return []string{
				d.Stream, d.ID, d.At.String(), string(d.Action), d.Reason, d.Rule, string(d.Subject), d.Hit,
				d.Since.String(), d.Until.String(), d.By,
			}
		})
}

func historyAudit(c *call) (any, error) {
	p, err := c.page()
	if err != nil {
		return nil, err
	}
	f, err := c.filter()
	if err != nil {
		return nil, err
	}
	found, err := c.o.Reader.Explorer.Audit(c.r.Context(), explore.AuditFilter{
		Rule: f.Rule, Source: f.Source, Actor: c.values["by"], Action: c.values["action"], Since: f.Since, Until: f.Until,
	}, p)
	if err != nil {
		return nil, err
	}
	all := make([]Act, len(found.Acts))
	for i, n := range found.Acts {
		all[i] = Act{n}
	}
	head := []string{"seq", "at", "actor", "action", "object", "reason", "detail", "before", "after", "via"}
	return listed(c, counted(all, found.Total, found.Next), "audit", head, func(a *Act) []string {
		return []string{number(a.Seq), a.At.UTC().Format("2006-01-02T15:04:05.000000Z"), a.Actor, a.Action, a.Object, a.Reason, a.Detail, a.Before, a.After, a.Via}
	})
}

func historyReplays(c *call) (any, error) {
	all, err := c.o.Reader.Explorer.Streams(c.r.Context())
	if err != nil {
		return nil, err
	}
	page := Page[streams.Stream]{Items: []streams.Stream{}}
	for _, s := range all {
		if _, replay := ingest.Stream(s.Name).Replay(); !replay {
			continue
		}
		page.Items = append(page.Items, s)
	}
	return page, nil
}
