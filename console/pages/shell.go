package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/traffic"
)

// answerWithin bounds how long a page waits for the stores.
const answerWithin = 10 * time.Second

// shell is a page with what stands around it.
type shell struct {
	Name   string // of the template
	Title  string
	Active string // the entry of the navigation that is shown as the present one
	Visit  access.Visit
	Scheme string // light, dark, or empty: as the system says
	Here   string // the page's own address, to come back to
	Query  string // what the search box holds
	Now    traffic.Time
	Live   bool // whether the page has parts that a script keeps up to date
	Body   any
}

// tab is one entry of the navigation.
type tab struct{ Name, Title, Href string }

// Tabs are the navigation.
func (s *shell) Tabs() []tab {
	return []tab{
		{"overview", "Overview", "/"}, {"explore", "Explore", "/explore"}, {"blocks", "Blocks", "/blocks"},
		{"audit", "Audit", "/audit"}, {"health", "Health", "/health"},
	}
}

// Schemes are what the page may look like, for its switch.
func (s *shell) Schemes() []tab {
	all := []tab{{"", "System", "system"}, {"light", "Light", "light"}, {"dark", "Dark", "dark"}}
	for i := range all {
		all[i].Href = "/scheme?to=" + all[i].Href + "&back=" + url.QueryEscape(s.Here)
	}
	return all
}

// answered runs a page with a deadline, and shows its error as a page.
func (p *Pages) answered(show func(w http.ResponseWriter, r *http.Request) error) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin)
		defer cancel()
		if err := show(w, r.WithContext(ctx)); err != nil {
			p.fail(w, r, statusOf(err), err)
		}
	}
}

// show writes a page.
func (p *Pages) show(w http.ResponseWriter, r *http.Request, s *shell) error {
	return p.write(w, r, http.StatusOK, s)
}

func (p *Pages) write(w http.ResponseWriter, r *http.Request, status int, s *shell) error {
	s.Visit, s.Scheme, s.Here, s.Now = access.VisitOf(r.Context()), schemeOf(r), r.URL.RequestURI(), p.o.Clock()
	if s.Query == "" && s.Name == "search" {
		s.Query = shown.Text(r.URL.Query().Get("q"))
	}
	var page bytes.Buffer // a page that fails half-way is not sent at all
	if err := p.templates[s.Name].ExecuteTemplate(&page, "layout", s); err != nil {
		return fmt.Errorf("rendering the page %s: %w", s.Name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(page.Bytes()) // the client is gone
	return nil
}

// badRequest is a filter that cannot be meant. Its text names the field and what is allowed.
type badRequest struct{ field, got, allowed string }

func (e *badRequest) Error() string {
	return fmt.Sprintf("%s: got %q; allowed: %s", e.field, e.got, e.allowed)
}

// missing is a thing that there is not.
type missing struct{ what string }

func (e *missing) Error() string { return e.what }

func notHere(r *http.Request) error {
	return &missing{"There is no page at " + shown.Text(r.URL.Path) + "."}
}

func statusOf(err error) int {
	var bad *badRequest
	var none *missing
	var forbidden *access.Forbidden
	var filter *explore.BadFilterError
	var ambiguous *explore.AmbiguousError
	var unknown *explore.UnknownError
	switch {
	case errors.As(err, &bad), errors.As(err, &filter), errors.As(err, &ambiguous), errors.As(err, &unknown):
		return http.StatusBadRequest
	case errors.As(err, &none), errors.Is(err, postgres.ErrNotFound):
		return http.StatusNotFound
	case errors.As(err, &forbidden):
		return http.StatusForbidden
	}
	return http.StatusServiceUnavailable
}

// failure is the page that says why there is no other one.
type failure struct {
	Status  int
	Title   string
	Detail  string
	Next    string // what can be done
	Command string
}

// fail shows why a page cannot be had.
func (p *Pages) fail(w http.ResponseWriter, r *http.Request, status int, err error) {
	f := failure{Status: status, Detail: shown.Text(err.Error())}
	switch status {
	case http.StatusBadRequest:
		f.Title, f.Next = "This cannot be asked", "Change the address or go back and correct the filter."
	case http.StatusForbidden:
		f.Title, f.Next = "You may not see this", "Ask an admin of this installation for another role."
	case http.StatusNotFound:
		f.Title, f.Next = "There is no such page", "The search box takes a block id, an address, a device, a user and the name of a rule."
	default:
		f.Title, f.Next = "A store does not answer", "Nothing is lost: the stream goes on without this page. Try again, or see what is wrong with the installation."
		f.Command = p.o.Command + " doctor"
		p.o.Logger.Warn("console: a page cannot be shown", "path", r.URL.Path, "error", err)
		w.Header().Set("Retry-After", "5")
	}
	if err := p.write(w, r, status, &shell{Name: "failure", Title: f.Title, Body: f}); err != nil {
		p.o.Logger.Error("console: the page of an error cannot be shown", "error", err)
		w.WriteHeader(http.StatusInternalServerError)
	}
}

// cookieScheme is the cookie that keeps whether a page is light or dark. It says nothing about anybody.
const cookieScheme = "weir_scheme"

func schemeOf(r *http.Request) string {
	c, err := r.Cookie(cookieScheme)
	if err != nil || c.Value != "light" && c.Value != "dark" {
		return ""
	}
	return c.Value
}

// scheme sets whether pages are light or dark, and goes back to where the visitor was.
func (p *Pages) scheme(w http.ResponseWriter, r *http.Request) {
	to := r.URL.Query().Get("to")
	c := &http.Cookie{Name: cookieScheme, Value: to, Path: "/", MaxAge: int((365 * 24 * time.Hour).Seconds()), HttpOnly: true, SameSite: http.SameSiteLaxMode}
	switch to {
	case "light", "dark":
	case "system":
		c.Value, c.MaxAge = "", -1
	default:
		p.fail(w, r, http.StatusBadRequest, &badRequest{"to", to, "system, light, dark"})
		return
	}
	http.SetCookie(w, c)
	http.Redirect(w, r, backTo(r.URL.Query().Get("back")), http.StatusSeeOther)
}

// backTo is a page of this server: another host would be somebody else's page after our address.
func backTo(address string) string {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") || strings.HasPrefix(u.Path, "//") || strings.ContainsAny(address, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}
