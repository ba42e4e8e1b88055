package signin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/loopback"
)

// OIDC is the identity provider, and what its words mean here.
type OIDC struct {
	Issuer       string // https://…, as its tokens name it
	ClientID     string
	ClientSecret string   // empty for a public client: PKCE is used in any case
	Scopes       []string // beside openid; default profile, email
	// NameClaim is the claim that the audit trail names people by: default email, which is taken where the provider says that it is
	// verified (email_verified), since anybody may claim to have another's. Without it they are named by the subject.
	NameClaim string
	// GroupsClaim is the claim that lists somebody's groups (default groups), a.b for a member of an object. The user info is asked where
	// the ID token has none.
	GroupsClaim string
	// Roles is the role of each group: of several, the highest. Who has none may not sign in.
	Roles map[string]access.Role
	// Owners is the group that decides about the rules of each owner. Who is in one has the role owner at least.
	Owners map[string]string
}

// providerTimeout bounds each request to the identity provider, and all of them for one sign-in.
const providerTimeout = 10 * time.Second

// maxProviderBytes bounds what is read of an answer of the identity provider.
const maxProviderBytes = 1 << 20

// clockSkew is how far the identity provider's clock may be from ours.
const clockSkew = time.Minute

// provider asks the identity provider.
type provider struct {
	o        OIDC
	redirect string
	clock    func() time.Time
	client   *http.Client

	mu    sync.Mutex
	known *discovered // nil until it has answered
}

// discovered is what the provider says of itself.
type discovered struct {
	*oidc.Provider
	verifier *oidc.IDTokenVerifier
	oauth    oauth2.Config
}

func newProvider(o OIDC, redirect string, clock func() time.Time) (*provider, error) {
	u, err := url.Parse(o.Issuer)
	if err != nil || u.Host == "" || u.Scheme != "https" && (u.Scheme != "http" || !loopback.Host(u.Hostname())) {
		return nil, fmt.Errorf("OIDC issuer: got %q; allowed: https://…", o.Issuer)
	}
	if o.ClientID == "" {
		return nil, errors.New("OIDC client id: got none; allowed: the one that the identity provider gave this console")
	}
	if len(o.Roles) == 0 && len(o.Owners) == 0 {
		return nil, errors.New("OIDC roles: got none; allowed: a role for one group at least, since nobody could sign in")
	}
	if o.NameClaim == "" {
		o.NameClaim = "email"
	}
	if o.GroupsClaim == "" {
		o.GroupsClaim = "groups"
	}
	if o.Scopes == nil {
		o.Scopes = []string{"profile", "email"}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	return &provider{
		o: o, redirect: redirect, clock: clock,
		client: &http.Client{Timeout: providerTimeout, Transport: bounded{transport}},
	}, nil
}

// bounded ends answers that are too long.
type bounded struct{ next http.RoundTripper }

// RoundTrip is http.RoundTripper's.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := b.next.RoundTrip(r)
	if err == nil {
		answer.Body = &boundedBody{Reader: io.LimitReader(answer.Body, maxProviderBytes), Closer: answer.Body}
	}
	return answer, err
}

type boundedBody struct {
	io.Reader
	io.Closer
}

// discover asks the provider what it is, until it has answered once. Its keys are asked for anew when a token names one that is not known.
func (p *provider) discover(ctx context.Context) (*discovered, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.known != nil {
		return p.known, nil
	}
	found, err := oidc.NewProvider(oidc.ClientContext(ctx, p.client), p.o.Issuer)
	if err != nil {
		return nil, fmt.Errorf("asking the identity provider what it is: %w", err)
	}
	p.known = &discovered{
		Provider: found,
		// Expiry is judged by this console's clock, less what it may be ahead; algorithms are those that the provider names, of the asymmetric ones.
		verifier: found.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), p.client), &oidc.Config{
			ClientID: p.o.ClientID, Now: func() time.Time { return p.clock().Add(-clockSkew) },
		}),
		oauth: oauth2.Config{
			ClientID: p.o.ClientID, ClientSecret: p.o.ClientSecret, Endpoint: found.Endpoint(), RedirectURL: p.redirect,
			Scopes: append([]string{oidc.ScopeOpenID}, p.o.Scopes...),
		},
	}
	return p.known, nil
}

// Purposes of what is derived from the secret that a browser holds during its sign-in. The provider sees the first two, and neither
// tells the others.
const (
	forState    = "state"
	forNonce    = "nonce"
	forVerifier = "code verifier"
)

// begin is the address to send a browser to that holds token.
func (p *provider) begin(ctx context.Context, token secret) (string, error) {
	d, err := p.discover(ctx)
	if err != nil {
		return "", err
	}
	return d.oauth.AuthCodeURL(token.derive(forState), oidc.Nonce(token.derive(forNonce)), oauth2.S256ChallengeOption(token.derive(forVerifier))), nil
}

// finish exchanges a code for who it is of.
func (p *provider) finish(ctx context.Context, token secret, code string) (sessions.Session, error) {
	ctx, cancel := context.WithTimeout(oidc.ClientContext(ctx, p.client), providerTimeout)
	defer cancel()
	d, err := p.discover(ctx)
	if err != nil {
		return sessions.Session{}, err
	}
	answer, err := d.oauth.Exchange(ctx, code, oauth2.VerifierOption(token.derive(forVerifier)))
	if err != nil {
		return sessions.Session{}, fmt.Errorf("exchanging the code: %w", err)
	}
	raw, ok := answer.Extra("id_token").(string)
	if !ok {
		return sessions.Session{}, errors.New("the identity provider has sent no ID token")
	}
	id, err := d.verifier.Verify(ctx, raw)
	if err != nil {
		return sessions.Session{}, err
	}
	claims := map[string]any{}
	if err := id.Claims(&claims); err != nil {
		return sessions.Session{}, fmt.Errorf("claims of the ID token: %w", err)
	}
	if err := p.checkToken(id, claims, token); err != nil {
		return sessions.Session{}, err
	}
	if _, ok := lookUp(claims, p.o.GroupsClaim); !ok || claims[p.o.NameClaim] == nil {
		if claims, err = d.withUserInfo(ctx, answer, id.Subject, claims); err != nil {
			return sessions.Session{}, err
		}
	}
	return p.sessionOf(id.Subject, claims), nil
}

// checkToken checks what the verifier leaves to its caller.
func (p *provider) checkToken(id *oidc.IDToken, claims map[string]any, token secret) error {
	if id.Nonce != token.derive(forNonce) {
		return errors.New("the ID token's nonce is not of this sign-in")
	}
	if azp, ok := claims["azp"].(string); ok && azp != p.o.ClientID || !ok && len(id.Audience) > 1 {
		return fmt.Errorf("the ID token is for %v, on behalf of %v", id.Audience, claims["azp"])
	}
	if ahead := id.IssuedAt.Sub(p.clock()); ahead > 5*clockSkew {
		return fmt.Errorf("the ID token is of %s, %s from now: the clocks of the identity provider and of this console differ", id.IssuedAt.UTC().Format(time.RFC3339), ahead)
	}
	if id.Subject == "" {
		return errors.New("the ID token has no subject")
	}
	return nil
}

// withUserInfo adds what the user info endpoint tells, where there is one. What the ID token says holds.
func (d *discovered) withUserInfo(ctx context.Context, answer *oauth2.Token, subject string, claims map[string]any) (map[string]any, error) {
	if d.UserInfoEndpoint() == "" {
		return claims, nil
	}
	info, err := d.UserInfo(ctx, oauth2.StaticTokenSource(answer))
	if err != nil {
		return nil, fmt.Errorf("asking for the user info: %w", err)
	}
	if info.Subject != subject {
		return nil, fmt.Errorf("the user info is of %q, the ID token of %q", info.Subject, subject)
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return nil, fmt.Errorf("claims of the user info: %w", err)
	}
	maps.Copy(more, claims)
	return more, nil
}

// sessionOf reads who it is. Of the groups it keeps those that mean something here.
func (p *provider) sessionOf(subject string, claims map[string]any) sessions.Session {
	who := sessions.Session{Name: p.nameOf(subject, claims), Subject: p.o.Issuer + " " + subject, Via: access.ViaOIDC}
	found, _ := lookUp(claims, p.o.GroupsClaim)
	switch groups := found.(type) {
	case string:
		who.Groups = []string{groups}
	case []any:
		for _, g := range groups {
			if name, ok := g.(string); ok {
				who.Groups = append(who.Groups, name)
			}
		}
	}
	who.Groups = slices.DeleteFunc(who.Groups, func(group string) bool {
		_, role := p.o.Roles[group]
		return !role && !slices.Contains(slices.Collect(maps.Values(p.o.Owners)), group)
	})
	slices.Sort(who.Groups)
	who.Groups = slices.Compact(who.Groups)
	return who
}

// maxNameBytes bounds the name of somebody in the audit trail.
const maxNameBytes = 128

// nameOf is how the audit trail names somebody: by a claim that he cannot make read like somebody else's name.
// Providers let people choose most claims, and give none of them out once: behind any but a verified address stands the
// subject.
func (p *provider) nameOf(subject string, claims map[string]any) string {
	name, _ := lookUp(claims, p.o.NameClaim)
	text, _ := name.(string)
	verified := claims["email_verified"] == true || claims["email_verified"] == "true" // some providers write it as a text
	if p.o.NameClaim == "email" && !verified || !plainName(text) {
		text = subject
	}
	if text != subject && p.o.NameClaim != "email" {
		if text += " (" + subject + ")"; !plainName(text) {
			text = subject
		}
	}
	if !plainName(text) {
		text = fmt.Sprintf("subject %+.100q", text)
	}
	return text
}

// plainName reports whether a name is one line without blanks around it, and none of a token's.
func plainName(text string) bool {
	return text != "" && len(text) <= maxNameBytes && strings.TrimSpace(text) == text && !strings.HasPrefix(text, "token:") &&
		!strings.ContainsFunc(text, func(r rune) bool { return !isPlain(r) })
}

// lookUp finds a claim by its path.
func lookUp(claims map[string]any, path string) (any, bool) {
	if value := claims[path]; value != nil { // a name may have dots, as URLs have
		return value, true
	}
	name, rest, nested := strings.Cut(path, ".")
	inner, ok := claims[name].(map[string]any)
	if !nested || !ok {
		return nil, false
	}
	return lookUp(inner, rest)
}

// actor is who somebody is here, by the configuration of now.
func (o *OIDC) actor(who *sessions.Session) access.Actor {
	a := access.Actor{Name: who.Name, Via: access.ViaOIDC}
	for _, group := range who.Groups {
		a.Role = max(a.Role, o.Roles[group])
	}
	for owner, group := range o.Owners {
		if slices.Contains(who.Groups, group) {
			a.Owners = append(a.Owners, owner)
			a.Role = max(a.Role, access.Owner)
		}
	}
	slices.Sort(a.Owners)
	return a
}
