package signin

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/loopback"
)

// Paths of the forms of the sign-in.
const (
	invitePath = "/signin/invite"
	tokenPath  = "/signin/token"
)

// InvitePath is what follows the console's address in the link of an invitation, whose token stands behind it.
const InvitePath = signInPath + "?invite="

// formCookie holds the secret from which the token against forgery of the sign-in's forms follows: who signs in has
// no session yet.
const formCookie = "weir-form"

// forForm is the purpose of that token.
const forForm = "form"

// maxFormSignInBytes bounds a form of somebody whom nobody knows.
const maxFormSignInBytes = 16 << 10

// storeTimeout bounds what a sign-in waits for the store.
const storeTimeout = 10 * time.Second

// door is where people come in with a browser: the page, and what its forms send. They ask no identity provider.
//
// The link of an invitation leads to the page, and the page asks for a button to be pressed: what looks at a link
// before somebody opens it, as mail programs and chats do, uses nothing up. Nothing is looked up for a link before
// that, either.
type door struct{ *Guard }

// closed says why nobody signs in by a form of this page; nil where somebody can.
func (d door) closed(r *http.Request) *refusal {
	switch {
	case d.o.Local != nil:
		return &refusal{status: http.StatusNotFound, reason: reasonSignIn, title: "Nobody signs in here",
			detail: "this console asks for no sign-in: whoever is at this machine may do everything"}
	case d.o.Sessions == nil:
		return &refusal{status: http.StatusNotFound, reason: reasonSignIn, detail: "this console keeps no sessions"}
	case !d.secure && r.TLS == nil && !loopback.Host(hostName(r.Host)):
		return &refusal{status: http.StatusForbidden, reason: reasonPlain, title: "Not by plain http",
			detail: "whoever sees the answer on its way would be signed in too: set console.public_url or " +
				"console.tls and ask by https, or ask at the machine itself, as localhost"}
	}
	return nil
}

// page is the sign-in's page. With the token of an invitation in its address it has one button; it tells nobody that
// address.
func (d door) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p := signInPage{Next: safeNext(q.Get("next"))}
	switch q.Get("why") {
	case "ended":
		p.Why = "Your session has ended: it was not used for a while, or has lasted as long as one may."
	case "out":
		p.Why = "You are signed out here."
		if d.people != nil {
			p.Why += " At the identity provider you may still be signed in."
		}
	}
	if given, is := q["invite"]; is && d.closed(r) == nil {
		link, ok := linkOf(given)
		if !ok {
			d.refuse(w, r, deadLink())
			return
		}
		p.Invite = string(link)
	}
	d.show(w, r, http.StatusOK, p)
}

// show writes the page with the ways in that there are.
func (d door) show(w http.ResponseWriter, r *http.Request, status int, p signInPage) {
	p.Possible, p.Actor = d.people != nil, access.From(r.Context())
	if shut := d.closed(r); shut != nil {
		p.Shut = sentence(shut.detail) + "."
	} else {
		p.CSRF, p.Tokens = d.proof(w, r), len(d.tokens) > 0
	}
	d.pages.signIn(w, status, p)
}

// proof is what the page's forms carry against forgery: the session's token or, where there is none, one that follows
// from a cookie.
func (d door) proof(w http.ResponseWriter, r *http.Request) string {
	if csrf := access.VisitOf(r.Context()).CSRF; csrf != "" {
		return csrf
	}
	held, _ := d.cookie(r, formCookie)
	if held == "" {
		held = newSecret()
		d.setCookie(w, formCookie, held, 0)
	}
	return held.derive(forForm)
}

// posted reads a form that was sent from the page. Of who has a session, the session's token against forgery has been
// looked at already.
func (d door) posted(w http.ResponseWriter, r *http.Request) (url.Values, *refusal) {
	if shut := d.closed(r); shut != nil {
		return nil, shut
	}
	r.Body = http.MaxBytesReader(w, r.Body, maxFormSignInBytes)
	if err := r.ParseForm(); err != nil {
		return nil, &refusal{status: http.StatusBadRequest, reason: reasonSignIn,
			detail: "the form cannot be read; nothing was done"}
	}
	if access.VisitOf(r.Context()).CSRF != "" {
		return r.PostForm, nil
	}
	held, _ := d.cookie(r, formCookie)
	given := r.PostForm[access.CSRFField]
	proved := held != "" && len(given) == 1 &&
		subtle.ConstantTimeCompare([]byte(given[0]), []byte(held.derive(forForm))) == 1
	if !proved {
		d.o.Logger.Warn("a sign-in without the token of its form was refused", "address", d.addressOf(r))
		return nil, &refusal{status: http.StatusForbidden, reason: reasonCSRF,
			detail: "the form is not of this browser's page: load the page again, with cookies; nothing was done"}
	}
	return r.PostForm, nil
}

// linkOf is the token of an invitation, where a query or form has one that can be.
func linkOf(given []string) (secret, bool) {
	if len(given) != 1 {
		return "", false
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(given[0])
	if err != nil || len(raw) != 32 || len(given[0]) != 43 {
		return "", false
	}
	return secret(given[0]), true
}

// deadLink is the answer to every link that does not sign in, whatever the reason.
func deadLink() refusal {
	return refusal{status: http.StatusForbidden, reason: reasonInvite, title: "This link does not sign in",
		detail: "it was used, is over, was taken back, or is not of this console; nobody was signed in. Ask for another one"}
}

// byInvite signs in by the link of an invitation.
func (d door) byInvite(w http.ResponseWriter, r *http.Request) {
	form, refused := d.posted(w, r)
	if refused != nil {
		d.refuse(w, r, *refused)
		return
	}
	var who sessions.Session
	var fresh secret
	key, err := d.sealing.seal(r.Context())
	if err == nil {
		fresh, err = key.make(forSession, nil), postgres.ErrNotFound
		link, ok := linkOf(form["invite"])
		if _, made := key.open(forInvitation, link); ok && made {
			ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
			defer cancel()
			old, _ := d.cookie(r, sessionCookie)
			who, err = d.o.Sessions.Redeem(ctx, link.hash(), fresh.hash(), old.hash(), d.o.Lasts, d.invited(r))
		}
	}
	switch {
	case errors.Is(err, postgres.ErrNotFound):
		d.metrics.signIns.WithLabelValues(outcomeFailed).Inc()
		if wait := d.limits.failures.charge(d.addressOf(r)); wait > 0 {
			d.refuse(w, r, *tooMany(wait))
			return
		}
		d.o.Logger.Warn("a link that does not sign in was used", "address", d.addressOf(r))
		d.refuse(w, r, deadLink())
	case err != nil:
		d.failed(w, r, http.StatusServiceUnavailable, err)
	default:
		d.setCookie(w, sessionCookie, fresh, 0)
		d.admit(w, r, &who, "/")
	}
}

// invited is the session of whom an invitation names, with its entry.
func (d door) invited(r *http.Request) func(sessions.Invite) (sessions.Session, audit.Entry) {
	return func(of sessions.Invite) (sessions.Session, audit.Entry) {
		who := sessions.Session{Name: of.Name, Subject: "invited by " + of.By, Via: access.ViaInvite, Role: of.Role,
			Owners: of.Owners}
		return who, d.entry(r, &who, d.o.ActorOf(&who, d.o.Clock()))
	}
}

// byForm signs in by a token of the configuration, in the form's field. The session ends with the token at the latest.
func (d door) byForm(w http.ResponseWriter, r *http.Request) {
	form, refused := d.posted(w, r)
	if refused != nil {
		d.refuse(w, r, *refused)
		return
	}
	next := safeNext(form.Get("next"))
	found, why := d.tokenIn(form["token"])
	if why != nil {
		d.metrics.signIns.WithLabelValues(outcomeFailed).Inc()
		if wait := d.limits.failures.charge(d.addressOf(r)); wait > 0 {
			d.refuse(w, r, *tooMany(wait))
			return
		}
		d.metrics.refused.WithLabelValues(reasonToken).Inc()
		d.o.Logger.Warn("a token was refused", "why", why, "address", d.addressOf(r))
		d.show(w, r, http.StatusForbidden, signInPage{Why: sentence(noToken(why)) + ".", Next: next})
		return
	}
	actor := found.actor()
	who := sessions.Session{Name: actor.Name, Subject: found.origin(), Via: access.ViaToken, Expires: found.Expires}
	if err := d.startSession(w, r, &who, actor); err != nil {
		d.failed(w, r, http.StatusServiceUnavailable, err)
		return
	}
	d.admit(w, r, &who, next)
}

// tokenIn finds the token that a form has. Blanks around it came along when it was copied.
func (d door) tokenIn(given []string) (*Token, error) {
	if len(given) != 1 {
		return nil, errors.New("no single token in the form")
	}
	text := strings.TrimSpace(given[0])
	if text == "" || len(text) > maxTokenBytes {
		return nil, errors.New("no token in the form, or one that is too long")
	}
	return d.findToken(text)
}

// startSession makes a session that lasts until who.Expires at the latest, where that is set.
func (d door) startSession(w http.ResponseWriter, r *http.Request, who *sessions.Session, actor access.Actor) error {
	ctx, cancel := context.WithTimeout(r.Context(), storeTimeout)
	defer cancel()
	lasts := d.o.Lasts
	if !who.Expires.IsZero() {
		lasts = min(lasts, who.Expires.Sub(d.o.Clock()))
	}
	key, err := d.sealing.seal(ctx)
	if err != nil {
		return err
	}
	fresh := key.make(forSession, nil)
	old, _ := d.cookie(r, sessionCookie)
	if err := d.o.Sessions.Start(ctx, fresh.hash(), old.hash(), *who, lasts, d.entry(r, who, actor)); err != nil {
		return err
	}
	d.setCookie(w, sessionCookie, fresh, 0)
	return nil
}

// entry is what the audit trail has of a sign-in.
func (d door) entry(r *http.Request, who *sessions.Session, actor access.Actor) audit.Entry {
	return audit.Entry{Actor: actor.Name, Via: actor.Via, Action: "sign-in", Object: "session",
		Detail: fmt.Sprintf("%s from %s: %s", who.Subject, d.addressOf(r), describe(actor)), Before: "signed out",
		After: "signed in"}
}

// admit tells of a sign-in by a form, and leads on.
func (d door) admit(w http.ResponseWriter, r *http.Request, who *sessions.Session, next string) {
	actor := d.o.ActorOf(who, d.o.Clock())
	d.dropCookie(w, formCookie)
	d.metrics.signIns.WithLabelValues(outcomeOK).Inc()
	d.o.Logger.Info("signed in", "actor", actor.Name, "role", actor.Role, "owners", actor.Owners, "via", actor.Via,
		"subject", who.Subject, "address", d.addressOf(r))
	w.Header().Set("Cache-Control", "no-store")
	http.Redirect(w, r, next, http.StatusSeeOther)
}

// NewLink makes the token of an invitation's link, and what the store keeps of it.
func (k Seal) NewLink() (token string, hash sessions.Hash) {
	s := k.make(forInvitation, nil)
	return string(s), s.hash()
}

// CheckName refuses a name by which the audit trail could not tell somebody from somebody else.
func CheckName(name string) error {
	if !plainName(name) {
		return fmt.Errorf("got %q; allowed: one line of up to %d bytes, without blanks around it and without token: before it", name, maxNameBytes)
	}
	return nil
}
