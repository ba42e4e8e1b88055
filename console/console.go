// Package console is the live stream on which people watch an installation: its pulse, who is over a limit, what rules in shadow
// would block beside what promoted ones do block, and the blocks with their remaining time. It only reads. The pages themselves are
// in console/pages; docs/console.md has the JSON API.
//
// One set of pollers reads the stores, about once a second and only while somebody watches; every viewer gets the same
// bytes, by Server-Sent Events.
package console

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/retry"
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

// Options configure a Console. All but Hosts, Command and Pages are required.
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
	Command string
	// Pages answers what the stream's API does not; nil for none.
	Pages      http.Handler
	Clock      func() traffic.Time
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// PollEvery is the least distance between two readings of a store. What viewers are told is so old at most, and as old as the reading took.
const PollEvery = time.Second

// Periods and bounds of a Console.
const (
	pollTimeout  = 3 * time.Second // for one reading; a store may hang
	pollShare    = 4               // a reading that took d is followed by a pause of pollShare*d at least
	answerWithin = 5 * time.Second // how long a JSON request waits for the first reading
	slowAfter    = 5 * time.Second // a viewer that does not take a frame for so long is dropped
	maxViewers   = 256
	mostOfOne    = 8 // viewers of one actor: tabs, and programs with one token
)

// Console serves the page and its API. Handler may be used by any number of goroutines.
type Console struct {
	o       Options
	hub     *hub
	metrics *metrics
	// troubles are those with each store, by its name.
	troubles map[string]*retry.Trouble

	mu       sync.Mutex
	meter    meter
	readings readings

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
	c := &Console{o: o, hub: newHub(maxViewers), slowAfter: slowAfter}
	c.troubles = map[string]*retry.Trouble{partHistory: {}, partBlocks: {}}
	var err error
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

// Why a request or a viewer is turned away.
const (
	refusedHost = "host" // asked for under a name that is not this server's
	refusedFull = "full" // as many viewers as there may be
	refusedOwn  = "own"  // as many of the actor as one may have
)

// What came of reading a store.
const (
	readOK     = "ok"
	readFailed = "failed"
)

type metrics struct {
	reads   *prometheus.CounterVec // store, outcome
	refused *prometheus.CounterVec // reason
	dropped prometheus.Counter
}

func newMetrics(to prometheus.Registerer, h *hub) (*metrics, error) {
	m := &metrics{
		reads: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_console_reads_total", Help: "Times that the console read a store."}, []string{"store", "outcome"}),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_console_refused_total", Help: "Requests that the console turned away."}, []string{"reason"}),
		dropped: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_console_dropped_viewers_total", Help: "Viewers that did not take what they were sent."}),
	}
	for _, store := range []string{partHistory, partBlocks} {
		m.reads.WithLabelValues(store, readOK)
		m.reads.WithLabelValues(store, readFailed)
	}
	m.refused.WithLabelValues(refusedHost)
	m.refused.WithLabelValues(refusedFull)
	m.refused.WithLabelValues(refusedOwn)
	viewers := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "weir_console_viewers", Help: "Open streams of the console."},
		func() float64 { return float64(h.count()) })
	for _, c := range []prometheus.Collector{m.reads, m.refused, m.dropped, viewers} {
		if err := to.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (m *metrics) read(store string, err error) {
	outcome := readOK
	if err != nil {
		outcome = readFailed
	}
	m.reads.WithLabelValues(store, outcome).Inc()
}
