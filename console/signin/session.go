package signin

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sessions"
)

// secret is a random token that a browser holds in a cookie: 32 bytes, in base64url.
type secret string

func newSecret() secret {
	var raw [32]byte
	_, _ = rand.Read(raw[:]) // never fails, says its documentation
	return secret(base64.RawURLEncoding.EncodeToString(raw[:]))
}

// hash is what the store knows the token by.
func (s secret) hash() sessions.Hash { return sha256.Sum256([]byte(s)) }

// derive makes another secret of the same browser, for a purpose. So neither has to be kept anywhere.
func (s secret) derive(purpose string) string {
	h := hmac.New(sha256.New, []byte(s))
	h.Write([]byte(purpose))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// Names of the cookies. Over TLS they have the prefix __Host-, with which browsers let nobody but this very host set them (RFC 6265bis).
const (
	sessionCookie = "weir-session"
	signInCookie  = "weir-signin"
)

func (g *Guard) cookieName(name string) string {
	if g.secure {
		return "__Host-" + name
	}
	return name
}

// cookie is the secret in a cookie of r. A cookie that is there twice, or that cannot be ours, is as good as none: the second one
// is somebody else's, and which it is nobody knows.
func (g *Guard) cookie(r *http.Request, name string) (s secret, has bool) {
	found := r.CookiesNamed(g.cookieName(name))
	if len(found) != 1 {
		return "", len(found) > 0
	}
	raw, err := base64.RawURLEncoding.DecodeString(found[0].Value)
	if err != nil || len(raw) != 32 {
		return "", true
	}
	return secret(found[0].Value), true
}

// setCookie gives the browser a secret. It is a cookie of the browser's run: how long it is good the store decides.
func (g *Guard) setCookie(w http.ResponseWriter, name string, s secret, maxAge time.Duration) {
	http.SetCookie(w, &http.Cookie{
		Name: g.cookieName(name), Value: string(s), Path: "/", Secure: g.secure, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, // Strict would not come along from the identity provider's redirect
		MaxAge:   int(maxAge.Seconds()),
	})
}

func (g *Guard) dropCookie(w http.ResponseWriter, name string) {
	g.setCookie(w, name, "", -time.Second)
}

// bySession takes a request for that of whose session it brings.
func (g *Guard) bySession(w http.ResponseWriter, r *http.Request, v visit) (visit, *refusal) {
	token, has := g.cookie(r, sessionCookie)
	if !has || g.o.Sessions == nil {
		return v, nil
	}
	if token == "" {
		g.dropCookie(w, sessionCookie)
		v.ended = true
		return v, nil
	}
	found, sealed, err := g.lookUp(r, token, v.address)
	var many *waitError
	switch {
	case errors.As(err, &many):
		return v, tooMany(many.wait)
	case errors.Is(err, postgres.ErrNotFound):
		if !sealed {
			if wait := g.limits.lookups.charge(v.address); wait > 0 {
				return v, tooMany(wait)
			}
		}
		g.dropCookie(w, sessionCookie)
		v.ended = true
		return v, nil
	case err != nil:
		g.o.Logger.Error("sessions cannot be read", "error", err)
		return v, &refusal{status: http.StatusServiceUnavailable, reason: reasonStore, detail: "who you are cannot be looked up just now; nothing was done", wait: 5 * time.Second}
	}
	v.Actor = g.o.ActorOf(&found, g.o.Clock())
	// The configuration knew his groups, or his token, when he signed in, and does not any more.
	if v.Actor.Role == access.Nobody {
		g.dropCookie(w, sessionCookie)
		v.ended = true
		return v, nil
	}
	v.cookie, v.CSRF, v.Until = string(token), token.derive("csrf"), found.Expires
	v.still = func(ctx context.Context) bool {
		_, err := g.o.Sessions.Look(ctx, token.hash(), g.o.Idle)
		return !errors.Is(err, postgres.ErrNotFound) // a store that is away ends no stream
	}
	return v, nil
}

// waitError says that a client has to wait.
type waitError struct{ wait time.Duration }

func (e *waitError) Error() string { return "too many attempts" }

// lookUp finds the session of a token, and says whether the token is sealed. A page that keeps itself up to date, and
// its stream, are no use of the session: else one in a tab that somebody has left open would never end.
func (g *Guard) lookUp(r *http.Request, token secret, from netip.Addr) (found sessions.Session, sealed bool,
	err error) {
	key, err := g.sealing.seal(r.Context())
	if err != nil {
		return found, false, err
	}
	if _, sealed = key.open(forSession, token); !sealed {
		if wait := g.limits.lookups.exhausted(from); wait > 0 {
			return found, false, &waitError{wait}
		}
	}
	ask := g.o.Sessions.Find
	if r.Header.Get(liveHeader) != "" || strings.Contains(r.Header.Get("Accept"), "text/event-stream") {
		ask = g.o.Sessions.Look
	}
	found, err = ask(r.Context(), token.hash(), g.o.Idle)
	return found, sealed, err
}

// liveHeader marks what a page asks by itself, to keep itself up to date.
const liveHeader = "X-Weir-Live"

// signOut ends the caller's session.
func (g *Guard) signOut(w http.ResponseWriter, r *http.Request) {
	token, _ := g.cookie(r, sessionCookie)
	visit := access.VisitOf(r.Context())
	actor := visit.Actor
	if token != "" && visit.CSRF != "" { // he has come by the session
		entry := audit.Entry{Actor: actor.Name, Via: actor.Via, Action: "sign-out", Object: "session", Before: "signed in", After: "signed out"}
		if err := g.o.Sessions.End(r.Context(), token.hash(), entry); err != nil {
			g.o.Logger.Error("a session cannot be ended", "actor", actor.Name, "error", err)
			g.refuse(w, r, refusal{status: http.StatusServiceUnavailable, reason: reasonStore, detail: "the session cannot be ended just now: you are still signed in", wait: 5 * time.Second})
			return
		}
		g.o.Logger.Info("signed out", "actor", actor.Name)
	}
	g.dropCookie(w, sessionCookie)
	http.Redirect(w, r, signInPath+"?why=out", http.StatusSeeOther)
}

// ActorOf is who a session is of, by the configuration of now: the zero Actor, who may do nothing, where it knows him
// no longer.
func (o *Options) ActorOf(who *sessions.Session, now time.Time) access.Actor {
	switch who.Via {
	case "", access.ViaOIDC:
		if o.OIDC != nil {
			return o.OIDC.actor(who)
		}
	case access.ViaInvite:
		a := access.Actor{Name: who.Name, Owners: who.Owners, Via: access.ViaInvite}
		_ = a.Role.UnmarshalText([]byte(who.Role)) // a role that this build does not know is none
		return a
	case access.ViaToken:
		for i := range o.Tokens {
			if t := &o.Tokens[i]; t.origin() == who.Subject && now.Before(t.Expires) {
				return t.actor()
			}
		}
	}
	return access.Actor{}
}

// safeNext is the path to go on with after signing in: a path of this host and nothing else, so that no link to the sign-in leads
// anywhere but here.
func safeNext(next string) string {
	if !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || len(next) > 2000 || strings.HasPrefix(next, signInPath) || strings.HasPrefix(next, signOutPath) {
		return "/"
	}
	for i := range len(next) {
		if c := next[i]; c <= ' ' || c >= 0x7f || c == '\\' {
			return "/"
		}
	}
	return next
}
