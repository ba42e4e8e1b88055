package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/why"
	"github.com/weirhq/weir/history/evidence"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/duration"
)

// Teller tells what is behind a block, and whether it holds now.
type Teller interface {
	Why(ctx context.Context, q why.Question) (*why.Answer, error)
}

var _ Teller = (*why.Teller)(nil)

// Dossiers makes dossiers of versions of rules.
type Dossiers interface {
	// Gather makes one; postgres.ErrNotFound is wrapped where there is no such rule, evidence.ErrNoVersion where it has no such version.
	Gather(ctx context.Context, q evidence.Question) (*evidence.Dossier, error)
}

// Dossier is a dossier with the SHA-256 of its canonical form, as it stands here: with pseudonyms another one.
type Dossier struct {
	Hash    string            `json:"hash" mask:"-"`
	Dossier *evidence.Dossier `json:"dossier"`
}

func historyHit(c *call) (any, error) {
	id, err := explore.ParseID(c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	st, err := c.o.Reader.Explorer.Story(c.r.Context(), id)
	if err != nil {
		return nil, err
	}
	if st == nil {
		return nil, &httpError{status: http.StatusNotFound, kind: kindUnrecorded, title: "no such hit", detail: fmt.Sprintf("no hit in history has an id that begins with %s", id)}
	}
	return st, nil
}

func whyID(c *call) (any, error) {
	id, err := explore.ParseID(c.r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	return c.why(why.Question{ID: id}, id)
}

func whySource(c *call) (any, error) {
	source, err := c.source()
	if err == nil && source == "" {
		err = &acts.Invalid{Field: "source", Allowed: sourceAllowed}
	}
	if err != nil {
		return nil, err
	}
	return c.why(why.Question{Source: source}, c.values["source"])
}

// why answers a question in which somebody wrote text.
func (c *call) why(q why.Question, text string) (any, error) {
	a, err := c.o.Reader.Teller.Why(c.r.Context(), q)
	var nothing *why.NothingError
	switch {
	case errors.As(err, &nothing):
		detail := nothing.Looked
		if q.Source != "" { // of which the text may have been a pseudonym
			detail = "history has no block and no hit of " + text
		}
		if nothing.Away != nil {
			c.o.Logger.Warn("a block was looked for in vain", "operation", c.name, "error", nothing.Away)
			detail += ", and Redis could not be asked"
		}
		return nil, &httpError{status: http.StatusNotFound, kind: kindUnrecorded, title: "nothing is known of it", detail: detail}
	case err != nil:
		return nil, err
	}
	if a.Unknown != "" {
		c.o.Logger.Warn("whether a block holds is not known", "operation", c.name, "error", a.Unknown)
		a.Unknown = "Redis did not answer the server"
	}
	return a, nil
}

// dossierSpan is how far back a dossier goes where nobody says.
const dossierSpan = 7 * 24 * time.Hour

func dossier(c *call) (any, error) {
	q, err := c.dossierQuestion()
	if err != nil {
		return nil, err
	}
	d, err := c.o.Reader.Dossiers.Gather(c.r.Context(), q)
	switch {
	case errors.Is(err, evidence.ErrNoVersion):
		return nil, &httpError{status: http.StatusNotFound, kind: kindUnrecorded, title: "there is no such version", detail: err.Error()}
	case errors.Is(err, postgres.ErrNotFound):
		if _, unknown := c.o.Reader.Named(c.r.Context(), q.Rule); unknown != nil {
			return nil, unknown
		}
		return nil, err
	case err != nil:
		return nil, err
	}
	return &Dossier{Dossier: d}, nil
}

// seal fills in the hash, of the dossier as it is shown.
func (d *Dossier) seal() error {
	document, err := d.Dossier.Document()
	d.Hash = evidence.Hash(document)
	return err
}

func (c *call) dossierQuestion() (q evidence.Question, err error) {
	now := c.o.Reader.Clock()
	q = evidence.Question{Rule: c.r.PathValue("rule")}
	if text := c.values["version"]; text != "" {
		if q.Version, err = strconv.Atoi(text); err != nil || q.Version < 1 {
			return q, &acts.Invalid{Field: "version", Got: text, Allowed: "a version of the rule, from 1 on"}
		}
	}
	switch pending, candidate := c.flag("pending"), c.flag("candidate"); {
	case pending && (candidate || q.Version != 0):
		return q, &acts.Invalid{Field: "pending", Got: "true", Allowed: "one of version, pending and candidate, or version with candidate"}
	case pending:
		q.Role = evidence.Pending
	case candidate:
		q.Role = evidence.Candidate
	}
	if q.Since, q.Until, err = explore.ParseSpan(c.values["since"], c.values["until"], now.Std()); err != nil {
		return q, err
	}
	if q.Until == 0 {
		q.Until = now
	}
	if q.Since == 0 {
		q.Since = q.Until.Add(-dossierSpan)
	}
	if span := q.Until.Sub(q.Since); span < time.Minute || span > evidence.MaxSpan {
		return q, &acts.Invalid{Field: "since", Got: c.values["since"], Allowed: fmt.Sprintf("a time at least a minute before until, and at most %s", duration.Format(evidence.MaxSpan))}
	}
	return q, nil
}
