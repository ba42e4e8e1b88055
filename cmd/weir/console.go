package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/people"
	"github.com/weirhq/weir/cmd/weir/internal/server"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/rules"
)

// consoleFlags say where the console is served.
type consoleFlags struct {
	beside bool // beside the stages
	listen string
	by     string // who everybody is with console.local_admin
}

func (f *consoleFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.listen, "console-listen", "", "where the console is served (default: console.listen)")
}

// open makes the parts that serve the console, none where it is not asked for; the function gives back what they
// opened. pulse is asked of the stages in this process; nil: they are elsewhere.
func (f *consoleFlags) open(ctx context.Context, c *config.Config, in *service.Installation,
	registry *service.Registry, log *slog.Logger, pulse func() console.Pulse) ([]service.Part, func(), error) {
	if !f.beside {
		return nil, func() {}, nil
	}
	var local *access.Actor
	if c.Console.LocalAdmin {
		local = &access.Actor{Name: f.by, Role: access.Admin, Via: access.ViaLocal}
	}
	s, err := server.New(ctx, server.Options{
		Config: c, Log: log, Registerer: registry, Redis: in.Redis, Kafka: in.Kafka,
		Pulse: pulse, Local: local, Version: readBuildVersion().Version,
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

weir console invite lets the first person in. Who else may do what is set in the section console of weir.yaml: see docs/access.md.`,
		Example: "  weir console\n  weir console --console-listen 127.0.0.1:9466 --http-listen 127.0.0.1:9471\n  weir console invite",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			f.by = whoami(a.environ)
			return runConsole(cmd.Context(), a, conf, &f)
		}),
	}
	f.register(c)
	c.AddCommand(people.Commands(people.Program{
		Output: &a.Output, Does: a.does,
		WithSessions: func(cmd *cobra.Command, work func(context.Context, *people.Installation) error) error {
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				return work(ctx, &people.Installation{Sessions: sessions.New(s.DB), Console: &s.config.Console})
			})
		},
		By: func(c *cobra.Command) func() (by, reason string) {
			var act actFlags
			act.register(c, a.environ)
			return func() (by, reason string) { return act.by, act.reason }
		},
	})...)
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
	if err := in.RefuseForeign(ctx); err != nil {
		return err
	}
	o, err := service.NewHealth(c, registry, log, in.Probes()...)
	if err != nil {
		return err
	}
	web, stopWeb, err := f.open(ctx, c, in, registry, log, nil)
	if err != nil {
		_ = o.Listener.Close()
		return err
	}
	defer stopWeb()
	clock, err := service.WatchClocks(in, readBuildVersion().Version, service.DoesConsole)
	if err != nil {
		_ = o.Listener.Close()
		return err
	}
	log.Info("serving metrics and health", "address", o.Listener.Addr().String())
	web = append(web, clock, service.Part{Name: "readiness", Run: func(ctx context.Context) error {
		<-ctx.Done()
		o.Stopping.Store(true)
		return nil
	}})
	return service.LogStopped(log, service.Serve(ctx, log, service.StopTimeout, web, []service.Part{o.Part()}))
}
