package service

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/ingest"
)

// asideEvery is how often ENFORCE that stands aside looks whose Redis is.
const asideEvery = 2 * time.Second

// aside keeps ENFORCE from a Redis that has become another installation's. The other stages of the process go on: who
// may write to Redis stops blocking by that, and neither counting nor history.
type aside struct {
	parts   []Part
	own     func(ctx context.Context) error // is a *blocklist.ForeignError where Redis is another installation's
	every   time.Duration
	timeout time.Duration // for the parts to end
	log     *slog.Logger
	foreign prometheus.Gauge
}

// standingAside makes one part of ENFORCE's.
func standingAside(in *Installation, parts []Part) (Part, error) {
	a := &aside{parts: parts, own: in.own, every: asideEvery, timeout: StopTimeout, log: in.Log}
	var err error
	a.foreign = ingest.Published(in.registry, prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "weir_enforce_foreign_redis",
		Help: "1 while Redis is another installation's, so that ENFORCE of this process stands still.",
	}), &err)
	return Part{ingest.StageEnforce, a.run}, err
}

// run runs the parts until ctx ends or one of them fails otherwise than by the Redis of somebody else.
func (a *aside) run(ctx context.Context) error {
	for {
		err := Serve(ctx, a.log, a.timeout, a.parts)
		if foreign := (*blocklist.ForeignError)(nil); ctx.Err() != nil || !errors.As(err, &foreign) {
			return err
		}
		a.foreign.Set(1)
		a.log.Error("ENFORCE stands still: Redis is another installation's; the other stages go on", "error", err)
		if !a.awaitOurs(ctx) {
			return nil
		}
		a.foreign.Set(0)
		a.log.Info("Redis is this installation's again: ENFORCE goes on")
	}
}

// awaitOurs waits until Redis is this installation's; false: ctx has ended.
func (a *aside) awaitOurs(ctx context.Context) bool {
	ticker := time.NewTicker(a.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C:
		}
		if err := a.own(ctx); err == nil { // else it is still another one's, or does not answer
			return true
		}
	}
}
