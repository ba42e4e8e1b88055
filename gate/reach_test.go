package gate

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// TestABlockOfHostsAndRoutes asks each protocol about a block that is about a host, a route, or all but some paths. What a gate
// is not told, no block that is about it holds.
func TestABlockOfHostsAndRoutes(t *testing.T) {
	type headers = [][2]string
	from := [2]string{"X-Forwarded-For", "192.0.2.1"}
	host, route := rules.Match{Hosts: []string{"*.example.com"}}, rules.Match{Routes: []string{"orders@docker"}}
	except := rules.Match{Except: []string{"/health"}}
	for _, tt := range []struct {
		name    string
		match   rules.Match
		path    string // of the gate
		headers headers
		held    bool
	}{
		{"nginx tells the host", host, PathAuthRequest, headers{from, {"X-Original-URI", "/"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "API.example.com:80"}}, true},
		{"another host", host, PathAuthRequest, headers{from, {"X-Original-URI", "/"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "example.com"}}, false},
		{"no host", host, PathAuthRequest, headers{from, {"X-Original-URI", "/"}, {"X-Original-Method", "GET"}}, false},
		{"the header of another protocol", host, PathAuthRequest, headers{from, {"X-Original-URI", "/"}, {"X-Original-Method", "GET"}, {"X-Forwarded-Host", "api.example.com"}}, false},
		{"the absolute form of another host", host, PathAuthRequest, headers{from, {"X-Original-URI", "http://api.example.com/"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "x.test"}}, true},
		{"Caddy and Traefik", host, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/"}, {"X-Forwarded-Method", "GET"}, {"X-Forwarded-Host", "api.example.com"}}, true},
		{"their sub-request's own host", host, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/"}, {"X-Forwarded-Method", "GET"}, {"Host", "api.example.com"}}, false},
		{"a proxy that asks with the request itself", host, "/any", headers{from, {"Host", "api.example.com"}}, true},
		{"and tells another host", host, "/any", headers{from, {"Host", "api.example.com"}, {"X-Forwarded-Host", "x.test"}}, false},
		{"nginx tells the route", route, PathAuthRequest, headers{from, {"X-Original-URI", "/"}, {"X-Original-Method", "GET"}, {"X-Original-Host", "h"}, {"X-Weir-Route", "orders@docker"}}, true},
		{"Traefik tells the route", route, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/"}, {"X-Forwarded-Method", "GET"}, {"X-Weir-Route", "orders@docker"}}, true},
		{"another route", route, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/"}, {"X-Forwarded-Method", "GET"}, {"X-Weir-Route", "films@docker"}}, false},
		{"no route", route, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/"}, {"X-Forwarded-Method", "GET"}}, false},
		{"what is left out", except, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/health"}, {"X-Forwarded-Method", "GET"}}, false},
		{"what is spelled as if it were", except, "/v1/forward-auth", headers{from, {"X-Forwarded-Uri", "/health/../v1/x"}, {"X-Forwarded-Method", "GET"}}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) {
				o.Blocklist = &watched{ip: netip.MustParseAddr("192.0.2.1"), match: tt.match}
			})
			server := httptest.NewUnstartedServer(g.Handler())
			server.Listener = g.Listener(server.Listener)
			server.Start()
			defer server.Close()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = "gate.test"
			for _, h := range tt.headers {
				if h[0] == "Host" {
					r.Host = h[1]
				} else {
					r.Header.Add(h[0], h[1])
				}
			}
			answer, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close() // it is read no more
			if held := answer.StatusCode != http.StatusOK; held != tt.held {
				t.Errorf("got %d, held should be %v", answer.StatusCode, tt.held)
			}
		})
	}
}

func TestTheMiddlewareKnowsHostAndRoute(t *testing.T) {
	for _, tt := range []struct {
		name, target, host string
		held               bool
	}{
		{"both", "/x", "api.test:8080", true},
		{"another host", "/x", "x.test", false},
		{"another route", "/y", "api.test", false},
		{"an absolute form", "http://api.test/x", "x.test", true},
	} {
		g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) {
			o.Blocklist = &watched{ip: netip.MustParseAddr("192.0.2.1"), match: rules.Match{Hosts: []string{"api.test"}, Routes: []string{"x"}}}
			o.Route = func(r *http.Request) string { return r.URL.Path[1:] }
		})
		r := httptest.NewRequest(http.MethodGet, tt.target, nil)
		r.RemoteAddr, r.Host = "192.0.2.1:1", tt.host
		w := httptest.NewRecorder()
		g.Middleware(http.NotFoundHandler()).ServeHTTP(w, r)
		if held := w.Code == http.StatusTooManyRequests; held != tt.held {
			t.Errorf("%s: got %d, held should be %v", tt.name, w.Code, tt.held)
		}
	}
}
