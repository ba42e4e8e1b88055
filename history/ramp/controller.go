// Package ramp has canaries go on: to their next step while all is as it was predicted, and back into shadow where it is not.
package ramp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules/promotion"
)

// Canaries are the rules in canary. What it changes it changes only where a canary still is what was looked at, so any number of
// controllers may run.
type Canaries interface {
	Canaries(ctx context.Context) ([]rulestore.Rule, time.Time, error)
	NextStep(ctx context.Context, at rulestore.CanaryStep) (rulestore.ModeSet, error)
	FallBack(ctx context.Context, at rulestore.CanaryStep) (rulestore.ModeSet, error)
}

// Figures tells what a canary has done since it began, under a generation of its rule's mode; now is the clock that dated since. A figure
// that is not known is nil.
type Figures interface {
	CanaryFigures(ctx context.Context, rule string, generation int64, since, now time.Time) (promotion.Observed, error)
}

var _ Canaries = (*rulestore.Store)(nil)

// By is the name under which a controller changes modes.
const By = rulestore.ByWeir

const (
	lookEvery   = 5 * time.Second
	lookTimeout = 30 * time.Second
)

// Reasons of the canaries that ended in shadow.
const (
	reasonExceeded   = "exceeded"       // more was seen than was predicted
	reasonUnmeasured = "not_measurable" // what it does was not known for a whole hold after its step was over
)

// Options configure a Controller. All are required.
type Options struct {
	Canaries   Canaries
	Figures    Figures
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Controller looks after canaries. It keeps nothing in memory: the steps and their times lie with the rules.
type Controller struct {
	o         Options
	steps     prometheus.Counter
	fallBacks *prometheus.CounterVec // reason
	failures  prometheus.Counter
	trouble   retry.Trouble
}

// New makes a Controller; Run does its work.
func New(o Options) (*Controller, error) {
	if o.Canaries == nil || o.Figures == nil || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("canaries: an option is missing")
	}
	c := &Controller{
		o:     o,
		steps: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_canary_steps_total", Help: "Steps that canaries took by this process, the last one to block included."}),
		fallBacks: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_canary_fall_backs_total",
			Help: "Canaries that this process put back into shadow, by reason: exceeded (known-good sources, releases or the share of traffic were more than the evidence " +
				"predicted), not_measurable (what a canary does was not known for a whole hold after its step was over).",
		}, []string{"reason"}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{Name: "weir_canary_failures_total", Help: "Looks at canaries that failed: they neither rise nor fall back."}),
	}
	for _, reason := range []string{reasonExceeded, reasonUnmeasured} {
		c.fallBacks.WithLabelValues(reason)
	}
	for _, m := range []prometheus.Collector{c.steps, c.fallBacks, c.failures} {
		if err := o.Registerer.Register(m); err != nil {
			return nil, fmt.Errorf("canaries: %w", err)
		}
	}
	return c, nil
}

// Run looks after canaries until ctx is done, and then returns nil. Failures are logged, and tried again.
func (c *Controller) Run(ctx context.Context) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		err := c.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			c.failures.Inc()
			c.trouble.Failed(c.o.Logger, "canaries cannot be looked after, they neither rise nor fall back; trying again", err)
		default:
			c.trouble.Over(c.o.Logger, "canaries are looked after again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// look does what is due of all canaries. What fails of one keeps no other.
func (c *Controller) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	all, now, err := c.o.Canaries.Canaries(ctx)
	if err != nil {
		return err
	}
	var failed error
	for i := range all {
		if err := c.lookAt(ctx, &all[i], now); err != nil {
			failed = errors.Join(failed, fmt.Errorf("rule %s: %w", all[i].Newest.Version.ID, err))
		}
	}
	return failed
}

// lookAt decides about one canary. In doubt it lets pass: what is not measurable is no reason to rise, and after a while one to fall back.
func (c *Controller) lookAt(ctx context.Context, r *rulestore.Rule, now time.Time) error {
	at := rulestore.CanaryStep{Rule: r.Newest.Version.ID, Generation: r.Generation, Step: r.Canary.Step, By: By}
	seen, err := c.o.Figures.CanaryFigures(ctx, at.Rule, r.Generation, r.Changed, now)
	due := r.Canary.Due()
	switch exceeded := r.Canary.Predicted.Exceeded(&seen); {
	case err == nil && exceeded != "":
		at.Reason = exceeded
		return c.fallBack(ctx, at, reasonExceeded)
	case now.Before(due):
		return err
	case err == nil && seen.Measurable():
		at.Reason = fmt.Sprintf("as predicted: of %d blocks %d of known-good sources, %d released", *seen.Blocks, *seen.Good, *seen.Released)
		if blind := r.Canary.Predicted.Uncompared(); blind != "" {
			at.Reason += "; " + blind
		}
		set, err := c.o.Canaries.NextStep(ctx, at)
		if err == nil && set.Changed {
			c.steps.Inc()
			c.o.Logger.Info("a canary goes on", "rule", at.Rule, "mode", set.Mode, "share", set.Share, "why", at.Reason)
		}
		return err
	case now.Before(due.Add(time.Duration(r.Canary.Hold))):
		return err
	}
	at.Reason = "what it does was not measurable for " + r.Canary.Hold.String()
	return errors.Join(err, c.fallBack(ctx, at, reasonUnmeasured))
}

func (c *Controller) fallBack(ctx context.Context, at rulestore.CanaryStep, reason string) error {
	set, err := c.o.Canaries.FallBack(ctx, at)
	if err == nil && set.Changed {
		c.fallBacks.WithLabelValues(reason).Inc()
		c.o.Logger.Warn("a canary falls back to shadow", "rule", at.Rule, "why", at.Reason)
	}
	return err
}
