// Package pages is what people see and do in a browser: pages that are rendered here, with html/template, and can be read and used
// without JavaScript: links, GET forms with their filters in the address, and POST forms for what people do. A script, where
// there is one, keeps a page up to date and moves a slider.
//
// Everything that a client of the gateway chose is hostile: it is made visible by package shown, pseudonymous for those who may not
// see it by an access.Masker, and escaped by html/template, in this order.
package pages

import (
	"context"
	"fmt"
	"html/template"
	"log/slog"
	"net/http"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
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

// Blocks is what pages read of Redis.
type Blocks interface {
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
}

var _ Blocks = (*blocklist.Store)(nil)

// Options configure Pages. All but Masker, Acts and Command are required.
type Options struct {
	Rules    Rules
	History  History
	Blocks   Blocks
	Explorer Explorer
	Evidence Evidence
	Views    Views
	Pulse    func() console.Pulse // answers at once
	Masker   *access.Masker       // nil masks nothing
	Acts     Acts                 // nil: pages show commands instead of forms
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
		p.fail(w, r, http.StatusForbidden, err)
	})
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
