package access

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestRoutesAreDescribedAndAsked(t *testing.T) {
	served := ""
	m := NewMux(func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	}, nil)
	routes := []Route{
		{Method: "GET", Pattern: "/rules/{id}", Act: View},
		{Method: "POST", Pattern: "/rules/{id}/promote", Act: Promote, Rule: "id"},
		{Method: "GET", Pattern: "/signin", Act: Public},
	}
	for _, route := range routes {
		m.HandleFunc(route, func(http.ResponseWriter, *http.Request) { served = route.Pattern })
	}
	m.Otherwise(http.NotFoundHandler())
	for _, tc := range []struct {
		method, path string
		actor        Actor
		served       string
		status       int
	}{
		{"GET", "/rules/a", Actor{}, "", 403}, {"GET", "/rules/a", Actor{Role: Viewer}, "/rules/{id}", 200}, {"HEAD", "/rules/a", Actor{}, "", 403},
		{"POST", "/rules/a/promote", Actor{Role: Analyst}, "", 403}, {"POST", "/rules/a/promote", Actor{Role: Owner}, "/rules/{id}/promote", 200},
		{"GET", "/signin", Actor{}, "/signin", 200}, {"GET", "/nowhere", Actor{Role: Admin}, "", 404}, {"DELETE", "/rules/a", Actor{Role: Admin}, "", 405},
	} {
		if tc.status == 200 { // but what cannot be read whole is not answered by the part that can
			for _, query := range []string{"source=user=a;b", "source=%zz&rule=a", "%", "a=%u1234"} {
				w := httptest.NewRecorder()
				r := httptest.NewRequest(tc.method, tc.path, nil)
				r.URL.RawQuery = query
				served = ""
				m.ServeHTTP(w, r.WithContext(With(r.Context(), tc.actor)))
				if served != "" || w.Code == 200 || !strings.Contains(w.Body.String(), "the query cannot be read") {
					t.Errorf("%s %s?%s: served %q with %d: %s", tc.method, tc.path, query, served, w.Code, w.Body)
				}
			}
		}
		served = ""
		r := httptest.NewRequest(tc.method, tc.path, nil)
		w := httptest.NewRecorder()
		m.ServeHTTP(w, r.WithContext(With(r.Context(), tc.actor)))
		if served != tc.served || tc.status != 405 && w.Code != tc.status {
			t.Errorf("%s %s of %s: served %q with %d", tc.method, tc.path, tc.actor, served, w.Code)
		}
		found, ok := m.Find(r)
		if ok != (tc.status == 200 || tc.status == 403) || ok && !m.mayHaveServed(found) {
			t.Errorf("%s %s: found %+v, %v", tc.method, tc.path, found, ok)
		}
	}
	if len(m.Routes()) != len(routes) || m.Routes()[1] != routes[1] || !m.Routes()[1].CSRF() || m.Routes()[0].CSRF() {
		t.Errorf("routes are %+v", m.Routes())
	}
}

func (m *Mux) mayHaveServed(r Route) bool {
	for _, known := range m.routes {
		if known == r {
			return true
		}
	}
	return false
}

func TestRoutesThatSayTooLittlePanic(t *testing.T) {
	for _, route := range []Route{
		{}, {Method: "GET", Pattern: "/a"}, {Method: "GET", Pattern: "/a", Act: "look"}, {Method: "", Pattern: "/a", Act: View},
		{Method: "POST", Pattern: "/a", Act: Promote}, {Method: "POST", Pattern: "/a/{id}", Act: Promote, Rule: "rule"},
		{Method: "POST", Pattern: "/a", Act: View}, {Method: "POST", Pattern: "/a/{id}", Act: Promote, Rule: "id", Body: true},
		// without a witness
		{Method: "GET", Pattern: "/a", Act: Export}, {Method: "POST", Pattern: "/a", Act: SaveView},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is taken", route)
				}
			}()
			NewMux(nil, nil).Handle(route, http.NotFoundHandler())
		}()
	}
}

// told is a Witness that refuses where it is told to.
type told struct {
	did     []string
	refuses error
}

func (w *told) Tell(r *http.Request, actor Actor, act Act) error {
	w.did = append(w.did, actor.Name+" "+string(act)+" "+r.URL.Path)
	return w.refuses
}

// What leaves no entry of the audit trail by itself is written down before it is done, or not done.
func TestWitnessedActsAreWrittenDownBefore(t *testing.T) {
	for _, act := range Acts() {
		trail, refused, served := &told{}, error(nil), 0
		m := NewMux(func(_ http.ResponseWriter, _ *http.Request, err error) { refused = err }, trail)
		route := Route{Method: "POST", Pattern: "/a/{rule}", Act: act, Rule: "rule"}
		if act == Export || act == View {
			route.Method = "GET"
		}
		m.HandleFunc(route, func(http.ResponseWriter, *http.Request) {
			if served++; Witnessed(act) != (len(trail.did) == 1) {
				t.Errorf("%s: served with %q written down", act, trail.did)
			}
		})
		ask := func(role Role) {
			r := httptest.NewRequest(route.Method, "/a/b", nil)
			m.ServeHTTP(httptest.NewRecorder(), r.WithContext(With(r.Context(), Actor{Name: "ann", Role: role})))
		}
		least, _, _ := Least(act)
		if least > Viewer {
			ask(least - 1)
			if refused == nil || served != 0 || len(trail.did) != 0 {
				t.Errorf("%s: who may not: got %v, %d served, %q written down; allowed: nothing", act, refused, served,
					trail.did)
			}
		}
		if ask(Admin); served != 1 {
			t.Errorf("%s: got %d served; allowed: 1", act, served)
		}
		trail.did, trail.refuses = nil, &UnwrittenError{Act: act}
		if ask(Admin); Witnessed(act) != (served == 1) || Witnessed(act) != (refused == trail.refuses) {
			t.Errorf("%s with the trail away: got %d served, %v", act, served, refused)
		}
	}
	if !Witnessed(Export) || !Witnessed(SaveView) || Witnessed(View) || Witnessed(Promote) || Witnessed("dance") {
		t.Error("export and save-view alone are written down by routers")
	}
}
