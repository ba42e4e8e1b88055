package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/demo"
)

// historyPatience is how long history may take to have everything: recording comes a moment after detection.
const historyPatience = 10 * time.Second

// judgeDemo runs the demo once, and prints what should have come of it beside what did.
func (d *dev) judgeDemo(ctx context.Context, g *demo.Gateway) error {
	d.say("demo traffic through the gateway for %d s, seed %d", d.o.demoSeconds, d.o.seed)
	answers, err := demo.Run(ctx, d.demoOptions(time.Duration(d.o.demoSeconds)*time.Second, 0))
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
	report, err := demo.Judge(ledger, answers, recorded, demo.JudgeOptions{Promoted: !d.o.noPromote})
	if err != nil {
		return err
	}
	fmt.Fprintln(d.Stdout)
	if err := report.WriteTable(d.Stdout); err != nil {
		return err
	}
	fmt.Fprintln(d.Stdout)
	d.report.Store(&report)
	return nil
}

// awaitRecorded waits until weir has gone through all of the run's events and history has what should have come of them,
// or for historyPatience: the judge says what is missing then. What has not been detected now never will be.
func (d *dev) awaitRecorded(ctx context.Context, ledger demo.Ledger) (demo.Recorded, error) {
	bounded, cancel := context.WithTimeout(ctx, historyPatience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for waiting := true; waiting; {
		done, err := d.detected(len(ledger.Stamps))
		if err != nil {
			return demo.Recorded{}, err
		}
		if done {
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
	last, stop := context.WithTimeout(ctx, historyPatience)
	defer stop()
	if err := d.in.Kafka.AwaitCaughtUp(last, ingest.Live.Group(d.conf.Namespace, service.StageRecord), d.names.Hits); err != nil {
		if ctx.Err() != nil || last.Err() == nil {
			return demo.Recorded{}, err
		}
		d.say("RECORD has not caught up within %s: judging by what history has", historyPatience)
	}
	return d.recorded(ctx)
}

// detected reports whether all events have been routed, and all that was routed has been folded into windows, by the
// stages' own counters. They began with the run: its directory is its own.
func (d *dev) detected(events int) (bool, error) {
	families, err := d.registry.Gather()
	if err != nil {
		return false, err
	}
	count := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			count[f.GetName()] += m.GetCounter().GetValue() // 0 of what is no counter
		}
	}
	return count["weir_route_events_total"] >= float64(events) && count["weir_detect_events_total"] >= count["weir_route_records_total"], nil
}

func (d *dev) recorded(ctx context.Context) (demo.Recorded, error) {
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
