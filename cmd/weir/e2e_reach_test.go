package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/internal/testbed"
)

// Three rules that count by what only an answer tells, or a gateway: their blocks hold what a gate is told of, and nothing else.
const reachRules = `
id: sign-in
owner: accounts
match: {method: POST, path: [/login, /v2/login], host: "*.example.com", status: 401}
key: [ip]
limit: 3
window: 60s
block: {ttl: 10m}
---
id: orders
owner: shop
match: {route: orders@docker, except: [/v1/orders/health]}
key: [ip]
limit: 3
window: 60s
block: {ttl: 10m}
---
id: probing
owner: edge
match: {status: 404}
key: [ip]
limit: 3
window: 60s
block: {ttl: 10m, match: {host: static.example.com}}
`

// reachEvents are n events of a client, as a gateway reports them now.
func reachEvents(ip, request string, n int) string {
	var b strings.Builder
	at := time.Now().Add(-time.Duration(n) * time.Millisecond)
	for i := range n {
		fmt.Fprintf(&b, `{"v":1,"time":%q,"ip":%q,%s}`+"\n", at.Add(time.Duration(i)*time.Millisecond).UTC().Format(time.RFC3339Nano), ip, request)
	}
	return b.String()
}

func TestBlocksByHostAndRouteHoldThoseOnly(t *testing.T) {
	t.Parallel()
	b := newBed(t, testbed.RedisServer{Kind: testbed.RedisKind, URL: testbed.Redis(t)})
	b.ok("migrate")
	b.ok("rules", "apply", "-f", writeFile(t, "rules.yaml", reachRules))
	for _, rule := range []string{"sign-in", "orders", "probing"} {
		b.ok("rules", "promote", rule, "--reason", "test", "--yes", "--override", "tests")
	}
	b.start("run")
	address := b.start("gate", "--listen", "127.0.0.1:0").awaitLog(`forward-auth checks" address=(\S+)`)
	const guesser, buyer, prober, careful = "198.51.100.11", "198.51.100.12", "198.51.100.13", "198.51.100.14"
	sent := reachEvents(guesser, `"method":"POST","host":"API.example.com:443","path":"/v2/login","status":401`, 6) +
		reachEvents(buyer, `"method":"GET","route":"orders@docker","path":"/v1/orders/7","status":200`, 6) +
		reachEvents(prober, `"method":"GET","host":"shop.example.com","path":"/wp-login.php","status":404`, 6) +
		reachEvents(careful, `"method":"POST","host":"api.example.com","path":"/login","status":200`, 6) + // signs in each time
		reachEvents(careful, `"method":"POST","host":"example.com","path":"/login","status":401`, 6) + // not below example.com
		reachEvents(careful, `"method":"GET","route":"orders@docker","path":"/v1/orders/health","status":200`, 6) +
		reachEvents(careful, `"method":"GET","path":"/v1/orders/7","status":200`, 6) // by no route
	if o := b.weirWith(sent, "ingest", "-", "--format", "weir", "--live"); o.code != exitOK {
		t.Fatalf("exit code %d\n%s%s", o.code, o.stdout, o.stderr)
	}
	type asked struct{ ip, method, path, host, route string }
	ask := func(q asked, endpoint, prefix string) int {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+endpoint, nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{
			"X-Forwarded-For": q.ip, prefix + "Method": q.method, prefix + "Uri": q.path, prefix + "Host": q.host, "X-Weir-Route": q.route,
		} {
			if value != "" {
				r.Header.Set(name, value)
			}
		}
		return exchange(t, r).status
	}
	for _, held := range []asked{
		{guesser, "POST", "/login", "api.example.com", ""}, {buyer, "GET", "/any", "h", "orders@docker"}, {prober, "GET", "/", "static.example.com", ""},
	} {
		testbed.Eventually(t, 30*time.Second, func() error {
			if got := ask(held, "/v1/forward-auth", "X-Forwarded-"); got != http.StatusTooManyRequests {
				return fmt.Errorf("%+v: %d", held, got)
			}
			return nil
		})
	}
	for _, tt := range []struct {
		asked
		held bool
	}{
		{asked{guesser, "POST", "/v2/login", "www.example.com:8443", ""}, true},
		{asked{guesser, "POST", "/v2//login", "WWW.EXAMPLE.COM.", ""}, true},
		{asked{guesser, "POST", "http://api.example.com/login", "h", ""}, true},
		{asked{guesser, "POST", "/login", "example.com", ""}, false},
		{asked{guesser, "POST", "/login", "", ""}, false},
		{asked{guesser, "GET", "/login", "api.example.com", ""}, false},
		{asked{guesser, "POST", "/v3/login", "api.example.com", ""}, false},
		{asked{buyer, "DELETE", "/v1/orders/8", "", "orders@docker"}, true},
		{asked{buyer, "GET", "/v1/orders/health", "h", "orders@docker"}, false},
		{asked{buyer, "GET", "/v1/orders/7", "h", "films@docker"}, false},
		{asked{buyer, "GET", "/v1/orders/7", "h", ""}, false},
		{asked{prober, "GET", "/wp-login.php", "shop.example.com", ""}, false},
		{asked{prober, "POST", "/any", "static.example.com", "films@docker"}, true},
		{asked{careful, "POST", "/login", "api.example.com", "orders@docker"}, false},
		{asked{careful, "GET", "/v1/orders/7", "static.example.com", "orders@docker"}, false},
	} {
		if got := ask(tt.asked, "/v1/forward-auth", "X-Forwarded-"); got != http.StatusOK && got != http.StatusTooManyRequests || got == http.StatusTooManyRequests != tt.held {
			t.Errorf("forward auth, %+v: %d, held should be %v", tt.asked, got, tt.held)
		}
		if got := ask(tt.asked, "/v1/auth-request", "X-Original-"); got != http.StatusOK && got != http.StatusForbidden || got == http.StatusForbidden != tt.held {
			t.Errorf("auth request, %+v: %d, held should be %v", tt.asked, got, tt.held)
		}
	}
}
