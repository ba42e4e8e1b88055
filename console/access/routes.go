package access

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

// Route describes one route of a router: what the authorisation matrix goes through.
type Route struct {
	Method  string // GET, POST, PUT, PATCH or DELETE
	Pattern string // of the path, as http.ServeMux reads it: /api/v1/rules/{rule}/promote
	Act     Act    // what the caller must be allowed to do
	// Rule is the name of the wildcard in Pattern that names the rule or allow list whose owner counts; Body says that it stands in the
	// request's body instead. Both are empty where the act is not of one rule.
	Rule string
	Body bool
}

// CSRF reports whether the route changes something, so that a request by cookie must show the session's token.
func (r Route) CSRF() bool { return Changes(r.Method) }

// Changes reports whether a request of method may change something.
func Changes(method string) bool {
	return method != http.MethodGet && method != http.MethodHead && method != http.MethodOptions
}

// Mux is an http.ServeMux whose routes are all described: no handler can be added without saying what its caller must be allowed to
// do, and each request is asked for that before the handler runs. Which rule it is, and so whose, the handler learns; it asks May.
// Acts that are Witnessed are in the audit trail before their handler runs.
type Mux struct {
	mux     *http.ServeMux
	refuse  func(w http.ResponseWriter, r *http.Request, err error)
	witness Witness
	routes  []Route
}

// Witness writes down in the audit trail that an actor does a Witnessed act, before it is done. Its error is an
// *UnwrittenError, or a *FormError of a request that does not say what it is to do.
type Witness interface {
	Tell(r *http.Request, actor Actor, act Act) error
}

// UnwrittenError says that an act was not done, since it cannot be written down who does it.
type UnwrittenError struct {
	Act   Act
	Cause error
}

func (e *UnwrittenError) Error() string {
	return fmt.Sprintf("%s: it cannot be written down just now who asks, and so nothing is told or done", e.Act)
}

func (e *UnwrittenError) Unwrap() error { return e.Cause }

// NewMux makes a Mux without routes. refuse answers a request whose actor may not do the route's act: it gets a
// *Forbidden, or a witness' error. Without a witness there is no route whose act is Witnessed.
func NewMux(refuse func(w http.ResponseWriter, r *http.Request, err error), witness Witness) *Mux {
	return &Mux{mux: http.NewServeMux(), refuse: refuse, witness: witness}
}

// Handle adds a route. A description that contradicts itself, or a pattern that is there already, panics, as http.ServeMux does.
func (m *Mux) Handle(route Route, handler http.Handler) {
	err := route.check()
	if err == nil && m.witness == nil && Witnessed(route.Act) {
		err = fmt.Errorf("act: got %s, of which nobody would write down who does it; allowed: with a Witness",
			route.Act)
	}
	if err != nil {
		panic(fmt.Sprintf("route %s %s: %v", route.Method, route.Pattern, err))
	}
	m.mux.Handle(route.Method+" "+route.Pattern, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor := From(r.Context())
		err := MayAny(actor, route.Act)
		if err == nil {
			err = readable(r)
		}
		if err == nil && Witnessed(route.Act) {
			err = m.witness.Tell(r, actor, route.Act)
		}
		if err != nil {
			m.refuse(w, r, err)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	m.routes = append(m.routes, route)
}

// HandleFunc is Handle for a function.
func (m *Mux) HandleFunc(route Route, handler func(http.ResponseWriter, *http.Request)) {
	m.Handle(route, http.HandlerFunc(handler))
}

// Otherwise answers what no route takes. It is given to everybody who is let this far, and must tell nothing.
func (m *Mux) Otherwise(handler http.Handler) { m.mux.Handle("/", handler) }

// ServeHTTP is http.ServeMux's.
func (m *Mux) ServeHTTP(w http.ResponseWriter, r *http.Request) { m.mux.ServeHTTP(w, r) }

// Routes are those that were added, in that order.
func (m *Mux) Routes() []Route { return slices.Clone(m.routes) }

// Find returns the description of the route that would take r; false where none would.
func (m *Mux) Find(r *http.Request) (Route, bool) {
	_, pattern := m.mux.Handler(r)
	i := slices.IndexFunc(m.routes, func(route Route) bool { return route.Method+" "+route.Pattern == pattern })
	if i < 0 {
		return Route{}, false
	}
	return m.routes[i], true
}

// Public reports whether r is for a route that needs nobody to be signed in.
func (m *Mux) Public(r *http.Request) bool {
	route, ok := m.Find(r)
	return ok && route.Act == Public
}

func (r Route) check() error {
	methods := []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	if !slices.Contains(methods, r.Method) {
		return fmt.Errorf("method: got %q; allowed: %s", r.Method, strings.Join(methods, ", "))
	}
	_, owned, ok := Least(r.Act)
	switch {
	case !ok:
		return fmt.Errorf("act: got %q; allowed: those of package access", r.Act)
	case r.CSRF() && (r.Act == View || r.Act == Export):
		return fmt.Errorf("act: got %s; allowed: one that changes something", r.Act)
	case r.Rule != "" && r.Body:
		return fmt.Errorf("rule: in the path and in the body; allowed: one of them")
	case r.Rule != "" && !strings.Contains(r.Pattern, "{"+r.Rule+"}"):
		return fmt.Errorf("rule: got %q; allowed: a wildcard of the pattern", r.Rule)
	case owned && r.Rule == "" && !r.Body:
		return fmt.Errorf("rule: none; allowed: where the request names the rule or list that %s is done to", r.Act)
	}
	return nil
}
