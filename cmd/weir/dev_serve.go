package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console"
)

// devBudget is how long all parts may take to end; with devClosing it stays below the 10 s of a process.
const devBudget = 7500 * time.Millisecond

// serve runs all parts until a signal comes, or the demo has been judged.
func (d *dev) serve(ctx context.Context) error {
	d.say("starting stages, gate and console")
	var started atomic.Bool
	o, err := service.NewHealth(d.conf, d.registry, d.log, d.in.Probes()...)
	if err != nil {
		return err
	}
	closeLate := func() { _ = o.Listener.Close() } // closed before: no harm
	d.closers = append(d.closers, closeLate)
	guard, replica, err := service.NewGate(d.conf, d.in.Redis, d.log, d.registry)
	if err != nil {
		return err
	}
	page, err := d.console()
	if err != nil {
		return err
	}
	waves := [][]service.Part{
		{{Name: "stages", Run: func(ctx context.Context) error { return d.in.RunStages(ctx, service.AllStages(), &started) }}},
		{{Name: "replica", Run: replica.Run}},
		{
			{Name: "console page", Run: page.Run},
			{Name: "console", Run: func(ctx context.Context) error { return service.ServeHTTP(ctx, d.listeners.console, page.Handler()) }},
			{Name: "disk", Run: d.watchDisk},
			{Name: "PostgreSQL", Run: d.watchPostgres},
			o.Part(),
		},
	}
	ready := func(ctx context.Context) error {
		if err := d.awaitReady(ctx, replica); err != nil {
			return err
		}
		d.say("everything runs")
		return d.welcome(o.Listener.Addr().String())
	}
	if d.o.noDemo {
		return d.end(service.Serve(ctx, d.log, devBudget, append([][]service.Part{{{Name: "start", Run: once(ready)}}}, waves...)...))
	}
	return d.serveDemo(ctx, guard, ready, waves)
}

// console makes the page.
func (d *dev) console() (*console.Console, error) {
	return console.New(console.Options{
		Rules: d.in.History.Rules, History: d.in.History, Blocks: d.in.Redis, Pulse: d.in.Pulse, Command: d.commandLine(),
		Clock: service.Now, Logger: d.log, Registerer: d.registry,
	})
}

// once makes a part of work that ends by itself.
func once(work func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return service.UnlessStopped(ctx, err)
		}
		<-ctx.Done()
		return nil
	}
}

// end reports how the run ended. Parts that were stuck are no failure of the run: what they had under way is done again
// at the next start.
func (d *dev) end(err error) error {
	var stuck *service.StuckError
	if err != nil && !errors.As(err, &stuck) {
		return err
	}
	if stuck != nil {
		d.log.Warn("stopped", "error", stuck)
	}
	d.say("stopped")
	return nil
}
