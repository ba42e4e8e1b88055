package server_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
)

// consoleHost is the name under which the console is asked.
const consoleHost = "console.example"

// world is an installation of which everything that stores are asked is seen.
type world struct {
	*bed
	handler    http.Handler
	routes     []access.Route
	sql, redis *tap
	people     map[string][]person
	n          int // requests
}

// person is somebody with a token, and a session that was begun with it.
type person struct{ token, cookie string }

// kinds are those who ask.
func kinds() []string { return []string{"viewer", "analyst", "owner", "stranger", "bound", "admin"} }

func newWorld(t *testing.T, each int) *world {
	t.Helper()
	w := &world{people: map[string][]person{}}
	w.bed = newBed(t, func(c *config.Config) {
		p, err := url.Parse(string(c.Postgres.URL))
		r, rerr := url.Parse(string(c.Redis.URL))
		if err != nil || rerr != nil {
			t.Fatal(err, rerr)
		}
		w.sql, w.redis = newTap(t, p.Host, statements), newTap(t, r.Host, redisCommands)
		c.Postgres.URL, c.Redis.URL = config.Secret(w.sql.at(p.String())), config.Secret(w.redis.at(r.String()))
	})
	w.bed.t = t
	for _, on := range targets() {
		if !on.absent() {
			w.apply(on.document(10))
		}
	}
	if err := w.in.History.Orders.ChangeNever(t.Context(), orders.NeverChange{By: "tests", Reason: "tests",
		Prefixes: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/32")}}); err != nil {
		t.Fatal(err)
	}
	c := *w.in.Config
	c.Console.PublicURL = "https://" + consoleHost
	var bound config.Bound
	if err := bound.UnmarshalText([]byte(bounds)); err != nil {
		t.Fatal(err)
	}
	c.Console.Bounds = []config.Bound{bound}
	for _, kind := range kinds() {
		for i := range each {
			one := person{token: hex.EncodeToString(fmt.Appendf(nil, "%s %s %d", c.Namespace, kind, i))}
			sum := sha256.Sum256([]byte(one.token))
			token := config.Token{Name: fmt.Sprintf("%s-%d", kind, i), SHA256: hex.EncodeToString(sum[:]),
				Role: []string{"", "viewer", "analyst", "owner", "admin"}[rank(kind)], Expires: "2099-01-31"}
			if of := ownersOf(kind); of != "" {
				token.Owners = []string{of}
			}
			c.Console.Tokens = append(c.Console.Tokens, token)
			w.people[kind] = append(w.people[kind], one)
		}
	}
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	s, err := server.New(t.Context(), server.Options{Config: &c, Log: slog.New(slog.DiscardHandler),
		Registerer: prometheus.NewRegistry(), Redis: w.in.Redis, Kafka: w.in.Kafka,
		Pulse: func() console.Pulse { return console.Pulse{} }, Environment: environment(&c)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	w.handler, w.routes = s.Handler(), s.Routes()
	for _, kind := range kinds() {
		for i := range w.people[kind] {
			w.people[kind][i].cookie = w.signIn(w.people[kind][i].token)
		}
	}
	return w
}

// send asks from an address of its own, which no limit of an address has counted yet.
func (w *world) send(r *http.Request) *httptest.ResponseRecorder {
	w.n++
	r.Host, r.RemoteAddr = consoleHost, fmt.Sprintf("192.%d.%d.%d:4711", w.n>>16&0xff, w.n>>8&0xff, w.n&0xff)
	out := httptest.NewRecorder()
	w.handler.ServeHTTP(out, r)
	return out
}

// signIn begins a session by the form of the sign-in.
func (w *world) signIn(token string) string {
	w.t.Helper()
	page := w.send(httptest.NewRequest(http.MethodGet, "/signin", nil))
	proof := regexp.MustCompile(`name="csrf" value="([^"]+)"`).FindStringSubmatch(page.Body.String())
	cookies := page.Result().Cookies()
	if proof == nil || len(cookies) != 1 {
		w.t.Fatalf("the page of the sign-in has no form: %d %s", page.Code, page.Body)
	}
	r := httptest.NewRequest(http.MethodPost, "/signin/token",
		strings.NewReader(url.Values{"csrf": {proof[1]}, "token": {token}}.Encode()))
	r.Header.Set("Content-Type", form)
	r.AddCookie(cookies[0])
	for _, c := range w.send(r).Result().Cookies() {
		if c.Name == "__Host-weir-session" {
			return c.Value
		}
	}
	w.t.Fatal("the form of the sign-in has begun no session")
	return ""
}

// proofOf is a session's token against forgery.
func proofOf(cookie string) string {
	h := hmac.New(sha256.New, []byte(cookie))
	h.Write([]byte("csrf"))
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil))
}

// request is an act as it is sent.
func (w *world) request(key string, a *act) *http.Request {
	method, pattern, _ := strings.Cut(key, " ")
	at := strings.NewReplacer("{rule}", a.on.rule, "{list}", a.on.rule+"-partners", "{side}", "keyed", "{partition}",
		"0").Replace(pattern)
	type_, text := form, ""
	if a.row.api {
		type_ = kind
	}
	if e := expect(a); a.bad == stale {
		text = a.row.changed(w, a.on)
	} else if e.reach != "door" && a.bad == nothing && (a.row.api || !a.on.absent()) {
		text = a.row.body(w, a.on)
	} else if text = `{"reason":"matrix"}`; !a.row.api {
		text = confirmedForm + "&rule=" + a.on.rule + "&subject=ip%3D192.0.2.1%252F32"
	}
	one := w.people["admin"][w.n%len(w.people["admin"])]
	if of := w.people[a.kind]; len(of) > 0 {
		one = of[w.n%len(of)]
	}
	proof := map[string]string{"header": proofOf(one.cookie), "field": proofOf(one.cookie),
		"another's": proofOf("another's")}[a.way.proof]
	if a.way.proof == "field" {
		text = "csrf=" + proof + "&" + text
		if a.row.api || a.bad == mistyped {
			text = fmt.Sprintf(`{"csrf":%q}`, proof)
		}
	}
	var body io.Reader = strings.NewReader(text)
	switch {
	case a.bad == malformed && a.row.api:
		body = strings.NewReader(text[:len(text)-1])
	case a.bad == malformed:
		body = strings.NewReader(text + "&more=%zz")
	case a.bad == mistyped && a.row.api:
		type_ = "text/plain"
	case a.bad == mistyped:
		type_, body = kind, strings.NewReader(`{"reason":"matrix","confirm":"yes"}`)
	case a.bad == large && a.row.api:
		body = io.MultiReader(strings.NewReader(`{"reason":"`), io.LimitReader(endless{}, 66<<20))
	case a.bad == large:
		body = io.MultiReader(strings.NewReader(text+"&more="), io.LimitReader(endless{}, 2<<20))
	}
	r := httptest.NewRequest(method, at, body)
	r.Header.Set("Content-Type", type_)
	switch a.way.bearer {
	case "own":
		r.Header.Set("Authorization", "Bearer "+one.token)
	case "wrong":
		r.Header.Set("Authorization", "Bearer "+strings.Repeat("0", 64))
	}
	if of := map[string]string{"own": one.cookie, "admin's": w.people["admin"][0].cookie}[a.way.cookie]; of != "" {
		r.Header.Set("Cookie", "__Host-weir-session="+of)
	}
	if a.way.proof == "header" || a.way.proof == "another's" {
		r.Header.Set("X-Csrf-Token", proof)
	}
	if a.way.site != "" {
		r.Header.Set("Sec-Fetch-Site", a.way.site)
	}
	if a.way.origin != "" {
		r.Header.Set("Origin", a.way.origin)
	}
	return r
}

// endless is a body that goes on.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}

// begin puts a rule into the mode from which an act changes it.
func (w *world) begin(a *act) {
	if a.row.begin != "" && !a.on.absent() && w.standing(a.on.rule).Mode != a.row.begin {
		if a.row.begin == rules.ModeOff {
			w.mode(a.on.rule, rules.ModeShadow)
		}
		w.mode(a.on.rule, a.row.begin)
	}
	if a.row.edited && !a.on.absent() {
		w.apply(a.on.document(100_000 + w.n))
	}
}

// judge asks, and compares the answer with the oracle's. It returns what was touched.
func (w *world) judge(t *testing.T, key string, a *act) touched {
	t.Helper()
	want := expect(a)
	if want.reach != "door" {
		w.begin(a)
	}
	r := w.request(key, a)
	w.sql.took()
	w.redis.took()
	got := w.send(r)
	did := touchedBy(w.sql.took(), len(w.redis.took()))
	name := fmt.Sprintf("%s as %s, %s, on %s, with %s (%s)", key, a.kind, a.way.name, a.on.rule, a.bad, want.why)
	if !slices.Contains(want.statuses, got.Code) {
		t.Errorf("%s: got %d %.200s; allowed: %v", name, got.Code, got.Body, want.statuses)
	}
	switch {
	case want.reach == "door" && !did.only("sessions", "session_keys"):
		t.Errorf("%s: it has touched %v, %v, and Redis %d times; allowed: what finds out who asks", name, did.reads,
			did.writes, did.redis)
	case want.reach == "looked" && slices.ContainsFunc(did.writes, func(n string) bool { return n != "sessions" }):
		t.Errorf("%s: it has written to %v; allowed: nothing is changed", name, did.writes)
	}
	return did
}

// TestEachActIsAnsweredAsExpected asks for each route that changes something as each role, in each way to say who asks,
// on a rule of each kind of owner, with each kind of fault, and compares with an oracle that shares nothing with the
// program. A landing has more than a thousand of them, with each pair; the night has all.
func TestEachActIsAnsweredAsExpected(t *testing.T) {
	people := 12
	if testbed.AtNight() {
		people = 250
	}
	w := newWorld(t, people)
	rows := actRows()
	keys := []string{}
	for _, route := range w.routes {
		key := route.Method + " " + route.Pattern
		switch _, ok := rows[key]; {
		case !route.CSRF() || otherwise()[key] != "":
		case !ok:
			t.Errorf("%s changes something, and has no row: which act is it, and on what?", key)
		default:
			keys = append(keys, key)
		}
	}
	if len(keys) != len(rows) {
		t.Errorf("got %d rows; allowed: %d, the routes that change something", len(rows), len(keys))
	}
	asked, audited, costs := 0, map[string]bool{}, costs{}
	ask := func(key string, a *act) {
		if a.bad == stale && a.row.changed == nil || a.on.absent() && (a.row.on == "" || a.row.absent == 0) {
			return
		}
		asked++
		did := w.judge(t, key, a)
		costs.add(t, key, a, &did)
		audited[key] = audited[key] || expect(a).reach == "done" && slices.Contains(did.writes, "audit")
	}
	for i, key := range keys {
		row := rows[key]
		if testbed.AtNight() {
			each(row, func(a *act) { ask(key, a) })
			continue
		}
		pairs(row, i, func(a *act) { ask(key, a) })
	}
	for _, key := range keys {
		if !audited[key] && !rows[key].unaudited {
			t.Errorf("%s was done, and nothing of it is in the audit trail", key)
		}
	}
	t.Logf("%d routes, %d requests", len(keys), asked)
}

// costs are the tables that are read for who may not since it is not his, by route and role.
type costs map[string][]string

// add compares: whose a rule is, and whether there is one, decides nothing about where it is looked up.
func (c costs) add(t *testing.T, key string, a *act, did *touched) {
	t.Helper()
	want := expect(a)
	if want.reach != "looked" || a.bad != nothing || a.way.name != "token" || ownersOf(a.kind) == ownersOf("bound") {
		return
	}
	key += " " + a.kind
	known, ok := c[key]
	beyond := func(n string) bool { return !slices.Contains(known, n) }
	switch {
	case !ok && !a.on.absent():
		c[key] = did.reads
	case ok && slices.ContainsFunc(did.reads, beyond), ok && !a.on.absent() && !slices.Equal(did.reads, known):
		t.Errorf("%s on %s (%s): it has read %v; allowed: %v, as of others", key, a.on.rule, want.why, did.reads, known)
	}
}

// each visits all there is.
func each(row *actRow, visit func(*act)) {
	for _, kind := range append(kinds(), "nobody") {
		for _, way := range ways() {
			for _, on := range row.targets() {
				for _, bad := range faults() {
					if (kind == "nobody") == (way.bearer == "" && way.cookie == "") {
						visit(&act{row, kind, way, on, bad})
					}
				}
			}
		}
	}
}

// pairs visits each role with each fault and each target, and each way with each target and fault, for who may.
func pairs(row *actRow, from int, visit func(*act)) {
	n := from
	each(row, func(a *act) {
		token := a.way.name == "token"
		n++
		switch {
		case token && (a.bad == nothing || n%14 == 0), n%200 == 0, a.way.name == "session, proof in the form" &&
			n%24 == 0,
			a.kind == "owner" && a.on.rule == own && a.bad != large && n%6 == 0:
			visit(a)
		}
	})
}

func (r *actRow) targets() []target {
	if r.on == "" {
		return targets()[:1]
	}
	return targets()
}
