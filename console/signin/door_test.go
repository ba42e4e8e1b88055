package signin_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/console/signin/signintest"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
)

// invite makes an invitation, and gives its link below the console's address.
func (s *scene) invite(of sessions.Invite, within time.Duration) (link string) {
	s.t.Helper()
	token, hash := s.newLink()
	entry := audit.Entry{Actor: of.By, Via: audit.Local, Action: "invite", Object: "session"}
	if _, err := sessions.New(s.bed.DB).Invite(s.t.Context(), hash, of, within, entry); err != nil {
		s.t.Fatal(err)
	}
	return signin.InvitePath + token
}

// newLink makes the token of a link that nothing is kept of.
func (s *scene) newLink() (token string, hash sessions.Hash) {
	s.t.Helper()
	key, err := sessions.New(s.bed.DB).Key(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	return signin.NewSeal(key).NewLink()
}

func mara() sessions.Invite { return sessions.Invite{Name: "mara", Role: "admin", By: "ann"} }

var hidden = regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)

// fields are the hidden fields of a page's form.
func fields(body string) url.Values {
	out := url.Values{}
	for _, m := range hidden.FindAllStringSubmatch(body, -1) {
		out.Set(m[1], strings.ReplaceAll(m[2], "&#43;", "+"))
	}
	return out
}

// press opens a link as a browser does, and presses its button.
func (s *scene) press(browser *http.Client, link string) answer {
	s.t.Helper()
	got := s.do(browser, "GET", link, "", page)
	s.want(got, 200, `<button class="button" type="submit">Sign in</button>`)
	return s.send(browser, "/signin/invite", fields(got.body))
}

// send sends a form of a page of the console.
func (s *scene) send(browser *http.Client, path string, values url.Values) answer {
	s.t.Helper()
	return s.do(browser, "POST", path, values.Encode(), func(r *http.Request) {
		form(r)
		page(r)
		r.Header.Set("Origin", s.url)
		r.Header.Set("Sec-Fetch-Site", "same-origin")
	})
}

func TestAnInvitationSignsInOnce(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	link := s.invite(sessions.Invite{Name: "mara", Role: "owner", Owners: []string{"identity"}, By: "ann"},
		10*time.Minute)
	_, token, _ := strings.Cut(link, "=")
	for _, method := range []string{"GET", "HEAD", "GET"} { // what previews links, and what fetches them ahead
		got := s.do(signintest.Browser(t), method, link, "",
			func(r *http.Request) { page(r); r.Header.Set("Sec-Purpose", "prefetch") })
		if got.status != 200 || got.header.Get("Referrer-Policy") != "strict-origin" ||
			got.header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: got %d, %v", method, got.status, got.header)
		}
		if strings.Contains(fmt.Sprint(got.header), token) || strings.Count(got.body, token) > 1 {
			t.Errorf("the token is told more than once:\n%v\n%s", got.header, got.body)
		}
	}
	browser := signintest.Browser(t)
	got := s.press(browser, link)
	if got.status != 303 || got.header.Get("Location") != "/" || s.cookie(browser, "weir-form") != "" {
		t.Fatalf("got %d to %q: %s", got.status, got.header.Get("Location"), got.body)
	}
	actor, csrf := s.me(browser)
	if actor.Name != "mara" || actor.Role != access.Owner || actor.Via != access.ViaInvite ||
		!slices.Equal(actor.Owners, []string{"identity"}) || len(csrf) != 43 {
		t.Errorf("is %+v with %q", actor, csrf)
	}
	s.want(s.do(browser, "POST", "/rules/logins/promote", "", nil), 403, "csrf")
	s.want(s.do(browser, "POST", "/rules/logins/promote", url.Values{"csrf": {csrf}}.Encode(), form), 200)
	s.want(s.press(signintest.Browser(t), link), 403, "This link does not sign in")
	s.want(s.send(browser, "/signin/invite", url.Values{"csrf": {csrf}, "invite": {token}}), 403,
		"This link does not sign in")
	if again, _ := s.me(browser); again.Name != "mara" {
		t.Errorf("a link that is over has ended the session: %+v", again)
	}

	trail, err := s.bed.Audit.Of(t.Context(), "session", 0)
	if err != nil || len(trail) != 2 || trail[0].Action != "sign-in" || trail[0].Actor != "mara" ||
		trail[0].Via != "invite" ||
		trail[0].Detail != "invited by ann from 127.0.0.1: role owner of identity" || trail[1].Action != "invite" ||
		trail[1].Actor != "ann" {
		t.Errorf("audited: %+v, %v", trail, err)
	}
	if log := s.log.String(); strings.Contains(log, token) || !strings.Contains(log, "via=invite") ||
		!strings.Contains(log, "a link that does not sign in was used") {
		t.Errorf("logged: %s", log)
	}
	stolen := s.cookie(browser, "weir-session")
	got = s.send(browser, "/signout", url.Values{"csrf": {csrf}})
	if again, _ := s.me(browser); got.status != 303 || again.Role != access.Nobody {
		t.Errorf("signed out with %d, and is %+v", got.status, again)
	}
	thief := func(r *http.Request) { r.Header.Set("Cookie", "weir-session="+stolen) }
	s.want(s.do(signintest.Browser(t), "GET", "/api/v1/me", "", thief), 401)
}

// Every link that does not sign in has one answer, whatever the reason: nobody learns which there are, or were.
func TestLinksThatDoNotSignInLookAlike(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Client = proxied() })
	store := sessions.New(s.bed.DB)
	used, over, back := s.invite(mara(), time.Minute), s.invite(mara(), time.Minute),
		s.invite(sessions.Invite{Name: "otto", Role: "viewer", By: "ann"}, time.Minute)
	s.press(signintest.Browser(t), used)
	s.bed.Run(t, "UPDATE weir.invites SET expires_at = now() WHERE name = 'mara'")
	if ended, err := store.Remove(t.Context(), sessions.Which{Name: "otto"},
		func(sessions.Listed) audit.Entry {
			return audit.Entry{Actor: "ann",
				Action: "withdraw-invite"}
		}); err != nil || len(ended) != 1 {
		t.Fatal(ended, err)
	}
	unknown, _ := s.newLink()
	hash := sha256.Sum256([]byte(strings.TrimPrefix(used, signin.InvitePath)))
	var first string
	i := 0
	for name, tokens := range map[string][]string{
		"made up": {strings.Repeat("A", 43)}, "used": {used}, "over": {over}, "taken back": {back},
		"unknown": {unknown}, "none": {}, "empty": {""},
		"cut": {used[:len(used)-1]}, "longer": {used + "A"}, "twice": {used, used},
		"its hash": {fmt.Sprintf("%x", hash)}, "SQL": {"' OR true --"}, "NUL": {"\x00"},
		"64 KiB less a little":           {strings.Repeat("A", 12<<10)},
		"another text of the same bytes": {used[:len(used)-1] + "_"},
	} {
		i++
		browser := behind(signintest.Browser(t), fmt.Sprintf("192.0.2.%d", i))
		values := fields(s.do(browser, "GET", "/signin?invite="+unknown, "", page).body)
		values.Del("invite")
		for _, token := range tokens {
			values.Add("invite", strings.TrimPrefix(token, signin.InvitePath))
		}
		got := s.send(browser, "/signin/invite", values)
		if first == "" {
			first = got.body
		}
		if got.status != 403 || got.body != first || s.cookie(browser, "weir-session") != "" {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
	for _, query := range []string{"invite=", "invite=x", "invite=" + unknown + "&invite=" + unknown,
		"invite=%3Cscript%3E", "invite=" + strings.Repeat("A", 30<<10)} {
		if got := s.do(signintest.Browser(t), "GET", "/signin?"+query, "", page); got.status != 403 ||
			got.body != first {
			t.Errorf("%.40s: got %d %s", query, got.status, got.body)
		}
	}
	if n := s.bed.Number(t, "SELECT count(*) FROM weir.sessions"); n != 1 {
		t.Errorf("%d sessions", n)
	}
}

func TestOfSeveralAtOnceOneSignsIn(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Client = proxied() })
	link := s.invite(mara(), time.Minute)
	const many = 12
	browsers, forms := make([]*http.Client, many), make([]url.Values, many)
	for i := range many {
		browsers[i] = behind(signintest.Browser(t), fmt.Sprintf("192.0.2.%d", i))
		forms[i] = fields(s.do(browsers[i], "GET", link, "", page).body)
	}
	statuses := make([]int, many)
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() { statuses[i] = s.send(browsers[i], "/signin/invite", forms[i]).status })
	}
	all.Wait()
	in := 0
	for i, status := range statuses {
		actor, _ := s.me(browsers[i])
		switch {
		case status == 303 && actor.Name == "mara":
			in++
		case status != 403 || actor.Role != access.Nobody:
			t.Errorf("got %d, is %+v", status, actor)
		}
	}
	if n := s.bed.Number(t, "SELECT count(*) FROM weir.sessions"); in != 1 || n != 1 {
		t.Errorf("%d are in, of %d sessions", in, n)
	}
}

// A page elsewhere signs nobody in: neither as whom it likes, by a link of its own, nor by a link that it does not
// know.
func TestFormsOfTheSignInCannotBeForged(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	link := s.invite(mara(), time.Minute)
	victim, attacker := signintest.Browser(t), signintest.Browser(t)
	good, evil := fields(s.do(victim, "GET", link, "", page).body), fields(s.do(attacker, "GET", link, "", page).body)
	if good.Get("csrf") == evil.Get("csrf") || good.Get("csrf") == s.cookie(victim, "weir-form") {
		t.Fatal("the token against forgery is the same for all, or the cookie itself")
	}
	token := url.Values{"csrf": {evil.Get("csrf")}, "token": {scriptToken}}
	for name, send := range map[string]func() answer{
		"of another browser's page": func() answer { return s.send(victim, "/signin/invite", evil) },
		"without one": func() answer {
			return s.send(victim, "/signin/invite",
				url.Values{"invite": good["invite"]})
		},
		"with two": func() answer {
			return s.send(victim, "/signin/invite", url.Values{"invite": good["invite"],
				"csrf": {good.Get("csrf"), good.Get("csrf")}})
		},
		"without a cookie": func() answer { return s.send(signintest.Browser(t), "/signin/invite", good) },
		"of an empty cookie": func() answer {
			h := hmac.New(sha256.New, nil)
			h.Write([]byte("form"))
			forged := url.Values{"invite": good["invite"], "csrf": {base64.RawURLEncoding.EncodeToString(h.Sum(nil))}}
			return s.send(signintest.Browser(t), "/signin/invite", forged)
		},
		"a token's form": func() answer { return s.send(victim, "/signin/token", token) },
		"from another site": func() answer {
			return s.do(victim, "POST", "/signin/invite", good.Encode(),
				func(r *http.Request) { form(r); r.Header.Set("Sec-Fetch-Site", "cross-site") })
		},
		"from nowhere": func() answer {
			return s.do(victim, "POST", "/signin/invite", good.Encode(),
				func(r *http.Request) { form(r); r.Header.Set("Origin", "null") })
		},
		"in the address": func() answer { return s.do(victim, "POST", "/signin/invite?"+good.Encode(), "", form) },
		"as plain text": func() answer {
			return s.do(victim, "POST", "/signin/invite", good.Encode(),
				func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") })
		},
		"as JSON": func() answer {
			return s.do(victim, "POST", "/signin/invite", `{"invite":"`+good.Get("invite")+`"}`,
				func(r *http.Request) { r.Header.Set("Content-Type", "application/json") })
		},
		"by a script's token": func() answer {
			return s.do(signintest.Browser(t), "POST", "/signin/invite", good.Encode(),
				func(r *http.Request) { form(r); bearing(scriptToken)(r) })
		},
	} {
		if got := send(); got.status != 403 {
			t.Errorf("%s: got %d %s", name, got.status, got.body)
		}
	}
	// So is answered whoever is not signed in.
	for method, status := range map[string]int{"GET": 303, "HEAD": 303, "PUT": 401} {
		got := s.do(attacker, method, "/signin/invite?"+evil.Encode(), "", page)
		if told := fmt.Sprint(got.header, got.body); got.status != status || strings.Contains(told,
			evil.Get("invite")) {
			t.Errorf("%s: got %d %s", method, got.status, told)
		}
	}
	big := s.do(attacker, "POST", "/signin/invite", "a="+strings.Repeat("A", 1<<20)+"&"+evil.Encode(), form)
	s.want(big, 400)
	if n := s.bed.Number(t, "SELECT count(*) FROM weir.sessions"); n != 0 {
		t.Errorf("%d sessions", n)
	}
	if got := s.send(attacker, "/signin/invite", evil); got.status != 303 {
		t.Errorf("what was refused has used the link up: %d %s", got.status, got.body)
	}
}

// A browser that is signed in already, or that somebody has planted a session in, gets a new session, and the one
// that it had is over.
func TestAnInvitationEndsTheSessionThatTheBrowserHas(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	browser := signintest.Browser(t)
	s.press(browser, s.invite(sessions.Invite{Name: "vic", Role: "viewer", By: "ann"}, time.Minute))
	planted := s.cookie(browser, "weir-session")
	link := s.invite(mara(), time.Minute)
	s.want(s.do(browser, "GET", link, "", page), 200, "You are signed in as vic, viewer")
	if got := s.press(browser, link); got.status != 303 {
		t.Fatalf("got %d %s", got.status, got.body)
	}
	if actor, _ := s.me(browser); actor.Name != "mara" || s.cookie(browser, "weir-session") == planted {
		t.Errorf("is %+v", actor)
	}
	thief := func(r *http.Request) { r.Header.Set("Cookie", "weir-session="+planted) }
	s.want(s.do(signintest.Browser(t), "GET", "/api/v1/me", "", thief), 401)
}

func TestRolesOfInvitationsThatThereAreNot(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	for _, role := range []string{"", "nobody", "root", "Admin"} {
		browser := signintest.Browser(t)
		s.press(browser, s.invite(sessions.Invite{Name: "mara", Role: role, By: "ann"}, time.Minute))
		if actor, _ := s.me(browser); actor.Role != access.Nobody {
			t.Errorf("role %q is %+v", role, actor)
		}
	}
}

func TestTriesOfTheSignInsFormsAreLimited(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Client = proxied() })
	s.now.stop()
	link := s.invite(mara(), time.Hour)
	browser := behind(signintest.Browser(t), "192.0.2.1")
	values := fields(s.do(browser, "GET", link, "", page).body)
	wrong, _ := s.newLink()
	guesses := map[string]url.Values{
		"/signin/invite": {"csrf": values["csrf"], "invite": {wrong}},
		"/signin/token":  {"csrf": values["csrf"], "token": {"guess"}},
	}
	for i := range 10 {
		for path, guess := range guesses {
			if got := s.send(browser, path, guess); got.status != 403 {
				t.Fatalf("guess %d at %s: got %d %s", i, path, got.status, got.body)
			}
		}
	}
	for path, guess := range guesses {
		got := s.send(browser, path, guess)
		s.want(got, 429, "Too many attempts")
		if got.header.Get("Retry-After") != "6" {
			t.Errorf("%s: Retry-After %q", path, got.header.Get("Retry-After"))
		}
	}
	// What is right cannot be guessed, and passes whatever others did at this address.
	s.want(s.do(browser, "GET", "/api/v1/me", "", bearing(scriptToken)), 200)
	if got := s.send(browser, "/signin/token", url.Values{"csrf": values["csrf"],
		"token": {scriptToken}}); got.status != 303 {
		t.Errorf("a token of the console: got %d %s", got.status, got.body)
	}
	if got := s.press(behind(signintest.Browser(t), "192.0.2.2"), s.invite(mara(), time.Hour)); got.status != 303 {
		t.Errorf("another client: got %d", got.status)
	}
	if got := s.press(behind(signintest.Browser(t), "192.0.2.1"), link); got.status != 303 {
		t.Errorf("the right link: got %d %s", got.status, got.body)
	}
}

func TestTokensInTheForm(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Client = proxied() })
	browser := signintest.Browser(t)
	got := s.do(browser, "GET", "/signin?next=/open%3Fa=1", "", page)
	s.want(got, 200, `type="password" name="token"`, "weir console invite")
	values := fields(got.body)
	with := func(tokens ...string) url.Values {
		return url.Values{"csrf": values["csrf"], "next": values["next"], "token": tokens}
	}
	hash := sha256.Sum256([]byte(scriptToken))
	for name, tokens := range map[string][]string{
		"none": nil, "empty": {""}, "blanks": {"  "}, "its hash": {fmt.Sprintf("%x", hash)},
		"a part": {scriptToken[:63]}, "more": {scriptToken + "0"}, "upper case": {strings.ToUpper(scriptToken)},
		"twice": {scriptToken, scriptToken}, "too long": {strings.Repeat("a", 513)},
		"as a header": {"Bearer " + scriptToken}, "NUL behind it": {scriptToken + "\x00"},
	} {
		got := s.do(browser, "POST", "/signin/token", with(tokens...).Encode(), func(r *http.Request) {
			form(r)
			r.Header.Set("X-Forwarded-For", fmt.Sprintf("192.0.2.%d", len(name)))
		})
		s.want(got, 403, "The token is not one of this console", `name="token"`)
		if strings.Contains(got.body, scriptToken[:20]) || s.cookie(browser, "weir-session") != "" {
			t.Errorf("%s: got %s", name, got.body)
		}
	}
	got = s.send(browser, "/signin/token", with(" "+scriptToken+"\n"))
	if got.status != 303 || got.header.Get("Location") != "/open?a=1" {
		t.Fatalf("got %d to %q: %s", got.status, got.header.Get("Location"), got.body)
	}
	actor, csrf := s.me(browser)
	if actor.Name != "token:ci" || actor.Role != access.Owner || actor.Via != access.ViaToken ||
		!slices.Equal(actor.Owners, []string{"identity"}) || len(csrf) != 43 {
		t.Errorf("is %+v with %q", actor, csrf)
	}
	// A browser sends the cookie by itself: other than of a header, proof is asked.
	s.want(s.do(browser, "POST", "/rules/logins/promote", "", nil), 403, "csrf")
	s.want(s.do(browser, "POST", "/rules/logins/promote", url.Values{"csrf": {csrf}}.Encode(), form), 200)
	s.want(s.do(browser, "POST", "/rules/searches/promote", url.Values{"csrf": {csrf}}.Encode(), form), 403, "search")
	trail, err := s.bed.Audit.Of(t.Context(), "session", 0)
	if err != nil || len(trail) != 1 || trail[0].Actor != "token:ci" || trail[0].Via != "token" ||
		!strings.HasPrefix(trail[0].Detail, "token ci ") || strings.Contains(trail[0].Detail,
		fmt.Sprintf("%x", hash[:4])) {
		t.Errorf("audited: %+v, %v", trail, err)
	}
	if log := s.log.String(); strings.Contains(log, scriptToken[:20]) {
		t.Errorf("a token is logged: %s", log)
	}
	s.now.add(2 * time.Hour)
	if got, _ := s.me(browser); got.Role != access.Nobody {
		t.Errorf("the token has expired, and its session is %+v", got)
	}
	again := fields(s.do(browser, "GET", "/signin", "", page).body)
	again.Set("token", scriptToken)
	s.want(s.send(browser, "/signin/token", again), 403, "The token has expired")
}

// The session of a token ends with it: where the configuration has it no longer, or another one by its name.
func TestATokensSessionGoesWithTheToken(t *testing.T) {
	t.Parallel()
	token := signin.Token{Name: "ci", Role: access.Owner, SHA256: sha256.Sum256([]byte(scriptToken)),
		Expires: time.Now().Add(time.Hour)}
	o := signin.Options{Tokens: []signin.Token{token}}
	s := newSceneWith(t, nil, nil)
	browser := signintest.Browser(t)
	values := fields(s.do(browser, "GET", "/signin", "", page).body)
	values.Set("token", scriptToken)
	s.send(browser, "/signin/token", values)
	found, err := sessions.New(s.bed.DB).List(t.Context(), time.Hour)
	if err != nil || len(found) != 1 || found[0].Expires.After(time.Now().Add(time.Hour)) {
		t.Fatalf("%+v, %v", found, err)
	}
	who := &found[0].Session
	if got := o.ActorOf(who, time.Now()); got.Name != "token:ci" || got.Role != access.Owner {
		t.Errorf("got %+v", got)
	}
	o.Tokens[0].Role = access.Viewer
	if got := o.ActorOf(who, time.Now()); got.Role != access.Viewer {
		t.Errorf("another role: got %+v", got)
	}
	o.Tokens[0].SHA256 = sha256.Sum256([]byte("another"))
	if got := o.ActorOf(who, time.Now()); got.Role != access.Nobody {
		t.Errorf("another token of the name: got %+v", got)
	}
	o.Tokens = nil
	for _, via := range []string{access.ViaToken, access.ViaOIDC, "", access.ViaLocal, "a build to come"} {
		who.Via, who.Role = via, "admin"
		if got := o.ActorOf(who, time.Now()); got.Role != access.Nobody {
			t.Errorf("via %q without a configuration for it: got %+v", via, got)
		}
	}
}

// By plain http whoever is on the way would have the session, so there is no form but at the machine itself.
func TestNobodySignsInByPlainHTTPFromElsewhere(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, func(o *signin.Options) { o.PublicURL, o.Hosts = "", []string{"weir.internal"} })
	link := s.invite(mara(), time.Minute)
	for host, open := range map[string]bool{"192.0.2.7:9466": false, "[2001:db8::1]": false, "weir.internal": false,
		"0.0.0.0": false, "localhost:9466": true, "127.0.0.1": true, "[::1]:9466": true} {
		browser := signintest.Browser(t)
		asked := func(r *http.Request) { page(r); r.Host = host }
		got := s.do(browser, "GET", link, "", asked)
		if got.status != 200 || strings.Contains(got.body, "<form") != open || !open &&
			!strings.Contains(got.body, "console.public_url") {
			t.Errorf("%s: got %d %s", host, got.status, got.body)
		}
		if !open {
			s.want(s.do(browser, "POST", "/signin/invite", "", func(r *http.Request) { asked(r); form(r) }), 403,
				"Not by plain http")
		}
	}
}

func TestWhatIsAwayUsesNoLinkUp(t *testing.T) {
	t.Parallel()
	s := newSceneWith(t, nil, nil)
	link := s.invite(mara(), time.Minute)
	browser := signintest.Browser(t)
	values := fields(s.do(browser, "GET", link, "", page).body)
	s.bed.Run(t, "ALTER TABLE weir.sessions RENAME TO gone")
	s.want(s.send(browser, "/signin/invite", values), 503, "Sign-in failed")
	s.bed.Run(t, "ALTER TABLE weir.gone RENAME TO sessions")
	if got := s.send(browser, "/signin/invite", values); got.status != 303 {
		t.Errorf("got %d %s", got.status, got.body)
	}
	s.bed.Close()
	s.want(s.do(signintest.Browser(t), "GET", link, "", page), 200, "Sign in") // nothing is looked up for it
}

func TestWhereNobodySignsInThereIsNoForm(t *testing.T) {
	t.Parallel()
	me := access.Actor{Name: "dev", Role: access.Admin, Via: access.ViaLocal}
	s := newSceneWith(t, nil, func(o *signin.Options) { o.Local, o.PublicURL = &me, "" })
	link := s.invite(mara(), time.Minute)
	browser := signintest.Browser(t)
	got := s.do(browser, "GET", link, "", page)
	s.want(got, 200, "This console asks for no sign-in", "You are signed in as dev, admin")
	if strings.Contains(got.body, "<form") {
		t.Errorf("there is a form: %s", got.body)
	}
	s.want(s.send(browser, "/signin/invite", url.Values{}), 404, "Nobody signs in here")
	s.want(s.send(browser, "/signin/token", url.Values{"token": {scriptToken}}), 404)
	s.want(s.do(browser, "GET", "/api/v1/me", "", bearing(scriptToken)), 200,
		"token:ci") // a script is who it says it is
	s.want(s.do(browser, "GET", "/api/v1/me", "", bearing("guess")), 401)
}
