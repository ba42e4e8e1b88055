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
	Router *access.Mux // behind which the handlers are
	// Handler is what is asked; default Router.
	Handler  http.Handler
	Sessions signin.Sessions
	// Own is a rule or list of the owner identity, Other one of search.
	Own, Other string
	// Path fills a route's pattern, with rule for the wildcard that names it; default: "x" for the other wildcards.
	Path func(route access.Route, rule string) string
	// Body is what a valid request of a route sends, with rule in it where the route says that it is in the body: with another body a
	// handler could refuse it for that before it asks whose the rule is.
	Body func(route access.Route, rule string) (contentType, body string)
}

// caller is somebody in the matrix.
type caller struct {
	name    string
	actor   access.Actor
	cookie  string // session's token
	bearer  string
	unknown bool // brings a token that nobody knows
}

// Matrix asks each route as each role, by session and by token, for a rule of the owner's own and for another's, with and without what
// proves that the request is no other site's. It fails where somebody gets through who may not, and where somebody may who does not. It
// returns how many requests it has made.
func Matrix(t *testing.T, c Case) int {
	t.Helper()
	if c.Handler == nil {
		c.Handler = c.Router
	}
	const host = "console.example"
	callers := c.callers(t)
	var tokens []signin.Token
	for _, who := range callers {
		if who.bearer != "" {
			tokens = append(tokens, signin.Token{Name: who.name, Role: who.actor.Role, Owners: who.actor.Owners, SHA256: sha256.Sum256([]byte(who.bearer)), Expires: time.Now().Add(time.Hour)})
		}
	}
	guard, err := signin.New(signin.Options{
		Sessions: c.Sessions, PublicURL: "https://" + host, Tokens: tokens,
		OIDC:   &signin.OIDC{Issuer: "https://id.example", ClientID: "weir", Roles: Roles(), Owners: Owners()},
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		t.Fatal(err)
	}
	handler := guard.Over(c.Handler, c.Router.Public)
	asked := 0
	ask := func(route access.Route, rule string, who caller, proof string) int {
		asked++
		r := c.request(route, rule)
		r.Host, r.RemoteAddr = host, fmt.Sprintf("192.0.%d.%d:4711", asked>>8&0xff, asked&0xff) // one client of many, whom no limit stops
		who.sign(r, host, proof)
		ctx, cancel := context.WithTimeout(r.Context(), 10*time.Second)
		defer cancel()
		w := &recorder{ResponseRecorder: httptest.NewRecorder(), begun: cancel}
		handler.ServeHTTP(w, r.WithContext(ctx))
		if to := w.Header().Get("Location"); w.Code == http.StatusSeeOther && strings.HasPrefix(to, "/signin?next=") {
			return http.StatusUnauthorized
		}
		return w.Code
	}
	for _, route := range append(c.Router.Routes(), guard.Routes()...) {
		for _, rule := range c.rules(route) {
			for _, who := range callers {
				c.judge(t, route, rule, who, ask)
			}
		}
	}
	return asked
}

// judge asks for one route and rule as one caller, in all ways.
func (c *Case) judge(t *testing.T, route access.Route, rule string, who caller, ask func(access.Route, string, caller, string) int) {
	t.Helper()
	name := fmt.Sprintf("%s %s of %q as %s", route.Method, route.Pattern, rule, who.name)
	if route.CSRF() && who.cookie != "" {
		for _, proof := range []string{"no token", "another session's token", "another origin", "another site", "null origin"} {
			if status := ask(route, rule, who, proof); status != http.StatusForbidden {
				t.Errorf("%s with %s: got %d", name, proof, status)
			}
		}
	}
	allowed := !who.unknown && access.May(who.actor, route.Act, c.ownerOf(rule)) == nil
	switch status := ask(route, rule, who, "all proof"); {
	case allowed && (status == http.StatusUnauthorized || status == http.StatusForbidden):
		if !strings.HasPrefix(route.Pattern, "/signin/callback") { // which is forbidden to those who have begun no sign-in
			t.Errorf("%s: got %d, and may %s", name, status, route.Act)
		}
	case !allowed && status != http.StatusUnauthorized && status != http.StatusForbidden:
		t.Errorf("%s: got %d, and may not %s", name, status, route.Act)
	}
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
func (c *Case) callers(t *testing.T) []caller {
	t.Helper()
	out := []caller{{name: "nobody"}, {name: "a token that nobody knows", unknown: true}}
	for _, who := range []string{Viewer, Analyst, Stranger, Owner, Admin} {
		actor := actorOf(who)
		token := random()
		session := sessions.Session{Name: who, Subject: "https://id.example " + who, Groups: Groups(who)}
		if err := c.Sessions.Start(t.Context(), sha256.Sum256([]byte(token)), sessions.Hash{}, session, time.Hour, audit.Entry{Actor: who, Action: "sign-in", Object: "session"}); err != nil {
			t.Fatal(err)
		}
		bearer := random()
		out = append(out, caller{name: who, actor: actor, cookie: token}, caller{name: who + "'s token", actor: actor, bearer: bearer})
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
func (who caller) sign(r *http.Request, host, proof string) {
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
