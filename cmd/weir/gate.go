package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/replica"
	"github.com/weirhq/weir/gate"
)

func (a *app) gateCommand() *cobra.Command {
	var observe bool
	var address, file string
	c := &cobra.Command{
		Use:   "gate",
		Short: "Answer a proxy's checks from the blocklist",
		Long: `Answer a proxy's sub-requests, on one address:

  /v1/forward-auth   Traefik, Caddy: 200 for a request that may pass, 429 with Retry-After for one that a block holds
  /v1/auth-request   nginx, which knows no 429 here: 200, or 403 with X-Weir-Status: 429, which its configuration maps back

Any other path is answered like the first. docs/gate.md holds a configuration for each proxy. The whole blocklist is kept
in this process; a check asks nobody. With Redis away, known blocks hold until they expire, and nobody else is refused.

Believe the proxy, so let only the proxy reach the address. --observe lets everything pass and says in headers and metrics
what would have been refused: the first step of every roll-out. --observe-file is the way out of blocks that should not hold: for as long
as that file exists the gate observes, with Redis, Kafka and Postgres down, too.`,
		Example: "  weir gate --observe\n  weir gate --listen 127.0.0.1:9465 --redis-addresses redis-1:6379,redis-2:6379\n  weir gate --observe-file /run/weir/observe",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("observe") {
				a.sets = append(a.sets, "gate.observe="+cmd.Flag("observe").Value.String())
			}
			if cmd.Flags().Changed("observe-file") {
				a.sets = append(a.sets, "gate.observe_file="+file)
			}
			if cmd.Flags().Changed("listen") {
				a.sets = append(a.sets, "gate.listen="+address)
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.runGate(cmd.Context(), conf)
		}),
	}
	c.Flags().BoolVar(&observe, "observe", false, "let everything pass and say what would have been refused (gate.observe)")
	c.Flags().StringVar(&file, "observe-file", "", "observe while this file exists (gate.observe_file)")
	c.Flags().StringVar(&address, "listen", "", "where checks are answered (gate.listen)")
	return c
}

// runGate is weir gate.
//
//	         ┌──────────────── this process ────────────────┐
//	proxy ──▶│ 1 checks ────────▶ Gate ──▶ Replica ◀── 2 ──  │◀── Redis: snapshot, numbered deltas
//	         │                             3 /metrics …     │
//	         └──────────────────────────────────────────────┘
//
// It does not wait for Redis: a gate without its blocklist lets everything pass. The numbers are the order in which the
// parts are stopped.
func (a *app) runGate(parent context.Context, c *config) error {
	log := newLogger(c.Log, a.stderr)
	ctx, forget := untilSignal(parent, log)
	defer forget()
	registry := newRegistry()
	redis, err := openRedis(c)
	if err != nil {
		return err
	}
	defer closeAll([]func(){func() { _ = redis.Close() }})
	g, replica, err := newGate(c, redis, log, registry)
	if err != nil {
		return err
	}
	watch, err := watchObserveFile(g, c.Gate.ObserveFile)
	if err != nil {
		return err
	}
	o, err := newObserver(c, registry, log, probe{"blocklist", func(context.Context) error {
		if !replica.Ready() {
			return errors.New("the blocklist has not been loaded yet")
		}
		return nil
	}})
	if err != nil {
		return err
	}
	o.notes = append(o.notes, func() string { return lacks(replica) })
	o.notes = append(o.notes, func() string {
		if g.Observing() {
			return "observing: nobody is refused"
		}
		return ""
	})
	checks, err := listen("gate.listen", c.Gate.Listen)
	if err != nil {
		_ = o.listener.Close()
		return err
	}
	log.Info("answering forward-auth checks", "address", checks.Addr().String(), "metrics", o.listener.Addr().String(), "observe", g.Observing())
	err = serve(ctx, log, stopBudget,
		[]part{{"checks", func(ctx context.Context) error {
			defer o.stopping.Store(true)
			return serveUntil(ctx, g.Listener(checks), g.Server())
		}}},
		append(watch, part{"replica", replica.Run}),
		[]part{o.part()})
	return stopped(log, err)
}

// watchObserveFile makes the part that looks for gate.observe_file; none where that is not set.
func watchObserveFile(g *gate.Gate, path string) ([]part, error) {
	if path == "" {
		return nil, nil
	}
	file, err := gate.NewObserveFile(g, path)
	if err != nil {
		return nil, err
	}
	return []part{{"observe file", file.Run}}, nil
}

// lacks says what part of the blocklist is missing from a gate that is ready.
func lacks(replica *replica.Replica) string {
	if n := replica.Missing(); n > 0 {
		return fmt.Sprintf("blocklist: the blocks of %d of Redis's 16384 hash slots have not been read", n)
	}
	return ""
}

// newGate makes a gate and the copy of the blocklist that it asks, which has to be run.
func newGate(c *config, redis *blocklist.Store, log *slog.Logger, registry *prometheus.Registry) (*gate.Gate, *replica.Replica, error) {
	replica, err := replica.New(replica.Options{
		Store: redis, NeverBlock: c.NeverBlock, Clock: now, Logger: log, Registerer: registry,
	})
	if err != nil {
		return nil, nil, err
	}
	identifier, err := c.Identity.Compile()
	if err != nil {
		return nil, nil, &usageError{err}
	}
	g, err := gate.New(gate.Options{
		Blocklist: replica, Identifier: identifier, Observe: c.Gate.Observe, Clock: now, Logger: log, Registerer: registry,
	})
	return g, replica, err
}
