// Package signin finds out who asks, and turns away who may not: an http middleware in front of the console's pages
// and API. It knows people, who sign in with an OpenID Connect provider, by the link of an invitation or with a token
// in a form, and then have a session, and scripts, which bring a static token. It puts the access.Actor into the
// request's context; what he may do is package access's.
//
// Whatever cannot be decided is refused: a request without a session gets no further than the routes that are public, a store
// that does not answer is a 503.
package signin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/loopback"
	"github.com/weirhq/weir/traffic"
)

// Sessions is where sessions are kept, shared by all consoles of an installation.
type Sessions interface {
	// Key is the key of the Seal, the same for all consoles.
	Key(ctx context.Context) ([]byte, error)
	// Take ends a sign-in that may take until then, postgres.ErrNotFound where it was taken before.
	Take(ctx context.Context, token sessions.Hash, until time.Time) error
	// Start makes a session in the place of replaced, Find returns it, postgres.ErrNotFound where it has ended, End
	// ends it. Look is Find that is no use of the session.
	Start(ctx context.Context, token, replaced sessions.Hash, who sessions.Session, lasts time.Duration, entry audit.Entry) error
	Find(ctx context.Context, token sessions.Hash, idle time.Duration) (sessions.Session, error)
	Look(ctx context.Context, token sessions.Hash, idle time.Duration) (sessions.Session, error)
	End(ctx context.Context, token sessions.Hash, entry audit.Entry) error
	// Redeem takes an invitation and makes a session in its place; postgres.ErrNotFound where there is none, or none
	// any more.
	Redeem(ctx context.Context, link, token, replaced sessions.Hash, lasts time.Duration,
		made func(sessions.Invite) (sessions.Session, audit.Entry)) (sessions.Session, error)
	// Note audits a sign-in that was refused.
	Note(ctx context.Context, entry audit.Entry) error
}

var _ Sessions = (*sessions.Store)(nil)

// Options configure a Guard. Logger and Registerer are required; Sessions is where there is OIDC. Without Sessions
// nobody signs in with a browser.
type Options struct {
	Sessions Sessions
	// PublicURL is where browsers find the console: scheme, host, perhaps a port, no path. It is required with OIDC, and has to be
	// https there unless its host is loopback.
	PublicURL string
	// TLS is whether the guard's own listener speaks it.
	TLS bool
	// Hosts are further names, without port, under which the console may be asked; its addresses and localhost always may.
	Hosts []string
	// Client says how the client's address is found behind proxies; the zero value takes the connection's peer.
	Client traffic.IPSource
	OIDC   *OIDC // nil: people sign in by invitations and tokens alone
	Tokens []Token
	// Lasts is how long a session lasts at most (default 12 hours), Idle how long it lasts unused (default 1 hour).
	Lasts, Idle time.Duration
	// Local is who all requests from this machine are of, without signing in: for weir dev and console.local_admin,
	// which say so. Such a console answers nobody from elsewhere, and takes who brings a token for the token's actor.
	// nil: everybody signs in.
	Local *access.Actor

	Clock      func() time.Time // default time.Now
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Defaults of Options.
const (
	DefaultLasts = 12 * time.Hour
	DefaultIdle  = time.Hour
)

// Guard decides who a request is of. It is safe for concurrent use.
type Guard struct {
	o       Options
	public  *url.URL // nil where there is none
	secure  bool     // browsers come by TLS
	client  *traffic.Identifier
	people  *provider // nil: no identity provider
	tokens  []Token
	limits  limits
	sealing sealing
	metrics *metrics
	pages   *pages
	own     *access.Mux   // the sign-in's own routes
	recheck time.Duration // recheckEvery, but for tests
}

// New makes a Guard. It asks no server yet: an identity provider that is away keeps nobody from starting a console.
func New(o Options) (*Guard, error) {
	if o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("signin: Logger or Registerer is missing")
	}
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Lasts == 0 {
		o.Lasts = DefaultLasts
	}
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	g := &Guard{o: o, secure: o.TLS, limits: newLimits(o.Clock), sealing: sealing{store: o.Sessions},
		recheck: recheckEvery}
	if err := g.findPublic(); err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	identity := traffic.IdentityMap{IP: o.Client}
	identity.IP.V4, identity.IP.V6 = 32, 128
	var err error
	if g.client, err = identity.Compile(); err != nil {
		return nil, fmt.Errorf("signin: Client: %w", err)
	}
	if g.tokens, err = checkTokens(o.Tokens); err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	if o.OIDC != nil {
		if o.Sessions == nil || g.public == nil {
			return nil, errors.New("signin: OIDC needs Sessions and PublicURL")
		}
		if g.people, err = newProvider(*o.OIDC, g.public.JoinPath(callbackPath).String(), o.Clock); err != nil {
			return nil, fmt.Errorf("signin: %w", err)
		}
	}
	start := startPath
	if g.people == nil {
		start = signInPath
	}
	if g.pages, err = loadPages(start); err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	if g.metrics, err = newMetrics(o.Registerer); err != nil {
		return nil, fmt.Errorf("signin: %w", err)
	}
	g.own = g.routes()
	return g, nil
}

func (g *Guard) findPublic() error {
	if g.o.PublicURL == "" {
		return nil
	}
	u, err := url.Parse(g.o.PublicURL)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil || u.Fragment != "" {
		return fmt.Errorf("public URL: got %q; allowed: https://HOST or https://HOST:PORT", g.o.PublicURL)
	}
	if u.Scheme == "http" && !loopback.Host(u.Hostname()) {
		return fmt.Errorf("public URL: got %q; allowed: https, since whoever sees a session's cookie on the way has the session (http for localhost only)", g.o.PublicURL)
	}
	u.Path = ""
	g.public, g.secure = u, g.secure || u.Scheme == "https"
	return nil
}

// Routes describes the guard's own routes: what there is beside those of the handler behind it.
func (g *Guard) Routes() []access.Route { return g.own.Routes() }

// Over puts the guard in front of next. public reports whether a request may go on without anybody being signed in, as nobody; nil
// lets none. Everything else arrives there with an actor in its context.
func (g *Guard) Over(next http.Handler, public func(*http.Request) bool) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if g.secure { // browsers heed it where they came by TLS alone (RFC 6797, section 8.1)
			w.Header().Set("Strict-Transport-Security", "max-age=31536000")
		}
		if !g.ours(r.Host) {
			g.refuse(w, r, refusal{status: http.StatusMisdirectedRequest, reason: reasonHost, detail: "the console does not answer for this host name"})
			return
		}
		visit, refused := g.identify(w, r)
		if refused == nil && access.Changes(r.Method) {
			refused = g.checkOrigin(w, r, visit)
		}
		if refused != nil {
			g.refuse(w, r, *refused)
			return
		}
		r = r.WithContext(access.WithVisit(r.Context(), visit.Visit))
		if _, ok := g.own.Find(r); ok {
			g.own.ServeHTTP(w, r)
			return
		}
		if visit.Actor.Role == access.Nobody && (public == nil || !public(r)) {
			g.unknown(w, r, visit)
			return
		}
		ctx, cancel := g.whileSignedIn(r.Context(), visit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// visit is what identify finds out.
type visit struct {
	access.Visit
	cookie  string        // the session's token; empty where there is no session
	bearer  bool          // a token came in the Authorization header, where no page of anybody else's can put it
	ended   bool          // the browser brought a session that has ended
	address netip.Addr    // of the client
	still   stillSignedIn // nil: for as long as it takes
}

// stillSignedIn reports whether the actor may go on with a request that takes long.
type stillSignedIn func(ctx context.Context) bool

// recheckEvery is how often a request that takes long, such as a stream, is asked whether its session still is one.
const recheckEvery = 30 * time.Second

// whileSignedIn ends a request when the session that it began with ends.
func (g *Guard) whileSignedIn(ctx context.Context, v visit) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if v.still == nil {
		return ctx, cancel
	}
	var timer *time.Timer
	ready := make(chan struct{})
	timer = time.AfterFunc(g.recheck, func() {
		<-ready
		if ctx.Err() != nil {
			return
		}
		if !v.still(ctx) {
			cancel()
			return
		}
		timer.Reset(g.recheck)
	})
	close(ready)
	return ctx, func() {
		timer.Stop()
		cancel()
	}
}

// identify finds out who a request is of. A token goes before a session: no page of anybody else's can make a browser send one.
func (g *Guard) identify(w http.ResponseWriter, r *http.Request) (visit, *refusal) {
	v := visit{address: g.addressOf(r)}
	if g.o.Local != nil {
		return g.local(r, v)
	}
	if text, has, err := bearer(r); has || err != nil {
		return g.byToken(v, text, err)
	}
	return g.bySession(w, r, v)
}

// local takes everybody on this machine for the actor of Options.Local, but for who says by a token that he is
// somebody else.
func (g *Guard) local(r *http.Request, v visit) (visit, *refusal) {
	if why := elsewhere(r); why != "" {
		return v, &refusal{status: http.StatusForbidden, reason: reasonAway,
			detail: "this console asks for no sign-in and so answers this machine alone" + why}
	}
	if text, has, err := bearer(r); has || err != nil { // whoever says who he is, is nobody else
		return g.byToken(v, text, err)
	}
	v.Actor = *g.o.Local
	return v, nil
}

// elsewhere says why a request may be of somebody who is not at this machine; empty where nothing says so. The name
// that it asks for has to be this machine's: one that somebody has pointed here (DNS rebinding) is none, nor is an
// address that a page elsewhere may name, such as 0.0.0.0.
func elsewhere(r *http.Request) string {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !peer.Addr().Unmap().IsLoopback() {
		return ", no other address"
	}
	if name := hostName(r.Host); !loopback.Host(name) {
		return ", by the names localhost, 127.0.0.1 and [::1]"
	}
	for _, name := range []string{
		"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server",
		"Forwarded", "Via",
		"X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip",
		"X-Original-Host",
	} {
		if len(r.Header.Values(name)) > 0 {
			return ", no proxy (" + name + ")"
		}
	}
	return ""
}

// addressOf is the client's address: the zero one where the proxies do not say, which is limited like one client.
func (g *Guard) addressOf(r *http.Request) netip.Addr {
	id, _ := g.client.FromCarrier(&traffic.Carrier{Peer: r.RemoteAddr, Forwarded: r.Header.Values("X-Forwarded-For"), Header: r.Header})
	return id.IP
}

// ours reports whether a request for host is meant for this server. A name could have been pointed here by anybody (DNS
// rebinding); a bare address could not.
func (g *Guard) ours(host string) bool {
	host = hostName(host)
	if _, err := netip.ParseAddr(host); err == nil || host == "localhost" {
		return true
	}
	if g.public != nil && strings.EqualFold(g.public.Hostname(), host) {
		return true
	}
	return slices.ContainsFunc(g.o.Hosts, func(known string) bool { return strings.EqualFold(known, host) })
}

// hostName is the name or address in a Host header, without port.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}
