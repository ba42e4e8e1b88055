package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// Problem is an answer that is no success, after RFC 9457.
type Problem struct {
	Type   string `json:"type" mask:"-"` // a URN that tells the kinds of problems apart
	Title  string `json:"title" mask:"-"`
	Status int    `json:"status"`
	Detail string `json:"detail" mask:"-"` // acts.Words makes it

	// Field, Got and Allowed are of a request that is written wrongly: 400.
	Field   string `json:"field,omitempty" mask:"-"`
	Got     string `json:"got,omitempty" mask:"-"`
	Allowed string `json:"allowed,omitempty" mask:"line"`
	// Near is what was probably meant, where a word that is not among those allowed, or a name that nothing has, comes close to one.
	Near string `json:"near,omitempty" mask:"-"`
	// Thing, Got and Known are of a name that nothing has: 404. Known are the names that there are, a hundred at most.
	Thing string   `json:"thing,omitempty" mask:"-"`
	Known []string `json:"known,omitempty" mask:"-"`
	// Current is what a rule is now, where somebody else was quicker: 412.
	Current *acts.Standing `json:"current,omitempty"`
	// Gates are those of a promotion that was refused for them: 409.
	Gates []promotion.Verdict `json:"gates,omitempty"`
	// Partition is what a partition is now, where it stands before another gap than the one that was shown: 409.
	Partition *acts.Partition `json:"partition,omitempty"`
	// Problems are those of rule documents: 400.
	Problems []rules.Problem `json:"problems,omitempty"`
	// Release is what is known of a release that was refused: 404, 400.
	Release *acts.ReleaseDone `json:"release,omitempty"`
	// Done and Undone are what an act has done before a store went away, and what is not known.
	Done   string `json:"done,omitempty" mask:"line"`
	Undone string `json:"undone,omitempty" mask:"line"`
}

// TypeAmbiguous is the type of the problem that the beginning of an id is that of several: known are some of them, got is the beginning.
const TypeAmbiguous = problemType + kindAmbiguous

// TypeUnrecorded is the type of the problem that nothing is known of what was asked about: the hit, the source, the version. A server that does
// not know the question at all says so otherwise.
const TypeUnrecorded = problemType + kindUnrecorded

// maxKnown bounds the names that a problem lists.
const maxKnown = 100

// httpError is an error of this package with its status.
type httpError struct {
	status        int
	kind          string // empty: that of the status
	title, detail string
	release       *acts.ReleaseDone
	cause         error
}

func (e *httpError) Error() string { return e.detail }

func (e *httpError) Unwrap() error { return e.cause }

// TypeChanged is the type of the problem that somebody else was quicker.
const TypeChanged = problemType + kindChanged

const problemType = "urn:weir:problem:"

// kinds are the last parts of problem types.
const (
	kindInvalid     = "invalid"
	kindForbidden   = "forbidden"
	kindNotFound    = "not-found"
	kindChanged     = "changed"
	kindRefused     = "refused"
	kindUnavailable = "unavailable"
	kindLimited     = "limited"
	kindAmbiguous   = "ambiguous"
	kindUnrecorded  = "unrecorded"
	kindOther       = "other"
)

// problemOf words an error for who asked: what is wrong with the request in full, what is wrong here without addresses of servers.
func problemOf(err error) Problem {
	var (
		forbidden  *access.Forbidden
		beyond     *acts.BeyondError
		unwritten  *access.UnwrittenError
		invalid    *acts.Invalid
		unknown    *acts.UnknownName
		changed    *acts.ChangedError
		unfinished *acts.UnfinishedError
		documents  rules.Problems
		own        *httpError
		asked      *explore.BadFilterError
		nobody     *explore.UnknownError
		several    *explore.AmbiguousError
		taken      *acts.AwayError
		away       *postgres.UnreachableError
		busy       *turns.BusyError
	)
	make := func(kind string, status int, title string) Problem {
		return Problem{Type: problemType + kind, Title: title, Status: status, Detail: err.Error()}
	}
	switch {
	case errors.As(err, &forbidden):
		p := make(kindForbidden, http.StatusForbidden, "this role may not do that")
		p.Detail = forbidden.Error()
		return p
	case errors.As(err, &beyond):
		p := make(kindForbidden, http.StatusForbidden, "beyond what the owner is bound to")
		p.Detail = beyond.Error()
		return p
	case errors.As(err, &unwritten):
		p := make(kindUnavailable, http.StatusServiceUnavailable, "it cannot be written down who asks")
		p.Detail = unwritten.Error()
		return p
	case errors.As(err, &invalid):
		p := make(kindInvalid, http.StatusBadRequest, "the request is written wrongly")
		p.Detail, p.Field, p.Got, p.Allowed = invalid.Error(), invalid.Field, invalid.Got, invalid.Allowed
		return p
	case errors.As(err, &unknown):
		return unknownProblem(unknown.Error(), unknown.Thing, unknown.Name, unknown.Known,
			rules.Nearest(unknown.Name, unknown.Known))
	case errors.As(err, &nobody):
		return unknownProblem(nobody.Error(), nobody.Thing, nobody.Got, nobody.Known, nobody.Near)
	case errors.As(err, &asked):
		p := make(kindInvalid, http.StatusBadRequest, "the request is written wrongly")
		p.Detail, p.Field, p.Got, p.Allowed, p.Near = asked.Error(), asked.Field, asked.Got, asked.Allowed, asked.Near
		return p
	case errors.As(err, &several):
		p := make(kindAmbiguous, http.StatusBadRequest, "several hits have an id that begins so")
		p.Detail, p.Thing, p.Got, p.Known = several.Error(), "hit", several.ID, few(several.IDs, "")
		return p
	case errors.As(err, &changed):
		p := make(kindChanged, http.StatusPreconditionFailed, "somebody else was quicker")
		p.Detail, p.Current = changed.Error(), &changed.Now
		return p
	case errors.As(err, &unfinished):
		p := make(kindUnavailable, http.StatusServiceUnavailable, "begun, and not known to be complete")
		p.Done, p.Undone = unfinished.Done, unfinished.Undone
		return p
	case errors.As(err, &documents):
		p := make(kindInvalid, http.StatusBadRequest, "the documents have problems")
		p.Problems = documents
		return p
	case errors.As(err, &own):
		return own.problem()
	case errors.As(err, &busy):
		return busyProblem(busy)
	case errors.As(err, &taken):
		p := make(kindUnavailable, http.StatusServiceUnavailable, "a store does not answer")
		p.Detail = fmt.Sprintf("%s does not answer: %s", taken.Store, taken.Consequence)
		return p
	case errors.As(err, &away), errors.Is(err, context.DeadlineExceeded), postgres.Broken(err):
		p := make(kindUnavailable, http.StatusServiceUnavailable, "a store does not answer")
		p.Detail = "a store of the installation does not answer: nothing is known to be done; look before you ask again"
		return p
	case errors.Is(err, postgres.ErrNotFound):
		return make(kindNotFound, http.StatusNotFound, "there is nothing of this name")
	}
	return conflict(err)
}

// unknownProblem words that nothing has a name.
func unknownProblem(detail, thing, got string, known []string, near string) Problem {
	return Problem{Type: problemType + kindNotFound, Title: "there is nothing of this name",
		Status: http.StatusNotFound,
		Detail: detail, Thing: thing, Got: got, Near: near, Known: few(known, near)}
}

// busyProblem words that a question was not asked, since others are being answered.
func busyProblem(busy *turns.BusyError) Problem {
	p := Problem{Type: problemType + kindUnavailable, Title: "too many questions at a time",
		Status: http.StatusServiceUnavailable, Detail: busy.Error()}
	if busy.Own {
		p.Type, p.Status = problemType+kindLimited, http.StatusTooManyRequests
	}
	return p
}

// conflict words what is refused for what is so now: nothing was done.
func conflict(err error) Problem {
	var gates *rulestore.GatesError
	var turned *acts.TurnedError
	var gap *acts.GapChangedError
	p := Problem{Type: problemType + kindChanged, Status: http.StatusConflict, Detail: err.Error()}
	switch {
	case errors.As(err, &gates):
		return gatesProblem("the rule's gates do not pass", gates, gates.Verdicts)
	case errors.As(err, &turned):
		return gatesProblem("a gate answers otherwise than when it was looked at", turned, turned.Now)
	case errors.As(err, &gap):
		p.Title, p.Partition = "the partition stands before another gap", &gap.Now
	case errors.Is(err, rulestore.ErrOvertaken):
		p.Title, p.Detail = "the stored rules have changed", rulestore.ErrOvertaken.Error()
	default:
		p.Type, p.Title = problemType+kindRefused, "refused: nothing was done"
	}
	return p
}

// gatesProblem words a promotion that its gates refuse.
func gatesProblem(title string, err error, gates []promotion.Verdict) Problem {
	return Problem{Type: problemType + kindRefused, Title: title, Status: http.StatusConflict, Detail: err.Error(),
		Gates: gates}
}

// few are at most maxKnown of the names that there are, the one that is near among them.
func few(known []string, near string) []string {
	if len(known) <= maxKnown {
		return known
	}
	cut := slices.Clone(known[:maxKnown])
	if near != "" && !slices.Contains(cut, near) {
		cut[maxKnown-1] = near
	}
	return cut
}

func (e *httpError) problem() Problem {
	kind := map[int]string{
		http.StatusBadRequest: kindInvalid, http.StatusNotFound: kindNotFound, http.StatusTooManyRequests: kindLimited,
		http.StatusServiceUnavailable: kindUnavailable, http.StatusForbidden: kindForbidden,
	}[e.status]
	if e.kind != "" {
		kind = e.kind
	}
	if kind == "" {
		kind = kindOther
	}
	return Problem{Type: problemType + kind, Title: e.title, Status: e.status, Detail: e.detail, Release: e.release}
}

// readError is err, or that of a request that cannot be read whole.
func readError(err error) error {
	if unread := (*access.FormError)(nil); errors.As(err, &unread) {
		return &httpError{status: unread.Status, title: "the request cannot be read", detail: unread.Text}
	}
	return err
}

// clientClosed is the status of a request that its client gave up, as nginx has it in logs.
const clientClosed = 499

// fail answers with a problem. What is wrong here is logged whole: the answer names no server.
func (a *API) fail(w http.ResponseWriter, r *http.Request, operation string, err error) {
	p := problemOf(err)
	actor, mask := access.From(r.Context()), access.MaskOf(r.Context())
	if mask == nil { // of a request that no route has taken
		mask = a.o.Masker.For(actor)
	}
	var own *httpError
	switch {
	case errors.As(err, &own):
		p.Detail = mask.Line(p.Detail)
	case p.Detail == err.Error():
		p.Detail = acts.Words(mask, actor, err)
	}
	p = access.Show(mask, p)
	if p.Status >= http.StatusInternalServerError && r.Context().Err() != nil {
		// The client is gone, or has half closed its connection and waits: without an answer it would get a 200.
		p.Status, p.Title = clientClosed, "the request was given up before it was answered"
	} else if p.Status >= http.StatusInternalServerError {
		a.o.Logger.Warn("a request to the API could not be answered", "operation", operation, "error", err)
	}
	if p.Status == http.StatusForbidden && actor.Role == access.Nobody {
		p.Status = http.StatusUnauthorized
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	a.requests.WithLabelValues(operation, strconv.Itoa(p.Status)).Inc()
	later := p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests
	if later && w.Header().Get("Retry-After") == "" {
		w.Header().Set("Retry-After", "2")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(p.Status)
	var text bytes.Buffer
	_ = json.NewEncoder(&text).Encode(p)     // it is one of ours and encodes
	_, _ = w.Write(shown.JSON(text.Bytes())) // the client is gone
}
