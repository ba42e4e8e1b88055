// Package signintest gives tests people who sign in: a real OpenID provider in a process of its own, browsers that go through its
// login form, and the authorisation matrix of a router.
package signintest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/internal/testbed"
)

// The people whom the provider knows, all by the password Password.
const (
	Viewer   = "vic"  // group weir-view
	Analyst  = "ana"  // group soc
	Owner    = "olga" // group team-identity, which decides about the rules of the owner identity
	Stranger = "stu"  // group team-search, which decides about those of search
	Admin    = "adam" // group weir-admins
	Nobody   = "nora" // no group that means anything
	Impostor = "eve"  // group weir-view; claims Owner's address, which nobody has verified

	Password = "correct horse"
)

// Email is a person's address, by which the audit trail names them.
func Email(person string) string { return person + "@example.com" }

// person is what the provider knows of somebody.
type person struct {
	email    string
	verified bool
	groups   []string
}

func people() map[string]person {
	return map[string]person{
		Viewer:   {Email(Viewer), true, []string{"weir-view", "everybody"}},
		Analyst:  {Email(Analyst), true, []string{"soc"}},
		Owner:    {Email(Owner), true, []string{"team-identity", "weir-view"}},
		Stranger: {Email(Stranger), true, []string{"team-search"}},
		Admin:    {Email(Admin), true, []string{"weir-admins"}},
		Nobody:   {Email(Nobody), true, []string{"everybody"}},
		Impostor: {Email(Owner), false, []string{"weir-view"}},
	}
}

// Groups are those of a person.
func Groups(name string) []string { return slices.Clone(people()[name].groups) }

// Roles and Owners are what the groups mean.
func Roles() map[string]access.Role {
	return map[string]access.Role{"weir-view": access.Viewer, "soc": access.Analyst, "weir-admins": access.Admin}
}

// Owners are the groups that decide about the rules of each owner.
func Owners() map[string]string {
	return map[string]string{"identity": "team-identity", "search": "team-search"}
}

// Provider is an OpenID provider that runs.
type Provider struct {
	Issuer, ClientID, ClientSecret string
}

// OIDC is the configuration of a console that asks the provider.
func (p *Provider) OIDC() *signin.OIDC {
	return &signin.OIDC{Issuer: p.Issuer, ClientID: p.ClientID, ClientSecret: p.ClientSecret, Roles: Roles(), Owners: Owners()}
}

// variable tells a test binary that it is to be the provider: its value is a settings.
const variable = "WEIR_TEST_OPENID_PROVIDER"

type settings struct {
	Issuer, Listen, Client, Secret, Redirect string
	InToken                                  bool // groups are in the ID token, not only in the user info
}

// Main is testbed.Main for packages that use Start: the provider is the test binary itself, started once more.
func Main(m *testing.M) int { return providerOr(testbed.Main, m) }

// MainWithWeir is testbed.MainWithWeir for such packages.
func MainWithWeir(m *testing.M) int { return providerOr(testbed.MainWithWeir, m) }

func providerOr(main func(*testing.M) int, m *testing.M) int {
	if text := os.Getenv(variable); text != "" {
		err := serve(text)
		fmt.Fprintln(os.Stderr, "OpenID provider:", err)
		return 1
	}
	return main(m)
}

// Start starts a provider in a process of its own, for a console that browsers find at publicURL. The package's TestMain is Main, or MainWithWeir.
func Start(t testing.TB, publicURL string) *Provider {
	t.Helper()
	return start(t, publicURL, false)
}

// StartWithGroupsInToken is Start with a provider that has the groups in its ID tokens.
func StartWithGroupsInToken(t testing.TB, publicURL string) *Provider {
	t.Helper()
	return start(t, publicURL, true)
}

func start(t testing.TB, publicURL string, inToken bool) *Provider {
	t.Helper()
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(testbed.FreePort(t)))
	s := settings{Issuer: "http://" + listen, Listen: listen, Client: "weir-console", Secret: "client secret", Redirect: publicURL + "/signin/callback", InToken: inToken}
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program, "-test.run=^$")
	command.Env = append(os.Environ(), variable+"="+string(text))
	testbed.Run(t, command)
	testbed.Eventually(t, 30*time.Second, func() error {
		answer, err := http.Get(s.Issuer + "/.well-known/openid-configuration")
		if err != nil {
			return err
		}
		defer func() { _ = answer.Body.Close() }()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("the provider answers %s", answer.Status)
		}
		return nil
	})
	http.DefaultClient.CloseIdleConnections()
	return &Provider{Issuer: s.Issuer, ClientID: s.Client, ClientSecret: s.Secret}
}

// serve is the provider.
func serve(text string) error {
	var s settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return err
	}
	client := storage.WebClient(s.Client, s.Secret, s.Redirect)
	all := &withGroups{Storage: storage.NewStorageWithClients(users{}, map[string]*storage.Client{s.Client: client}), inToken: s.InToken}
	handler := exampleop.SetupServer(s.Issuer, all, slog.New(slog.NewTextHandler(os.Stderr, nil)), false)
	server := &http.Server{Addr: s.Listen, Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	return server.ListenAndServe()
}

// users are people as the provider's library wants them.
type users struct{}

var _ storage.UserStore = users{}

func (users) ExampleClientID() string { return "service" }

func (u users) GetUserByUsername(name string) *storage.User { return u.GetUserByID("id-" + name) }

func (users) GetUserByID(id string) *storage.User {
	name := strings.TrimPrefix(id, "id-")
	p, ok := people()[name]
	if !ok {
		return nil
	}
	return &storage.User{ID: id, Username: name, Password: Password, FirstName: name, Email: p.email, EmailVerified: p.verified}
}

// withGroups adds the claim groups, as most providers do it: to the user info, or to both.
type withGroups struct {
	*storage.Storage
	inToken bool
}

var _ op.CanSetUserinfoFromRequest = (*withGroups)(nil)

// SetUserinfoFromToken is asked for the user info.
func (w *withGroups) SetUserinfoFromToken(ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string) error {
	if err := w.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin); err != nil {
		return err
	}
	info.AppendClaims("groups", Groups(strings.TrimPrefix(subject, "id-")))
	return nil
}

// GetPrivateClaimsFromScopes and SetUserinfoFromRequest are asked for the ID token.
func (w *withGroups) SetUserinfoFromRequest(ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string) error {
	if err := w.Storage.SetUserinfoFromRequest(ctx, info, token, scopes); err != nil {
		return err
	}
	if w.inToken {
		info.Email, info.EmailVerified = people()[strings.TrimPrefix(token.GetSubject(), "id-")].email, true
		info.AppendClaims("groups", Groups(strings.TrimPrefix(token.GetSubject(), "id-")))
	}
	return nil
}

// Browser is an http.Client with cookies that follows no redirects by itself.
func Browser(t testing.TB) *http.Client {
	t.Helper()
	jar := newJar()
	client := &http.Client{Jar: jar, Timeout: 30 * time.Second, Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// SignIn walks a browser from the address of a console's /signin/start through the provider's login form, as person. It returns the
// address with which the provider sends the browser back, which has not been asked for.
func SignIn(t testing.TB, browser *http.Client, start, name string) string {
	t.Helper()
	at := location(t, get(t, browser, start)) //nolint:bodyclose // location closes it
	for range 10 {
		if strings.Contains(at, "/signin/callback?") {
			return at
		}
		u, err := url.Parse(at)
		if err != nil {
			t.Fatal(err)
		}
		if id := u.Query().Get("authRequestID"); id != "" && strings.HasPrefix(u.Path, "/login/") {
			form := url.Values{"username": {name}, "password": {Password}, "id": {id}}
			answer, err := browser.PostForm(u.Scheme+"://"+u.Host+"/login/username", form)
			if err != nil {
				t.Fatal(err)
			}
			at = location(t, answer)
			continue
		}
		at = location(t, get(t, browser, at)) //nolint:bodyclose // location closes it
	}
	t.Fatalf("the provider does not send the browser back: %s", at)
	return ""
}

func get(t testing.TB, browser *http.Client, at string) *http.Response {
	t.Helper()
	answer, err := browser.Get(at)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// location is where an answer redirects to.
func location(t testing.TB, answer *http.Response) string {
	t.Helper()
	_ = answer.Body.Close()
	to, err := answer.Location()
	if errors.Is(err, http.ErrNoLocation) {
		t.Fatalf("%s answers %s, not with a redirect", answer.Request.URL, answer.Status)
	}
	if err != nil {
		t.Fatal(err)
	}
	return to.String()
}
