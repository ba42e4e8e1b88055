package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sessions"
)

// Paths of the sign-in.
const (
	signInPath   = "/signin"
	startPath    = "/signin/start"
	callbackPath = "/signin/callback"
	stylePath    = "/signin/style.css"
	signOutPath  = "/signout"
)

// signInWithin is how long somebody may take at the identity provider.
const signInWithin = 10 * time.Minute

func (g *Guard) routes() *access.Mux {
	m := access.NewMux(g.Refuse, nil)
	d := door{g}
	m.HandleFunc(access.Route{Method: http.MethodGet, Pattern: signInPath, Act: access.Public}, d.page)
	m.HandleFunc(access.Route{Method: http.MethodPost, Pattern: invitePath, Act: access.Public}, d.byInvite)
	m.HandleFunc(access.Route{Method: http.MethodPost, Pattern: tokenPath, Act: access.Public}, d.byForm)
	m.HandleFunc(access.Route{Method: http.MethodGet, Pattern: startPath, Act: access.Public}, g.start)
	m.HandleFunc(access.Route{Method: http.MethodGet, Pattern: callbackPath, Act: access.Public}, g.callback)
	m.HandleFunc(access.Route{Method: http.MethodGet, Pattern: stylePath, Act: access.Public}, g.pages.serveStyle)
	m.HandleFunc(access.Route{Method: http.MethodPost, Pattern: signOutPath, Act: access.Self}, g.signOut)
	return m
}

// start sends a browser to the identity provider.
func (g *Guard) start(w http.ResponseWriter, r *http.Request) {
	if g.people == nil {
		g.refuse(w, r, refusal{status: http.StatusNotFound, reason: reasonSignIn, detail: "no identity provider is configured for this console"})
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), providerTimeout)
	defer cancel()
	var token secret
	var to string
	key, err := g.sealing.seal(ctx)
	if err == nil {
		token = key.signIn(safeNext(r.URL.Query().Get("next")), g.o.Clock().Add(signInWithin))
		to, err = g.people.begin(ctx, token)
	}
	if err != nil {
		g.failed(w, r, http.StatusServiceUnavailable, err)
		return
	}
	g.setCookie(w, signInCookie, token, signInWithin)
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// callback takes the identity provider's answer. The browser must hold the secret that the sign-in began with, from which everything
// else follows; the store takes it once; and the session is a new one, whatever the browser came with. What is no
// answer to a sign-in of this browser costs nothing and counts for nothing: pages elsewhere can have a browser ask for
// it.
func (g *Guard) callback(w http.ResponseWriter, r *http.Request) {
	if g.people == nil {
		g.refuse(w, r, refusal{status: http.StatusNotFound, reason: reasonSignIn, detail: "no identity provider is configured for this console"})
		return
	}
	address := g.addressOf(r)
	begun, err := g.underWay(w, r)
	if err != nil {
		g.failed(w, r, statusOf(err), err)
		return
	}
	if wait := g.limits.answers.exhausted(address); wait > 0 {
		g.refuse(w, r, *tooMany(wait))
		return
	}
	who, err := g.answered(r, begun)
	actor := access.Actor{}
	if err == nil {
		if actor = g.o.ActorOf(&who, g.o.Clock()); actor.Role == access.Nobody {
			g.noRole(w, r, who)
			return
		}
		if err = (door{g}).startSession(w, r, &who, actor); err != nil {
			err = &storeError{err}
		}
	}
	if err != nil {
		status := statusOf(err)
		if status == http.StatusForbidden {
			g.limits.answers.charge(address)
		}
		g.failed(w, r, status, err)
		return
	}
	g.metrics.signIns.WithLabelValues(outcomeOK).Inc()
	g.o.Logger.Info("signed in", "actor", actor.Name, "role", actor.Role, "owners", actor.Owners, "subject", who.Subject, "address", address)
	http.Redirect(w, r, begun.next, http.StatusSeeOther)
}

// storeError is of the store, not of what the browser brought.
type storeError struct{ cause error }

func (e *storeError) Error() string { return e.cause.Error() }

func (e *storeError) Unwrap() error { return e.cause }

// statusOf tells a store and a provider that are away from an answer that is none.
func statusOf(err error) int {
	var store *storeError
	if errors.As(err, &store) || errors.Is(err, context.DeadlineExceeded) {
		return http.StatusServiceUnavailable
	}
	return http.StatusForbidden
}

// begun is a sign-in that is under way.
type begun struct {
	secret
	next  string // the path to go on with
	until time.Time
}

// underWay is the sign-in that a request answers. Its browser keeps nothing of it.
func (g *Guard) underWay(w http.ResponseWriter, r *http.Request) (begun, error) {
	key, err := g.sealing.seal(r.Context())
	if err != nil {
		return begun{}, &storeError{err}
	}
	var token secret
	if held := r.CookiesNamed(g.cookieName(signInCookie)); len(held) == 1 {
		token = secret(held[0].Value)
	}
	next, until, is := key.underWay(token, g.o.Clock())
	if !is {
		return begun{}, errors.New("this browser has begun no sign-in, or too long ago")
	}
	q := r.URL.Query()
	for name, values := range q {
		if len(values) != 1 {
			return begun{}, fmt.Errorf("the answer has %d parameters %.20q", len(values), name)
		}
	}
	if subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(token.derive(forState))) != 1 {
		return begun{}, errors.New("the answer's state is not of this browser's sign-in")
	}
	g.dropCookie(w, signInCookie)
	return begun{token, safeNext(next), until}, nil
}

// answered judges the identity provider's answer: who it is.
func (g *Guard) answered(r *http.Request, of begun) (sessions.Session, error) {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	err := g.o.Sessions.Take(ctx, of.hash(), of.until)
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		return sessions.Session{}, errors.New("this sign-in was answered before")
	case err != nil:
		return sessions.Session{}, &storeError{err}
	}
	q := r.URL.Query()
	if iss := q.Get("iss"); iss != "" && iss != g.people.o.Issuer { // RFC 9207
		return sessions.Session{}, fmt.Errorf("the answer is of issuer %.200q", iss)
	}
	if code := q.Get("error"); code != "" {
		return sessions.Session{}, fmt.Errorf("the identity provider says %.100q: %.200q", code,
			q.Get("error_description"))
	}
	return g.people.finish(r.Context(), of.secret, q.Get("code"))
}

func describe(a access.Actor) string {
	if a.Role != access.Owner {
		return "role " + a.Role.String()
	}
	return "role owner of " + strings.Join(a.Owners, ", ")
}

// noRole tells somebody whom the identity provider knows, and who may do nothing here.
func (g *Guard) noRole(w http.ResponseWriter, r *http.Request, who sessions.Session) {
	address := g.addressOf(r)
	g.limits.answers.charge(address)
	g.metrics.signIns.WithLabelValues(outcomeNoRole).Inc()
	g.o.Logger.Warn("a sign-in was refused: none of the groups has a role", "name", who.Name, "subject", who.Subject, "address", address)
	entry := audit.Entry{Actor: who.Name, Via: access.ViaOIDC, Action: "sign-in-refused", Object: "session",
		Detail: fmt.Sprintf("%s from %s: none of the groups has a role", who.Subject, address)}
	if err := g.o.Sessions.Note(r.Context(), entry); err != nil {
		g.o.Logger.Error("a refused sign-in cannot be audited", "error", err)
	}
	g.refuse(w, r, refusal{status: http.StatusForbidden, reason: reasonSignIn, title: "No role here",
		detail: "You are signed in with the identity provider as " + who.Name + ", but none of your groups has a role in this console. Whoever administers it gives roles to groups (console.oidc.roles)."})
}

// failed says that a sign-in came to nothing, and in the log why. Whoever asked is told a number to ask for.
func (g *Guard) failed(w http.ResponseWriter, r *http.Request, status int, err error) {
	var number [4]byte
	_, _ = rand.Read(number[:])
	reference := hex.EncodeToString(number[:])
	g.metrics.signIns.WithLabelValues(outcomeFailed).Inc()
	g.o.Logger.Warn("a sign-in failed", "reference", reference, "address", g.addressOf(r), "error", err)
	answer := refusal{status: status, reason: reasonSignIn, title: "Sign-in failed", detail: "You are not signed in. Try again; if it goes on, the log of the console says why (reference " + reference + ")."}
	if status == http.StatusServiceUnavailable {
		answer.wait = 5 * time.Second
	}
	g.refuse(w, r, answer)
}
