// Command apiserver is a user's own Go server with weir's middleware in front of its API. TestAUsersServerImportsGate builds it as a
// module of its own.
package main

import (
	"context"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/traffic"
)

func main() {
	if err := serve(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func serve(ctx context.Context) error {
	now := func() traffic.Time { return traffic.At(time.Now()) }
	logger, registry := slog.New(slog.NewTextHandler(os.Stderr, nil)), prometheus.NewRegistry()

	store, err := blocklist.Connect(blocklist.Server{URL: os.Getenv("REDIS_URL")}, "weir")
	if err != nil {
		return err
	}
	blocks, err := replica.New(replica.Options{Store: store, Clock: now, Logger: logger, Registerer: registry})
	if err != nil {
		return err
	}
	go func() { _ = blocks.Run(ctx) }() // it ends with ctx, and then returns nil

	identities := traffic.DefaultIdentityMap() // the one that weir reads events with
	identifier, err := identities.Compile()
	if err != nil {
		return err
	}
	g, err := gate.New(gate.Options{Blocklist: blocks, Identifier: identifier, Clock: now, Logger: logger, Registerer: registry})
	if err != nil {
		return err
	}
	api := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	return http.ListenAndServe("127.0.0.1:8080", g.Middleware(api))
}
