package access

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestRoutesAreDescribedAndAsked(t *testing.T) {
	served := ""
	m := NewMux(func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	})
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
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v is taken", route)
				}
			}()
			NewMux(nil).Handle(route, http.NotFoundHandler())
		}()
	}
}
