package pages

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/savedviews"
)

// keptViews are the views of a scene, in memory.
type keptViews struct{ all []savedviews.View }

var _ Views = (*keptViews)(nil)

func (k *keptViews) List(_ context.Context, by string) ([]savedviews.View, error) {
	var own, others []savedviews.View
	for _, v := range k.all {
		switch {
		case v.By == by:
			own = append(own, v)
		case v.Shared:
			others = append(others, v)
		}
	}
	return append(own, others...), nil
}

func (k *keptViews) Save(_ context.Context, v savedviews.View) error {
	if v.Name == "" || len(k.all) >= 3 {
		return fmt.Errorf("keeping a view: %w", savedviews.ErrTooMany)
	}
	_ = k.Remove(context.Background(), v.By, v.Name)
	k.all = append(k.all, v)
	return nil
}

func (k *keptViews) Remove(_ context.Context, by, name string) error {
	i := slices.IndexFunc(k.all, func(v savedviews.View) bool { return v.By == by && v.Name == name })
	if i < 0 {
		return postgres.ErrNotFound
	}
	k.all = slices.Delete(k.all, i, i+1)
	return nil
}

// send sends a form.
func send(t testing.TB, p *Pages, v access.Visit, address string, pairs ...string) (status int, body, to string) {
	t.Helper()
	form := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		form.Set(pairs[i], pairs[i+1])
	}
	r := httptest.NewRequest(http.MethodPost, address, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	w := httptest.NewRecorder()
	as(v, p.Handler()).ServeHTTP(w, r)
	return w.Code, w.Body.String(), w.Header().Get("Location")
}

// visitor is somebody with a role.
func visitor(name string, role access.Role) access.Visit {
	return access.Visit{Actor: access.Actor{Name: name, Role: role, Via: access.ViaOIDC}, CSRF: "token"}
}

// A question is kept under a name, opened by whom it is for, and removed by whose it is.
func TestViewsAreKept(t *testing.T) {
	s := newScene()
	p := newPages(t, s.options())
	ann, bob := visitor("ann", access.Analyst), visitor("bob", access.Viewer)
	const query = "by=source&rule=login-stuffing&since=7d"
	status, _, to := send(t, p, ann, "/explore/views", "query", query+"&cursor=x&did=y&page=2", "name", " Night <b>shift ", "shared", "yes")
	if status != http.StatusSeeOther || to != "/explore?"+query+"&did=keep" {
		t.Fatalf("saving: %d, to %s", status, to)
	}
	_, page, _ := get(t, p, ann, to)
	for _, want := range []string{"The view is saved.", `<a href="/explore?by=source&amp;rule=login-stuffing&amp;since=7d" aria-current="true">Night &lt;b&gt;shift`, `name="csrf" value="token"`, `aria-label="Remove the view Night &lt;b&gt;shift"`} {
		if !strings.Contains(page, want) {
			t.Errorf("ann's page does not hold %s", want)
		}
	}
	if _, page, _ = get(t, p, bob, "/explore"); !strings.Contains(page, `<span class="quiet">by ann</span>`) || strings.Contains(page, "/explore/views") {
		t.Error("bob does not see what is shared, or is offered what a viewer may not do")
	}
	for _, address := range []string{"/explore/views", "/explore/views/remove"} {
		if status, _, _ := send(t, p, bob, address, "query", query, "name", "Night <b>shift"); status != http.StatusForbidden {
			t.Errorf("a viewer's %s: status %d", address, status)
		}
	}
	if status, _, _ := send(t, p, visitor("carl", access.Analyst), "/explore/views/remove", "query", query, "name", "Night <b>shift"); status != http.StatusNotFound || len(s.views.all) != 1 {
		t.Errorf("removing another's: status %d, %d stay", status, len(s.views.all))
	}
	if status, page, _ := send(t, p, ann, "/explore/views", "query", query, "name", ""); status != http.StatusUnprocessableEntity || !strings.Contains(page, "200 views are kept") || !strings.Contains(page, `<details class="custom" open>`) {
		t.Errorf("one too many: status %d", status)
	}
	if status, _, to := send(t, p, ann, "/explore/views/remove", "query", query, "name", "Night <b>shift"); status != http.StatusSeeOther || to != "/explore?"+query+"&did=drop" || len(s.views.all) != 0 {
		t.Errorf("removing: status %d, to %s", status, to)
	}
	if status, _, _ := send(t, p, ann, "/explore/views", "query", "a=%", "name", "x"); status != http.StatusBadRequest {
		t.Errorf("no question: status %d", status)
	}
}

// A view that is shared by somebody who sees all values tells those who are shown pseudonyms none.
func TestSharedViewsKeepPseudonyms(t *testing.T) {
	s := newScene()
	o := s.options()
	var err error
	if o.Masker, err = access.NewMasker(access.Masking{Key: []byte(strings.Repeat("k", 32)), Below: access.Owner, Fields: access.DefaultMaskedFields()}); err != nil {
		t.Fatal(err)
	}
	p := newPages(t, o)
	for name, source := range map[string]string{"plain": "device=tv-4711", "subject": "device=tv-4711&ip=198.51.100.99%2F32", "bare": "tv-4711"} {
		s.views.all = []savedviews.View{{By: "ann", Name: name + " of 198.51.100.99", Query: url.Values{"source": {source}}.Encode(), Shared: true}}
		_, page, _ := get(t, p, visitor("bob", access.Analyst), "/explore")
		if strings.Contains(page, "4711") || strings.Contains(page, "198.51.100.99") {
			t.Errorf("%s: the page tells the source", name)
		}
		if got, want := strings.Contains(page, "/explore?source="), name != "bare"; got != want {
			t.Errorf("%s: offered %t, want %t", name, got, want)
		}
		if _, page, _ = get(t, p, visitor("olga", access.Owner), "/explore"); !strings.Contains(page, "tv-4711") {
			t.Errorf("%s: the owner cannot open it", name)
		}
	}
}
