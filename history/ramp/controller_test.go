package ramp

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/promotion"
)

// canary is one rule in canary, and what is said of it.
type canary struct {
	rule rulestore.Rule
	seen promotion.Observed
	fail error
	told []string
}

func (c *canary) Canaries(context.Context) ([]rulestore.Rule, time.Time, error) {
	if c.rule.Mode != rules.ModeCanary {
		return nil, time.Now(), nil
	}
	now := c.rule
	at := *c.rule.Canary
	now.Canary = &at
	return []rulestore.Rule{now}, time.Now(), nil
}

func (c *canary) NextStep(_ context.Context, at rulestore.CanaryStep) (rulestore.ModeSet, error) {
	if at.Generation != c.rule.Generation || at.Step != c.rule.Canary.Step || time.Now().Before(c.rule.Canary.Due()) {
		return rulestore.ModeSet{}, nil
	}
	if c.rule.Canary.Step++; c.rule.Canary.Step > len(c.rule.Canary.Steps) {
		c.rule.Mode = rules.ModeBlock
		c.told = append(c.told, "block")
	} else {
		c.rule.Canary.Since = time.Now()
		c.told = append(c.told, c.rule.Canary.Steps[c.rule.Canary.Step-1].String())
	}
	return rulestore.ModeSet{Changed: true}, nil
}

func (c *canary) FallBack(_ context.Context, at rulestore.CanaryStep) (rulestore.ModeSet, error) {
	c.rule.Mode = rules.ModeShadow
	c.told = append(c.told, "shadow: "+at.Reason)
	return rulestore.ModeSet{Changed: true}, nil
}

func (c *canary) CanaryFigures(context.Context, string, int64, time.Time, time.Time) (promotion.Observed, error) {
	return c.seen, c.fail
}

func count(n int64) *int64 { return &n }

func well() promotion.Observed {
	return promotion.Observed{Blocks: count(100), Good: count(0), Released: count(0), Traffic: &promotion.Part{Some: 1, All: 1000}}
}

func TestCanaryGoesOnOrBack(t *testing.T) {
	bad := func(change func(o *promotion.Observed)) func(c *canary) {
		return func(c *canary) { change(&c.seen) }
	}
	for _, tt := range []struct {
		name  string
		after time.Duration // what happens then
		what  func(c *canary)
		want  string // at the end of three hours
		took  time.Duration
	}{
		{"all is well", 0, func(*canary) {}, "10%, 50%, block", 90 * time.Minute},
		{"a known-good source", 40 * time.Minute, bad(func(o *promotion.Observed) { o.Good = count(1) }),
			"10%, shadow: known-good sources: 1 of 100 blocks, 0.118% at least, predicted 0%", 40 * time.Minute},
		{"a release", time.Minute, bad(func(o *promotion.Observed) { o.Released = count(1) }),
			"shadow: releases: 1 of 100 blocks, 0.118% at least, predicted 0%", time.Minute},
		{"the share of traffic", 65 * time.Minute, bad(func(o *promotion.Observed) { o.Traffic.Some = 30 }),
			"10%, 50%, shadow: share of traffic: 30 of 1000 requests refused, 1.89% at least, predicted 1%",
			65 * time.Minute},
		{"not measurable", 10 * time.Minute, bad(func(o *promotion.Observed) { o.Blocks, o.Good, o.Released = nil, nil, nil }), "shadow: what it does was not measurable for 30m", time.Hour},
		{"history does not answer", 10 * time.Minute, func(c *canary) { c.seen, c.fail = promotion.Observed{}, errors.New("away") }, "shadow: what it does was not measurable for 30m", time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				steps := promotion.DefaultCanary()
				c := &canary{seen: well(), rule: rulestore.Rule{Mode: rules.ModeCanary, Generation: 4, Changed: time.Now(), Canary: &rulestore.Canary{
					Share: steps.Steps[0], Step: 1, Steps: steps.Steps, Since: time.Now(), Hold: steps.Hold, Predicted: promotion.Prediction{Traffic: 0.01},
				}}}
				ctx, cancel := context.WithCancel(t.Context())
				began, done := time.Now(), make(chan error, 1)
				var ended time.Duration
				// Each look is by a controller that has just been started: nothing is kept in memory.
				go func() {
					for ctx.Err() == nil && time.Since(began) < 3*time.Hour {
						if tt.after > 0 && time.Since(began) >= tt.after {
							tt.what(c)
						}
						made, err := New(Options{Canaries: c, Figures: c, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
						if err != nil {
							done <- err
							return
						}
						one, stop := context.WithTimeout(ctx, lookEvery-time.Second)
						err = made.Run(one)
						stop()
						if err != nil {
							done <- err
							return
						}
						if c.rule.Mode != rules.ModeCanary && ended == 0 {
							ended = time.Since(began)
						}
					}
					done <- nil
				}()
				if err := <-done; err != nil {
					t.Error(err)
				}
				cancel()
				if got := strings.Join(c.told, ", "); got != tt.want {
					t.Errorf("told %q, want %q", got, tt.want)
				}
				if ended < tt.took || ended > tt.took+20*time.Second {
					t.Errorf("it ended after %s, want %s", ended, tt.took)
				}
			})
		})
	}
}

func TestWhatAControllerCounts(t *testing.T) {
	c := &canary{seen: well(), rule: rulestore.Rule{Mode: rules.ModeCanary, Canary: &rulestore.Canary{Step: 1, Steps: []promotion.Share{100}, Predicted: promotion.Prediction{Traffic: 0.01}, Since: time.Now().Add(-time.Hour)}}}
	made, err := New(Options{Canaries: c, Figures: c, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	if err := made.look(t.Context()); err != nil || testutil.ToFloat64(made.steps) != 1 {
		t.Errorf("%v steps, %v", testutil.ToFloat64(made.steps), err)
	}
	c.rule.Mode, c.rule.Canary.Step, c.seen.Good = rules.ModeCanary, 1, count(50)
	if err := made.look(t.Context()); err != nil || testutil.ToFloat64(made.fallBacks.WithLabelValues(reasonExceeded)) != 1 {
		t.Errorf("fall-backs: %v", err)
	}
}
