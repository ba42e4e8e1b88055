package acceptance

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/traffic"
)

// appServer is a small Go server behind the middleware, with a copy of the blocklist of its own.
type appServer struct {
	t      *testing.T
	server *httptest.Server
}

func newAppServer(t *testing.T, in *install, redis testbed.RedisServer) *appServer {
	t.Helper()
	at := blocklist.Server{URL: redis.URL}
	if redis.Kind == testbed.RedisClusterKind {
		at = blocklist.Server{Cluster: redis.Addrs}
	}
	store, err := blocklist.Connect(at, in.ns)
	if err != nil {
		t.Fatal(err)
	}
	clock := func() traffic.Time { return traffic.At(time.Now()) }
	log, registry := slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	replica, err := replica.New(replica.Options{Store: store, Clock: clock, Logger: log, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	identities := traffic.DefaultIdentityMap()
	identities.IP.TrustedProxies.Hops = 1
	identifier, err := identities.Compile()
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Options{Blocklist: replica, Identifier: identifier, Clock: clock, Logger: log, Registerer: registry})
	if err != nil {
		t.Fatal(err)
	}
	app := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("a token")) })
	a := &appServer{t: t, server: httptest.NewServer(g.Middleware(app))}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = replica.Run(ctx) })
	t.Cleanup(func() {
		a.server.Close()
		cancel()
		running.Wait()
		_ = store.Close()
	})
	return a
}

// answers waits until the app answers a client with status.
func (a *appServer) answers(ip string, status int) {
	a.t.Helper()
	testbed.Eventually(a.t, 30*time.Second, func() error {
		req, err := http.NewRequest(http.MethodPost, a.server.URL+"/v1/guest-tokens", nil)
		if err != nil {
			return err
		}
		req.Header.Set("X-Forwarded-For", ip)
		resp, err := a.server.Client().Do(req)
		if err != nil {
			return err
		}
		defer func() { _ = resp.Body.Close() }()
		if resp.StatusCode != status {
			return fmt.Errorf("the app answers %s with %d, want %d", ip, resp.StatusCode, status)
		}
		return nil
	})
}
