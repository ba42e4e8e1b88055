package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/rules"
)

const (
	// demoRound is how long a round of the demo takes when nobody judges it: the next one has clients of its own.
	demoRound = 30 * time.Second
	// demoAppend bounds one append of the gateway's events: to wait for a busy machine costs less than to lose them.
	demoAppend = 30 * time.Second
	// demoFlush is what the gateway has at the end for events that wait.
	demoFlush = time.Second
)

func (d *dev) demoRules() []rules.File {
	return []rules.File{{Name: "the demo's rules", Src: hooked(d.hooks.rules, demo.Rules())}}
}

// serveDemo runs the demo's gateway and traffic before all else.
func (d *dev) serveDemo(ctx context.Context, guard *gate.Gate, ready func(context.Context) error, waves [][]service.Part) error {
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	ledger := 1 // nobody asks for it
	if d.o.exit {
		ledger = 0 // the default
	}
	g, err := demo.NewGateway(demo.GatewayOptions{
		Guard: hooked[demo.Guard](d.hooks.guard, guard), Emit: hooked(d.hooks.emit, d.emitTo(d.names.Requests)), Clock: service.Now, Ledger: ledger,
		Logger: d.log, Registerer: d.registry,
	})
	if err != nil {
		return err
	}
	gateway := service.Part{Name: "gateway", Run: func(ctx context.Context) error {
		err := service.ServeHTTP(ctx, d.listeners.gateway, g.Handler())
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoFlush)
		defer cancel()
		return errors.Join(err, g.Close(last))
	}}
	traffic := service.Part{Name: "demo", Run: once(func(ctx context.Context) error {
		if err := ready(ctx); err != nil {
			return err
		}
		if !d.o.exit {
			return d.playDemo(ctx)
		}
		err := d.judgeDemo(ctx, g)
		if err == nil {
			finish()
		}
		return err
	})}
	err = d.end(service.Serve(ctx, d.log, devBudget, append([][]service.Part{{traffic}, {gateway}}, waves...)...))
	if err != nil || !d.o.exit {
		return err
	}
	switch report := d.report.Load(); {
	case report == nil:
		return errors.New("stopped before the demo could be judged")
	case report.Failed() > 0:
		return errSaid
	}
	return nil
}

// emitTo appends the gateway's events to the requests topic. Those of one key go into one partition, in order.
//
// An append that fails is not tried again. It may have been written, and an event that is there twice could block a
// viewer who did nothing; one that is missing blocks nobody. The gateway counts it.
func (d *dev) emitTo(topic string) demo.EmitFunc {
	appender, partitions := d.in.Kafka.Appender(topic), d.conf.Kafka.Partitions.Requests
	return func(ctx context.Context, events []demo.Event) error {
		ctx, cancel := context.WithTimeout(ctx, demoAppend)
		defer cancel()
		byPartition := make([][][]byte, partitions)
		for _, e := range events {
			h := fnv.New32a()
			_, _ = h.Write(e.Key) // a hash takes everything
			p := int(h.Sum32() % uint32(partitions))
			byPartition[p] = append(byPartition[p], e.Value)
		}
		var batches []ingest.Batch
		for p, values := range byPartition {
			if len(values) > 0 {
				batches = append(batches, ingest.Batch{Partition: p, Values: values})
			}
		}
		return appender.Append(ctx, batches)
	}
}

// playDemo sends traffic, round after round, until it is stopped or --demo-seconds are over.
func (d *dev) playDemo(ctx context.Context) error {
	length := demoRound
	if d.o.demoSeconds > 0 {
		length = time.Duration(d.o.demoSeconds) * time.Second
	}
	d.say("demo traffic through the gateway, seed %d", d.o.seed)
	blocking, err := d.blocking(ctx)
	if err != nil {
		return err
	}
	if len(blocking) > 0 {
		d.say("rules that an earlier run promoted go on blocking: %s", strings.Join(blocking, ", "))
	}
	// Rounds of an earlier run in the same directory had clients of other names.
	for round := uint64(time.Now().Unix()); ; round++ {
		if _, err := demo.Run(ctx, d.demoOptions(length, round)); err != nil {
			return err
		}
		if d.o.demoSeconds > 0 {
			d.say("the demo's traffic is over; everything else goes on")
			return nil
		}
	}
}

func (d *dev) demoOptions(length time.Duration, round uint64) demo.Options {
	o := demo.Options{
		Seed: d.o.seed, Round: round, Duration: length, GatewayURL: "http://" + d.listeners.gateway.Addr().String(),
		Clock: service.Now, Log: d.log,
	}
	if !d.o.noPromote {
		o.Promote = d.promoteDemo
	}
	return o
}

// promoteDemo does what weir rules promote does, for those of the demo's rules that do not block yet.
func (d *dev) promoteDemo(ctx context.Context) error {
	blocking, err := d.blocking(ctx)
	if err != nil {
		return err
	}
	for _, id := range demo.RuleIDs() {
		if slices.Contains(blocking, id) {
			continue
		}
		reason := "weir dev: the demo has watched it in shadow"
		state, err := d.in.History.Rules.SetMode(ctx, promotion(id, whoami(d.environ), reason, false))
		if err != nil {
			return fmt.Errorf("promote %s: %w", id, err)
		}
		d.say("promoted rule %s, as weir rules promote does: from now on it blocks (mode %s, generation %d)", id, state.Mode, state.Generation)
	}
	return nil
}

// blocking lists the rules that block.
func (d *dev) blocking(ctx context.Context) ([]string, error) {
	modes, err := d.in.History.Rules.Modes(ctx)
	var ids []string
	for _, m := range modes {
		if m.Mode == rules.ModeBlock {
			ids = append(ids, m.Rule)
		}
	}
	return ids, err
}
