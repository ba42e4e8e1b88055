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
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// PublishInterval is how often a Publisher looks without having been told of a change.
const PublishInterval = 2 * time.Second

const (
	// publishTimeout bounds a round: a rule store or a Redis that takes a question and never answers must not keep the next
	// change waiting.
	publishTimeout = 5 * time.Second
	// publishRetry is the wait after a round that failed; it doubles up to the interval.
	publishRetry = 100 * time.Millisecond
)

// PublisherOptions configure a Publisher. All but Own and Overtake are required.
type PublisherOptions struct {
	Store      *blocklist.Store
	Modes      Modes
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Own makes Redis this installation's, where it is nobody's; a *blocklist.ForeignError ends Run. Nil: it is not
	// asked.
	Own func(ctx context.Context) error
	// Overtake has the rule store number its modes above those that Redis has later than it, and tells what it has
	// done. Of rules that block by Redis and that the store does not know, it gives the modes that stop them. Nil: that
	// Redis is ahead is a failure of the round.
	Overtake func(ctx context.Context, ahead []rules.ModeState) (lines []string, off []rules.ModeState, err error)
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
	return nil
}

// Publisher keeps the modes in Redis as the rule store has them, and does nothing else: a demotion must not wait for the
// reconciler, which may take minutes to assert all blocks, nor for a master of a cluster that has no modes and does not answer.
// Any number may run.
type Publisher struct {
	o        PublisherOptions
	changed  chan struct{}
	interval time.Duration // PublishInterval; tests set another
	trouble  retry.Trouble

	published prometheus.Counter
	failures  prometheus.Counter
}

// NewPublisher makes a Publisher; Run does its work.
func NewPublisher(o PublisherOptions) (*Publisher, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	p := &Publisher{
		o: o, changed: make(chan struct{}, 1), interval: PublishInterval,
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

// Run publishes changed modes until ctx is done, and then returns nil. Failures are logged and
// retried, but for a Redis that has become another installation's.
func (p *Publisher) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	backoff := retry.NewBackoff(publishRetry, p.interval)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-p.changed:
		}
		err := p.Publish(ctx)
		p.note(ctx, err)
		if foreign := (*blocklist.ForeignError)(nil); errors.As(err, &foreign) {
			return err
		}
		if err != nil {
			timer.Reset(backoff.Step())
			continue
		}
		backoff.Reset()
		timer.Reset(p.interval)
	}
}

// Publish does one round. Run calls it; it must not be called beside Run.
func (p *Publisher) Publish(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	if p.o.Own != nil {
		if err := p.o.Own(ctx); err != nil {
			return err
		}
	}
	modes, err := p.sync(ctx, nil)
	ahead := (*blocklist.ModesAheadError)(nil)
	if err != nil && !errors.As(err, &ahead) || p.o.Overtake == nil {
		return err
	}
	later, err := blocklist.Strangers(ctx, p.o.Store, modes)
	if err != nil {
		return err
	}
	if ahead != nil {
		later = append(later, ahead.Modes...)
	}
	if len(later) == 0 {
		return nil
	}
	lines, off, err := p.o.Overtake(ctx, later)
	if err != nil {
		err = &notOvertakenError{err}
	}
	for _, line := range lines { // none: what the store said was read before the change that Redis has heard of
		p.o.Logger.WarnContext(ctx, "Redis had later modes than the rule store", "found", line)
	}
	if _, unsynced := p.sync(ctx, off); err == nil { // one that cannot be overtaken keeps no other one going
		err = unsynced
	}
	return err
}

// notOvertakenError says why modes in Redis are not overtaken that the rule store does not have.
type notOvertakenError struct{ cause error }

func (e *notOvertakenError) Error() string {
	return fmt.Sprintf("redis has modes that the rule store has not: %v", e.cause)
}

func (e *notOvertakenError) Unwrap() error { return e.cause }

// sync publishes what the rule store has, which it gives, and modes beside.
func (p *Publisher) sync(ctx context.Context, beside []rules.ModeState) ([]rules.ModeState, error) {
	modes, err := p.o.Modes.Modes(ctx)
	if err != nil {
		return nil, fmt.Errorf("modes of rules: %w", err)
	}
	n, err := p.o.Store.SyncModes(ctx, p.o.Clock(), append(modes, beside...))
	p.published.Add(float64(n))
	return modes, err
}

func (p *Publisher) note(ctx context.Context, err error) {
	if ctx.Err() != nil {
		return
	}
	if err != nil {
		p.failures.Inc()
		doing := "modes of rules cannot be published; gates act on a promotion or demotion once they can"
		if left := (*notOvertakenError)(nil); errors.As(err, &left) {
			doing = "Redis has modes of rules that are not overtaken; all others are published"
		}
		p.trouble.Failed(p.o.Logger, doing, err)
		return
	}
	p.trouble.Over(p.o.Logger, "modes of rules are published again")
}
