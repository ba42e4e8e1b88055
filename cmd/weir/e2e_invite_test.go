package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/internal/testbed"
)

// visit sends a request as a browser does, to a page of the console's address.
func visit(t *testing.T, browser *http.Client, method, at string, form url.Values, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, at, strings.NewReader(form.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	for name, values := range header {
		r.Header[name] = values
	}
	if host := header.Get("Host"); host != "" {
		r.Host = host
	}
	r.Header.Set("Accept", "text/html")
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := browser.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// me is who a browser is at a console.
func me(t *testing.T, browser *http.Client, server string) (actor access.Actor) {
	t.Helper()
	code, body := visit(t, browser, "GET", server+"/api/v1/me", nil, nil)
	if code != http.StatusOK {
		return access.Actor{}
	}
	if err := json.Unmarshal([]byte(body), &actor); err != nil {
		t.Fatal(err, body)
	}
	return actor
}

// openLink opens the link of an invitation and presses its button.
func openLink(t *testing.T, browser *http.Client, server, link string) (int, string) {
	t.Helper()
	_, path, _ := strings.Cut(strings.TrimPrefix(link, "http://"), "/")
	code, body := visit(t, browser, "GET", server+"/"+path, nil, nil)
	if code != http.StatusOK {
		return code, body
	}
	form := url.Values{}
	for _, m := range regexp.MustCompile(`name="([a-z]+)" value="([^"]*)"`).FindAllStringSubmatch(body, -1) {
		form.Set(m[1], m[2])
	}
	return visit(t, browser, "POST", server+"/signin/invite", form, nil)
}

// told is an invitation or a session as --output json has it.
type told struct {
	Link, ID, Name, Role, Via string
	Owners                    []string
	Invited                   bool
	Until                     time.Time
}

// TestNobodyIsKnownYet: a console without identity provider and tokens starts, and says what lets somebody in; it does.
func TestNobodyIsKnownYet(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	p := b.start("console", "--console-listen", "127.0.0.1:0")
	server := "http://" + p.awaitLog(`serving the console" address=(\S+)`)
	p.awaitLog("(weir console invite, with this configuration, prints a link)")
	browser := signintest.Browser(t)
	if code, body := visit(t, browser, "GET", server+"/signin", nil, nil); code != http.StatusOK ||
		!strings.Contains(body, "<code>weir console invite</code>") {
		t.Errorf("the page says %d %s", code, body)
	}

	o := b.weir("console", "invite", "--for", "mara", "--by", "ann", "--reason", "the first one", "--console-listen",
		strings.TrimPrefix(server, "http://"))
	link := strings.TrimSpace(o.stdout)
	if o.code != exitOK || !strings.HasPrefix(link, server+"/signin?invite=") ||
		len(link) != len(server+"/signin?invite=")+43 ||
		!strings.Contains(o.stderr, "signs in mara (admin), once, until ") ||
		!strings.Contains(o.stderr, "good on the console's own machine") {
		t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	if code, body := openLink(t, browser, server, link); code != http.StatusSeeOther {
		t.Fatalf("the link: %d %s", code, body)
	}
	if who := me(t, browser, server); who.Name != "mara" || who.Role != access.Admin || who.Via != access.ViaInvite {
		t.Errorf("she is %+v", who)
	}
	if code, body := openLink(t, signintest.Browser(t), server, link); code != http.StatusForbidden ||
		!strings.Contains(body, "This link does not sign in") {
		t.Errorf("again: %d %s", code, body)
	}

	olga := decode[told](b, "console", "invite", "--for", "olga", "--role", "owner", "--owners", "identity,search",
		"--ttl", "1h")
	if left := time.Until(olga.Until); olga.Role != "owner" ||
		!slices.Equal(olga.Owners, []string{"identity", "search"}) || left < 50*time.Minute ||
		left > time.Hour+time.Minute {
		t.Errorf("invited: %+v", olga)
	}
	if list := b.ok("console", "sessions"); !regexp.MustCompile(`(?m)^[0-9a-f]{12} +mara +admin +invite +\S+Z +\S+Z +\S+Z$`).MatchString(list) ||
		!regexp.MustCompile(`(?m)^`+olga.ID+
			` +olga +owner of identity, search +not yet, invited by .+ +\S+Z +\S+Z +-$`).MatchString(list) {
		t.Errorf("listed:\n%s", list)
	}
	if said := b.ok("console", "sessions", "end", olga.ID, "--by",
		"ann"); said != "invitation "+olga.ID+" of olga: ended\n" {
		t.Errorf("taken back: %s", said)
	}
	if code, _ := openLink(t, signintest.Browser(t), server, olga.Link); code != http.StatusForbidden {
		t.Errorf("a link that was taken back: %d", code)
	}
	if ended := decode[[]told](b, "console", "sessions", "end", "--of", "mara", "--by", "ann", "--reason",
		"a lost laptop"); len(ended) != 1 || ended[0].Role != "admin" || ended[0].Via != "invite" {
		t.Errorf("ended: %+v", ended)
	}
	if who := me(t, browser, server); who.Role != access.Nobody {
		t.Errorf("she is still %+v", who)
	}
	if o := b.weir("console", "sessions", "end", "--of", "mara"); o.code != exitError ||
		!strings.Contains(o.stderr, `there is no session or invitation of "mara"`) {
		t.Errorf("nothing to end: exit code %d %s%s", o.code, o.stdout, o.stderr)
	}
	b.saysWhoCame(t)
	if log := p.log.String(); strings.Contains(log, link[len(link)-43:]) {
		t.Errorf("the link is logged:\n%s", log)
	}
	p.end()
}

// saysWhoCame holds that the audit trail has the story of TestNobodyIsKnownYet.
func (b *bed) saysWhoCame(t *testing.T) {
	t.Helper()
	var said []string
	for _, e := range decode[[]audit.Entry](b, "history", "audit") {
		if e.Object == "session" {
			said = append(said, strings.Join([]string{e.Action, e.Actor, e.Via, e.Reason, e.Change()}, "/"))
		}
	}
	slices.Reverse(said)
	by := whoami(os.Environ())
	want := []string{
		"invite/ann/local/the first one/none → invited", "sign-in/mara/invite//signed out → signed in",
		"invite/" + by + "/local//none → invited",
		"withdraw-invite/ann/local//invited → none", "end-session/ann/local/a lost laptop/signed in → signed out",
	}
	if !slices.Equal(said, want) && !slices.Equal(slices.Sorted(slices.Values(said)),
		slices.Sorted(slices.Values(want))) {
		t.Errorf("audited:\n%s", strings.Join(said, "\n"))
	}
}

// TestLocalAdminIsOfThisMachine: one line of configuration asks nobody who he is, on loopback, and is refused
// elsewhere.
func TestLocalAdminIsOfThisMachine(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	const local = "console.local_admin=true"
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"console", "--set", local, "--set", "console.listen=0.0.0.0:0"},
			`console.local_admin: got true, with console.listen "0.0.0.0:0"; allowed: with console.listen of this machine`},
		{[]string{"run", "--console", "--set", local, "--set", "console.listen=192.0.2.1:9466"},
			`got true, with console.listen "192.0.2.1:9466"`},
		{[]string{"console", "--set", local, "--console-listen", "0.0.0.0:0"},
			`--console-listen, with console.local_admin: got "0.0.0.0:0"; allowed: an address of this machine alone`},
		{[]string{"console", "--set", local, "--console-listen", ":0"},
			`got ":0"; allowed: an address of this machine`},
		{[]string{"console", "--set", local, "--set", "console.public_url=https://weir.example.com"},
			`with console.public_url "https://weir.example.com"`},
		{[]string{"console", "invite", "--set", local}, "nobody signs in at this console"},
	} {
		if o := b.weir(tc.args...); o.code != exitUsage || !strings.Contains(o.stderr, tc.want) {
			t.Errorf("weir %s: exit code %d\n%s", strings.Join(tc.args, " "), o.code, o.stderr)
		}
	}
	p := b.start("console", "--console-listen", "127.0.0.1:0", "--set", local, "--set", consoleTokens())
	server := "http://" + p.awaitLog(`serving the console" address=(\S+)`)
	p.awaitLog("(whoever is at this machine may do everything)")
	browser := signintest.Browser(t)
	if who := me(t, browser, server); who.Role != access.Admin || who.Via != access.ViaLocal ||
		who.Name != whoami(os.Environ()) {
		t.Errorf("who is at the machine is %+v", who)
	}
	if code := ask(t, server+"/api/v1/health", "anna", &struct{}{}); code != http.StatusOK {
		t.Errorf("a script: %d", code)
	}
	for _, refused := range []http.Header{
		{"X-Forwarded-For": {"192.0.2.1"}}, {"Forwarded": {"for=192.0.2.1"}}, {"Via": {"1.1 edge"}},
		{"Host": {"weir.evil.example"}}, {"Host": {"0.0.0.0"}},
	} {
		code, body := visit(t, browser, "GET", server+"/", nil, refused)
		if code != http.StatusForbidden && code != http.StatusMisdirectedRequest || strings.Contains(body, "<nav") {
			t.Errorf("%v: %d %s", refused, code, body)
		}
		if name := fmt.Sprint(refused); strings.Contains(name, "For") && !strings.Contains(body, "no proxy (") {
			t.Errorf("%v: the reason is not told: %s", refused, body)
		}
	}
	p.end()
}

// TestInvitationsThatCannotBeMeant: what is wrong is said before any server is asked.
func TestInvitationsThatCannotBeMeant(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"invite", "--role", "root"}, `--role: got "root"; allowed: viewer, analyst, owner, admin`},
		{[]string{"invite", "--role", "Admin"}, `--role: got "Admin"`},
		{[]string{"invite", "--role", "owner"}, `--owners: got "" with --role owner; allowed: the owners`},
		{[]string{"invite", "--owners", "identity"}, `--owners: got "identity" with --role admin`},
		{[]string{"invite", "--role", "owner", "--owners", "identity,"}, `--owners: got "identity,"`},
		{[]string{"invite", "--ttl", "25h"}, "--ttl: got 1d1h; allowed: 1m to 1d"},
		{[]string{"invite", "--ttl", "0s"}, "--ttl: got 0s; allowed: 1m to 1d"},
		{[]string{"invite", "--ttl", "-10m"}, "--ttl"},
		{[]string{"invite", "--ttl", "soon"}, "--ttl: got"},
		{[]string{"invite", "--for", "token:ci"}, "without token: before it"},
		{[]string{"invite", "--for", " mara"}, "--for: got"},
		{[]string{"invite", "--for", "a\nb"}, "--for: got"},
		{[]string{"invite", "--for", "mara\u202e"}, "--for: got"},
		{[]string{"invite", "--for", strings.Repeat("m", 129)}, "up to 128 bytes"},
		{[]string{"invite", "--console-listen", "127.0.0.1:0"},
			`--console-listen: got "127.0.0.1:0"; allowed: host:port`},
		{[]string{"invite", "mara"}, "weir console invite takes no arguments"},
		{[]string{"invite", "--server", "https://weir.example.com"}, "--server"},
		{[]string{"sessions", "--server", "https://weir.example.com"}, "--server"},
		{[]string{"sessions", "end"}, "allowed: one of ID"},
		{[]string{"sessions", "end", "--of", ""}, "allowed: one of ID"},
		{[]string{"sessions", "end", "0123456789ab", "--of", "mara"}, "allowed: one of ID"},
		{[]string{"sessions", "end", "mara"}, `got "mara"; allowed: an ID of 12 digits`},
		{[]string{"sessions", "end", "%"}, "allowed: an ID"},
		{[]string{"invit"}, `unknown command "invit" for "weir console"; did you mean invite?`},
	} {
		args := append([]string{"console"}, tc.args...)
		if got := offline(t, "", append(args, "--config", emptyFile(t), "--postgres-url",
			"postgres://weir@127.0.0.1:1/weir")...); got.code != exitUsage || !strings.Contains(got.stderr, tc.want) {
			t.Errorf("weir %q: exit code %d\n%s", args, got.code, got.stderr)
		}
	}
}
