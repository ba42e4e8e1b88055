package gate

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const start = traffic.Time(1_800_000_000_000_000)

// held is a blocklist of one block, of one address, for POST /v1/guest-tokens.
type held struct {
	ip    netip.Addr
	until traffic.Time
	ready bool
	gone  bool // the rule does not block any more
}

func (h *held) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	if id.IP != h.ip || request.Method != "POST" || request.Path != "/v1/guest-tokens" && request.Path != "/v1/guest-tokens?free=1" || now >= h.until {
		return blocklist.Block{}, false
	}
	return blocklist.Block{Rule: "guest-token-flood", Hit: "0123456789abcdef0123456789abcdef", Until: h.until, Scope: "match"}, true
}

func (h *held) Ready() bool { return h.ready }

func (h *held) Rules() []string {
	if h.gone {
		return nil
	}
	return []string{"guest-token-flood"}
}

var _ Blocklist = (*held)(nil)

func newGate(t testing.TB, list Blocklist, change func(o *Options, m *traffic.IdentityMap)) *Gate {
	t.Helper()
	m := traffic.DefaultIdentityMap()
	o := Options{
		Blocklist: list, Clock: func() traffic.Time { return start },
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)), Registerer: prometheus.NewRegistry(),
	}
	if change != nil {
		change(&o, &m)
	}
	id, err := m.Compile()
	if err != nil {
		t.Fatal(err)
	}
	o.Identifier = id
	g, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func abuser() *held {
	return &held{ip: netip.MustParseAddr("192.0.2.1"), until: start.Add(90*time.Second + time.Millisecond), ready: true}
}

func TestForwardAuth(t *testing.T) {
	const target = "/v1/guest-tokens"
	tests := []struct {
		name    string
		method  string // of the sub-request
		url     string
		remote  string
		headers [][2]string
		proxies int // trusted
		want    int
	}{
		{name: "as Traefik and Caddy ask", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target + "?free=1"}, {"X-Forwarded-For", "192.0.2.1"}}, want: 429},
		{name: "another client", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.2"}}, want: 200},
		{name: "another method", headers: [][2]string{{"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1"}}, want: 200},
		{name: "another path", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", "/v1/films"}, {"X-Forwarded-For", "192.0.2.1"}}, want: 200},
		{name: "no forwarded headers: the sub-request itself", method: "POST", url: target, remote: "192.0.2.1:1234", want: 429},
		{name: "the method of the sub-request does not count", method: "POST", headers: [][2]string{{"X-Forwarded-Method", "GET"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1"}}, want: 200},
		{name: "the abuser claims another address", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "203.0.113.5, 192.0.2.1"}}, want: 429},
		{name: "in a line of its own", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "203.0.113.5"}, {"X-Forwarded-For", "192.0.2.1"}}, want: 429},
		{name: "somebody claims the abuser's address", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1, 203.0.113.5"}}, want: 200},
		{name: "behind a trusted proxy", proxies: 1, headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "203.0.113.5, 192.0.2.1, 198.51.100.1"}}, want: 429},
		{name: "behind a trusted proxy, with a claim", proxies: 1, headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1, 203.0.113.5, 198.51.100.1"}}, want: 200},
		{name: "a chain that is too short passes", proxies: 1, headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1"}}, want: 200},
		{name: "no address at all passes", remote: "192.0.2.1:1", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", ""}}, want: 200},
		{name: "rubbish passes", headers: [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", target}, {"X-Forwarded-For", "192.0.2.1\x00, ,,"}}, want: 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, abuser(), func(_ *Options, m *traffic.IdentityMap) { m.IP.TrustedProxies.Hops = tt.proxies })
			method, url := tt.method, tt.url
			if method == "" {
				method = "GET"
			}
			if url == "" {
				url = "/"
			}
			r := httptest.NewRequest(method, url, nil)
			r.RemoteAddr = "198.51.100.200:4444"
			if tt.remote != "" {
				r.RemoteAddr = tt.remote
			}
			for _, h := range tt.headers {
				r.Header.Add(h[0], h[1])
			}
			w := httptest.NewRecorder()
			g.ForwardAuth().ServeHTTP(w, r)
			if w.Code != tt.want {
				t.Errorf("got %d, want %d", w.Code, tt.want)
			}
		})
	}
}

func TestRefusal(t *testing.T) {
	g := newGate(t, abuser(), nil)
	served := 0
	server := httptest.NewUnstartedServer(g.Middleware(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served++ })))
	for name, handler := range map[string]http.Handler{"middleware": server.Config.Handler, "forward auth": g.ForwardAuth()} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest("POST", "/v1/guest-tokens", nil)
			r.RemoteAddr = "192.0.2.1:1234"
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, r)
			if w.Code != 429 {
				t.Fatalf("status %d", w.Code)
			}
			for header, want := range map[string]string{
				"Content-Type": "application/problem+json", "Retry-After": "91", "Cache-Control": "no-store",
				"X-Weir-Block": "0123456789abcdef", "X-Weir-Rule": "guest-token-flood", "X-Weir-Would-Block": "",
			} {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s: got %q, want %q", header, got, want)
				}
			}
			var p map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
				t.Fatal(err)
			}
			if p["type"] != "https://iana.org/assignments/http-problem-types#abnormal-usage-detected" || p["status"] != 429.0 ||
				p["block"] != "0123456789abcdef" || p["title"] == "" || len(p) != 5 {
				t.Errorf("problem: %v", p)
			}
		})
	}
	if served != 0 {
		t.Errorf("the handler behind the middleware was called %d times", served)
	}
	for _, by := range []string{"forward_auth", "http"} {
		if n := decided(t, g, by, "refuse", "guest-token-flood"); n != 1 {
			t.Errorf("%v refusals by %s counted, want 1", n, by)
		}
	}
}

func TestMiddlewareServesOthers(t *testing.T) {
	g := newGate(t, abuser(), nil)
	handler := g.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) }))
	for _, tt := range []struct {
		name, remote, forwarded string
		want                    int
	}{
		{"the abuser", "192.0.2.1:1", "", 429},
		{"the abuser, with a claimed address", "192.0.2.1:1", "203.0.113.5", 429},
		{"another client", "192.0.2.2:1", "", 418},
		{"another client that claims the abuser's address", "192.0.2.2:1", "192.0.2.1", 418},
		{"no address", "", "", 418},
		{"no such address", "@", "", 418},
	} {
		r := httptest.NewRequest("POST", "/v1/guest-tokens", nil)
		r.RemoteAddr = tt.remote
		if tt.forwarded != "" {
			r.Header.Set("X-Forwarded-For", tt.forwarded)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if w.Code != tt.want {
			t.Errorf("%s: got %d, want %d", tt.name, w.Code, tt.want)
		}
	}
}

func TestObserveLetsPassAndSaysSo(t *testing.T) {
	g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) { o.Observe = true })
	r := httptest.NewRequest("POST", "/v1/guest-tokens", nil)
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	g.ForwardAuth().ServeHTTP(w, r)
	if w.Code != 200 || w.Header().Get("X-Weir-Would-Block") != "0123456789abcdef" || w.Header().Get("X-Weir-Would-Rule") != "guest-token-flood" {
		t.Errorf("got %d with %v", w.Code, w.Header())
	}
	if w.Header().Get("X-Weir-Block") != "" || w.Header().Get("X-Weir-Rule") != "" || w.Header().Get("Retry-After") != "" {
		t.Errorf("an observing gate gives a verdict: %v", w.Header())
	}
	would, refused := decided(t, g, "forward_auth", "would_refuse", "guest-token-flood"), decided(t, g, "forward_auth", "refuse", "guest-token-flood")
	if would != 1 || refused != 0 {
		t.Errorf("%v would-be refusals and %v refusals counted, want 1 and 0", would, refused)
	}
}

func TestNothingIsRefusedBeforeTheBlocklistIsLoaded(t *testing.T) {
	list := abuser()
	list.ready = false
	g := newGate(t, list, nil)
	r := httptest.NewRequest("POST", "/v1/guest-tokens", nil)
	r.RemoteAddr = "192.0.2.1:1"
	w := httptest.NewRecorder()
	g.ForwardAuth().ServeHTTP(w, r)
	if n := decided(t, g, "forward_auth", "fail_open", ""); w.Code != 200 || n != 1 {
		t.Errorf("got %d, and %v requests counted as unjudged", w.Code, n)
	}
}

func TestRetryAfterIsRoundedUp(t *testing.T) {
	for left, want := range map[time.Duration]string{
		time.Microsecond: "1", time.Second: "1", time.Second + time.Microsecond: "2", time.Hour: "3600", 0: "1", -time.Second: "1",
	} {
		if got := retryAfter(left); got != want {
			t.Errorf("%s: got %s, want %s", left, got, want)
		}
	}
}

func TestOptionsAreRequired(t *testing.T) {
	if _, err := New(Options{}); err == nil {
		t.Error("a gate without a blocklist was made")
	}
	g := newGate(t, abuser(), nil)
	if _, err := New(g.o); err == nil {
		t.Error("two gates share one registry's metrics")
	}
}

// FuzzForwardAuth: whatever the headers say, a gate answers 200 or 429, and 429 only for the abuser's own address.
func FuzzForwardAuth(f *testing.F) {
	f.Add("POST", "/v1/guest-tokens", "192.0.2.1")
	f.Add("POST", "/v1/guest-tokens", "203.0.113.5, [::ffff:192.0.2.1]:80")
	f.Add("", "", ",,")
	g := newGate(f, abuser(), nil)
	f.Fuzz(func(t *testing.T, method, uri, forwarded string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Header["X-Forwarded-Method"] = []string{method}
		r.Header["X-Forwarded-Uri"] = []string{uri}
		r.Header["X-Forwarded-For"] = []string{forwarded}
		w := httptest.NewRecorder()
		g.ForwardAuth().ServeHTTP(w, r)
		switch w.Code {
		case 200:
		case 429:
			peer, _ := splitChain([]string{forwarded})
			m := traffic.DefaultIdentityMap()
			x, err := m.Compile()
			if err != nil {
				t.Fatal(err)
			}
			if id, _ := x.FromCarrier(&traffic.Carrier{Peer: peer, Header: r.Header}); id.IP != netip.MustParseAddr("192.0.2.1") {
				t.Errorf("429 for the chain %q", forwarded)
			}
		default:
			t.Errorf("status %d", w.Code)
		}
	})
}

// BenchmarkCheck is a whole check with the default identity map, over a blocklist that costs nothing.
func BenchmarkCheck(b *testing.B) {
	g := newGate(b, abuser(), nil)
	requests := make([]Request, 256)
	for i := range requests {
		header := http.Header{"X-Device-Id": {"device-" + strconv.Itoa(i)}, "User-Agent": {"bench"}}
		requests[i] = Request{Method: "POST", Path: "/v1/guest-tokens", From: traffic.Carrier{Peer: fmt.Sprintf("192.0.2.%d:4321", i), Header: header}}
	}
	b.ReportAllocs()
	blocked, rounds := 0, 0
	for b.Loop() {
		if g.Check(&requests[rounds%len(requests)]).Blocked {
			blocked++
		}
		rounds++
	}
	if want := rounds / len(requests); blocked < want || blocked > want+1 {
		b.Fatalf("%d of %d requests were blocked, want one of each %d", blocked, rounds, len(requests))
	}
}
