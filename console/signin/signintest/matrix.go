package signintest

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
)

// Case is a router whose authorisation is looked at.
type Case struct {
	Router *access.Mux // behind which the handlers are; nil with Serve
	// Serve makes what is asked with its own guard, which knows who signs in as the options say it, and tells all its routes. nil: Router
	// behind a guard.
	Serve    func(t *testing.T, o signin.Options) (http.Handler, []access.Route)
	Sessions signin.Sessions
	// Own is a rule or list of the owner identity, Other one of search.
	Own, Other string
	// Path fills a route's pattern, with rule for the wildcard that names it; default: "x" for the other wildcards.
	Path func(route access.Route, rule string) string
	// Body is what a valid request of a route sends, with rule in it where the route says that it is in the body: with another body a
	// handler could refuse it for that before it asks whose the rule is.
	Body func(route access.Route, rule string) (contentType, body string)
	// May says who may ask a route about what is owner's; default: what the route says of itself.
	May func(route access.Route, actor access.Actor, owner string) bool
	// State is a text of all that requests could change: it is the same after everything that was refused. nil: it is not looked at.
	State func() string
}

// casts is how often everybody is there: limits count per name, so whoever asks often needs several.
const casts = 4

// host is the name under which the console is asked.
const host = "console.example"

// Matrix is a router and everybody who might ask it.
type Matrix struct {
	Case
	handler http.Handler
	routes  []access.Route
	casts   [casts][]Caller
	asked   int
}

// Caller is somebody in the matrix.
type Caller struct {
	Name    string
	Actor   access.Actor
	cookie  string // session's token
	bearer  string
	unknown bool // brings a token that nobody knows
}

// CheckMatrix asks each route as each role, as Matrix.Straight does.
func CheckMatrix(t *testing.T, c Case) int {
	t.Helper()
	return NewMatrix(t, c).Straight(t)
}

// NewMatrix signs everybody in.
func NewMatrix(t *testing.T, c Case) *Matrix {
	t.Helper()
	m := &Matrix{Case: c}
	if m.May == nil {
		m.May = func(route access.Route, actor access.Actor, owner string) bool {
			return access.May(actor, route.Act, owner) == nil
		}
	}
	var tokens []signin.Token
	for i := range m.casts {
		m.casts[i] = c.callers(t, fmt.Sprintf("-%d", i))
		for _, who := range m.casts[i] {
			if who.bearer != "" {
				tokens = append(tokens, signin.Token{
					Name: who.Name, Role: who.Actor.Role, Owners: who.Actor.Owners, SHA256: sha256.Sum256([]byte(who.bearer)), Expires: time.Now().Add(time.Hour),
				})
			}
		}
	}
	o := signin.Options{
		Sessions: c.Sessions, PublicURL: "https://" + host, Tokens: tokens,
		OIDC:   &signin.OIDC{Issuer: "https://id.example", ClientID: "weir", Roles: Roles(), Owners: Owners()},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	}
	if c.Serve != nil {
		m.handler, m.routes = c.Serve(t, o)
		return m
	}
	guard, err := signin.New(o)
	if err != nil {
		t.Fatal(err)
	}
	m.handler, m.routes = guard.Over(c.Router, c.Router.Public), append(c.Router.Routes(), guard.Routes()...)
	return m
}

// Straight asks each route as each role, by session and by token, for a rule of the owner's own and for another's, with and without what
// proves that the request is no other site's. It fails where somebody gets through who may not, and where somebody may who does not. It
// returns how many requests it has made. What is refused is asked first, and has to leave the state as it was.
func (m *Matrix) Straight(t *testing.T) int {
	t.Helper()
	asked, before := m.asked, m.state()
	m.each(func(route access.Route, rule string, who Caller) { m.refused(t, route, rule, who) })
	if after := m.state(); after != before {
		t.Errorf("what was refused has changed\n%s\nto\n%s", before, after)
	}
	m.each(func(route access.Route, rule string, who Caller) {
		if !m.may(route, rule, who) {
			return
		}
		status := m.ask(route, rule, who, "all proof")
		if status == http.StatusUnauthorized || status == http.StatusForbidden || status == http.StatusTooManyRequests {
			if !slices.Contains(withProof(), route.Pattern) {
				t.Errorf("%s: got %d, and may %s", m.name(route, rule, who), status, route.Act)
			}
		}
	})
	return m.asked - asked
}

// withProof are the routes of the sign-in, forbidden to those who have begun none, or bring nothing that signs them in.
func withProof() []string { return []string{"/signin/callback", "/signin/invite", "/signin/token"} }

// Routes are those that are asked.
func (m *Matrix) Routes() []access.Route { return m.routes }

func (m *Matrix) state() string {
	if m.State == nil {
		return ""
	}
	return m.State()
}

func (m *Matrix) each(ask func(route access.Route, rule string, who Caller)) {
	for _, route := range m.routes {
		for _, rule := range m.rules(route) {
			for _, who := range m.casts[0] {
				ask(route, rule, who)
			}
		}
	}
}

func (m *Matrix) name(route access.Route, rule string, who Caller) string {
	return fmt.Sprintf("%s %s of %q as %s", route.Method, route.Pattern, rule, who.Name)
}

func (m *Matrix) may(route access.Route, rule string, who Caller) bool {
	return !who.unknown && m.May(route, who.Actor, m.ownerOf(rule))
}

// refused asks for one route and rule as one caller, in all ways that are to be refused.
func (m *Matrix) refused(t *testing.T, route access.Route, rule string, who Caller) {
	t.Helper()
	if route.CSRF() && who.cookie != "" {
		for _, proof := range []string{"no token", "another session's token", "another origin", "another site", "null origin"} {
			if status := m.ask(route, rule, who, proof); status != http.StatusForbidden {
				t.Errorf("%s with %s: got %d", m.name(route, rule, who), proof, status)
			}
		}
	}
	if m.may(route, rule, who) {
		return
	}
	if status := m.ask(route, rule, who, "all proof"); status != http.StatusUnauthorized && status != http.StatusForbidden {
		t.Errorf("%s: got %d, and may not %s", m.name(route, rule, who), status, route.Act)
	}
}

func (m *Matrix) ask(route access.Route, rule string, who Caller, proof string) int {
	return m.send(m.request(route, rule), who, proof)
}

// Send sends a request as somebody, with all that proves that it is no other site's, and returns the status; 401 also where it is the
// redirection to the sign-in.
func (m *Matrix) Send(r *http.Request, who Caller) int { return m.send(r, who, "all proof") }

// Answer is Send with the answer as it is.
func (m *Matrix) Answer(r *http.Request, who Caller) *httptest.ResponseRecorder {
	return m.answer(r, who, "all proof")
}

// Cast is everybody once more, the same kinds under other names, whom no limit has counted yet: 0 or 1.
func (m *Matrix) Cast(n int) []Caller { return m.casts[2+n] }

func (m *Matrix) answer(r *http.Request, who Caller, proof string) *httptest.ResponseRecorder {
	m.asked++
	r.Host, r.RemoteAddr = host, fmt.Sprintf("192.%d.%d.%d:4711", m.asked>>16&0xff, m.asked>>8&0xff, m.asked&0xff) // one client of many, whom no limit stops
	who.sign(r, proof)
	ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
	defer cancel()
	w := &recorder{ResponseRecorder: httptest.NewRecorder(), begun: cancel}
	m.handler.ServeHTTP(w, r.WithContext(ctx))
	return w.ResponseRecorder
}

func (m *Matrix) send(r *http.Request, who Caller, proof string) int {
	w := m.answer(r, who, proof)
	to := w.Header().Get("Location")
	switch {
	case w.Code == http.StatusSeeOther && strings.HasPrefix(to, "/signin?next="):
		return http.StatusUnauthorized
	case (w.Code == http.StatusMovedPermanently || w.Code == http.StatusTemporaryRedirect) && (!strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//")):
		return http.StatusOK // it leads away from here, and must not
	}
	return w.Code
}

func (c *Case) rules(route access.Route) []string {
	if route.Rule == "" && !route.Body {
		return []string{""}
	}
	return []string{c.Own, c.Other}
}

func (c *Case) ownerOf(rule string) string {
	return map[string]string{c.Own: "identity", c.Other: "search"}[rule]
}

func (c *Case) request(route access.Route, rule string) *http.Request {
	path := ""
	if c.Path != nil {
		path = c.Path(route, rule)
	}
	if path == "" {
		path = fill(route, rule)
	}
	var body io.Reader
	kind := ""
	if c.Body != nil && route.CSRF() {
		var text string
		kind, text = c.Body(route, rule)
		body = strings.NewReader(text)
	}
	r := httptest.NewRequest(route.Method, path, body)
	if kind != "" {
		r.Header.Set("Content-Type", kind)
	}
	return r
}

// fill puts rule into the wildcard of a pattern that names it, and x into the others.
func fill(route access.Route, rule string) string {
	parts := strings.Split(strings.TrimSuffix(route.Pattern, "{$}"), "/")
	for i, part := range parts {
		switch {
		case route.Rule != "" && part == "{"+route.Rule+"}":
			parts[i] = rule
		case strings.HasPrefix(part, "{"):
			parts[i] = "x"
		}
	}
	return strings.Join(parts, "/")
}

// callers are everybody: nobody, and each role by session and by token.
func (c *Case) callers(t *testing.T, cast string) []Caller {
	t.Helper()
	out := []Caller{{Name: "nobody"}, {Name: "a token that nobody knows", unknown: true}}
	for _, who := range []string{Viewer, Analyst, Stranger, Owner, Admin} {
		actor := actorOf(who)
		token := random()
		session := sessions.Session{Name: who + cast, Subject: "https://id.example " + who, Groups: Groups(who)}
		if err := c.Sessions.Start(t.Context(), sha256.Sum256([]byte(token)), sessions.Hash{}, session, time.Hour, audit.Entry{Actor: who, Action: "sign-in", Object: "session"}); err != nil {
			t.Fatal(err)
		}
		bearer := random()
		out = append(out, Caller{Name: who + cast, Actor: actor, cookie: token}, Caller{Name: who + cast + "-token", Actor: actor, bearer: bearer})
	}
	return out
}

func actorOf(who string) access.Actor {
	a := access.Actor{Name: who}
	for _, group := range Groups(who) {
		a.Role = max(a.Role, Roles()[group])
		for owner, of := range Owners() {
			if of == group {
				a.Owners, a.Role = append(a.Owners, owner), max(a.Role, access.Owner)
			}
		}
	}
	return a
}

func random() string {
	var raw [32]byte
	_, _ = rand.Read(raw[:])
	return base64.RawURLEncoding.EncodeToString(raw[:])
}

// sign makes a request who's, with proof that it comes from a page of the console, or without it.
func (who Caller) sign(r *http.Request, proof string) {
	switch {
	case who.bearer != "":
		r.Header.Set("Authorization", "Bearer "+who.bearer)
		return
	case who.unknown:
		r.Header.Set("Authorization", "Bearer "+hex.EncodeToString(make([]byte, 32)))
		return
	case who.cookie != "":
		r.Header.Set("Cookie", "__Host-weir-session="+who.cookie)
	}
	token := csrfOf(who.cookie)
	r.Header.Set("Origin", "https://"+host)
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	switch proof {
	case "no token":
		token = ""
	case "another session's token":
		token = csrfOf(random())
	case "another origin":
		r.Header.Set("Origin", "https://evil.example")
		r.Header.Del("Sec-Fetch-Site")
	case "another site":
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		r.Header.Del("Origin")
	case "null origin":
		r.Header.Set("Origin", "null")
		r.Header.Del("Sec-Fetch-Site")
	}
	if token != "" {
		r.Header.Set(access.CSRFHeader, token)
	}
}

// csrfOf is the token of a session against forgery, as package signin makes it.
func csrfOf(session string) string {
	h := hmac.New(sha256.New, []byte(session))
	h.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// recorder takes what a handler answers. A stream, which flushes, has answered then, and is ended.
type recorder struct {
	*httptest.ResponseRecorder
	begun func()
}

// SetWriteDeadline is what http.ResponseController looks for.
func (*recorder) SetWriteDeadline(time.Time) error { return nil }

// Flush ends the request.
func (r *recorder) Flush() { r.begun() }
