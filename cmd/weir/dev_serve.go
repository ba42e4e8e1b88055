package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/weirhq/weir/console"
)

// devBudget is how long all parts may take to end; with devClosing it stays below the 10 s of a process.
const devBudget = 7500 * time.Millisecond

// serve runs all parts until a signal comes, or the demo has been judged.
func (d *dev) serve(ctx context.Context) error {
	d.say("starting stages, gate and console")
	var started atomic.Bool
	o, err := newObserver(d.conf, d.registry, d.log, d.in.probes()...)
	if err != nil {
		return err
	}
	closeLate := func() { _ = o.listener.Close() } // closed before: no harm
	d.closers = append(d.closers, closeLate)
	guard, replica, err := newGate(d.conf, d.in.redis, d.log, d.registry)
	if err != nil {
		return err
	}
	page, err := d.console()
	if err != nil {
		return err
	}
	waves := [][]part{
		{{"stages", func(ctx context.Context) error { return d.in.runStages(ctx, allStages(), &started) }}},
		{{"replica", replica.Run}},
		{
			{"console page", page.Run},
			{"console", func(ctx context.Context) error { return serveHTTP(ctx, d.listeners.console, page.Handler()) }},
			{"disk", d.watchDisk},
			{"PostgreSQL", d.watchPostgres},
			o.part(),
		},
	}
	ready := func(ctx context.Context) error {
		if err := d.awaitReady(ctx, replica); err != nil {
			return err
		}
		d.say("everything runs")
		return d.welcome(o.listener.Addr().String())
	}
	if d.o.noDemo {
		return d.end(serve(ctx, d.log, devBudget, append([][]part{{{"start", once(ready)}}}, waves...)...))
	}
	return d.serveDemo(ctx, guard, ready, waves)
}

// console makes the page.
func (d *dev) console() (*console.Console, error) {
	return console.New(console.Options{
		Rules: d.in.history.Rules, History: d.in.history, Blocks: d.in.redis, Pulse: d.in.working.pulse, Command: d.commandLine(),
		Clock: now, Logger: d.log, Registerer: d.registry,
	})
}

// once makes a part of work that ends by itself.
func once(work func(ctx context.Context) error) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		if err := work(ctx); err != nil {
			return unlessStopped(ctx, err)
		}
		<-ctx.Done()
		return nil
	}
}

// end reports how the run ended. Parts that were stuck are no failure of the run: what they had under way is done again
// at the next start.
func (d *dev) end(err error) error {
	var stuck *stuckError
	if err != nil && !errors.As(err, &stuck) {
		return err
	}
	if stuck != nil {
		d.log.Warn("stopped", "error", stuck)
	}
	d.say("stopped")
	return nil
}
