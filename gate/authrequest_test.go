package gate

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/traffic"
)

// asked is a sub-request of a proxy at a path of the gate.
func asked(path string, headers ...[2]string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, path, nil)
	r.RemoteAddr = "127.0.0.1:4444"
	for _, h := range headers {
		r.Header.Add(h[0], h[1])
	}
	return r
}

func TestHandlerRoutesByPath(t *testing.T) {
	nginx := [][2]string{{"X-Original-Method", "POST"}, {"X-Original-URI", "/v1/guest-tokens?free=1"}, {"X-Forwarded-For", "192.0.2.1"}}
	traefik := [][2]string{{"X-Forwarded-Method", "POST"}, {"X-Forwarded-Uri", "/v1/guest-tokens?free=1"}, {"X-Forwarded-For", "192.0.2.1"}}
	for _, tt := range []struct {
		path    string
		headers [][2]string
		want    int
	}{
		{"/v1/auth-request", nginx, 403},
		{"/v1/auth-request?x=1", nginx, 403},
		{"/v1/forward-auth", traefik, 429},
		{"/v1/forward-auth?x=1", traefik, 429},
		{"/", traefik, 429},
		{"/v1/films", traefik, 429},
		{"/v1//auth-request/../x", traefik, 429}, // no redirect, which a proxy would hand on
		{"//v1/auth-request", traefik, 429},
		{"/v1/auth-request/", traefik, 429},
		// What belongs to one protocol means nothing in the other: a client may have written it.
		{"/v1/auth-request", traefik, 200},
		{"/v1/forward-auth", nginx, 200},
		{"/", nginx, 200},
	} {
		w := httptest.NewRecorder()
		newGate(t, abuser(), nil).Handler().ServeHTTP(w, asked(tt.path, tt.headers...))
		if w.Code != tt.want {
			t.Errorf("%s with %v: got %d, want %d", tt.path, tt.headers, w.Code, tt.want)
		}
	}
	w := httptest.NewRecorder()
	r := httptest.NewRequest("POST", "/v1/guest-tokens", nil) // a proxy that asks with the request's own path
	r.RemoteAddr = "192.0.2.1:1"
	if newGate(t, abuser(), nil).Handler().ServeHTTP(w, r); w.Code != 429 {
		t.Errorf("the request itself: got %d, want 429", w.Code)
	}
}

func TestAuthRequest(t *testing.T) {
	const target = "/v1/guest-tokens"
	for _, tt := range []struct {
		name         string
		method, path string
		forwarded    string
		proxies      int
		want         int
	}{
		{name: "held", method: "POST", path: target, forwarded: "192.0.2.1", want: 403},
		{name: "another client", method: "POST", path: target, forwarded: "192.0.2.2", want: 200},
		{name: "another method", method: "GET", path: target, forwarded: "192.0.2.1", want: 200},
		{name: "another path", method: "POST", path: "/v1/films", forwarded: "192.0.2.1", want: 200},
		{name: "the abuser claims another address", method: "POST", path: target, forwarded: "203.0.113.5, 192.0.2.1", want: 403},
		{name: "somebody claims the abuser's", method: "POST", path: target, forwarded: "192.0.2.1, 203.0.113.5", want: 200},
		{name: "behind a trusted proxy", proxies: 1, method: "POST", path: target, forwarded: "192.0.2.1, 198.51.100.1", want: 403},
		{name: "no path", method: "POST", forwarded: "192.0.2.1", want: 200},
		{name: "no method", path: target, forwarded: "192.0.2.1", want: 200},
		{name: "no address", method: "POST", path: target, want: 200},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, abuser(), func(_ *Options, m *traffic.IdentityMap) { m.IP.TrustedProxies.Hops = tt.proxies })
			w := httptest.NewRecorder()
			r := asked(PathAuthRequest)
			for name, value := range map[string]string{"X-Original-Method": tt.method, "X-Original-URI": tt.path, "X-Forwarded-For": tt.forwarded, "X-Original-Host": "api.test"} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			g.AuthRequest().ServeHTTP(w, r)
			if w.Code != tt.want || w.Body.Len() != 0 {
				t.Errorf("got %d with body %q, want %d without", w.Code, w.Body, tt.want)
			}
			untold := 0.0
			if tt.method == "" || tt.path == "" {
				untold = 1
			}
			if got := testutil.ToFloat64(g.metrics.untold); got != untold {
				t.Errorf("%v checks counted as untold, want %v", got, untold)
			}
		})
	}
}

func TestAuthRequestSaysWhatNginxNeeds(t *testing.T) {
	held := [][2]string{{"X-Original-Method", "POST"}, {"X-Original-URI", "/v1/guest-tokens"}, {"X-Forwarded-For", "192.0.2.1"}}
	for _, tt := range []struct {
		name    string
		observe bool
		want    map[string]string
	}{
		{"refused", false, map[string]string{
			"X-Weir-Status": "429", "Retry-After": "91", "X-Weir-Block": "0123456789abcdef", "X-Weir-Rule": "guest-token-flood",
			"Cache-Control": "no-store", "X-Weir-Would-Block": "", "X-Weir-Would-Rule": "",
		}},
		{"observed", true, map[string]string{
			"X-Weir-Status": "", "Retry-After": "", "X-Weir-Block": "", "X-Weir-Rule": "",
			"X-Weir-Would-Block": "0123456789abcdef", "X-Weir-Would-Rule": "guest-token-flood",
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) { o.Observe = tt.observe })
			w := httptest.NewRecorder()
			g.AuthRequest().ServeHTTP(w, asked(PathAuthRequest, held...))
			if want := map[bool]int{false: 403, true: 200}[tt.observe]; w.Code != want {
				t.Errorf("got %d, want %d", w.Code, want)
			}
			for header, want := range tt.want {
				if got := w.Header().Get(header); got != want {
					t.Errorf("%s: got %q, want %q", header, got, want)
				}
			}
		})
	}
}

// FuzzAuthRequest: whatever the headers say, nginx is told yes or no, and no only for the abuser's own address.
func FuzzAuthRequest(f *testing.F) {
	f.Add("POST", "/v1/guest-tokens", "192.0.2.1")
	f.Add("POST", "/v1/guest-tokens?free=1", "203.0.113.5, [::ffff:192.0.2.1]:80")
	f.Add("", "", ",,")
	g := newGate(f, abuser(), nil)
	m := traffic.DefaultIdentityMap()
	x, err := m.Compile()
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, method, uri, forwarded string) {
		r := asked(PathAuthRequest)
		r.Header["X-Original-Method"] = []string{method}
		r.Header["X-Original-Uri"] = []string{uri}
		r.Header["X-Forwarded-For"] = []string{forwarded}
		w := httptest.NewRecorder()
		g.Handler().ServeHTTP(w, r)
		peer := strings.TrimSpace(forwarded[strings.LastIndexByte(forwarded, ',')+1:])
		id, _ := x.FromCarrier(&traffic.Carrier{Peer: peer, Header: r.Header})
		abusive := id.IP == netip.MustParseAddr("192.0.2.1") && method == "POST" &&
			(uri == "/v1/guest-tokens" || uri == "/v1/guest-tokens?free=1")
		if want := map[bool]int{false: 200, true: 403}[abusive]; w.Code != want {
			t.Errorf("%q %q of %q: got %d, want %d", method, uri, forwarded, w.Code, want)
		}
	})
}
