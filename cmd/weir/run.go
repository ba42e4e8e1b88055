package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
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
	web, stopWeb, err := beside.open(c, in, registry, log, in.Pulse)
	if err != nil {
		_ = o.Listener.Close()
		in.Close()
		return err
	}
	defer stopWeb()
	log.Info("serving metrics and health", "address", o.Listener.Addr().String())
	err = service.Serve(ctx, log, service.StopTimeout,
		[]service.Part{{Name: "stages", Run: func(ctx context.Context) error {
			defer o.Stopping.Store(true)
			return in.RunStages(ctx, stages, &started)
		}}},
		web,
		[]service.Part{o.Part()},
	)
	in.Close()
	return service.LogStopped(log, err)
}

// consoleFlags say where the console is served.
type consoleFlags struct {
	beside bool // beside the stages
	listen string
}

func (f *consoleFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.listen, "console-listen", "", "where the console is served (default: console.listen)")
}

// open makes the parts that serve the console, none where it is not asked for; the function gives back what they opened. pulse is asked of
// the stages in this process; nil: they are elsewhere.
func (f *consoleFlags) open(c *config.Config, in *service.Installation, registry *service.Registry, log *slog.Logger, pulse func() console.Pulse) ([]service.Part, func(), error) {
	if !f.beside {
		return nil, func() {}, nil
	}
	s, err := server.New(server.Options{
		Config: c, Log: log, Registerer: registry, History: in.History, Redis: in.Redis, Kafka: in.Kafka, Pulse: pulse, Version: readBuildVersion().Version,
		Environment: func(warn func(rules.Problem)) (rules.Environment, error) { return ruleEnvironment(c, warn) },
	})
	if err != nil {
		return nil, nil, err
	}
	l, err := s.Listen(f.listen)
	if err != nil {
		s.Close()
		return nil, nil, err
	}
	log.Info("serving the console", "address", l.Addr().String())
	return s.Parts(l), s.Close, nil
}

func consoleCommand(a *app) *cobra.Command {
	f := consoleFlags{beside: true}
	c := &cobra.Command{
		Use:   "console",
		Short: "Serve the console and the API of an installation",
		Long: `Serve the console and the API of an installation until a signal comes: pages for people who sign in, /api/v1 for programs and for other
commands of weir with --server. Any number of processes may; they share sessions. The stages need not run in this process or on this machine:
their lags are read from Kafka, and what only their processes count is shown as not known. weir run --console serves the same beside the stages.

Who may do what is set in the section console of weir.yaml: see docs/access.md.`,
		Example: "  weir console\n  weir console --console-listen 127.0.0.1:9466 --http-listen 127.0.0.1:9471",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return runConsole(cmd.Context(), a, conf, &f)
		}),
	}
	f.register(c)
	return c
}

// runConsole is weir console. It starts also while servers are away: it says so to who looks.
func runConsole(parent context.Context, a *app, c *config.Config, f *consoleFlags) error {
	log := service.NewLogger(c.Log, a.Stderr)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	registry := service.NewRegistry(readBuildVersion().Version, c.Namespace)
	in, err := service.Open(ctx, c, log, registry, true)
	if err != nil {
		return err
	}
	defer in.Close()
	o, err := service.NewHealth(c, registry, log, in.Probes()...)
	if err != nil {
		return err
	}
	web, stopWeb, err := f.open(c, in, registry, log, nil)
	if err != nil {
		_ = o.Listener.Close()
		return err
	}
	defer stopWeb()
	log.Info("serving metrics and health", "address", o.Listener.Addr().String())
	web = append(web, service.Part{Name: "readiness", Run: func(ctx context.Context) error {
		<-ctx.Done()
		o.Stopping.Store(true)
		return nil
	}})
	return service.LogStopped(log, service.Serve(ctx, log, service.StopTimeout, web, []service.Part{o.Part()}))
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
