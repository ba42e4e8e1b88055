package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/serving"
)

func gateCommand(a *app) *cobra.Command {
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
			return runGate(cmd.Context(), a, conf)
		}),
	}
	c.AddCommand(gateTrustCommand(a))
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
func runGate(parent context.Context, a *app, c *config.Config) error {
	log := service.NewLogger(c.Log, a.Stderr)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	registry := service.NewRegistry(readBuildVersion().Version, c.Namespace)
	redis, err := service.OpenRedis(c)
	if err != nil {
		return err
	}
	defer service.CloseAll([]func(){func() { _ = redis.Close() }})
	g, replica, err := service.NewGate(c, redis, log, registry)
	if err != nil {
		return err
	}
	watch, err := service.WatchObserveFile(g, c.Gate.ObserveFile)
	if err != nil {
		return err
	}
	clock, err := service.WatchRedisClock(redis, log, registry)
	if err != nil {
		return err
	}
	beat, err := service.Heartbeat(c, redis, g, replica, clock, readBuildVersion().Version)
	if err != nil {
		return err
	}
	o, err := service.NewHealth(c, registry, log,
		service.Probe{Name: "blocklist", Check: func(context.Context) error { return replica.Unready() }})
	if err != nil {
		return err
	}
	o.Notes = append(o.Notes, func() string { return service.MissingBlocks(replica) },
		func() string { return service.HeldBack(replica) }, func() string { return service.ForeignRedis(replica) })
	o.Notes = append(o.Notes, func() string {
		if g.Observing() {
			return "observing: nobody is refused"
		}
		return ""
	})
	checks, err := service.Listen("gate.listen", c.Gate.Listen)
	if err != nil {
		_ = o.Listener.Close()
		return err
	}
	log.Info("answering forward-auth checks", "address", checks.Addr().String(), "metrics", o.Listener.Addr().String(), "observe", g.Observing())
	err = service.Serve(ctx, log, service.StopTimeout,
		[]service.Part{{Name: "checks", Run: func(ctx context.Context) error {
			defer o.Stopping.Store(true)
			return serving.Until(ctx, g.Listener(checks), g.Server())
		}}},
		append(watch, beat, service.Part{Name: "clocks", Run: clock.Run},
			service.Part{Name: "replica", Run: replica.Run}),
		[]service.Part{o.Part()})
	return service.LogStopped(log, err)
}

func gateTrustCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "trust",
		Short: "Print what gates are configured with, so that they act on this installation's modes only",
		Long: `Print the lines of a gate's configuration by which it acts on this installation's modes alone:

  gate.modes_key      the public half of the key with which the rule store signs modes. Who may write to Redis, but
                      lacks the private half, which PostgreSQL has, cannot make a rule in shadow block at such a gate
  gate.installation   the installation's name. A gate that finds another one's in its Redis takes nothing from there

Neither is a secret. Give gates the key only once no process of an older build publishes modes any more: theirs are not
signed, and the gate holds such rules as in shadow. weir reads PostgreSQL alone for it.`,
		Example: "  weir gate trust\n  weir gate trust --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				trust, err := service.Trust(ctx, s.config, s.Store)
				if err != nil {
					return err
				}
				if a.Format == "json" {
					return a.WriteJSON(trust)
				}
				fmt.Fprintf(a.Stdout, "gate:\n  modes_key: %s\n  installation: %s\n", trust.ModesKey,
					trust.Installation)
				return nil
			})
		}),
	}
}
