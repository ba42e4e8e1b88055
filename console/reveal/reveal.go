// Package reveal shows what is behind a pseudonym, to who may and says why. Each time is audited before the value is shown.
package reveal

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"strings"
	"unicode"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
)

// Trail is where it is written down.
type Trail interface {
	// Add stores an entry of its own.
	Add(ctx context.Context, entry audit.Entry) error
}

var _ Trail = (*audit.Trail)(nil)

// Options are what a Revealer needs. All are required but Masker: without one there are no pseudonyms.
type Options struct {
	Masker *access.Masker
	Trail  Trail
	// Refuse answers who may not: signin.Guard's.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)
	Logger *slog.Logger
}

// Revealer reveals, and serves the page /reveal; console/api serves the same to programs.
type Revealer struct {
	o    Options
	page *template.Template
}

//go:embed reveal.html
var pageText string

// New makes a Revealer.
func New(o Options) (*Revealer, error) {
	if o.Trail == nil || o.Refuse == nil || o.Logger == nil {
		return nil, errors.New("reveal: Trail, Refuse or Logger is missing")
	}
	page, err := template.New("reveal").Parse(pageText)
	if err != nil {
		return nil, fmt.Errorf("reveal: %w", err)
	}
	return &Revealer{o: o, page: page}, nil
}

// AddTo adds the routes to a router.
func (v *Revealer) AddTo(m *access.Mux) {
	m.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/reveal", Act: access.Reveal}, v.ask)
	m.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/reveal", Act: access.Reveal}, v.answerForm)
}

// Request asks for what is behind a pseudonym.
type Request struct {
	Field  string `json:"field"` // ip, device, …
	Of     string `json:"of"`    // ~…
	Reason string `json:"reason"`
}

// maxReasonBytes bounds a reason.
const maxReasonBytes = 1000

// BadRequest is what is wrong with a request: it names the field, what it got and what is allowed.
type BadRequest struct{ Text string }

func (b *BadRequest) Error() string { return b.Text }

// Reveal is the value behind a pseudonym. *access.Forbidden says that actor may not, a *BadRequest what is wrong with the request. What
// cannot be audited is not shown.
func (v *Revealer) Reveal(ctx context.Context, actor access.Actor, r Request) (string, error) {
	if err := access.May(actor, access.Reveal, ""); err != nil {
		return "", err
	}
	if strings.IndexFunc(r.Reason, unicode.IsLetter) < 0 || len(r.Reason) > maxReasonBytes {
		return "", &BadRequest{fmt.Sprintf("reason: got %d bytes; allowed: words that say why, at most %d bytes: they are kept in the audit trail", len(r.Reason), maxReasonBytes)}
	}
	value, ok := v.o.Masker.Original(r.Field, r.Of)
	if !ok {
		return "", &BadRequest{"of: got what is no pseudonym of that field in this installation; allowed: a pseudonym (~…) with the field that it stands for, one of " +
			strings.Join(access.MaskableFields(), ", ")}
	}
	entry := audit.Entry{Actor: actor.Name, Via: actor.Via, Action: "reveal", Object: r.Field + "=" + r.Of, Reason: r.Reason, Before: "masked", After: "shown to " + actor.Name}
	if err := v.o.Trail.Add(ctx, entry); err != nil {
		return "", fmt.Errorf("revealing %s: %w", entry.Object, err)
	}
	return value, nil
}

// asked is what the page shows.
type asked struct {
	Request
	CSRF, CSRFField string
	Value, Wrong    string
}

func (v *Revealer) ask(w http.ResponseWriter, r *http.Request) {
	v.show(w, r, http.StatusOK, asked{Request: Request{Field: r.URL.Query().Get("field"), Of: r.URL.Query().Get("of")}})
}

func (v *Revealer) answerForm(w http.ResponseWriter, r *http.Request) {
	if unread := (*access.FormError)(nil); errors.As(access.Form(w, r), &unread) {
		v.show(w, r, unread.Status, asked{Wrong: unread.Text})
		return
	}
	request := Request{Field: r.PostFormValue("field"), Of: r.PostFormValue("of"), Reason: r.PostFormValue("reason")}
	value, err := v.Reveal(r.Context(), access.From(r.Context()), request)
	status, wrong, done := v.judge(w, r, err)
	if !done {
		v.show(w, r, status, asked{Request: request, Value: value, Wrong: wrong})
	}
}

// judge says with which status and words to answer an error. done: it has been answered.
func (v *Revealer) judge(w http.ResponseWriter, r *http.Request, err error) (status int, wrong string, done bool) {
	var bad *BadRequest
	var forbidden *access.Forbidden
	switch {
	case err == nil:
		return http.StatusOK, "", false
	case errors.As(err, &forbidden):
		v.o.Refuse(w, r, err)
		return 0, "", true
	case errors.As(err, &bad):
		return http.StatusBadRequest, bad.Text, false
	}
	v.o.Logger.Error("a value cannot be revealed", "error", err)
	w.Header().Set("Retry-After", "5")
	return http.StatusServiceUnavailable, "it cannot be written down just now who asks, and so nothing is shown", false
}

func (v *Revealer) show(w http.ResponseWriter, r *http.Request, status int, data asked) {
	data.CSRF, data.CSRFField = access.VisitOf(r.Context()).CSRF, access.CSRFField
	var page bytes.Buffer
	if err := v.page.Execute(&page, data); err != nil {
		v.o.Logger.Error("the page cannot be made", "error", err)
		http.Error(w, http.StatusText(http.StatusInternalServerError), http.StatusInternalServerError)
		return
	}
	h := w.Header()
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes())
}
