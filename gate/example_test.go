package gate_test

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// oneBlock holds one user. A server has a replica.Replica in its place, which follows the blocks in Redis.
type oneBlock struct {
	user  string
	block blocklist.Block
}

func (b oneBlock) Find(id traffic.Identity, _ rules.Target, now traffic.Time) (blocklist.Block, bool) {
	return b.block, id.User == b.user && b.block.Until > now
}

func (b oneBlock) Ready() bool { return true }

func (b oneBlock) Rules() []string { return []string{b.block.Rule} }

// newExample makes a gate that refuses mallory until two minutes after eight.
func newExample() *gate.Gate {
	eight := traffic.At(time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC))
	identities := traffic.DefaultIdentityMap()
	identifier, err := identities.Compile()
	if err != nil {
		panic(err)
	}
	g, err := gate.New(gate.Options{
		Blocklist: oneBlock{"mallory", blocklist.NewBlock("login-burst", 1, "6b1d4c0f2a9e8d7c5b3a190817263544",
			eight.Add(-time.Minute), eight.Add(2*time.Minute))},
		Identifier: identifier, Clock: func() traffic.Time { return eight },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		panic(err)
	}
	return g
}

func ExampleGate_Middleware() {
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, "welcome") })
	server := newExample().Middleware(api)

	for _, user := range []string{"alice", "mallory"} {
		request := httptest.NewRequest(http.MethodPost, "/login", nil)
		request.Header.Set("X-User-Id", user)
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, request)
		fmt.Printf("%s: %d, retry after %q s, block %q\n", user, answer.Code, answer.Header().Get("Retry-After"), answer.Header().Get(gate.HeaderBlock))
	}
	// Output:
	// alice: 200, retry after "" s, block ""
	// mallory: 429, retry after "120" s, block "6b1d4c0f2a9e8d7c"
}

// A proxy asks about a request before it passes the request on: Caddy's forward_auth, Traefik's ForwardAuth.
func ExampleGate_ForwardAuth() {
	endpoint := newExample().ForwardAuth()

	question := httptest.NewRequest(http.MethodGet, "/", nil)
	question.Header.Set("X-Forwarded-Method", "POST")
	question.Header.Set("X-Forwarded-Uri", "/login?next=/")
	question.Header.Set("X-Forwarded-For", "198.51.100.7")
	question.Header.Set("X-User-Id", "mallory")
	answer := httptest.NewRecorder()
	endpoint.ServeHTTP(answer, question)
	fmt.Println(answer.Code, answer.Header().Get(gate.HeaderRule))
	// Output:
	// 429 login-burst
}
