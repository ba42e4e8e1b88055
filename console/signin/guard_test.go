package signin_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(signintest.Main(m)) }

// scene is a console behind a guard, with sessions in PostgreSQL.
type scene struct {
	t     *testing.T
	bed   *historytest.Bed
	url   string
	guard *signin.Guard
	log   *logged
	now   *clock
	acted []string // who has acted
}

// clock goes by the machine's, and can be put forward and back.
type clock struct {
	mu    sync.Mutex
	ahead time.Duration
	at    time.Time // where it stands still; zero: it goes
}

// stop stops the clock.
func (c *clock) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = time.Now()
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() {
		return c.at.Add(c.ahead)
	}
	return time.Now().Add(c.ahead)
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead += d
}

// logged keeps what is logged.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

const scriptToken = "a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"

// unwatched is a trail that takes everything.
type unwatched struct{}

func (unwatched) Tell(*http.Request, access.Actor, access.Act) error { return nil }

// router has one route of each kind.
func (s *scene) router(refuse func(http.ResponseWriter, *http.Request, error)) *access.Mux {
	m := access.NewMux(refuse, unwatched{})
	tell := func(w http.ResponseWriter, r *http.Request) {
		visit := access.VisitOf(r.Context())
		_ = json.NewEncoder(w).Encode(map[string]any{"actor": visit.Actor, "csrf": visit.CSRF, "until": visit.Until})
	}
	act := func(w http.ResponseWriter, r *http.Request) {
		actor := access.From(r.Context())
		if err := access.May(actor, access.Promote, map[string]string{"logins": "identity", "searches": "search"}[r.PathValue("rule")]); err != nil {
			refuse(w, r, err)
			return
		}
		s.acted = append(s.acted, actor.Name)
	}
	m.HandleFunc(access.Route{Method: "GET", Pattern: "/{$}", Act: access.View}, tell)
	m.HandleFunc(access.Route{Method: "GET", Pattern: "/api/v1/me", Act: access.Self}, tell)
	m.HandleFunc(access.Route{Method: "GET", Pattern: "/api/v1/export.csv", Act: access.Export}, tell)
	m.HandleFunc(access.Route{Method: "GET", Pattern: "/open", Act: access.Public}, tell)
	m.HandleFunc(access.Route{Method: "POST", Pattern: "/rules/{rule}/promote", Act: access.Promote, Rule: "rule"}, act)
	m.HandleFunc(access.Route{Method: "DELETE", Pattern: "/api/v1/history/{subject}", Act: access.Erase}, tell)
	m.HandleFunc(access.Route{Method: "GET", Pattern: "/stream", Act: access.View}, func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	m.Otherwise(http.NotFoundHandler())
	return m
}

func newScene(t *testing.T, change func(*signin.Options)) *scene {
	t.Helper()
	return newSceneWith(t, signintest.Start, change)
}

func newSceneWith(t *testing.T, provider func(testing.TB, string) *signintest.Provider, change func(*signin.Options)) *scene {
	t.Helper()
	return newSceneOf(t, historytest.New(t), provider, change)
}

// newSceneOf is another console of an installation.
func newSceneOf(t *testing.T, bed *historytest.Bed, provider func(testing.TB, string) *signintest.Provider,
	change func(*signin.Options)) *scene {
	t.Helper()
	s := &scene{t: t, bed: bed, log: &logged{}, now: &clock{}}
	server := httptest.NewUnstartedServer(nil)
	s.url = "http://" + server.Listener.Addr().String()
	o := signin.Options{
		Sessions: sessions.New(s.bed.DB), PublicURL: s.url, Clock: s.now.now,
		Tokens: []signin.Token{{Name: "ci", Role: access.Owner, Owners: []string{"identity"}, SHA256: sha256.Sum256([]byte(scriptToken)), Expires: time.Now().Add(time.Hour)}},
		Logger: slog.New(slog.NewTextHandler(s.log, nil)), Registerer: prometheus.NewRegistry(),
	}
	if provider != nil {
		o.OIDC = provider(t, s.url).OIDC()
	}
	if change != nil {
		change(&o)
	}
	var err error
	if s.guard, err = signin.New(o); err != nil {
		t.Fatal(err)
	}
	router := s.router(s.guard.Refuse)
	server.Config.Handler = s.guard.Over(router, router.Public)
	server.Start()
	t.Cleanup(server.Close)
	return s
}

// answer is what came back.
type answer struct {
	status int
	header http.Header
	body   string
}

func (s *scene) do(browser *http.Client, method, path, body string, change func(*http.Request)) answer {
	s.t.Helper()
	if strings.HasPrefix(path, "/") {
		path = s.url + path
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	if change != nil {
		change(r)
	}
	got, err := browser.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	text, err := io.ReadAll(got.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{got.StatusCode, got.Header, string(text)}
}

func (s *scene) get(browser *http.Client, path string) answer {
	s.t.Helper()
	return s.do(browser, http.MethodGet, path, "", nil)
}

// signIn signs somebody in and returns the browser and where it was sent to in the end.
func (s *scene) signIn(name, next string) (*http.Client, string) {
	s.t.Helper()
	browser := signintest.Browser(s.t)
	back := signintest.SignIn(s.t, browser, s.url+"/signin/start?next="+url.QueryEscape(next), name)
	got := s.get(browser, back)
	return browser, got.header.Get("Location")
}

// me is who the console takes a browser for.
func (s *scene) me(browser *http.Client) (actor access.Actor, csrf string) {
	s.t.Helper()
	var told struct {
		Actor access.Actor
		CSRF  string
	}
	got := s.get(browser, "/api/v1/me")
	if got.status == http.StatusUnauthorized {
		return access.Actor{}, ""
	}
	if err := json.Unmarshal([]byte(got.body), &told); err != nil {
		s.t.Fatalf("%d %s: %v", got.status, got.body, err)
	}
	return told.Actor, told.CSRF
}

func (s *scene) cookie(browser *http.Client, name string) string {
	u, err := url.Parse(s.url)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, c := range browser.Jar.Cookies(u) {
		if c.Name == name {
			return c.Value
		}
	}
	return ""
}

func (s *scene) want(got answer, status int, texts ...string) {
	s.t.Helper()
	if got.status != status {
		s.t.Errorf("got %d %s, want %d", got.status, got.body, status)
	}
	for _, text := range texts {
		if !strings.Contains(got.body, text) {
			s.t.Errorf("%q is not in %s", text, got.body)
		}
	}
}

func TestPeopleSignIn(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	for _, tc := range []struct {
		who, next, sentTo string
		want              access.Actor
	}{
		{signintest.Viewer, "/open?a=1", "/open?a=1", access.Actor{Name: "vic@example.com", Role: access.Viewer, Via: "oidc"}},
		{signintest.Analyst, "", "/", access.Actor{Name: "ana@example.com", Role: access.Analyst, Via: "oidc"}},
		{signintest.Owner, "/", "/", access.Actor{Name: "olga@example.com", Role: access.Owner, Owners: []string{"identity"}, Via: "oidc"}},
		{signintest.Admin, "/", "/", access.Actor{Name: "adam@example.com", Role: access.Admin, Via: "oidc"}},
		{signintest.Impostor, "/", "/", access.Actor{Name: "id-eve", Role: access.Viewer, Via: "oidc"}}, // not olga@example.com
	} {
		browser, sentTo := s.signIn(tc.who, tc.next)
		if sentTo != tc.sentTo {
			t.Errorf("%s is sent to %q, not %q", tc.who, sentTo, tc.sentTo)
		}
		if got, csrf := s.me(browser); fmt.Sprint(got) != fmt.Sprint(tc.want) || fmt.Sprint(got.Owners) != fmt.Sprint(tc.want.Owners) || got.Via != tc.want.Via || len(csrf) != 43 {
			t.Errorf("%s is %+v with %q, not %+v", tc.who, got, csrf, tc.want)
		}
	}
	browser, _ := s.signIn(signintest.Nobody, "/")
	if got, _ := s.me(browser); got.Role != access.Nobody {
		t.Errorf("somebody without a role is %+v", got)
	}
	trail, err := s.bed.Audit.Of(t.Context(), "session", 0)
	if err != nil || len(trail) != 6 || trail[0].Action != "sign-in-refused" || trail[0].Actor != "nora@example.com" || trail[3].Detail == "" ||
		!strings.Contains(trail[3].Detail, "id-olga from 127.0.0.1: role owner of identity") {
		t.Errorf("audited: %+v, %v", trail, err)
	}
	if n := s.bed.Number(t, "SELECT count(*) FROM weir.sign_ins"); n != 6 {
		t.Errorf("%d sign-ins were taken", n)
	}
}

func TestGroupsOfTheIDToken(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, signintest.StartWithGroupsInToken, nil)
	browser, _ := s.signIn(signintest.Owner, "/")
	if got, _ := s.me(browser); got.Role != access.Owner {
		t.Errorf("got %+v", got)
	}
}

func TestSigningOutEndsTheSession(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser, _ := s.signIn(signintest.Owner, "/")
	_, csrf := s.me(browser)
	stolen := s.cookie(browser, "weir-session")
	s.want(s.do(browser, "POST", "/signout", "", nil), 403, "csrf")
	if got, _ := s.me(browser); got.Role != access.Owner {
		t.Error("a request without the token signs out")
	}
	got := s.do(browser, "POST", "/signout", url.Values{"csrf": {csrf}}.Encode(), form)
	if got.status != 303 || got.header.Get("Location") != "/signin?why=out" || s.cookie(browser, "weir-session") != "" {
		t.Errorf("got %d to %s, cookie %q", got.status, got.header.Get("Location"), s.cookie(browser, "weir-session"))
	}
	s.want(s.get(browser, "/signin?why=out"), 200, "You are signed out here")
	thief := signintest.Browser(t)
	s.want(s.do(thief, "GET", "/api/v1/me", "", func(r *http.Request) { r.Header.Set("Cookie", "weir-session="+stolen) }), 401)
}

// behind has a browser's requests come through a proxy, from address.
func behind(browser *http.Client, address string) *http.Client {
	browser.Transport = forwarding{browser.Transport, address}
	return browser
}

type forwarding struct {
	http.RoundTripper
	address string
}

func (f forwarding) RoundTrip(r *http.Request) (*http.Response, error) {
	r.Header.Set("X-Forwarded-For", f.address)
	return f.RoundTripper.RoundTrip(r)
}

func (f forwarding) CloseIdleConnections() {
	f.RoundTripper.(*http.Transport).CloseIdleConnections()
}

// proxied trusts a proxy on this machine.
func proxied() (client traffic.IPSource) {
	client.TrustedProxies.Prefixes = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	return client
}

func form(r *http.Request) { r.Header.Set("Content-Type", "application/x-www-form-urlencoded") }

func page(r *http.Request) { r.Header.Set("Accept", "text/html,*/*;q=0.8") }

func bearing(token string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) }
}

func TestSessionsEndByThemselves(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser, _ := s.signIn(signintest.Viewer, "/")
	s.bed.Run(t, "UPDATE weir.sessions SET seen_at = now() - interval '61 minutes'")
	got := s.do(browser, "GET", "/?a=b", "", page)
	if to := got.header.Get("Location"); got.status != 303 || to != "/signin?next=%2F%3Fa%3Db&why=ended" {
		t.Errorf("got %d to %s", got.status, to)
	}
	s.want(s.get(browser, got.header.Get("Location")), 200, "Your session has ended", `href="/signin/start?next=%2f%3fa%3db"`)
	if s.cookie(browser, "weir-session") != "" {
		t.Error("the browser keeps the cookie")
	}

	browser, _ = s.signIn(signintest.Owner, "/")
	_, csrf := s.me(browser)
	s.bed.Run(t, "UPDATE weir.sessions SET expires_at = now()")
	got = s.do(browser, "POST", "/rules/logins/promote", url.Values{"csrf": {csrf}}.Encode(), func(r *http.Request) { form(r); page(r) })
	s.want(got, 401, "Your session has ended", "nothing was done", "Sign in again")
	if len(s.acted) != 0 {
		t.Errorf("%v acted", s.acted)
	}
}

func TestAStreamEndsWithItsSession(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	browser, _ := s.signIn(signintest.Viewer, "/")
	s.guard.RecheckEvery(10 * time.Millisecond)
	r, err := browser.Get(s.url + "/stream")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	s.bed.Run(t, "DELETE FROM weir.sessions")
	if _, err := io.ReadAll(r.Body); err != nil {
		t.Errorf("the stream did not end by itself: %v", err)
	}
}

func TestRolesThatTheConfigurationTakesAwayAreGoneAtOnce(t *testing.T) {
	t.Parallel()
	var roles map[string]access.Role
	s := newScene(t, func(o *signin.Options) { roles = o.OIDC.Roles })
	browser, _ := s.signIn(signintest.Admin, "/")
	roles["weir-admins"] = access.Viewer
	if got, _ := s.me(browser); got.Role != access.Viewer {
		t.Errorf("got %+v", got)
	}
	delete(roles, "weir-admins")
	if got, _ := s.me(browser); got.Role != access.Nobody {
		t.Errorf("got %+v", got)
	}
}

func TestForbiddenNamesTheActAndWhoMay(t *testing.T) {
	t.Parallel()
	s := newScene(t, nil)
	for _, tc := range []struct{ who, method, path, want string }{
		{signintest.Viewer, "GET", "/api/v1/export.csv", `export needs the role analyst or a higher one; vic@example.com is viewer","act":"export","needs":"analyst"`},
		{signintest.Analyst, "POST", "/rules/logins/promote", `promote needs the role owner of the rule's owner, or admin; ana@example.com is analyst`},
		{signintest.Stranger, "POST", "/rules/logins/promote", `promote needs the role owner of \"identity\", or admin; stu@example.com is owner of \"search\"`},
		{signintest.Owner, "DELETE", "/api/v1/history/x", `erase needs the role admin; olga@example.com is owner`},
	} {
		browser, _ := s.signIn(tc.who, "/")
		_, csrf := s.me(browser)
		got := s.do(browser, tc.method, tc.path, "", func(r *http.Request) { r.Header.Set("X-CSRF-Token", csrf) })
		s.want(got, 403, tc.want)
		if kind := got.header.Get("Content-Type"); kind != "application/problem+json" {
			t.Errorf("%s: %s", tc.path, kind)
		}
	}
	if len(s.acted) != 0 {
		t.Errorf("%v acted", s.acted)
	}
	browser, _ := s.signIn(signintest.Owner, "/")
	_, csrf := s.me(browser)
	s.want(s.do(browser, "POST", "/rules/logins/promote", url.Values{"csrf": {csrf}}.Encode(), form), 200)
	if len(s.acted) != 1 || s.acted[0] != "olga@example.com" {
		t.Errorf("%v acted", s.acted)
	}
}

func TestTokensOfScripts(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	client := signintest.Browser(t)
	s.want(s.do(client, "GET", "/api/v1/me", "", bearing(scriptToken)), 200, `"token:ci"`, `"csrf":""`)
	s.want(s.do(client, "POST", "/rules/logins/promote", "", bearing(scriptToken)), 200)
	s.want(s.do(client, "POST", "/rules/searches/promote", "", bearing(scriptToken)), 403, `owner of \"search\"`)
	s.want(s.do(client, "GET", "/api/v1/me", "", nil), 401, "nobody is signed in")
	s.want(s.do(client, "GET", "/open", "", nil), 200)
	s.want(s.do(client, "GET", "/open", "", bearing("x")), 401)
	hash := sha256.Sum256([]byte(scriptToken))
	for name, change := range map[string]func(*http.Request){
		"its hash":      bearing(hex.EncodeToString(hash[:])),
		"upper case":    bearing(strings.ToUpper(scriptToken)),
		"a part":        bearing(scriptToken[:63]),
		"nothing":       bearing(""),
		"two in a line": bearing(scriptToken + ", Bearer " + scriptToken),
		"two lines": func(r *http.Request) {
			r.Header["Authorization"] = []string{"Bearer " + scriptToken, "Bearer " + scriptToken}
		},
		"a line beside":           func(r *http.Request) { r.Header["Authorization"] = []string{"Basic eDp5", "Bearer " + scriptToken} },
		"64 KiB":                  bearing(strings.Repeat("a", 64<<10)),
		"another scheme":          func(r *http.Request) { r.Header.Set("Authorization", "Basic "+scriptToken) },
		"a header that is none":   func(r *http.Request) { r.Header.Set("X-Authorization", "Bearer "+scriptToken) },
		"an address":              func(r *http.Request) { r.URL.RawQuery = "access_token=" + scriptToken + "&token=" + scriptToken },
		"a cookie":                func(r *http.Request) { r.Header.Set("Cookie", "weir-session="+scriptToken) },
		"what proxies would tell": func(r *http.Request) { r.Header.Set("X-Forwarded-User", "admin"); r.Header.Set("Remote-User", "admin") },
	} {
		if got := s.do(client, "GET", "/api/v1/me", "", change); got.status != 401 {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
	s.now.add(2 * time.Hour)
	s.want(s.do(client, "GET", "/api/v1/me", "", bearing(scriptToken)), 401, "the token has expired")
	if log := s.log.String(); strings.Contains(log, scriptToken[:20]) {
		t.Errorf("a token is logged: %s", log)
	}
}

func TestMatrixOfTheSceneAndOfTheGuard(t *testing.T) {
	t.Parallel()
	s := &scene{t: t, bed: historytest.New(t)}
	router := s.router(func(w http.ResponseWriter, _ *http.Request, err error) {
		http.Error(w, err.Error(), http.StatusForbidden)
	})
	asked := signintest.CheckMatrix(t, signintest.Case{Router: router, Sessions: sessions.New(s.bed.DB), Own: "logins", Other: "searches"})
	t.Logf("%d requests, 0 unexpected", asked)
	if asked < 150 {
		t.Errorf("only %d requests", asked)
	}
}
