package devserver

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/serving"
	"github.com/weirhq/weir/gate"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/demo"
	"github.com/weirhq/weir/rules"
)

const (
	// demoRound is how long a round of the demo takes when nobody judges it: the next one has clients of its own. In each of the first
	// rounds a rule is promoted.
	demoRound = time.Minute
	// demoAppend bounds one append of the gateway's events: to wait for a busy machine costs less than to lose them.
	demoAppend = 30 * time.Second
	// demoFlush is what the gateway has at the end for events that wait.
	demoFlush = time.Second
)

// demoRun sends a demo through a server, and judges what came of it.
type demoRun struct{ *server }

func (d *demoRun) rules() []rules.File {
	documents := demo.WatchedRules()
	if d.o.Exit {
		documents = demo.Rules()
	}
	return []rules.File{{Name: "the demo's rules", Src: hooked(d.o.Hooks.Rules, documents)}}
}

// serve runs the demo's gateway and traffic before all else.
func (d *demoRun) serve(ctx context.Context, guard *gate.Gate, ready func(context.Context) error, groups [][]service.Part) error {
	ctx, finish := context.WithCancel(ctx)
	defer finish()
	ledger := 1 // nobody asks for it
	if d.o.Exit {
		ledger = 0 // the default
	}
	g, err := demo.NewGateway(demo.GatewayOptions{
		Guard: hooked[demo.Guard](d.o.Hooks.Guard, guard), Emit: hooked(d.o.Hooks.Emit, d.emitTo(d.names.Requests)), Clock: service.Now, Ledger: ledger,
		Logger: d.log, Registerer: d.registry,
	})
	if err != nil {
		return err
	}
	gateway := service.Part{Name: "gateway", Run: func(ctx context.Context) error {
		err := serving.Run(ctx, d.listeners.gateway, g.Handler())
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), demoFlush)
		defer cancel()
		return errors.Join(err, g.Close(last))
	}}
	traffic := service.Part{Name: "demo", Run: once(func(ctx context.Context) error {
		if err := ready(ctx); err != nil {
			return err
		}
		if !d.o.Exit {
			return d.play(ctx)
		}
		err := d.judge(ctx, g)
		if err == nil {
			finish()
		}
		return err
	})}
	err = d.end(service.Serve(ctx, d.log, stopTimeout, append([][]service.Part{{traffic}, {gateway}}, groups...)...))
	if err != nil || !d.o.Exit {
		return err
	}
	switch report := d.report.Load(); {
	case report == nil:
		return errors.New("stopped before the demo could be judged")
	case report.Failed() > 0:
		return ErrDemoFailed
	case report.Unsure() > 0:
		return ErrDemoUnsure
	}
	return nil
}

// emitTo appends the gateway's events to the requests topic. Those of one key go into one partition, in order.
//
// An append that fails is not tried again. It may have been written, and an event that is there twice could block a
// viewer who did nothing; one that is missing blocks nobody. The gateway counts it.
func (d *demoRun) emitTo(topic string) demo.EmitFunc {
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

// play sends traffic, round after round, until it is stopped or --demo-seconds are over.
func (d *demoRun) play(ctx context.Context) error {
	length := demoRound
	if d.o.DemoSeconds > 0 {
		length = time.Duration(d.o.DemoSeconds) * time.Second
	}
	d.say("demo traffic through the gateway, seed %d", d.o.Seed)
	blocking, err := d.blocking(ctx)
	if err != nil {
		return err
	}
	if len(blocking) > 0 {
		d.say("rules that an earlier run promoted go on blocking: %s", strings.Join(blocking, ", "))
	}
	// Rounds of an earlier run in the same directory had clients of other names.
	for round := uint64(time.Now().Unix()); ; round++ {
		if _, err := demo.Run(ctx, d.options(length, round)); err != nil {
			return err
		}
		if d.o.DemoSeconds > 0 {
			d.say("the demo's traffic is over; everything else goes on")
			return nil
		}
	}
}

func (d *demoRun) options(length time.Duration, round uint64) demo.Options {
	o := demo.Options{
		Seed: d.o.Seed, Round: round, Duration: length, GatewayURL: "http://" + d.listeners.gateway.Addr().String(),
		Clock: service.Now, Log: d.log, Watched: !d.o.Exit,
	}
	switch {
	case d.o.NoPromote:
	case d.o.Exit:
		o.Promote = d.promoteAll
	default:
		o.Promote = d.promoteNext
	}
	return o
}

// promoteAll promotes the rules of a demo that is judged.
func (d *demoRun) promoteAll(ctx context.Context) error {
	for _, id := range demo.RuleIDs() {
		if err := d.promote(ctx, id); err != nil {
			return err
		}
	}
	return nil
}

// promoteNext promotes the next rule of a demo that people watch. A rule that somebody has promoted before stays as it is now: who demotes it
// wants to see it in shadow.
func (d *demoRun) promoteNext(ctx context.Context) error {
	modes, err := d.in.History.Rules.Modes(ctx)
	if err != nil {
		return err
	}
	for _, id := range demo.WatchedPromotions() {
		untouched := func(m rules.ModeState) bool {
			return m.Rule == id && m.Mode == rules.ModeShadow && m.Generation == firstGeneration
		}
		if slices.ContainsFunc(modes, untouched) {
			return d.promote(ctx, id)
		}
	}
	return nil
}

// firstGeneration is that of a rule whose mode nobody has changed.
const firstGeneration = 1

// promote does what weir rules promote does.
func (d *demoRun) promote(ctx context.Context, id string) error {
	state, err := d.in.History.Rules.SetMode(ctx, rulestore.ModeChange{
		Rule: id, Mode: rules.ModeBlock, By: d.o.By, Reason: "weir dev: the demo has watched it in shadow",
		Override: "a demo does not last the day that the gates ask for",
	})
	if err != nil {
		return fmt.Errorf("promote %s: %w", id, err)
	}
	d.say("promoted rule %s, as weir rules promote does: from now on it blocks (mode %s, generation %d)", id, state.Mode, state.Generation)
	return nil
}

// blocking lists the rules that block.
func (d *demoRun) blocking(ctx context.Context) ([]string, error) {
	modes, err := d.in.History.Rules.Modes(ctx)
	var ids []string
	for _, m := range modes {
		if m.Mode.Blocks() {
			ids = append(ids, m.Rule)
		}
	}
	return ids, err
}

// historyTimeout is how long history may take to have everything: recording comes a moment after detection.
const historyTimeout = 10 * time.Second

// judge runs the demo once, and prints what should have come of it beside what did.
func (d *demoRun) judge(ctx context.Context, g *demo.Gateway) error {
	d.say("demo traffic through the gateway for %d s, seed %d", d.o.DemoSeconds, d.o.Seed)
	answers, err := demo.Run(ctx, d.options(time.Duration(d.o.DemoSeconds)*time.Second, 0))
	if err != nil {
		return err
	}
	d.say("waiting for history to have it all")
	if err := g.Flush(ctx); err != nil {
		return err
	}
	ledger := g.Ledger()
	recorded, err := d.awaitRecorded(ctx, ledger)
	if err != nil {
		return err
	}
	report, err := demo.Judge(ledger, answers, recorded, demo.JudgeOptions{Promoted: !d.o.NoPromote})
	if err != nil {
		return err
	}
	fmt.Fprintln(d.o.Stdout)
	if err := report.WriteTable(d.o.Stdout); err != nil {
		return err
	}
	fmt.Fprintln(d.o.Stdout)
	d.report.Store(&report)
	return nil
}

// awaitRecorded waits until weir has processed all of the run's events and history has the hits that they should cause, or for
// historyTimeout: then the judge says what is missing. Hits that have not been detected by then never will be.
func (d *demoRun) awaitRecorded(ctx context.Context, ledger demo.Ledger) (demo.Recorded, error) {
	bounded, cancel := context.WithTimeout(ctx, historyTimeout)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		if d.detected(len(ledger.Stamps)) {
			recorded, err := d.recorded(ctx)
			if err != nil {
				return demo.Recorded{}, err
			}
			waiting = demo.Awaited(ledger, recorded) > 0
		}
		select {
		case <-bounded.Done():
			waiting = false
		case <-tick.C:
		}
	}
	if err := ctx.Err(); err != nil {
		return demo.Recorded{}, err
	}
	// Hits that should not be there count as well. A stage that stands still is no reason to wait for ever.
	last, stop := context.WithTimeout(ctx, historyTimeout)
	defer stop()
	if err := d.in.Kafka.AwaitCaughtUp(last, ingest.Live.Group(d.conf.Namespace, ingest.StageRecord), d.names.Hits); err != nil {
		if ctx.Err() != nil || last.Err() == nil {
			return demo.Recorded{}, err
		}
		d.say("RECORD has not caught up within %s: judging by what history has", historyTimeout)
	}
	return d.recorded(ctx)
}

// detected reports whether all events have been routed, and all that was routed has been folded into windows, as the
// stages count. They began with the run: its directory is its own.
func (d *demoRun) detected(events int) bool {
	progress := d.in.Progress()
	return progress.Events >= int64(events) && progress.Folded >= progress.Keyed
}

func (d *demoRun) recorded(ctx context.Context) (demo.Recorded, error) {
	hits, err := d.in.History.Hits(ctx, history.HitQuery{Stream: history.Live})
	if err != nil {
		return demo.Recorded{}, err
	}
	var r demo.Recorded
	for i := range hits {
		h := &hits[i]
		r.Hits = append(r.Hits, demo.RecordedHit{
			Rule: h.Rule, Subject: string(h.Subject), ID: h.ID, First: h.First, Last: h.Last, Count: h.Count,
		})
	}
	return r, nil
}
