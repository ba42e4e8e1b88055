// Package pages is what people see and do in a browser: pages that are rendered here, with html/template, and can be read and used
// without JavaScript: links, GET forms with their filters in the address, and POST forms for what people do. A script, where
// there is one, keeps a page up to date and moves a slider.
//
// Everything that a client of the gateway chose is hostile: it is made visible by package shown, pseudonymous for those who may not
// see it by an access.Mask, and escaped by html/template, in this order.
package pages

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules/bounds"
	"github.com/weirhq/weir/traffic"
)

// Rules is what pages read of the rule store.
type Rules interface {
	// List returns all rules that have not been removed, ascending by id.
	List(ctx context.Context) ([]rulestore.Rule, error)
	// Find returns one rule with all its versions, also a removed one; postgres.ErrNotFound is wrapped where there is none.
	Find(ctx context.Context, id string) (rulestore.Rule, error)
	// AllowLists returns all allow lists that have not been removed, ascending by id, with the rules that name them.
	AllowLists(ctx context.Context) ([]rulestore.AllowList, error)
}

var _ Rules = (*rulestore.Store)(nil)

// History is what pages read of hits and decisions beside what an Explorer answers.
type History interface {
	Decisions(ctx context.Context, q history.DecisionQuery) ([]history.RecordedDecision, error)
	NotCounted(ctx context.Context, stream string, since traffic.Time) (history.NotCounted, error)
	RefusedIn(ctx context.Context, q history.RefusalQuery) (history.RefusedTotal, error)
	FalsePositives(ctx context.Context, rule string, since, until traffic.Time) (history.FalsePositives, error)
}

var _ History = (*history.Store)(nil)

// Blocks is what pages read of Redis. Nobody changes the items of a listing: others may have them, too.
type Blocks interface {
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
}

var _ Blocks = (*blocklist.Store)(nil)

// Turns hands out turns to ask.
type Turns interface {
	// Take waits for the actor's turn, which done gives back; its error is a *turns.BusyError, or the context's.
	Take(ctx context.Context, actor access.Actor) (done func(), err error)
}

var _ Turns = (*turns.Turns)(nil)

// Options configure Pages. All but Masker, Bounds, Turns, Acts and Command are required.
type Options struct {
	Rules    Rules
	History  History
	Blocks   Blocks
	Explorer Explorer
	Evidence Evidence
	Views    Views
	Pulse    func() console.Pulse // answers at once
	Masker   *access.Masker       // nil masks nothing
	Witness  access.Witness       // writes down who takes files away and keeps views
	Bounds   bounds.Bounds        // what the rules of owners may reach; nil: nobody is bound
	Turns    Turns                // how many questions are worked on at a time; nil: any number
	Acts     Acts                 // nil: pages show commands instead of forms
	Changed  func()               // called after what may have changed which blocks there are; nil: nothing is
	Clock    func() traffic.Time
	Logger   *slog.Logger
	// Command is what precedes `rules promote …` in the commands that pages show; default "weir".
	Command string
}

// Pages serves the pages. It may be used by any number of goroutines.
type Pages struct {
	o         Options
	commands  shown.Commands
	templates map[string]*template.Template // by the name of the page
	assets    map[string]asset
	mux       *access.Mux
	lately    lately
	find      finder
}

// New makes Pages.
func New(o Options) (*Pages, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Rules", o.Rules != nil}, {"History", o.History != nil}, {"Blocks", o.Blocks != nil}, {"Explorer", o.Explorer != nil}, {"Evidence", o.Evidence != nil},
		{"Views", o.Views != nil}, {"Pulse", o.Pulse != nil}, {"Clock", o.Clock != nil}, {"Logger", o.Logger != nil},
		{"Witness", o.Witness != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("pages: %s is missing", p.name)
		}
	}
	if o.Command == "" {
		o.Command = "weir"
	}
	p := &Pages{o: o, find: finder{o.Explorer}, commands: shown.Commands(o.Command)}
	var err error
	if p.templates, err = loadTemplates(); err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	if p.assets, err = loadAssets(); err != nil {
		return nil, fmt.Errorf("pages: %w", err)
	}
	p.route()
	return p, nil
}

// Handler serves all pages and their assets. It must stand behind the console's headers, and behind what says who asks
// (access.WithVisit): without it everybody is nobody, and is refused.
func (p *Pages) Handler() http.Handler { return p.mux }

// Routes describes all routes, for the matrix of who may do what.
func (p *Pages) Routes() []access.Route { return p.mux.Routes() }

// Public reports whether a request may be answered while nobody is signed in: what the page of sign-in looks like.
func (p *Pages) Public(r *http.Request) bool { return p.mux.Public(r) }

func (p *Pages) route() {
	p.mux = access.NewMux(func(w http.ResponseWriter, r *http.Request, err error) {
		p.fail(w, r, statusOf(err), err)
	}, p.o.Witness)
	view := func(pattern string, show func(w http.ResponseWriter, r *http.Request) error) {
		p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: pattern, Act: access.View}, p.answered(show))
	}
	view("/{$}", p.overview)
	view("/explore", exploring{p}.page)
	view("/rules/{rule}", p.rule)
	view("/sources", p.source)
	view("/hits/{id}", p.hit)
	view("/blocks", p.blocks)
	view("/allow", p.allowLists)
	view("/allow/{list}", p.allowed)
	view("/audit", p.audit)
	view("/health", p.health)
	view("/search", p.search)
	if p.o.Acts != nil {
		acting{p}.route()
	}
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/explore/views", Act: access.SaveView}, p.answered(exploring{p}.keep))
	p.mux.HandleFunc(access.Route{Method: http.MethodPost, Pattern: "/explore/views/remove", Act: access.SaveView}, p.answered(exploring{p}.drop))
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/explore.csv", Act: access.Export}, p.answered(exploring{p}.exportCSV))
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/explore.json", Act: access.Export}, p.answered(exploring{p}.exportJSON))
	for at, file := range p.assets {
		p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/assets/" + at, Act: access.Public}, file.serve)
	}
	p.mux.HandleFunc(access.Route{Method: http.MethodGet, Pattern: "/scheme", Act: access.Public}, p.scheme)
	p.mux.Otherwise(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fail(w, r, http.StatusNotFound, notHere(r))
	}))
}

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
func (p *Pages) answered(show func(w http.ResponseWriter, r *http.Request) error) func(w http.ResponseWriter,
	r *http.Request) {
	return p.answeredIn(answerWithin, show)
}

func (p *Pages) answeredIn(within time.Duration, show func(w http.ResponseWriter,
	r *http.Request) error) func(w http.ResponseWriter, r *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		r = r.WithContext(access.WithMask(r.Context(), maskOf(&p.o, r)))
		if err := ask(p.o.Turns, w, r, within, show); err != nil {
			p.fail(w, r, statusOf(err), err)
		}
	}
}

// ask shows a page, within a time. One that changes nothing is a question: it waits for its visitor's turn, and uses no
// connection by which something is changed.
func ask(turn Turns, w http.ResponseWriter, r *http.Request, within time.Duration,
	show func(w http.ResponseWriter, r *http.Request) error) error {
	ctx := r.Context()
	if access.Changes(r.Method) {
		if err := access.Form(w, r); err != nil {
			return err
		}
	} else {
		ctx = postgres.In(ctx, postgres.Questions)
		if turn != nil {
			done, err := turn.Take(ctx, access.From(ctx))
			if err != nil {
				return err
			}
			defer done()
		}
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	return show(w, r.WithContext(ctx))
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

// withheld is what the visitor's role is not shown.
type withheld struct{ why string }

func (e *withheld) Error() string { return e.why }

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
	var busy *turns.BusyError
	var unread *access.FormError
	switch {
	case errors.As(err, &unread):
		return unread.Status
	case errors.As(err, &busy) && busy.Own:
		return http.StatusTooManyRequests
	case errors.As(err, &bad), errors.As(err, &filter), errors.As(err, &ambiguous), errors.As(err, &unknown):
		return http.StatusBadRequest
	case errors.As(err, &none), errors.Is(err, postgres.ErrNotFound):
		return http.StatusNotFound
	case errors.As(err, &forbidden), errors.As(err, new(*withheld)), errors.As(err, new(*acts.BeyondError)):
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
	f := failure{Status: status, Detail: words(maskOf(&p.o, r), r, err)}
	switch busy := (*turns.BusyError)(nil); {
	case errors.As(err, &busy):
		f.Title = "Too many questions at a time"
		f.Next = "Nothing is wrong with the stream. Load this page again in a moment."
		w.Header().Set("Retry-After", "5")
	case errors.As(err, new(*access.FormError)):
		f.Title, f.Next = "This form cannot be read", "Go back, load the page again, and send its form."
	case status == http.StatusBadRequest:
		f.Title, f.Next = "This cannot be asked", "Change the address or go back and correct the filter."
	case status == http.StatusForbidden:
		f.Title, f.Next = "You may not see this", "Ask an admin of this installation for another role."
	case status == http.StatusNotFound:
		f.Title, f.Next = "There is no such page",
			"The search box takes a block id, an address, a device, a user and the name of a rule."
	default:
		f.Title, f.Next = "A store does not answer",
			"Nothing is lost: the stream goes on without this page. Try again, or see what is wrong with the "+
				"installation."
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
	c := &http.Cookie{Name: cookieScheme, Value: to, Path: "/", MaxAge: int((365 * 24 * time.Hour).Seconds()),
		HttpOnly: true, SameSite: http.SameSiteLaxMode}
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
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || !strings.HasPrefix(u.Path, "/") ||
		strings.HasPrefix(u.Path, "//") || strings.ContainsAny(address, "\\\r\n\t") {
		return "/"
	}
	return u.RequestURI()
}
