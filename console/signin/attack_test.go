package signin_test

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/signin/signintest"
)

// hostile is an identity provider that signs what it is told to: the answers that no honest one gives.
type hostile struct {
	server    *httptest.Server
	key, evil *rsa.PrivateKey
	challenge string // of the sign-in under way
	verified  bool   // the code came with the verifier of the challenge
	reply     func(nonce string) string
	nonce     string
}

func newHostile(t *testing.T) *hostile {
	t.Helper()
	h := &hostile{}
	var err error
	if h.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	if h.evil, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]any{
			"issuer": h.server.URL, "authorization_endpoint": h.server.URL + "/auth", "token_endpoint": h.server.URL + "/token", "jwks_uri": h.server.URL + "/keys",
			"userinfo_endpoint":                     h.server.URL + "/userinfo",
			"id_token_signing_alg_values_supported": []string{"RS256", "HS256", "none"},
		})
	})
	mux.HandleFunc("/keys", func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: h.key.Public(), KeyID: "k", Algorithm: "RS256", Use: "sig"}}})
	})
	mux.HandleFunc("/userinfo", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprint(w, `{"sub":"somebody else","groups":["a"]}`)
	})
	mux.HandleFunc("/token", func(w http.ResponseWriter, r *http.Request) {
		sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
		h.verified = base64.RawURLEncoding.EncodeToString(sum[:]) == h.challenge && r.FormValue("code") == "a-code"
		w.Header().Set("Content-Type", "application/json")
		_, _ = fmt.Fprintf(w, `{"access_token":"t","token_type":"Bearer","id_token":%q}`, h.reply(h.nonce))
	})
	h.server = httptest.NewServer(mux)
	t.Cleanup(h.server.Close)
	return h
}

// sign makes a token of claims.
func sign(t *testing.T, algorithm jose.SignatureAlgorithm, key any, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: algorithm, Key: key}, (&jose.SignerOptions{}).WithHeader("kid", "k").WithType("JWT"))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (h *hostile) oidc() *signin.OIDC {
	return &signin.OIDC{Issuer: h.server.URL, ClientID: "weir", ClientSecret: strings.Repeat("s", 32), Roles: map[string]access.Role{"a": access.Admin}}
}

// begin starts a sign-in and returns the state that the provider is to give back.
func (h *hostile) begin(s *scene, browser *http.Client) (state string) {
	s.t.Helper()
	to, err := url.Parse(s.get(browser, "/signin/start?next=/open").header.Get("Location"))
	if err != nil {
		s.t.Fatal(err)
	}
	q := to.Query()
	h.challenge, h.nonce, h.verified = q.Get("code_challenge"), q.Get("nonce"), false
	if q.Get("code_challenge_method") != "S256" || q.Get("response_type") != "code" || len(q.Get("state")) != 43 || len(h.nonce) != 43 || q.Get("state") == h.nonce {
		s.t.Fatalf("asks for %s", to)
	}
	return q.Get("state")
}

func TestForgedIDTokens(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	s := newSceneWith(t, nil, func(o *signin.Options) { o.OIDC, o.Client = h.oidc(), proxied() })
	now := time.Now()
	good := func(nonce string) map[string]any {
		return map[string]any{"iss": h.server.URL, "aud": "weir", "sub": "u1", "email_verified": true, "exp": now.Add(time.Hour).Unix(), "iat": now.Unix(), "nonce": nonce, "groups": []string{"a"}, "email": "u1@example.com"}
	}
	with := func(changes map[string]any) func(string) string {
		return func(nonce string) string {
			claims := good(nonce)
			maps.Copy(claims, changes)
			return sign(t, jose.RS256, h.key, claims)
		}
	}
	public, err := x509.MarshalPKIXPublicKey(h.key.Public())
	if err != nil {
		t.Fatal(err)
	}
	part := func(v any) string {
		text, _ := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	for i, tc := range []struct {
		name  string
		reply func(nonce string) string
		ok    bool
	}{
		{"as it should be", with(nil), true},
		{"within the skew of clocks", with(map[string]any{"exp": now.Add(-30 * time.Second).Unix()}), true},
		{"for us and others, on our behalf", with(map[string]any{"aud": []string{"weir", "other"}, "azp": "weir"}), true},
		{"expired", with(map[string]any{"exp": now.Add(-2 * time.Minute).Unix()}), false},
		{"never expires", with(map[string]any{"exp": nil}), false},
		{"from the future", with(map[string]any{"iat": now.Add(10 * time.Minute).Unix()}), false},
		{"not valid yet", with(map[string]any{"nbf": now.Add(10 * time.Minute).Unix()}), false},
		{"of another issuer", with(map[string]any{"iss": "https://id.example"}), false},
		{"for another client", with(map[string]any{"aud": "other"}), false},
		{"for several clients", with(map[string]any{"aud": []string{"weir", "other"}}), false},
		{"on another's behalf", with(map[string]any{"azp": "other"}), false},
		{"of another sign-in", with(map[string]any{"nonce": "n"}), false},
		{"of no sign-in", with(map[string]any{"nonce": nil}), false},
		{"of one, with the groups of another", with(map[string]any{"groups": nil}), false},
		{"of nobody", with(map[string]any{"sub": ""}), false},
		{"by another key", func(n string) string { return sign(t, jose.RS256, h.evil, good(n)) }, false},
		{"by the client's secret", func(n string) string { return sign(t, jose.HS256, []byte(strings.Repeat("s", 32)), good(n)) }, false},
		{"by the public key as a secret", func(n string) string {
			return sign(t, jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), good(n))
		}, false},
		{"by nobody", func(n string) string {
			return part(map[string]string{"alg": "none", "kid": "k"}) + "." + part(good(n)) + "."
		}, false},
		{"by nobody, as RS256", func(n string) string {
			return part(map[string]string{"alg": "RS256", "kid": "k"}) + "." + part(good(n)) + "."
		}, false},
		{"changed after signing", func(n string) string {
			parts := strings.Split(sign(t, jose.RS256, h.key, good(n)), ".")
			claims := good(n)
			claims["sub"] = "u2"
			return parts[0] + "." + part(claims) + "." + parts[2]
		}, false},
		{"none", func(string) string { return "" }, false},
		{"endless", func(string) string { return strings.Repeat("a", 2<<20) }, false},
	} {
		browser := behind(signintest.Browser(t), fmt.Sprintf("192.0.2.%d", i))
		state := h.begin(s, browser)
		h.reply = tc.reply
		got := s.do(browser, "GET", "/signin/callback?code=a-code&state="+state, "", page)
		actor, _ := s.me(browser)
		if !h.verified {
			t.Errorf("%s: the code was exchanged without its verifier", tc.name)
		}
		switch {
		case tc.ok && (got.status != 303 || got.header.Get("Location") != "/open" || actor.Name != "u1@example.com"):
			t.Errorf("%s: got %d %s; %s", tc.name, got.status, got.body, s.log)
		case !tc.ok && (got.status != 403 || actor.Role != access.Nobody || s.cookie(browser, "weir-session") != ""):
			t.Errorf("%s: got %d, is %+v", tc.name, got.status, actor)
		case !tc.ok && (strings.Contains(got.body, "token") || !strings.Contains(got.body, "reference ")):
			t.Errorf("%s: tells %s", tc.name, got.body)
		}
	}
	if log := s.log.String(); !strings.Contains(log, "expected audience") || !strings.Contains(log, "clocks of the identity provider and of this console differ") {
		t.Errorf("the log does not say why: %s", log)
	}
}

func TestReplayedAndForeignAnswers(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser := signintest.Browser(t)
	back := signintest.SignIn(t, browser, s.url+"/signin/start", signintest.Admin)
	held := s.cookie(browser, "weir-signin")

	// A link with the attacker's answer, in the victim's browser: it would sign the victim in as the attacker.
	victim := signintest.Browser(t)
	s.want(s.get(victim, back), 403)
	signintest.SignIn(t, victim, s.url+"/signin/start", signintest.Viewer)
	s.want(s.get(victim, back), 403)
	if actor, _ := s.me(victim); actor.Role != access.Nobody {
		t.Errorf("the victim is %+v", actor)
	}
	for name, change := range map[string]func(url.Values){
		"state twice":    func(q url.Values) { q.Add("state", q.Get("state")) },
		"no state":       func(q url.Values) { q.Del("state") },
		"another state":  func(q url.Values) { q.Set("state", strings.Repeat("A", 43)) },
		"another issuer": func(q url.Values) { q.Set("iss", "https://id.example") },
		"another code":   func(q url.Values) { q.Set("code", "x") },
		"an error":       func(q url.Values) { q.Set("error", "<script>") },
	} {
		at, err := url.Parse(signintest.SignIn(t, victim, s.url+"/signin/start", signintest.Viewer))
		if err != nil {
			t.Fatal(err)
		}
		q := at.Query()
		change(q)
		at.RawQuery = q.Encode()
		if got := s.do(victim, "GET", at.String(), "", page); got.status != 403 || strings.Contains(got.body, "<script>") {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}

	if got := s.get(browser, back); got.status != 303 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	fresh := signintest.Browser(t)
	for range 2 {
		s.want(s.do(fresh, "GET", back, "", func(r *http.Request) { r.Header.Set("Cookie", "weir-signin="+held) }), 403)
	}
	if log := s.log.String(); strings.Contains(log, held) {
		t.Errorf("a secret is logged: %s", log)
	}
}

func TestAnAnswerThatTookTooLong(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser := signintest.Browser(t)
	back := signintest.SignIn(t, browser, s.url+"/signin/start", signintest.Admin)
	s.now.stop()
	s.now.add(11 * time.Minute)
	s.want(s.get(browser, back), 403, "Sign-in failed")
}

func TestSessionsCannotBeFixed(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	mallory, _ := s.signIn(signintest.Viewer, "/")
	planted := s.cookie(mallory, "weir-session")
	at, err := url.Parse(s.url)
	if err != nil {
		t.Fatal(err)
	}
	victim := signintest.Browser(t)
	victim.Jar.SetCookies(at, []*http.Cookie{{Name: "weir-session", Value: planted}})
	s.get(victim, signintest.SignIn(t, victim, s.url+"/signin/start", signintest.Admin))
	if got := s.cookie(victim, "weir-session"); got == planted || got == "" {
		t.Errorf("the session that was there is the one that is signed in: %q", got)
	}
	if actor, _ := s.me(mallory); actor.Role != access.Nobody {
		t.Errorf("who planted it is %+v", actor)
	}
}

func TestCookies(t *testing.T) {
	t.Parallel()
	h := newHostile(t)
	secure := newSceneWith(t, nil, func(o *signin.Options) {
		o.OIDC, o.PublicURL = h.oidc(), "https://weir.example.com"
	})
	browser := signintest.Browser(t)
	got := secure.get(browser, "/signin/start")
	if hsts := got.header.Get("Strict-Transport-Security"); hsts != "max-age=31536000" {
		t.Errorf("Strict-Transport-Security %q", hsts)
	}
	line := got.header.Get("Set-Cookie")
	if !strings.HasPrefix(line, "__Host-weir-signin=") {
		t.Errorf("sets %s", line)
	}
	for _, want := range []string{"; Path=/", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
		if !strings.Contains(line, want) {
			t.Errorf("%s is not in %s", want, line)
		}
	}
	if strings.Contains(line, "Domain") {
		t.Errorf("other hosts get %s", line)
	}

	s := newScene(t, nil)
	signedIn, _ := s.signIn(signintest.Admin, "/")
	mine := s.cookie(signedIn, "weir-session")
	client := signintest.Browser(t)
	for name, cookie := range map[string]string{
		"another name": "session=" + mine, "twice": "weir-session=" + mine + "; weir-session=" + strings.Repeat("A", 43), "twice the same": "weir-session=" + mine + "; weir-session=" + mine,
		"a part": "weir-session=" + mine[:42], "more": "weir-session=" + mine + "A", "another": "weir-session=" + strings.Repeat("A", 43),
		"oversize": "weir-session=" + strings.Repeat("A", 64<<10), "quotes in it": `weir-session=a"b`, "SQL": "weir-session=' OR true --", "nothing": "weir-session=",
		"another text of the same bytes": "weir-session=" + mine[:42] + "B",
	} {
		if got := s.do(client, "GET", "/api/v1/me", "", func(r *http.Request) { r.Header.Set("Cookie", cookie) }); got.status != 401 {
			t.Errorf("%s: got %d", name, got.status)
		}
	}
	s.want(s.do(client, "GET", "/api/v1/me", "", func(r *http.Request) { r.Header.Set("Cookie", "weir-session="+mine) }), 200)
	huge := s.do(client, "GET", "/api/v1/me", "", func(r *http.Request) { r.Header.Set("Cookie", "a="+strings.Repeat("A", 2<<20)) })
	if huge.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("2 MiB of cookies: got %d", huge.status)
	}
}

func TestForeignHostsAndOrigins(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(o *signin.Options) { o.Hosts = []string{"console.internal"} })
	browser, _ := s.signIn(signintest.Owner, "/")
	_, csrf := s.me(browser)
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	for host, status := range map[string]int{
		"evil.example": 421, "evil.example" + port: 421, "127.0.0.1.nip.io": 421, "localhost": 200, "LOCALHOST." + port: 200, "console.internal": 200, "[::1]:80": 200,
	} {
		if got := s.do(browser, "GET", "/", "", func(r *http.Request) { bearing(scriptToken)(r); r.Host = host }); got.status != status {
			t.Errorf("host %q: got %d", host, got.status)
		}
	}
	with := func(name string, values ...string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("X-Csrf-Token", csrf)
			r.Header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for name, tc := range map[string]struct {
		change func(*http.Request)
		status int
	}{
		"its own":            {with("Origin", s.url), 200},
		"another":            {with("Origin", "https://evil.example"), 403},
		"another port":       {with("Origin", "http://127.0.0.1:1"), 403},
		"another scheme":     {with("Origin", "https"+s.url[4:]), 403},
		"null":               {with("Origin", "null"), 403},
		"two":                {with("Origin", s.url, "https://evil.example"), 403},
		"its own as a part":  {with("Origin", s.url+".evil.example"), 403},
		"user in front":      {with("Origin", "http://evil.example@"+s.url[7:]), 200}, // no browser writes it: the host is ours
		"same site":          {with("Sec-Fetch-Site", "same-site"), 403},
		"cross-site":         {with("Sec-Fetch-Site", "cross-site"), 403},
		"typed by the user":  {with("Sec-Fetch-Site", "none"), 403},
		"same origin, twice": {with("Sec-Fetch-Site", "same-origin", "cross-site"), 403},
		"same origin":        {with("Sec-Fetch-Site", "same-origin"), 200},
		"method override":    {func(r *http.Request) { r.Header.Set("X-HTTP-Method-Override", "GET") }, 403},
	} {
		if got := s.do(browser, "POST", "/rules/logins/promote", "", tc.change); got.status != tc.status {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
	s.want(s.do(browser, "POST", "/rules/logins/promote", "csrf="+csrf, func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") }), 403)
	s.want(s.do(browser, "POST", "/rules/logins/promote?csrf="+csrf, "", form), 403)
	s.want(s.do(browser, "POST", "/rules/logins/promote", strings.Repeat("a=b&", 1<<19)+"csrf="+csrf, form), 413)
	for _, name := range s.acted {
		if name != "olga@example.com" {
			t.Errorf("%s acted", name)
		}
	}
}

func TestNextIsOfThisHost(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	for next, want := range map[string]string{
		"/rules/a?b=c&d=e": "/rules/a?b=c&d=e", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/", "/\t/evil.example": "/", "/\r\nLocation: x": "/",
		"javascript:alert(1)": "/", "": "/", "/signin": "/", "/signout": "/", "evil.example": "/", "/" + strings.Repeat("a", 3000): "/", "/ä": "/", "///evil.example": "/", "/%2f/evil.example": "/%2f/evil.example",
	} {
		if _, to := s.signIn(signintest.Viewer, next); to != want {
			t.Errorf("%q: sent to %q", next, to)
		}
		s.now.add(time.Minute)
	}
	got := s.get(signintest.Browser(t), "/signin?next="+url.QueryEscape(`/"><script>alert(1)</script>`)+"&why=%3Cscript%3E")
	s.want(got, 200)
	if strings.Contains(got.body, "<script>") {
		t.Errorf("markup: %s", got.body)
	}
	if policy := got.header.Get("Content-Security-Policy"); !strings.HasPrefix(policy, "default-src 'none'; style-src 'self';") {
		t.Errorf("policy %q", policy)
	}
}

func TestGuessingIsLimited(t *testing.T) {
	t.Parallel()
	s := newScene(t, func(o *signin.Options) { o.Client = proxied() })
	s.now.stop()
	browser := signintest.Browser(t)
	from := func(address, token string) answer {
		return s.do(browser, "GET", "/api/v1/me", "", func(r *http.Request) {
			r.Header.Set("X-Forwarded-For", address)
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		})
	}
	for i := range 20 {
		if got := from("192.0.2.1", "guess"); got.status != 401 {
			t.Fatalf("guess %d: got %d", i, got.status)
		}
	}
	got := from("192.0.2.1", "guess")
	s.want(got, 429)
	if after := got.header.Get("Retry-After"); after != "6" {
		t.Errorf("Retry-After %q", after)
	}
	s.want(from("192.0.2.1", scriptToken), 200) // it cannot be guessed, and others at this address need it
	s.want(from("192.0.2.2", scriptToken), 200)
	s.want(from("203.0.113.9, 192.0.2.1", "guess"), 429) // what the client wrote in front changes nothing
	s.now.add(7 * time.Second)
	s.want(from("192.0.2.1", scriptToken), 200)

	for i := range 400 {
		from(fmt.Sprintf("2001:db8:%x::1", i), "guess")
	}
	s.want(from("2001:db8:ffff::1", "guess"), 429)
	s.want(from("2001:db8:ffff::1", scriptToken), 200) // all together lock nobody out

}

// TestNobodyKeepsAnotherOut has an address, and pages elsewhere that its browsers look at, do what they can before
// somebody there goes on with a session, and before somebody there signs in.
func TestNobodyKeepsAnotherOut(t *testing.T) {
	t.Parallel()
	proxy := func(o *signin.Options) { o.Client = proxied() }
	s := newScene(t, proxy)
	s.now.stop()
	office := func(r *http.Request) { r.Header.Set("X-Forwarded-For", "192.0.2.1") }
	admin, _ := s.signIn(signintest.Admin, "/")
	limited := 0
	for i := range 200 {
		sum := sha256.Sum256([]byte{byte(i)})
		got := s.do(signintest.Browser(t), "GET", "/api/v1/me", "", func(r *http.Request) {
			office(r)
			r.Header.Set("Cookie", "weir-session="+base64.RawURLEncoding.EncodeToString(sum[:]))
		})
		if got.status == 429 {
			limited++
		} else if got.status != 401 {
			t.Fatalf("a made-up session: got %d", got.status)
		}
	}
	if limited == 0 {
		t.Error("sessions that builds before might have given are looked up without a bound")
	}
	for range 40 { // images of a page elsewhere
		s.do(signintest.Browser(t), "GET", "/signin/callback?state=x&code=y", "", func(r *http.Request) {
			office(r)
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Sec-Fetch-Dest", "image")
		})
		s.do(signintest.Browser(t), "GET", "/api/v1/me", "", func(r *http.Request) { office(r); bearing("guess")(r) })
	}
	for i := range 300 { // each of a network of its own
		got := s.do(signintest.Browser(t), "GET", "/signin/start", "", func(r *http.Request) {
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("2001:db8:%x::1", i))
		})
		if got.status != 303 {
			t.Fatalf("start %d: got %d", i, got.status)
		}
	}
	if n := s.bed.Number(t, "SELECT count(*) FROM weir.sign_ins"); n != 1 { // the admin's
		t.Errorf("%d sign-ins are kept of those that were begun", n)
	}
	s.want(s.do(admin, "GET", "/api/v1/me", "", office), 200)
	// another console of the installation, which has not seen the session yet
	other := newSceneOf(t, s.bed, signintest.Start, proxy)
	s.do(signintest.Browser(t), "GET", other.url+"/api/v1/me", "", office)
	got := s.do(signintest.Browser(t), "GET", other.url+"/api/v1/me", "", func(r *http.Request) {
		office(r)
		r.Header.Set("Cookie", "weir-session="+s.cookie(admin, "weir-session"))
	})
	s.want(got, 200)

	viewer := signintest.Browser(t)
	back := signintest.SignIn(t, behind(viewer, "192.0.2.1"), s.url+"/signin/start", signintest.Viewer)
	// A link elsewhere leads to the callback while the viewer is at the provider: his sign-in stays under way.
	s.want(s.do(viewer, "GET", "/signin/callback?state=x&code=y", "", office), 403)
	s.want(s.do(viewer, "GET", back, "", office), 303)
	if actor, _ := s.me(viewer); actor.Role != access.Viewer {
		t.Errorf("signed in as %+v", actor)
	}
}

// TestAnOpenTabIsNoUse has a page that keeps itself up to date, and its stream, ask for ten hours.
func TestAnOpenTabIsNoUse(t *testing.T) {
	t.Parallel()
	for name, ask := range map[string]func(*http.Request){
		"the page": func(r *http.Request) { r.Header.Set("X-Weir-Live", "1") },
		"a stream": func(r *http.Request) { r.Header.Set("Accept", "text/event-stream") },
	} {
		s := newScene(t, nil)
		browser, _ := s.signIn(signintest.Viewer, "/")
		asked := 0
		for ; asked < 10; asked++ {
			s.bed.Run(t, "UPDATE weir.sessions SET seen_at = seen_at - interval '25 minutes'")
			if s.do(browser, "GET", "/api/v1/me", "", ask).status == 401 {
				break
			}
		}
		if asked != 2 { // 25 and 50 minutes; 75 are beyond the hour
			t.Errorf("%s kept a session that nobody used for %d times 25 minutes", name, asked)
		}
		browser, _ = s.signIn(signintest.Viewer, "/")
		for range 5 {
			s.bed.Run(t, "UPDATE weir.sessions SET seen_at = seen_at - interval '25 minutes'")
			s.want(s.get(browser, "/api/v1/me"), 200)
		}
	}
}

func TestWhatIsAwayLetsNobodyIn(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser, _ := s.signIn(signintest.Admin, "/")
	s.bed.Close()
	got := s.get(browser, "/api/v1/me")
	s.want(got, 503, "nothing was done")
	if got.header.Get("Retry-After") == "" || s.cookie(browser, "weir-session") == "" {
		t.Error("an outage signs everybody out")
	}
	fresh := signintest.Browser(t)
	s.want(s.get(fresh, signintest.SignIn(t, fresh, s.url+"/signin/start", signintest.Admin)), 503, "Sign-in failed")

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	away := newSceneWith(t, nil, func(o *signin.Options) {
		o.OIDC = &signin.OIDC{Issuer: "http://" + l.Addr().String(), ClientID: "weir", Roles: signintest.Roles()}
	})
	away.want(away.get(browser, "/signin/start"), 503)
	away.want(away.do(browser, "GET", "/api/v1/me", "", bearing(scriptToken)), 200)
}

func TestLocalIsForThisMachineAlone(t *testing.T) {
	t.Parallel()
	me := access.Actor{Name: "dev", Role: access.Admin, Via: access.ViaLocal}
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Local, o.PublicURL = &me, "" })
	client := signintest.Browser(t)
	s.want(s.get(client, "/api/v1/me"), 200, `"dev"`)
	s.want(s.do(client, "POST", "/rules/logins/promote", "", nil), 200)
	s.want(s.do(client, "POST", "/rules/logins/promote", "", func(r *http.Request) { r.Header.Set("Origin", s.url) }), 200)
	for _, header := range []string{
		"Origin: https://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "X-Forwarded-For: 127.0.0.1",
		"X-Forwarded-For: ", "Forwarded: for=127.0.0.1", "X-Real-IP: 127.0.0.1",
		"X-Forwarded-Host: localhost", "X-Forwarded-Proto: http", "Via: 1.1 edge", "True-Client-IP: ::1",
		"CF-Connecting-IP: 192.0.2.1",
	} {
		name, value, _ := strings.Cut(header, ": ")
		got := s.do(client, "POST", "/rules/logins/promote", "", func(r *http.Request) { r.Header.Set(name, value) })
		if foreign := name == "Origin" || name == "Sec-Fetch-Site"; foreign {
			s.want(got, 403, "not come from a page of this console")
		} else {
			s.want(got, 403, "no proxy ("+http.CanonicalHeaderKey(name)+")")
		}
	}
	port := s.url[strings.LastIndexByte(s.url, ':'):]
	for host, status := range map[string]int{
		"localhost" + port: 200, "LOCALHOST": 200, "[::1]" + port: 200, "127.0.0.2": 200,
		"0.0.0.0" + port: 403, "[::]" + port: 403, "192.0.2.1": 403, "localhost.evil.example": 421,
		"127.0.0.1.evil.example": 421,
	} {
		if got := s.do(client, "GET", "/", "", func(r *http.Request) { r.Host = host }); got.status != status {
			t.Errorf("asked for as %q: got %d %s", host, got.status, got.body)
		}
	}
	if len(s.acted) != 2 {
		t.Errorf("%v acted", s.acted)
	}
	s.want(s.do(client, "GET", "/", "", func(r *http.Request) { r.Host = "rebound.example" }), 421)
	guard, err := signin.New(signin.Options{Local: &me, Logger: discard(), Registerer: registry()})
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("GET", "http://localhost/", nil)
	r.RemoteAddr = "192.0.2.1:4711"
	guard.Over(http.NotFoundHandler(), func(*http.Request) bool { return true }).ServeHTTP(w, r)
	if w.Code != 403 {
		t.Errorf("another machine gets %d", w.Code)
	}
}
