package main

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/history"
)

func (a *app) runCommand() *cobra.Command {
	var stages []string
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
		Example: "  weir run\n  weir run --stages detect --http-listen 127.0.0.1:9470",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			if stages, err = parseStages(stages); err != nil {
				return err
			}
			return a.runStages(cmd.Context(), conf, stages)
		}),
	}
	c.Flags().StringSliceVar(&stages, "stages", allStages(), "which stages to run")
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
//	                │               ModePublisher, Reconciler ──────────────┘       │
//	                │                 ▲ modes ── watch ── Postgres                  │
//	                │  4 metrics: /metrics /livez /readyz                           │
//	                └────────────────────────────────────────────────────────────────┘
//
// The numbers are the order in which the parts are stopped.
func (a *app) runStages(parent context.Context, c *config, stages []string) error {
	log := newLogger(c.Log, a.stderr)
	ctx, forget := untilSignal(parent, log)
	defer forget()
	registry := newRegistry()
	in, err := open(ctx, c, log, registry, slices.Contains(stages, stageEnforce))
	if err != nil {
		return err
	}
	var started atomic.Bool
	o, err := newObserver(c, registry, log, append(in.probes(), probe{"stages", func(context.Context) error {
		if !started.Load() {
			return errors.New("the stages have not started yet")
		}
		return nil
	}})...)
	if err != nil {
		in.close()
		return err
	}
	log.Info("serving metrics and health", "address", o.listener.Addr().String())
	err = serve(ctx, log, stopBudget,
		[]part{{name: "stages", run: func(ctx context.Context) error {
			defer o.stopping.Store(true)
			return in.runStages(ctx, stages, &started)
		}}},
		[]part{o.part()},
	)
	in.close()
	return stopped(log, err)
}

// runStages waits for the servers, makes the stages and runs them.
func (in *installation) runStages(ctx context.Context, stages []string, started *atomic.Bool) error {
	if err := in.wait(ctx, forEver); err != nil {
		return unlessStopped(ctx, err)
	}
	waves, err := in.stages(ctx, stages)
	if err != nil {
		return unlessStopped(ctx, err)
	}
	started.Store(true)
	in.log.Info("running", "stages", stages, "namespace", in.conf.Namespace, "generation", in.stream.Generation)
	return serve(ctx, in.log, stageBudget, waves...)
}

// unlessStopped drops the errors of what a signal has cut short.
func unlessStopped(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// stages makes the parts of the stages asked for, in waves: route before detect before those that read hits.
func (in *installation) stages(ctx context.Context, stages []string) ([][]part, error) {
	if err := in.enter(ctx, history.Live, in.conf.topicSettings()); err != nil {
		return nil, err
	}
	if _, err := in.checkRouting(ctx); err != nil {
		return nil, err
	}
	waves := make([][]part, 3)
	if slices.Contains(stages, stageRoute) {
		r, err := in.router()
		if err != nil {
			return nil, err
		}
		waves[0] = append(waves[0], part{stageRoute, r.Run}, part{"watch routing versions", func(ctx context.Context) error {
			in.history.Rules.WatchRoutings(ctx, r.RoutingsChanged)
			return nil
		}})
	}
	if slices.Contains(stages, stageDetect) {
		d, err := in.detector()
		if err != nil {
			return nil, err
		}
		waves[1] = append(waves[1], part{stageDetect, d.Run})
	}
	sinks, err := in.sinks(stages)
	waves[2] = sinks
	return waves, err
}

// sinks makes what reads hits and decisions.
func (in *installation) sinks(stages []string) ([]part, error) {
	var parts []part
	if slices.Contains(stages, stageRecord) {
		hits, err := in.recordHits()
		if err != nil {
			return nil, err
		}
		decisions, err := in.recordDecisions()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{stageRecord, hits.Run}, part{recordBlocks, decisions.Run})
	}
	if slices.Contains(stages, stageEnforce) {
		e, err := in.enforcement()
		if err != nil {
			return nil, err
		}
		parts = append(parts, part{stageEnforce, e.consumer.Run}, part{"publish modes", e.publisher.Run},
			part{"reconcile", e.reconciler.Run}, part{"watch modes", func(ctx context.Context) error {
				in.history.Rules.WatchModes(ctx, e.modesChanged)
				return nil
			}})
	}
	return parts, nil
}

// stopped logs and reports how a process ended.
func stopped(log *slog.Logger, err error) error {
	if err == nil {
		log.Info("stopped")
	}
	return err
}
