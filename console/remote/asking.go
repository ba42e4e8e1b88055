package remote

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"

	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/console/letters"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

var (
	_ api.Explorer = (*Client)(nil)
	_ api.Teller   = (*Client)(nil)
	_ api.Dossiers = (*Client)(nil)
	_ api.Letters  = (*Client)(nil)
)

// question are the parameters of a question of history; empty ones are left out.
type question url.Values

func (q question) set(name, value string) question {
	if value != "" {
		q[name] = []string{value}
	}
	return q
}

func (q question) time(name string, t traffic.Time) question {
	if t == 0 {
		return q
	}
	return q.set(name, t.String())
}

func (q question) flag(name string, on bool) question {
	if !on {
		return q
	}
	return q.set(name, "true")
}

func (q question) page(p explore.Page) question {
	if p.Limit > 0 {
		q.set("limit", strconv.Itoa(p.Limit))
	}
	return q.set("cursor", p.Cursor)
}

// look are the parameters that all questions share.
func look(stream, rule, source string, since, until traffic.Time) question {
	replay, is := ingest.Stream(stream).Replay()
	if !is {
		replay = ""
	}
	return question{}.set("replay", replay).set("rule", rule).set("source", source).time("since", since).time("until", until)
}

func episodes(f *explore.Filter) question {
	return look(f.Stream, f.Rule, f.Source, f.Since, f.Until).set("kind", string(f.Kind)).set("owner", f.Owner).set("mode", string(f.Mode)).
		set("field", f.Field).set("state", string(f.State))
}

// asked asks a question of history, with the errors that an explore.Explorer has.
func (c *connection) asked(ctx context.Context, path string, q question, into any) error {
	err := c.get(ctx, path, url.Values(q), into)
	var t *told
	if !errors.As(err, &t) {
		return err
	}
	switch p := t.problem; {
	case p.Type == api.TypeAmbiguous:
		return &explore.AmbiguousError{ID: p.Got, IDs: p.Known}
	case p.Field != "":
		return &explore.BadFilterError{Field: p.Field, Got: p.Got, Allowed: p.Allowed, Near: p.Near}
	case p.Thing != "":
		return &explore.UnknownError{Thing: p.Thing, Got: p.Got, Known: p.Known, Near: p.Near}
	}
	return err
}

func left(told *explore.LeftOut) (out explore.LeftOut) {
	if told != nil {
		out = *told
	}
	return out
}

// Hits is explore.Explorer's.
func (c *Client) Hits(ctx context.Context, f explore.Filter, p explore.Page) (explore.Hits, error) {
	var page api.Counted[history.RecordedHit]
	err := c.asked(ctx, "history/hits", episodes(&f).flag("merged", f.Merged).page(p), &page)
	return explore.Hits{Hits: page.Items, Total: page.Total, Next: page.Next, LeftOut: left(page.LeftOut)}, err
}

// Groups is explore.Explorer's.
func (c *Client) Groups(ctx context.Context, f explore.Filter, by explore.Group, order explore.Order, p explore.Page) (explore.Groups, error) {
	var page api.Counted[explore.GroupRow]
	err := c.asked(ctx, "history/top", episodes(&f).set("by", string(by)).set("order", string(order)).page(p), &page)
	return explore.Groups{Rows: page.Items, Total: page.Total, Next: page.Next, LeftOut: left(page.LeftOut)}, err
}

// Timeline is explore.Explorer's.
func (c *Client) Timeline(ctx context.Context, source string, f explore.Filter, p explore.Page) (explore.Timeline, error) {
	var page api.Page[api.Happened]
	err := c.asked(ctx, "history/timeline", look(f.Stream, f.Rule, source, f.Since, f.Until).page(p), &page)
	found := explore.Timeline{Entries: make([]explore.Entry, len(page.Items)), Next: page.Next}
	for i := range page.Items {
		found.Entries[i] = page.Items[i].Entry
	}
	return found, err
}

// Pivots is explore.Explorer's.
func (c *Client) Pivots(ctx context.Context, source string, f explore.Filter) (found explore.Pivots, err error) {
	return found, c.asked(ctx, "history/seen-with", look(f.Stream, f.Rule, source, f.Since, f.Until), &found)
}

// Story is explore.Explorer's.
func (c *Client) Story(ctx context.Context, id string) (*explore.Story, error) {
	var st explore.Story
	err := c.asked(ctx, "history/hits/"+url.PathEscape(id), nil, &st)
	if _, none := absent(err); none {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &st, nil
}

// absent reports whether the server has said that there is none of what was asked about, and in which words. A name that nothing has is another
// thing, and so is a server of an older build, which does not know the question.
func absent(err error) (detail string, is bool) {
	var t *told
	if !errors.As(err, &t) || t.problem.Type != api.TypeUnrecorded {
		return "", false
	}
	return t.problem.Detail, true
}

// Decisions is explore.Explorer's.
func (c *Client) Decisions(ctx context.Context, f explore.DecisionFilter, p explore.Page) (explore.Decisions, error) {
	var page api.Counted[history.RecordedDecision]
	err := c.asked(ctx, "history/decisions", look(f.Stream, f.Rule, f.Source, f.Since, f.Until).set("action", string(f.Action)).page(p), &page)
	return explore.Decisions{Decisions: page.Items, Total: page.Total, Next: page.Next}, err
}

// Audit is explore.Explorer's.
func (c *Client) Audit(ctx context.Context, f explore.AuditFilter, p explore.Page) (explore.Acts, error) {
	var page api.Counted[api.Act]
	err := c.asked(ctx, "history/audit", look("", f.Rule, f.Source, f.Since, f.Until).set("by", f.Actor).set("action", f.Action).page(p), &page)
	found := explore.Acts{Acts: make([]audit.Numbered, len(page.Items)), Total: page.Total, Next: page.Next}
	for i := range page.Items {
		found.Acts[i] = page.Items[i].Numbered
	}
	return found, err
}

// Late is explore.Explorer's.
func (c *Client) Late(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.LateSums, error) {
	var page api.Counted[history.LateSum]
	err := c.asked(ctx, "history/late", look(f.Stream, f.Rule, "", f.Since, f.Until).page(p), &page)
	return explore.LateSums{Sums: page.Items, Total: page.Total, Next: page.Next}, err
}

// Uncounted is explore.Explorer's.
func (c *Client) Uncounted(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.UncountedSums, error) {
	var page api.Counted[history.UncountedSum]
	err := c.asked(ctx, "history/uncounted", look(f.Stream, f.Rule, "", f.Since, f.Until).set("reason", f.Reason).page(p), &page)
	return explore.UncountedSums{Sums: page.Items, Total: page.Total, Next: page.Next}, err
}

// Refused is explore.Explorer's.
func (c *Client) Refused(ctx context.Context, f explore.UncountedFilter, p explore.Page) (explore.RefusedSums, error) {
	var page api.Counted[history.RefusedSum]
	err := c.asked(ctx, "history/refused", look(f.Stream, f.Rule, "", f.Since, f.Until).page(p), &page)
	return explore.RefusedSums{Sums: page.Items, Total: page.Total, Next: page.Next}, err
}

// Letters is letters.Reader's.
func (c *Client) Letters(ctx context.Context, f letters.Filter, p explore.Page) (letters.Letters, error) {
	var page api.Counted[api.Letter]
	err := c.asked(ctx, "history/dead", question{}.time("since", f.Since).set("stage", f.Stage).set("reason", f.Reason).page(p), &page)
	found := letters.Letters{Letters: make([]letters.Letter, len(page.Items)), Total: page.Total, Next: page.Next}
	for i := range page.Items {
		found.Letters[i] = page.Items[i].Letter
	}
	return found, err
}

// Streams is explore.Explorer's, without the live stream.
func (c *Client) Streams(ctx context.Context) ([]streams.Stream, error) {
	var page api.Page[streams.Stream]
	err := c.asked(ctx, "history/replays", nil, &page)
	return page.Items, err
}

// Why is why.Teller's.
func (c *Client) Why(ctx context.Context, q why.Question) (*why.Answer, error) {
	path, query := "why/"+url.PathEscape(q.ID), question{}
	if q.ID == "" {
		path, query = "why", query.set("source", q.Source)
	}
	var a why.Answer
	err := c.asked(ctx, path, query, &a)
	if detail, none := absent(err); none {
		return nil, &why.NothingError{Looked: detail}
	}
	if err != nil {
		return nil, err
	}
	return &a, nil
}

// noVersionError is what a server says of a version that a rule does not have.
type noVersionError struct{ detail string }

func (e *noVersionError) Error() string { return e.detail }

func (e *noVersionError) Unwrap() error { return evidence.ErrNoVersion }

// Gather is evidence.Store's; whom a block never holds the server knows.
func (c *Client) Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error) {
	query := question{}.time("since", q.Since).time("until", q.Until).flag("pending", q.Role == evidence.Pending).flag("candidate", q.Role == evidence.Candidate)
	if q.Version != 0 {
		query.set("version", strconv.Itoa(q.Version))
	}
	var answer struct {
		Dossier json.RawMessage `json:"dossier"`
	}
	err := c.get(ctx, "rules/"+url.PathEscape(q.Rule)+"/dossier", url.Values(query), &answer)
	if detail, none := absent(err); none {
		return nil, &noVersionError{detail}
	}
	if err != nil {
		return nil, err
	}
	return evidence.Decode(answer.Dossier)
}
