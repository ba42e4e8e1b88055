package main

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/ingest"
)

func runCommand(a *app) *cobra.Command {
	var stages []string
	var web consoleFlags
	c := &cobra.Command{
		Use:   "run",
		Short: "Run the stages of the stream",
		Long: `Run the stages of the stream, all of them or those of --stages, until a signal comes. Any number of processes may run any
stages; they share the partitions among them.

  route    decides who and when each request was, and which rules watch it
  detect   keeps the windows, and finds who is over
  record   writes hits and block decisions to PostgreSQL
  enforce  writes the blocks of promoted rules to Redis

A server that is away is waited for. Ctrl-C lets what is under way finish, within 10 s; a second one stops at once.`,
		Example: "  weir run\n  weir run --stages detect --http-listen 127.0.0.1:9470\n  weir run --console",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			if stages, err = parseStages(stages); err != nil {
				return err
			}
			web.by = whoami(a.environ)
			return runStages(cmd.Context(), a, conf, stages, &web)
		}),
	}
	c.Flags().BoolVar(&web.beside, "console", false, "serve the console and the API, too: see weir console")
	web.register(c)
	c.Flags().StringSliceVar(&stages, "stages", service.AllStages(), "which stages to run")
	return c
}

// runStages is weir run.
//
//	                ┌──────────────────────── this process ─────────────────────────┐
//	                │  1 route      2 detect      3 record          3 enforce        │
//	requests ───────┼──▶ Router ─┐                                                  │
//	keyed    ◀──────┼────────────┘                                                  │
//	keyed    ───────┼──────────────▶ Detector ─┐                                    │
//	hits     ◀──────┼──────────────────────────┘                                    │
//	hits     ───────┼────────────────────────────▶ HitRecorder ──▶ Postgres         │
//	hits     ───────┼───────────────────────────────────────────▶ Enforcer ──▶ Redis│
//	blocks   ◀──────┼─────────────────────────────────────────────────┘     ▲       │
//	blocks   ───────┼────────────────────────────▶ DecisionRecorder ──▶ PG  │       │
//	                │               Publisher, Reconciler ──────────────────┘       │
//	                │                 ▲ modes ── watch ── Postgres                  │
//	                │  4 metrics: /metrics /livez /readyz /v1/counters              │
//	                └────────────────────────────────────────────────────────────────┘
//
// The numbers are the order in which the parts are stopped.
func runStages(parent context.Context, a *app, c *config.Config, stages []string, beside *consoleFlags) error {
	log := service.NewLogger(c.Log, a.Stderr)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	registry := service.NewRegistry(readBuildVersion().Version, c.Namespace)
	in, err := service.Open(ctx, c, log, registry, beside.beside || slices.Contains(stages, ingest.StageEnforce))
	if err != nil {
		return err
	}
	var started atomic.Bool
	o, err := service.NewHealth(c, registry, log, append(in.Probes(), service.Probe{Name: "stages", Check: func(context.Context) error {
		if !started.Load() {
			return errors.New("the stages have not started yet")
		}
		return nil
	}})...)
	if err != nil {
		in.Close()
		return err
	}
	if err := in.AnswerCounters(o); err != nil {
		_ = o.Listener.Close()
		in.Close()
		return err
	}
	web, stopWeb, err := beside.open(ctx, c, in, registry, log, in.Pulse)
	if err != nil {
		_ = o.Listener.Close()
		in.Close()
		return err
	}
	defer stopWeb()
	does := []string{service.DoesStages}
	if beside.beside {
		does = append(does, service.DoesConsole)
	}
	clock, err := service.WatchClocks(in, readBuildVersion().Version, does...)
	if err != nil {
		_ = o.Listener.Close()
		in.Close()
		return err
	}
	log.Info("serving metrics and health", "address", o.Listener.Addr().String())
	err = service.Serve(ctx, log, service.StopTimeout,
		[]service.Part{{Name: "stages", Run: func(ctx context.Context) error {
			defer o.Stopping.Store(true)
			return in.RunStages(ctx, stages, &started)
		}}},
		append(web, clock),
		[]service.Part{o.Part()},
	)
	in.Close()
	return service.LogStopped(log, err)
}

// parseStages reads --stages.
func parseStages(names []string) ([]string, error) {
	for _, n := range names {
		if !slices.Contains(service.AllStages(), n) {
			return nil, usage.Errorf("--stages: got %q; allowed: %s", n, strings.Join(service.AllStages(), ", "))
		}
	}
	if len(names) == 0 {
		return nil, usage.Errorf("--stages: got none; allowed: %s", strings.Join(service.AllStages(), ", "))
	}
	return names, nil
}
