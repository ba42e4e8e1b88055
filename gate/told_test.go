package gate

import (
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// A case of a block that is about hosts or routes, asked through a proxy: all requests go to api.example.com.
type toldCase struct {
	name    string
	match   rules.Match
	headers [][2]string // that the client sends
	held    bool
}

// toldCases are those that all proxies agree on. Routed says whether the proxy is told to name the route orders.
func toldCases(routed bool) []toldCase {
	here, elsewhere := rules.Match{Hosts: []string{"api.example.com"}}, rules.Match{Hosts: []string{"other.example.com"}}
	orders := rules.Match{Routes: []string{"orders"}}
	claims := func(host string) [][2]string {
		return [][2]string{{"X-Forwarded-Host", host}, {"X-Original-Host", host}, {"Forwarded", "host=" + host}}
	}
	cases := []toldCase{
		{"its host", here, nil, true},
		{"all hosts below one", rules.Match{Hosts: []string{"*.example.com"}}, nil, true},
		{"another host", elsewhere, nil, false},
		{"its host, and the client claims another", here, claims("other.example.com"), true},
		{"another host, and the client claims that", elsewhere, claims("other.example.com"), false},
		{"its host, which the client has taken off", here, [][2]string{{"Connection", "X-Forwarded-Host, X-Original-Host, X-Weir-Route"}}, true},
		{"a path that is left out", rules.Match{Except: []string{"/v1/guest-tokens"}}, nil, false},
		{"another path is left out", rules.Match{Except: []string{"/v1/films"}, Hosts: []string{"api.example.com"}}, nil, true},
		{"its route", orders, nil, routed},
		{"its route, and the client claims another", orders, [][2]string{{"X-Weir-Route", "films"}}, routed},
		{"another route, and the client claims that", rules.Match{Routes: []string{"films"}}, [][2]string{{"X-Weir-Route", "films"}}, false},
		{"its route, which the client has taken off", orders, [][2]string{{"Connection", "X-Weir-Route"}}, routed},
	}
	if !routed {
		// Caddy and Traefik hand the client's own headers on: who claims a route is held by what is about it, and nobody else.
		cases = cases[:len(cases)-3]
	}
	return cases
}

// changing is a blocklist of one block, of one address, for the requests of a match that changes.
type changing struct {
	watched
	match atomic.Pointer[rules.Match]
}

func (c *changing) Find(id traffic.Identity, request rules.Target, now traffic.Time) (blocklist.Block, bool) {
	w := watched{ip: c.ip}
	if m := c.match.Load(); m != nil {
		w.match = *m
		return w.Find(id, request, now)
	}
	return blocklist.Block{}, false
}

func wantTold(t *testing.T, list *changing, cases []toldCase, ask func(c call) reply) {
	t.Helper()
	for _, tt := range cases {
		t.Run(tt.name, func(t *testing.T) {
			list.match.Store(&tt.match)
			got := ask(call{method: "POST", path: "/v1/guest-tokens", body: "x", headers: tt.headers})
			want := 201
			if tt.held {
				want = 429
			}
			if got.status != want {
				t.Errorf("got %d %q, want %d", got.status, got.body, want)
			}
		})
	}
}

func TestCaddyTellsHostAndRoute(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edit   func(string) string
		routed bool
	}{
		{"as documented", asDocumented, false},
		{"behind a proxy that hands on what clients send", func(text string) string {
			return strings.Replace(text, "\t\tmethod GET\n", "\t\tmethod GET\n\t\ttrusted_proxies 127.0.0.0/8\n", 1)
		}, false},
		{"with a route", func(text string) string {
			return strings.Replace(text, "\t\theader_up X-Forwarded-Uri {uri}\n", "\t\theader_up X-Forwarded-Uri {uri}\n\t\theader_up X-Weir-Route orders\n", 1)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := &changing{watched: watched{ip: netip.MustParseAddr(loopbackAbuser)}}
			g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) { o.Blocklist = list })
			address, _ := startCaddyBefore(t, doorOf(t, g).address, sampleAPI(t), func(text string) string { return longTimeouts(tt.edit(text)) })
			wantTold(t, list, toldCases(tt.routed), func(c call) reply {
				c.from = loopbackAbuser
				return through(t, address, c)
			})
		})
	}
}

func TestNginxTellsHostAndRoute(t *testing.T) {
	for _, tt := range []struct {
		name   string
		edit   func(string) string
		routed bool
	}{
		{"as documented", asDocumented, false},
		{"with a route", func(text string) string {
			return strings.Replace(text, "    proxy_set_header X-Original-Host   $host;\n", "    proxy_set_header X-Original-Host   $host;\n    proxy_set_header X-Weir-Route orders;\n", 1)
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := &changing{watched: watched{ip: netip.MustParseAddr(theAbuser)}}
			g := newGate(t, abuser(), func(o *Options, _ *traffic.IdentityMap) { o.Blocklist = list })
			n := startNginxBefore(t, doorOf(t, g).address, sampleAPI(t), func(text string) string { return longTimeouts(tt.edit(text)) })
			wantTold(t, list, toldCases(tt.routed), func(c call) reply {
				c.client = theAbuser
				return n.send(c)
			})
		})
	}
}
