// Package enforce is the ENFORCE stage: it turns hits of blocking rules into blocks, and releases into tombstones, and tells gates,
// the blocks topic and history of what it did. Each batch is read, planned, put into effect, told and remembered, in that order.
package enforce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/recent"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/rules/holding"
	"github.com/weirhq/weir/traffic"
)

// DefaultTombstoneTTL is how long a release is remembered: at least as long as the hits topic keeps its records, so that
// no replay of them blocks again.
const DefaultTombstoneTTL = holding.ReleaseKept

// RuleVersions gives the immutable versions of rules.
type RuleVersions interface {
	// RuleVersion loads version number of rule id; false when there is none.
	RuleVersion(ctx context.Context, id string, number int) (*rules.Version, bool, error)
}

// DecisionLog is the blocks topic.
type DecisionLog interface {
	// Append returns nil after the log has acknowledged all decisions, in order, in the partition.
	Append(ctx context.Context, partition int, decisions []blocklist.Decision) error
}

// DeadLetters takes records that ENFORCE cannot use. Put returns after they are acknowledged.
type DeadLetters interface {
	Put(ctx context.Context, letters []traffic.DeadLetter) error
}

// Options configure an Enforcer. All but NeverBlock, Never, OpenHits, Orders, HitsPartitions, AllPartitions and
// TombstoneTTL are required.
type Options struct {
	Store       *blocklist.Store
	Stream      string // must be StreamLive
	Topic       string // the hits topic, named in dead letters
	Modes       Modes
	Rules       RuleVersions
	Decisions   DecisionLog
	DeadLetters DeadLetters
	NeverBlock  []netip.Prefix
	// Never is instead of NeverBlock where entries are made at run time; nil: NeverBlock alone.
	Never *blocklist.NeverList
	// Secret is the installation's: by it a canary's share is told from the rest, see promotion.Side.
	Secret []byte
	// OpenHits gives who is over a limit when its rule begins to block; nil: they are blocked with their next hit.
	OpenHits OpenHits
	// Orders are the blocks that people have ordered; nil: there are none.
	Orders Orders
	// HitsPartitions is how many partitions the hits topic has, for Standing; default 1.
	HitsPartitions int
	// AllPartitions is for an Enforcer that no group gives its partitions: blocks of all are counted from the start. Otherwise
	// those of none are until Standing is told which it was assigned, since another process counts them.
	AllPartitions bool
	// TombstoneTTL is at least the retention of the hits topic; default DefaultTombstoneTTL.
	TombstoneTTL time.Duration
	Clock        func() traffic.Time
	Logger       *slog.Logger
	Registerer   prometheus.Registerer
}

func (o *Options) validate() error {
	if o.Stream != blocklist.StreamLive {
		return fmt.Errorf("enforcer: stream %q may not write blocks, allowed: %q", o.Stream, blocklist.StreamLive)
	}
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Store", o.Store != nil}, {"Topic", o.Topic != ""}, {"Modes", o.Modes != nil}, {"Rules", o.Rules != nil},
		{"Secret", len(o.Secret) > 0}, {"Decisions", o.Decisions != nil}, {"DeadLetters", o.DeadLetters != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return fmt.Errorf("enforcer: %s is missing", p.name)
		}
	}
	if o.TombstoneTTL < 0 {
		return fmt.Errorf("enforcer: TombstoneTTL is %s, allowed: a positive duration, or 0 for the default, %s", o.TombstoneTTL, DefaultTombstoneTTL)
	}
	return nil
}

// Enforcer is the ENFORCE stage: a sink of the hits topic. Its effects are idempotent and only raise, so a batch may be
// applied any number of times, by any number of instances.
type Enforcer struct {
	o       Options
	writer  *blocklist.Writer
	never   *blocklist.NeverList
	modes   *modeCache
	metrics *enforcerMetrics
	// standing is told of what was applied, by rule and mode.
	standing *Standing
	latency  *latency

	versions *versions

	mu   sync.Mutex
	done *recent.Set // decisions that were acknowledged

	trouble retry.Trouble // with the rule store
}

// New makes the stage. It starts nothing.
func New(o Options) (*Enforcer, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	if o.TombstoneTTL == 0 {
		o.TombstoneTTL = DefaultTombstoneTTL
	}
	blocks := newStanding(o.Clock, cmp.Or(o.HitsPartitions, 1), o.AllPartitions)
	metrics, err := newEnforcerMetrics(o.Registerer, blocks)
	if err != nil {
		return nil, fmt.Errorf("enforcer: %w", err)
	}
	modes := newModeCache(o.Modes, o.Store, o.Clock)
	modes.renewed = func(states map[string]rules.ModeState) {
		metrics.rules.Keep(slices.Collect(maps.Keys(states)))
		blocks.know(states)
	}
	return &Enforcer{
		o: o, writer: blocklist.NewWriter(o.Store), never: cmp.Or(o.Never, blocklist.NewNeverList(o.NeverBlock,
			o.Clock)), modes: modes, metrics: metrics, standing: blocks,
		versions: newVersions(o.Rules, o.Clock, o.Logger), done: recent.NewSet(seenDecisions), latency: newLatency(metrics.latency, blocks),
	}, nil
}

// ModesChanged makes the next batch read the modes anew. Whoever hears of a change calls it; without it, a mode is
// noticed within two seconds.
func (e *Enforcer) ModesChanged() { e.modes.changed() }

// RefreshModes reads the modes if they have changed or are old, so that metrics follow them also while no hits come, and learns the
// versions of rules ahead, all that are missing. An error says that some of it is still to be done: call it again after a while.
func (e *Enforcer) RefreshModes(ctx context.Context) error {
	modes, fallback, err := e.modes.get(ctx, 0)
	if err = errors.Join(err, fallback); err != nil {
		return fmt.Errorf("modes of rules: %w", err)
	}
	if err := e.versions.learnAhead(ctx, modes, learnTimeout); err != nil {
		return fmt.Errorf("versions of rules: %w", err)
	}
	return nil
}

// Apply gives the records of one or more partitions their effect: blocks and tombstones in Redis, then the delta streams,
// then the blocks topic. It returns nil after all three have acknowledged. After an error the whole batch may be applied
// again; a record that a newer build wrote is such an error, until a process of that build reads it.
func (e *Enforcer) Apply(ctx context.Context, batch []traffic.Message) error {
	start := e.o.Clock()
	s := newBatchState(start, e.told)
	if err := e.apply(ctx, s, batch); err != nil {
		e.metrics.failures.Inc()
		e.latency.remember(s)
		// Whatever went wrong took time: the modes must be looked up when the effect is written, not when it was tried.
		e.modes.changed()
		return fmt.Errorf("enforce: %w", err)
	}
	e.count(s)
	e.metrics.duration.Observe(e.o.Clock().Sub(start).Seconds())
	return nil
}

func (e *Enforcer) apply(ctx context.Context, s *batchState, batch []traffic.Message) error {
	records, newer := e.read(s, batch)
	modes, err := e.currentModes(ctx, newestOf(records))
	if err != nil {
		return err
	}
	if err := e.planAll(ctx, s, records, modes); err != nil {
		return err
	}
	if err := e.effect(ctx, s); err != nil {
		return err
	}
	if err := e.tell(ctx, s); err != nil {
		return err
	}
	if newer != nil {
		return newer // the letters are put once, with the batch that passes
	}
	if len(s.letters) > 0 {
		if err := e.o.DeadLetters.Put(ctx, s.letters); err != nil {
			return fmt.Errorf("dead letters: %w", err)
		}
	}
	e.remember(s)
	return nil
}

// newestOf is the append time of the newest record that a mode may decide about; 0 when there is none.
func newestOf(records []*hitRecord) (newest traffic.Time) {
	for _, r := range records {
		if r.hit.Kind == detectors.KindHit && r.hit.BlockSubject != "" {
			newest = max(newest, r.message.Appended)
		}
	}
	return newest
}

// currentModes reads the modes and says so when they are not the rule store's own.
func (e *Enforcer) currentModes(ctx context.Context, since traffic.Time) (map[string]rules.ModeState, error) {
	modes, fallback, err := e.modes.get(ctx, since)
	if err != nil {
		return nil, err
	}
	if fallback != nil {
		e.metrics.fallback.Inc()
		e.trouble.Failed(e.o.Logger, "rule store does not answer; blocking goes on under the last known modes", fallback)
		e.versions.unanswered()
		return modes, nil
	}
	e.trouble.Over(e.o.Logger, "rule store answers again")
	e.versions.prefetch(ctx, modes, e.modes.readAt())
	return modes, nil
}
