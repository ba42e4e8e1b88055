package pages

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/savedviews"
	"github.com/weirhq/weir/traffic"
)

// Views are the explorer's questions that people keep.
type Views interface {
	// List returns the views of by, and then those that others share.
	List(ctx context.Context, by string) ([]savedviews.View, error)
	// Save keeps a view, in the place of the one of that name and person; *savedviews.Invalid and savedviews.ErrTooMany refuse it.
	Save(ctx context.Context, v savedviews.View) error
	// Remove forgets a view of by's; postgres.ErrNotFound is wrapped where there is none.
	Remove(ctx context.Context, by, name string) error
}

var _ Views = (*savedviews.Store)(nil)

// viewsView is what a visitor may open, and keep.
type viewsView struct {
	List    []savedView
	Own     []savedView // of List, those that the visitor may remove
	MayKeep bool
	Present string // the question of the page, as views keep it
	CSRF    string
	Open    bool   // the form is unfolded: something has just been done with it, or was refused
	Name    string // that the form was sent with
	Shared  bool
	Problem string // why the form was refused
}

// savedView is one of them.
type savedView struct {
	Name, By string // By is empty for the visitor's own
	Given    string // the name as it is kept, for the form that removes it
	Href     string
	Shared   bool
	Present  bool // it is the question of the page
}

// questionNames are the parameters of the explorer's address that make up its question.
func questionNames() []string {
	return []string{"by", "field", "kind", "mode", "order", "owner", "rule", "since", "source", "state", "top", "until"}
}

// kept is the question of an address, as views keep it: always alike, without what stands for a page of the answer.
func kept(q url.Values) string {
	out := url.Values{}
	for _, name := range questionNames() {
		if value := q.Get(name); value != "" {
			out.Set(name, value)
		}
	}
	return out.Encode()
}

// views are those that the visitor may open.
func (p exploring) views(r *http.Request, see *reading, refused *viewsView) (*viewsView, error) {
	v := &viewsView{Present: kept(r.URL.Query()), MayKeep: see.may(access.SaveView, ""), CSRF: see.visit.CSRF, Open: r.URL.Query().Get("did") != ""}
	if refused != nil {
		v.Open, v.Name, v.Shared, v.Problem = true, refused.Name, refused.Shared, refused.Problem
	}
	all, err := p.o.Views.List(r.Context(), see.visit.Actor.Name)
	if err != nil {
		return nil, err
	}
	for i := range all {
		one, ok := savedViewOf(see, &all[i])
		if !ok {
			continue
		}
		one.Present = one.Href == "/explore?"+v.Present
		v.List = append(v.List, one)
		if one.By == "" {
			v.Own = append(v.Own, one)
		}
	}
	return v, nil
}

// savedViewOf is a view as this visitor may open it; false where it asks about a source that he cannot name.
func savedViewOf(r *reading, s *savedviews.View) (savedView, bool) {
	q, err := url.ParseQuery(s.Query)
	if err != nil {
		return savedView{}, false
	}
	source, ok := nameable(r, q.Get("source"), s.By)
	if !ok {
		return savedView{}, false
	}
	q.Set("source", source)
	v := savedView{Name: r.said(s.Name, s.By), Given: s.Name, Href: "/explore?" + kept(q), Shared: s.Shared}
	if s.By != r.visit.Actor.Name {
		v.By = shown.Text(s.By)
	}
	return v, true
}

// nameable is the source of a filter as this visitor may name it: with pseudonyms where he is shown them, so that a view which another
// one shares tells him nothing that pages do not. For what he himself has written he learns none.
func nameable(r *reading, source, by string) (string, bool) {
	if _, err := r.filterSource(source); err == nil {
		return source, true
	}
	if by == r.visit.Actor.Name {
		return "", false
	}
	subject, name, value := traffic.CutSource(source)
	var masked string
	switch {
	case subject != "":
		masked = string(r.mask.Subject(subject))
	case name != "":
		masked = traffic.SourceText(name, r.mask.Value(name, value))
	default:
		return "", false
	}
	_, err := r.filterSource(masked)
	return masked, err == nil && masked != source
}

// keep keeps the question that the form was sent from.
func (p exploring) keep(w http.ResponseWriter, r *http.Request) error {
	query, err := askedBy(r)
	if err != nil {
		return err
	}
	see, err := p.read(r)
	if err == nil {
		var q url.Values
		if q, err = url.ParseQuery(query); err == nil {
			_, err = see.filterSource(q.Get("source"))
		}
	}
	if err != nil {
		return err
	}
	here := r.Clone(r.Context())
	here.Method, here.URL = http.MethodGet, &url.URL{Path: "/explore", RawQuery: query}
	v := &viewsView{Name: strings.TrimSpace(r.PostFormValue("name")), Shared: r.PostFormValue("shared") == "yes"}
	err = p.o.Views.Save(r.Context(), savedviews.View{By: access.From(r.Context()).Name, Name: v.Name, Query: query, Shared: v.Shared})
	var invalid *savedviews.Invalid
	switch {
	case errors.As(err, &invalid), errors.Is(err, savedviews.ErrTooMany):
		v.Name, v.Problem = shown.Text(v.Name), words(maskOf(&p.o, r), r, err)
		return p.render(w, here, http.StatusUnprocessableEntity, v)
	case err != nil:
		return err
	}
	http.Redirect(w, r, withDid("/explore?"+query, "keep"), http.StatusSeeOther)
	return nil
}

// drop forgets a view, and goes back to the question that was shown.
func (p exploring) drop(w http.ResponseWriter, r *http.Request) error {
	query, err := askedBy(r)
	if err != nil {
		return err
	}
	name := r.PostFormValue("name")
	switch err := p.o.Views.Remove(r.Context(), access.From(r.Context()).Name, name); {
	case errors.Is(err, postgres.ErrNotFound):
		return &missing{"You keep no view " + cmp.Or(shown.Text(name), "without a name") + "."}
	case err != nil:
		return err
	}
	http.Redirect(w, r, withDid("/explore?"+query, "drop"), http.StatusSeeOther)
	return nil
}

// askedBy is the question of the page that a form was sent from.
func askedBy(r *http.Request) (string, error) {
	q, err := url.ParseQuery(r.PostFormValue("query"))
	if err != nil {
		return "", &badRequest{"query", shown.Text(r.PostFormValue("query")), "the part of the explorer's address behind the question mark"}
	}
	return kept(q), nil
}
