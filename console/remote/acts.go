package remote

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

var (
	_ acts.Acts  = (*Client)(nil)
	_ api.Counts = (*Client)(nil)
)

// Promote is acts.Service's; the server knows by the token who acts, here and in all others.
func (c *Client) Promote(ctx context.Context, _ access.Actor, r acts.PromoteRequest) (done acts.ModeDone, err error) {
	return done, c.post(ctx, "rules/"+url.PathEscape(r.Rule)+"/promote", r, &done)
}

// Evidence is acts.Service's.
func (c *Client) Evidence(ctx context.Context, _ access.Actor, q acts.EvidenceRequest) (shown acts.EvidenceShown, err error) {
	query := url.Values{}
	if q.Version != 0 {
		query.Set("version", strconv.Itoa(q.Version))
	}
	if q.Pending {
		query.Set("pending", "true")
	}
	if !q.Until.IsZero() {
		query.Set("until", q.Until.UTC().Format(time.RFC3339))
	}
	return shown, c.get(ctx, "rules/"+url.PathEscape(q.Rule)+"/evidence", query, &shown)
}

// SetMode is acts.Service's.
func (c *Client) SetMode(ctx context.Context, _ access.Actor, r acts.ModeRequest) (done acts.ModeDone, err error) {
	verb := "demote"
	if r.Mode == rules.ModeOff {
		verb = "disable"
	}
	return done, c.post(ctx, "rules/"+url.PathEscape(r.Rule)+"/"+verb, api.Reasoned{Reason: r.Reason, Seen: r.Seen}, &done)
}

// SetLimit is acts.Service's.
func (c *Client) SetLimit(ctx context.Context, _ access.Actor, r acts.LimitRequest) (done rulestore.LimitSet, err error) {
	return done, c.post(ctx, "rules/"+url.PathEscape(r.Rule)+"/limit", r, &done)
}

// Apply is acts.Service's.
func (c *Client) Apply(ctx context.Context, _ access.Actor, r acts.ApplyRequest) (done acts.ApplyDone, err error) {
	if len(r.Files) == 0 {
		return done, acts.ErrNoRules
	}
	return c.planned(ctx, "apply", r)
}

// tryTimeout bounds a trial, which counts requests for some seconds.
const tryTimeout = time.Minute

// Try is acts.Service's.
func (c *connection) Try(ctx context.Context, _ access.Actor, r acts.TryRequest) (tried acts.Tried, err error) {
	if len(r.Files) == 0 {
		return tried, acts.ErrNoRules
	}
	_, err = c.ask(ctx, http.MethodPost, "try", nil, r, &tried, tryTimeout)
	return tried, err
}

// Rollback is acts.Service's.
func (c *Client) Rollback(ctx context.Context, _ access.Actor, r acts.RollbackRequest) (done acts.ApplyDone, err error) {
	return c.planned(ctx, "rules/"+url.PathEscape(r.Rule)+"/rollback", r)
}

// planned has documents applied: the answer has a plan, whatever else it has.
func (c *connection) planned(ctx context.Context, path string, r any) (done acts.ApplyDone, err error) {
	if err = c.post(ctx, path, r, &done); err == nil && done.Plan == nil {
		err = c.unread(errors.New("it has no plan"))
	}
	return done, err
}

// Release is acts.Service's.
func (c *Client) Release(ctx context.Context, _ access.Actor, r acts.ReleaseRequest) (done acts.ReleaseDone, err error) {
	status, err := c.ask(ctx, http.MethodPost, "rules/"+url.PathEscape(r.Rule)+"/release", nil, r, &done, answerTimeout+r.Wait)
	var refused *refusedRelease
	switch {
	case errors.As(err, &refused):
		return *refused.release, refused.Unwrap()
	case err == nil && status == http.StatusAccepted:
		return done, errors.New(done.Problem)
	}
	return done, err
}

// Block is acts.Service's.
func (c *Client) Block(ctx context.Context, _ access.Actor, r acts.BlockRequest) (done acts.BlockDone, err error) {
	status, err := c.ask(ctx, http.MethodPost, "blocks", nil, r, &done, answerTimeout+r.Wait)
	if err == nil && status == http.StatusAccepted {
		return done, errors.New(done.Problem)
	}
	return done, err
}

// NeverBlockList is acts.Service's.
func (c *connection) NeverBlockList(ctx context.Context, _ access.Actor) ([]acts.NeverListed, error) {
	var page api.Page[acts.NeverListed]
	err := c.get(ctx, "never-block", nil, &page)
	return page.Items, err
}

// ChangeNeverBlock is acts.Service's.
func (c *connection) ChangeNeverBlock(ctx context.Context, _ access.Actor, r acts.NeverRequest) (done acts.NeverDone,
	err error) {
	return done, c.post(ctx, "never-block/entries", r, &done)
}

// ChangeAllow is acts.Service's.
func (c *Client) ChangeAllow(ctx context.Context, _ access.Actor, r acts.AllowRequest) (done acts.AllowDone, err error) {
	return done, c.post(ctx, "allow/"+url.PathEscape(r.List)+"/entries", r, &done)
}

// ResetCount is acts.Service's.
func (c *Client) ResetCount(ctx context.Context, _ access.Actor, r acts.ResetRequest) (done rulestore.CounterResetDone, err error) {
	return done, c.post(ctx, "rules/"+url.PathEscape(r.Rule)+"/reset", r, &done)
}

// Partitions is acts.Service's.
func (c *connection) Partitions(ctx context.Context, _ access.Actor) ([]acts.Partition, error) {
	var page api.Page[acts.Partition]
	err := c.get(ctx, "partitions", nil, &page)
	return page.Items, err
}

// ResumePartition is acts.Service's.
func (c *connection) ResumePartition(ctx context.Context, _ access.Actor, r acts.ResumeRequest) (done acts.ResumeDone,
	err error) {
	path := "partitions/" + url.PathEscape(string(r.Side)) + "/" + strconv.Itoa(r.Partition) + "/resume"
	return done, c.post(ctx, path, r, &done)
}

// eraseTimeout bounds one request for an erasure, which the server answers while it goes on.
const eraseTimeout = time.Minute

// Erase is acts.Service's. It asks the server until the erasure has ended: the same request begins no other one.
func (c *Client) Erase(ctx context.Context, _ access.Actor, r acts.EraseRequest) (acts.ErasureState, error) {
	for {
		var state acts.ErasureState
		if _, err := c.ask(ctx, http.MethodPost, "history/erase", nil, r, &state, eraseTimeout); err != nil || !state.Running {
			return state, err
		}
		if r.Progress != nil {
			r.Progress(state.Step)
		}
	}
}

// pageSize is how many items are asked for at once.
const pageSize = "1000"

// Rulebook is api.Reader's.
func (c *Client) Rulebook(ctx context.Context) ([]api.Rule, error) {
	var all []api.Rule
	for cursor := ""; ; {
		var page api.Page[api.Rule]
		if err := c.get(ctx, "rulebook", pageOf(cursor), &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Items...); page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

func pageOf(cursor string) url.Values {
	q := url.Values{"limit": {pageSize}}
	if cursor != "" {
		q.Set("cursor", cursor)
	}
	return q
}

// AllowLists is api.Reader's.
func (c *connection) AllowLists(ctx context.Context) ([]api.AllowList, error) {
	var all []api.AllowList
	for cursor := ""; ; {
		var page api.Page[api.AllowList]
		if err := c.get(ctx, "allow", pageOf(cursor), &page); err != nil {
			return nil, err
		}
		if all = append(all, page.Items...); page.Next == "" {
			return all, nil
		}
		cursor = page.Next
	}
}

// AllowList is api.Reader's.
func (c *connection) AllowList(ctx context.Context, id string, version int) (a api.AllowListAnswer, err error) {
	q := url.Values{}
	if version != 0 {
		q.Set("version", strconv.Itoa(version))
	}
	return a, c.get(ctx, "allow/"+url.PathEscape(id), q, &a)
}

// Count is api.Counts'.
func (c *connection) Count(ctx context.Context, rule string, who traffic.Subject) (counted api.Count, err error) {
	q := url.Values{}
	if who != "" {
		q.Set("subject", string(who))
	}
	return counted, c.get(ctx, "rules/"+url.PathEscape(rule)+"/counters", q, &counted)
}

// Rule is api.Reader's.
func (c *Client) Rule(ctx context.Context, id string) (api.Rule, error) {
	var r api.RuleAnswer
	err := c.get(ctx, "rules/"+url.PathEscape(id), nil, &r)
	if err == nil && len(r.Versions) == 0 {
		err = c.unread(errors.New("the rule has no version"))
	}
	return r.Rule, err
}

// RuleTrail is api.Reader's.
func (c *Client) RuleTrail(ctx context.Context, id string, limit int) ([]audit.Entry, error) {
	var page api.Page[api.Entry]
	err := c.get(ctx, "rules/"+url.PathEscape(id)+"/history", url.Values{"limit": {strconv.Itoa(limit)}}, &page)
	return page.Items, err
}

// Blocklist is api.Reader's.
func (c *Client) Blocklist(ctx context.Context, filter blocklist.Filter) (blocklist.Listing, error) {
	var found blocklist.Listing
	for cursor := ""; ; {
		q := pageOf(cursor)
		if filter.Rule != "" {
			q.Set("rule", filter.Rule)
		}
		if filter.Subject != "" {
			q.Set("subject", string(filter.Subject))
		}
		if filter.Hit != "" {
			q.Set("id", filter.Hit)
		}
		if filter.Tombstones {
			q.Set("released", "true")
		}
		var page api.BlockPage
		if err := c.get(ctx, "blocklist", q, &page); err != nil {
			return found, err
		}
		for _, b := range page.Items {
			if b.Block == nil && b.Tombstone == nil {
				return found, c.unread(errors.New("it has what is neither a block nor a release"))
			}
			found.Items = append(found.Items, b.Listed)
		}
		found.Cut, found.Foreign = found.Cut || page.Cut, page.Foreign
		if found.Unreadable = page.Unreadable; page.Next == "" {
			return found, nil
		}
		cursor = page.Next
	}
}

// RefusedError is what a server refused, in its words.
type RefusedError struct {
	Server string
	Status int
	Detail string
}

func (e *RefusedError) Error() string { return fmt.Sprintf("server %s: %s", e.Server, e.Detail) }

// refusedRelease carries what is known of a release that was refused.
type refusedRelease struct {
	release *acts.ReleaseDone
	cause   error
}

func (e *refusedRelease) Error() string { return e.cause.Error() }

func (e *refusedRelease) Unwrap() error { return e.cause }

// gapChanged is acts.GapChangedError in the server's words.
type gapChanged struct {
	detail string
	cause  *acts.GapChangedError
}

func (e *gapChanged) Error() string { return e.detail }

func (e *gapChanged) Unwrap() error { return e.cause }

// told is what a server refused as the error that would have come here, with the problem that it told.
type told struct {
	error
	problem *api.Problem
}

func (e *told) Unwrap() error { return e.error }

// refusal is the error that the server's problem stands for: the one that would have come here.
func (c *connection) refusal(status int, p *api.Problem) error {
	return &told{c.refused(status, p), p}
}

func (c *connection) refused(status int, p *api.Problem) error {
	switch {
	case status == http.StatusUnauthorized:
		return &RefusedError{c.base.String(), status, "the token is not accepted: is it one of this server's, and has it not ended?"}
	case p.Release != nil && status == http.StatusNotFound:
		return &refusedRelease{p.Release, &acts.NotBlockedError{Rule: p.Release.Rule, Subject: p.Release.Subject}}
	case p.Release != nil:
		return &refusedRelease{p.Release, &acts.MisshapenError{Problem: p.Detail}}
	case len(p.Problems) > 0:
		return rules.Problems(p.Problems)
	case p.Field != "":
		return &acts.Invalid{Field: p.Field, Got: p.Got, Allowed: p.Allowed}
	case p.Thing != "":
		return &acts.UnknownName{Thing: p.Thing, Name: p.Got, Known: p.Known}
	case p.Current != nil:
		return &acts.ChangedError{Rule: p.Current.Rule, Now: *p.Current}
	case p.Partition != nil:
		return &gapChanged{p.Detail, &acts.GapChangedError{Now: *p.Partition}}
	case status == http.StatusConflict && p.Type == api.TypeChanged:
		return rulestore.ErrOvertaken
	case status == http.StatusConflict:
		return errors.New(p.Detail)
	}
	return &RefusedError{c.base.String(), status, p.Detail}
}
