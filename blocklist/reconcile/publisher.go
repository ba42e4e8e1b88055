package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// DefaultPublishInterval is how often a ModePublisher looks without having been told of a change.
const DefaultPublishInterval = 2 * time.Second

const (
	// publishPatience bounds a round: a rule store or a Redis that takes a question and never answers must not keep the next
	// change waiting.
	publishPatience = 5 * time.Second
	// publishRetry is the pause after a round that failed; it doubles up to the interval.
	publishRetry = 100 * time.Millisecond
)

// PublisherOptions configure a ModePublisher. All but Interval are required.
type PublisherOptions struct {
	Store      *blocklist.Store
	Modes      Modes
	Interval   time.Duration // default 2 s
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *PublisherOptions) validate() error {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Store", o.Store != nil}, {"Modes", o.Modes != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return fmt.Errorf("mode publisher: %s is missing", p.name)
		}
	}
	if o.Interval < 0 {
		return errors.New("mode publisher: Interval is a positive duration, or 0 for its default")
	}
	return nil
}

// Publisher keeps the modes in Redis as the rule store says. It does nothing else, so that a demotion never waits for
// anything: not for the reconciler, which may take minutes to assert all blocks, nor for a master without the modes that
// does not answer. Any number may run.
type Publisher struct {
	o       PublisherOptions
	changed chan struct{}
	trouble retry.Trouble
	backoff *retry.Backoff

	published prometheus.Counter
	failures  prometheus.Counter
}

// NewPublisher makes a ModePublisher; Run does its work.
func NewPublisher(o PublisherOptions) (*Publisher, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.Interval == 0 {
		o.Interval = DefaultPublishInterval
	}
	p := &Publisher{
		o: o, changed: make(chan struct{}, 1),
		published: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_modes_published_total", Help: "Modes of rules that Redis lacked, or knew in an older form, and was told."}),
		failures: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_modes_failures_total", Help: "Rounds in which the modes of rules could not be compared with those in Redis."}),
	}
	if err := register(o.Registerer, p.published, p.failures); err != nil {
		return nil, fmt.Errorf("mode publisher: %w", err)
	}
	return p, nil
}

// ModesChanged makes Run look at once. It never waits.
func (p *Publisher) ModesChanged() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

// Run publishes what changed until ctx is done, and then returns nil. Failures are logged when they begin and end, and
// tried again.
func (p *Publisher) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	retry := publishRetry
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.changed:
		}
		next := p.o.Interval
		err := p.Publish(ctx)
		if err != nil {
			next = min(retry, p.o.Interval)
			retry *= 2
		} else {
			retry = publishRetry
		}
		retry = min(retry, p.o.Interval)
		p.note(ctx, err)
		timer.Reset(next)
	}
}

// Publish does one round. Run calls it; it must not be called beside Run.
func (p *Publisher) Publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishPatience)
	defer cancel()
	modes, err := p.o.Modes.Modes(ctx)
	if err != nil {
		return fmt.Errorf("modes of rules: %w", err)
	}
	n, err := p.o.Store.SyncModes(ctx, p.o.Clock(), modes)
	if err != nil {
		return err
	}
	p.published.Add(float64(n))
	return nil
}

func (p *Publisher) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.failures.Inc()
		p.trouble.Failed(p.o.Logger, "modes of rules cannot be published; gates act on a promotion or demotion once they can", err)
		return
	}
	p.trouble.Over(p.o.Logger, "modes of rules are published again")
}
