// Package console is the page on which people watch an installation: the stream, who is over a limit, what rules in shadow
// would block beside what promoted ones do block, and the blocks with their remaining time. It only reads.
//
// One set of pollers reads the stores, about once a second and only while somebody watches; every viewer gets the same
// bytes, by Server-Sent Events. The page itself is embedded; it needs no other host. docs/console.md has the JSON API.
package console

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/traffic"
)

// Rules is what the console reads of the rule store.
type Rules interface {
	// List returns all rules that have not been removed, ascending by id.
	List(ctx context.Context) ([]rulestore.Rule, error)
}

var _ Rules = (*rulestore.Store)(nil)

// History is what the console reads of the recorded hits; a history.Store is one.
type History interface {
	// Hits returns episodes, those with the newest last over event first.
	Hits(ctx context.Context, q history.HitQuery) ([]history.RecordedHit, error)
}

var _ History = (*history.Store)(nil)

// Blocks is what the console reads of Redis; a blocklist.Store is one.
type Blocks interface {
	// List returns the blocks and, where the filter says so, the releases.
	List(ctx context.Context, now traffic.Time, filter blocklist.Filter) (blocklist.Listing, error)
}

var _ Blocks = (*blocklist.Store)(nil)

// Options configure a Console. All but Hosts and Command are required.
type Options struct {
	Rules   Rules
	History History
	Blocks  Blocks
	// Pulse is asked once a second, also while nobody watches, and must answer at once.
	Pulse func() Pulse
	// Hosts are the names, without port, under which the console is reached beside localhost and bare addresses. A
	// request for any other host is refused: a page elsewhere could point a name of its own at this server.
	Hosts []string
	// Command is what precedes `rules promote …` in the commands that the page shows; default "weir".
	Command    string
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Periods and bounds of a Console.
const (
	pollEvery    = time.Second     // least distance between two readings of a store
	pollTimeout  = 3 * time.Second // for one reading; a store may hang
	pollShare    = 4               // a reading that took d is followed by a pause of pollShare*d at least
	answerWithin = 5 * time.Second // how long a JSON request waits for the first reading
	slowAfter    = 5 * time.Second // a viewer that does not take a frame for so long is dropped
	maxViewers   = 64
)

// Console serves the page and its API. Handler may be used by any number of goroutines.
type Console struct {
	o       Options
	hub     *hub
	assets  map[string]asset
	metrics *metrics

	mu    sync.Mutex
	meter meter
	seen  seen

	slowAfter time.Duration // slowAfter, but for tests
}

// New makes a Console. It answers as soon as Run runs.
func New(o Options) (*Console, error) {
	for _, p := range []struct {
		name  string
		given bool
	}{
		{"Rules", o.Rules != nil}, {"History", o.History != nil}, {"Blocks", o.Blocks != nil}, {"Pulse", o.Pulse != nil},
		{"Clock", o.Clock != nil}, {"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil},
	} {
		if !p.given {
			return nil, fmt.Errorf("console: %s is missing", p.name)
		}
	}
	if o.Command == "" {
		o.Command = "weir"
	}
	for _, h := range o.Hosts {
		if h == "" || strings.ContainsAny(h, "/: ") {
			return nil, fmt.Errorf("console: Hosts: got %q, allowed: a host name without scheme and port", h)
		}
	}
	assets, err := loadAssets()
	if err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	c := &Console{o: o, hub: newHub(maxViewers), assets: assets, slowAfter: slowAfter}
	if c.metrics, err = newMetrics(o.Registerer, c.hub); err != nil {
		return nil, fmt.Errorf("console: %w", err)
	}
	return c, nil
}

// Run polls and tells the viewers until ctx is done; then it ends all their streams and returns nil. It is called once.
func (c *Console) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer c.hub.close()
	defer cancel()
	all.Go(func() { c.follow(ctx, partHistory, c.readHistory) })
	all.Go(func() { c.follow(ctx, partBlocks, c.readBlocks) })
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		c.beat()
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}
