package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/reveal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Reasoned is what an act needs that has nothing else to say.
type Reasoned struct {
	Reason string `json:"reason"`
	// Seen is the revision of the rule that was looked at; empty: whatever it is. If-Match says the same.
	Seen string `json:"seen,omitempty"`
}

// ruled checks the rule that a body repeats against the path's, and what was seen against If-Match.
func (c *call) ruled(rule, seen *string) error {
	at := c.r.PathValue("rule")
	if *rule != "" && *rule != at {
		return &acts.Invalid{Field: "rule", Got: *rule, Allowed: at + ", the rule of the path, or nothing"}
	}
	*rule = at
	if seen == nil {
		return nil
	}
	match, err := c.seen()
	if err == nil && match != "" {
		*seen = match
	}
	return err
}

// told leaves the address of Redis out of what an act says of gates; the log of the server has it.
func (c *call) told(p *acts.Publication) {
	if p == nil || p.Unpublished == "" {
		return
	}
	c.o.Logger.Warn("gates were not told", "operation", c.name, "error", p.Unpublished)
	p.Unpublished = "Redis did not answer the server"
}

func promote(c *call) (any, error) {
	var r acts.PromoteRequest
	if err := errors.Join(c.body(&r), c.ruled(&r.Rule, &r.Seen)); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.Promote(c.r.Context(), c.actor, r)
	c.told(&done.Publication)
	return done, err
}

func setMode(mode rules.Mode) func(*call) (any, error) {
	return func(c *call) (any, error) {
		var body Reasoned
		r := acts.ModeRequest{Mode: mode}
		if err := errors.Join(c.body(&body), c.ruled(&r.Rule, &body.Seen)); err != nil {
			return nil, err
		}
		r.Reason, r.Seen = body.Reason, body.Seen
		done, err := c.o.Acts.SetMode(c.r.Context(), c.actor, r)
		c.told(&done.Publication)
		return done, err
	}
}

func setLimit(c *call) (any, error) {
	var r acts.LimitRequest
	if err := errors.Join(c.body(&r), c.ruled(&r.Rule, &r.Seen)); err != nil {
		return nil, err
	}
	return c.o.Acts.SetLimit(c.r.Context(), c.actor, r)
}

func rollback(c *call) (any, error) {
	var r acts.RollbackRequest
	if err := errors.Join(c.body(&r), c.ruled(&r.Rule, nil)); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.Rollback(c.r.Context(), c.actor, r)
	c.told(done.Publication)
	return done, err
}

// meant puts the subject that the actor means in the place of one that he may name by pseudonyms.
func (c *call) meant(s *traffic.Subject) error {
	subject, err := c.mask.ResolveSubject(*s)
	if err != nil {
		return &acts.Invalid{Field: "subject", Got: string(*s), Allowed: err.Error()}
	}
	*s = subject
	return nil
}

func reset(c *call) (any, error) {
	var r acts.ResetRequest
	if err := errors.Join(c.body(&r), c.ruled(&r.Rule, nil)); err != nil {
		return nil, err
	}
	if err := c.meant(&r.Subject); err != nil {
		return nil, err
	}
	return c.o.Acts.ResetCount(c.r.Context(), c.actor, r)
}

// eraseWait is how long a request waits for an erasure: shorter than proxies wait for an answer.
const eraseWait = 15 * time.Second

func erase(c *call) (any, error) {
	var r acts.EraseRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	r.Wait = eraseWait
	state, err := c.o.Acts.Erase(c.r.Context(), c.actor, r)
	if err != nil {
		return nil, err
	}
	if state.Running {
		return state, &acts.UnfinishedError{Done: "the erasure has begun", Undone: "it goes on: ask the same again", Cause: context.DeadlineExceeded}
	}
	return state, nil
}

func apply(c *call) (any, error) {
	var r acts.ApplyRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.Apply(c.r.Context(), c.actor, r)
	c.told(done.Publication)
	return done, documented(len(r.Files), err)
}

// documented says of files that hold no document how many there are; any other error stays.
func documented(files int, err error) error {
	if errors.Is(err, acts.ErrNoRules) {
		return &acts.Invalid{Field: "files", Got: fmt.Sprintf("%d files without a document", files),
			Allowed: "at least one rule or allow list"}
	}
	return err
}

func try(c *call) (any, error) {
	var r acts.TryRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	tried, err := c.o.Acts.Try(c.r.Context(), c.actor, r)
	return tried, documented(len(r.Files), err)
}

func release(c *call) (any, error) {
	var r acts.ReleaseRequest
	if err := errors.Join(c.body(&r), c.ruled(&r.Rule, nil)); err != nil {
		return nil, err
	}
	if err := c.meant(&r.Subject); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.Release(c.r.Context(), c.actor, r)
	slices.SortStableFunc(done.Offers, func(a, b acts.ReleaseOffer) int {
		return strings.Compare(c.mask.Order(a.Subject), c.mask.Order(b.Subject))
	})
	var nothing *acts.NotBlockedError
	var misshapen *acts.MisshapenError
	switch {
	case errors.As(err, &nothing):
		return nil, &httpError{status: http.StatusNotFound, title: "nothing was blocked", detail: done.Problem,
			release: &done, cause: err}
	case errors.As(err, &misshapen):
		return nil, &httpError{status: http.StatusBadRequest, title: "this is no source of the rule's blocks",
			detail: done.Problem, release: &done, cause: err}
	}
	return done, err
}

func block(c *call) (any, error) {
	var r acts.BlockRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	if err := c.meant(&r.Subject); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.Block(c.r.Context(), c.actor, r)
	c.told(&done.Publication)
	if done.Unknown != "" {
		c.o.Logger.Warn("who is behind a source could not be asked", "operation", c.name, "error", done.Unknown)
		done.Unknown = "history did not answer the server"
	}
	return done, err
}

func changeNeverBlock(c *call) (any, error) {
	var r acts.NeverRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	done, err := c.o.Acts.ChangeNeverBlock(c.r.Context(), c.actor, r)
	if done.Unknown != "" {
		c.o.Logger.Warn("blocks of addresses that are never blocked could not be lifted", "operation", c.name, "error",
			done.Unknown)
		done.Unknown = "Redis or Kafka did not answer the server"
	}
	return done, err
}

// listNeverBlock shows who is never blocked.
func listNeverBlock(c *call) (any, error) {
	all, err := c.o.Acts.NeverBlockList(c.r.Context(), c.actor)
	if err != nil {
		return nil, err
	}
	if c.mask.Any() { // a list of addresses without the addresses is none
		return nil, &httpError{status: http.StatusForbidden, title: "the list shows addresses as they are",
			detail: fmt.Sprintf("%s is shown pseudonyms", c.actor)}
	}
	return Page[acts.NeverListed]{Items: all}, nil
}

func changeAllow(c *call) (any, error) {
	var r acts.AllowRequest
	if err := c.body(&r); err != nil {
		return nil, err
	}
	if at := c.r.PathValue("list"); r.List != "" && r.List != at {
		return nil, &acts.Invalid{Field: "list", Got: r.List, Allowed: at + ", the list of the path, or nothing"}
	}
	r.List = c.r.PathValue("list")
	for i := range r.Entries {
		e := &r.Entries[i]
		field, known := e.Kind.Field()
		if !known {
			continue // which the act refuses
		}
		value, err := c.mask.Resolve(field.String(), e.Value)
		if err != nil {
			return nil, &acts.Invalid{Field: fmt.Sprintf("entries[%d].value", i), Got: e.Value, Allowed: err.Error()}
		}
		e.Value = value
	}
	done, err := c.o.Acts.ChangeAllow(c.r.Context(), c.actor, r)
	if done.Unknown != "" {
		c.o.Logger.Warn("which blocks hold all the same could not be asked", "operation", c.name, "error", done.Unknown)
		done.Unknown = "Redis did not answer the server"
	}
	slices.SortStableFunc(done.Blocks, func(a, b acts.AllowBlock) int {
		return strings.Compare(c.mask.Order(a.Subject), c.mask.Order(b.Subject))
	})
	return done, err
}

// listPartitions shows what the stages report.
func listPartitions(c *call) (any, error) {
	all, err := c.o.Acts.Partitions(c.r.Context(), c.actor)
	if err != nil {
		return nil, err
	}
	page := Page[acts.Partition]{Items: []acts.Partition{}}
	for i := range all {
		if !c.flag("stopped") || !all[i].Running() {
			page.Items = append(page.Items, all[i])
		}
	}
	return page, nil
}

func resume(c *call) (any, error) {
	r := acts.ResumeRequest{}
	if err := c.body(&r); err != nil {
		return nil, err
	}
	text := c.r.PathValue("partition")
	n, err := strconv.Atoi(text)
	if err != nil {
		return nil, &acts.Invalid{Field: "partition", Got: text, Allowed: "the number of a partition, from 0 on"}
	}
	r.Side, r.Partition = ingest.Side(c.r.PathValue("side")), n
	return c.o.Acts.ResumePartition(c.r.Context(), c.actor, r)
}

// Revealed is what a pseudonym stands for.
type Revealed struct {
	Field string `json:"field" mask:"-"`
	Of    string `json:"of" mask:"-"`
	Value string `json:"value" mask:"-"`
}

func revealed(c *call) (any, error) {
	var r reveal.Request
	if err := c.body(&r); err != nil {
		return nil, err
	}
	value, err := c.o.Reveal(c.r.Context(), c.actor, r)
	var bad *reveal.BadRequest
	var forbidden *access.Forbidden
	switch {
	case errors.As(err, &bad):
		return nil, &httpError{status: http.StatusBadRequest, title: "the request is written wrongly", detail: bad.Text}
	case errors.As(err, &forbidden):
		return nil, err
	case err != nil:
		return nil, &httpError{status: http.StatusServiceUnavailable, title: "nothing is revealed", detail: "it cannot be written down just now who asks, and so nothing is shown", cause: err}
	}
	return Revealed{Field: r.Field, Of: r.Of, Value: value}, nil
}
