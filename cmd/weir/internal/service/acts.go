package service

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ActsOptions are what acts are carried out with. Redis and Kafka are opened when an act first needs them, where they are not given.
type ActsOptions struct {
	Config  *config.Config
	Log     *slog.Logger
	History *history.Store
	Redis   *blocklist.Store
	Kafka   *kafka.Client
	// Environment is what documents are judged against, but for the event format and the allow lists.
	Environment func(warn func(rules.Problem)) (rules.Environment, error)
	Trials      acts.Trials // nil: nothing is tried
}

// OpenActs makes the acts of an installation; the function gives back what they opened.
func OpenActs(o ActsOptions) (*acts.Service, func(), error) {
	blocks := &blocksPort{config: o.Config, history: o.History, log: o.Log, store: o.Redis, given: o.Redis != nil}
	masker, err := o.Config.Console.Masker()
	if err != nil {
		return nil, blocks.close, err
	}
	s, err := acts.New(acts.Options{
		Masking: acts.Masking{Masker: masker, Trail: o.History.Audit}, Bounds: o.Config.Console.RuleBounds(),
		Rules: o.History.Rules, Gates: &gatesPort{o.Config, o.History}, Blocks: blocks,
		Releases:  &releasesPort{config: o.Config, log: o.Log, client: o.Kafka},
		Documents: &documentsPort{o.Environment, o.Config}, Dossiers: &dossiersPort{o.Config, o.History}, Clock: Now, Logger: o.Log,
		Erasing: erasure.New(o.History.DB, o.History.Streams), Orders: o.History.Orders,
		Knows:      &knowsPort{explore.New(o.History)},
		Partitions: o.History.Partitions,
		NeverBlock: blocklist.NewNeverBlock(o.Config.NeverBlock), Trials: o.Trials,
	})
	if err != nil {
		return nil, blocks.close, err
	}
	return s, func() { s.Close(); blocks.close() }, nil
}

// publishAnswerTimeout bounds each answer of a server of Redis that is told modes: the first node of a cluster that is asked where the
// modes are may hang, and a demotion is to take effect within a second.
const publishAnswerTimeout = 500 * time.Millisecond

// gatesPort tells gates over a connection of its own, with short answers.
type gatesPort struct {
	config  *config.Config
	history *history.Store
}

var _ acts.Gates = (*gatesPort)(nil)

// Publish tells what Redis lacks of modes. It does not tell a Redis that is another installation's.
func (g *gatesPort) Publish(ctx context.Context, modes []rules.ModeState) (news int, at string, err error) {
	server, err := RedisServer(&g.config.Redis)
	if err != nil {
		return 0, "", err
	}
	server.Timeout = publishAnswerTimeout
	redis, err := blocklist.Connect(server, g.config.Namespace)
	if err != nil {
		return 0, "", err
	}
	defer func() { _ = redis.Close() }() // nothing is under way any more
	mine, err := g.history.Streams.Installation(ctx)
	if err != nil {
		return 0, "", err
	}
	if err := blocklist.NewOwnership(redis).RefuseForeign(ctx, mine); err != nil {
		return 0, "", err
	}
	blocklist.SignModes(redis, g.history.Streams.ModesSeed)
	blocklist.ActFor(redis, g.history.Streams.Installation)
	news, err = redis.SyncModes(ctx, Now(), modes)
	return news, redis.Address(), err
}

// blocksPort asks Redis, which it opens when it is first asked.
type blocksPort struct {
	config  *config.Config
	history *history.Store
	log     *slog.Logger
	given   bool

	mu    sync.Mutex
	store *blocklist.Store
}

var _ acts.Blocks = (*blocksPort)(nil)

func (b *blocksPort) open() (*blocklist.Store, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil {
		return b.store, nil
	}
	var err error
	b.store, err = OpenRedis(b.config)
	return b.store, err
}

func (b *blocksPort) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.store != nil && !b.given {
		_ = b.store.Close() // nothing is under way any more
		b.store = nil
	}
}

// Ready waits a while for Redis, and refuses one that is another installation's.
func (b *blocksPort) Ready(ctx context.Context) error {
	store, err := b.open()
	if err != nil {
		return err
	}
	if err := WaitRedis(ctx, store, AnswerTimeout, b.log); err != nil {
		return err
	}
	return refuseForeign(ctx, b.history, store)
}

// Get is blocklist.Store's.
func (b *blocksPort) Get(ctx context.Context, subject traffic.Subject, rule string) (*blocklist.Block, *blocklist.Tombstone, error) {
	store, err := b.open()
	if err != nil {
		return nil, nil, err
	}
	return store.Get(ctx, subject, rule)
}

// Containing is blocklist.Store's.
func (b *blocksPort) Containing(ctx context.Context, now traffic.Time, q blocklist.Containing) (blocklist.Listing, error) {
	store, err := b.open()
	if err != nil {
		return blocklist.Listing{}, err
	}
	return store.Containing(ctx, now, q)
}

// Each is blocklist.Store's.
func (b *blocksPort) Each(ctx context.Context, now traffic.Time, wanted blocklist.Wanted,
	take func(blocklist.Listed) (more bool)) (unreadable int, err error) {
	store, err := b.open()
	if err != nil {
		return 0, err
	}
	return store.Each(ctx, now, wanted, take)
}

// WaitReleased is blocklist.Store's.
func (b *blocksPort) WaitReleased(ctx context.Context, request *detectors.Hit) (blocklist.Tombstone, error) {
	store, err := b.open()
	if err != nil {
		return blocklist.Tombstone{}, err
	}
	return store.WaitReleased(ctx, request)
}

// releasesPort appends to the hits topic, over a client of its own where none is given.
type releasesPort struct {
	config *config.Config
	log    *slog.Logger
	client *kafka.Client
}

var _ acts.Releases = (*releasesPort)(nil)

// Append waits a while for Kafka, and appends.
func (p *releasesPort) Append(ctx context.Context, release *detectors.Hit) error {
	k := p.client
	if k == nil {
		var err error
		if k, err = OpenKafka(p.config, p.log, nil); err != nil {
			return err
		}
		defer func() { _ = k.Close() }() // the append was answered, or given up
	}
	if err := WaitKafka(ctx, k, AnswerTimeout); err != nil {
		return err
	}
	return AppendRelease(ctx, k, p.config.Namespace, release)
}

// documentsPort judges documents by the configuration.
type documentsPort struct {
	environment func(warn func(rules.Problem)) (rules.Environment, error)
	config      *config.Config
}

var _ acts.Documents = (*documentsPort)(nil)

// Bounds of what one application of documents may bring.
const (
	maxApplyFiles = 20_000
	maxApplyBytes = 64 << 20
)

// Read parses files for the live stream's event format.
func (d *documentsPort) Read(files []acts.File, lists []string) (set *rules.Set, warnings []rules.Problem, err error) {
	env, err := d.environment(func(p rules.Problem) { warnings = append(warnings, p) })
	if err != nil {
		return nil, nil, err
	}
	env.Format, env.AllowLists = d.config.EventFormat(), append([]string{}, lists...)
	sources, size := make([]rules.File, len(files)), 0
	for i, f := range files {
		sources[i] = rules.File{Name: f.Name, Src: []byte(f.Text)}
		size += len(f.Text)
	}
	if len(files) > maxApplyFiles || size > maxApplyBytes {
		return nil, nil, fmt.Errorf("got %d files of %d bytes, allowed %d files of %d bytes in all", len(files), size, maxApplyFiles, maxApplyBytes)
	}
	set, err = rules.ParseSet(sources, env)
	if err == nil && len(set.Rules)+len(set.AllowLists) == 0 {
		return nil, warnings, acts.ErrNoRules
	}
	return set, warnings, err
}
