// Package route is the stage ROUTE: it turns each event of the requests topic into at most one keyed record per keyed
// partition, exactly once whatever dies on the way.
package route

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// Defaults of Options.
const (
	defaultMaxChunkEvents = 10_000
	defaultMaxChunkBytes  = 8 << 20
	defaultTickEvery      = detectors.TickEvery
	defaultLookEvery      = time.Second
	defaultReportEvery    = 2 * time.Second
)

// Options is what a Router needs. Everything without a stated default is required.
type Options struct {
	Stream          string // "live" or "replay/NAME"
	Topic           string // name of the requests topic, for dead letters
	Generation      int64  // g: which life of the requests topic; kept in Postgres by weir migrate
	Sources         int    // partitions that requests had when that life began; those with a greater number were added since
	Live            bool   // correct times in the future, read no end mark, tell detectors when a partition is idle
	KeyedPartitions int
	Secret          []byte // the deployment secret, which the places of keyed records depend on
	SecretID        string // a routing version made under another secret is refused

	Log         ingest.Log      // requests
	Keyed       ingest.Appender // keyed
	Group       ingest.Group    // of requests
	Routings    ingest.Routings
	Partitions  ingest.Partitions
	DeadLetters ingest.DeadLetters
	// Transactions tells whose open transaction holds a partition up; default none: reports do not say.
	Transactions Transactions
	Figures      ingest.Figures // what was seen, and what was left out; default none: it is in the metrics only
	Owner        string         // a name that no other router has, with Figures

	Clock      func() traffic.Time // this machine's clock
	Logger     *slog.Logger
	Registerer prometheus.Registerer

	// The program leaves the rest to their defaults; tests and simulations set it.

	MaxChunkEvents int           // events in one chunk; default 10,000
	MaxChunkBytes  int           // bytes of events in one chunk; default 8 MiB
	TickEvery      time.Duration // between two rounds of ticks; default 1 s
	LookEvery      time.Duration // how often routing versions, and partitions that are not routed, are looked at; default 1 s
	ReportEvery    time.Duration // between two reports to the stores; default 2 s
	FetchWait      time.Duration // how long a fetch waits for the first event; default ingest.DefaultFetchWait
}

// Transactions looks at the open transactions of the requests topic.
type Transactions interface {
	// Open is the one that ends what readers of a partition are shown; Start is ingest.NoOffset where there is none.
	// With an error it has what is known all the same.
	Open(ctx context.Context, partition int) (ingest.Transaction, error)
}

// Router is the ROUTE stage: it turns every event of the requests topic into at most one keyed record per keyed
// partition, so that the keyed log, after the fence, holds each of them exactly once whatever dies on the way.
//
// How that is reached (docs/DESIGN.md §2, "Counting exactly once"), and where:
//
//	every generation starts from the fetched commits            session.adopt
//	a commit announces a chunk before any of it is appended     session.announce
//	no chunk crosses an announced end                           chunkBuilder.build
//	an announced end and a version never go back                session.plan
//	a failed chunk is retried whole, with the same bytes        session.deliver
//	a commit without an answer ends the membership              session.commit
type Router struct {
	opt      Options
	versions *versionShelf
	heard    chan struct{} // holds an item when routing versions have changed since the last look
	tally    *tally
	lags     *ingest.Lags
	figures  *figures
	minutes  *minutes
	// refused remembers the last refused commit of each partition, over generations. Only a session's goroutine uses it.
	refused map[int]refusedCommit
	// hints outlives generations, too: what Kafka has, it has.
	hints hintMemory
}

// New checks the options and fills in defaults. It registers the stage's metrics.
func New(opt Options) (*Router, error) {
	if err := opt.check(); err != nil {
		return nil, fmt.Errorf("route stage: %w", err)
	}
	opt.fillIn()
	r := &Router{opt: opt, versions: newVersionShelf(&opt), heard: make(chan struct{}, 1), tally: newTally(), refused: map[int]refusedCommit{}}
	r.figures, r.minutes = newFigures(&r.opt, r.tally), newMinutes(&r.opt, r.tally)
	if err := opt.Registerer.Register(newRouteCollector(r.tally, r.versions, opt.Clock)); err != nil {
		return nil, fmt.Errorf("route stage: metrics: %w", err)
	}
	var err error
	if r.lags, err = ingest.NewLags(opt.Registerer, opt.Clock); err != nil {
		return nil, fmt.Errorf("route stage: %w", err)
	}
	return r, nil
}

func (o *Options) check() error {
	for _, need := range []struct {
		name string
		ok   bool
	}{
		{"Stream", o.Stream != ""}, {"Topic", o.Topic != ""}, {"Secret", len(o.Secret) > 0}, {"Log", o.Log != nil},
		{"Keyed", o.Keyed != nil}, {"Group", o.Group != nil}, {"Routings", o.Routings != nil},
		{"Partitions", o.Partitions != nil}, {"DeadLetters", o.DeadLetters != nil}, {"Clock", o.Clock != nil},
		{"Logger", o.Logger != nil}, {"Registerer", o.Registerer != nil}, {"Owner", o.Owner != "" || o.Figures == nil},
	} {
		if !need.ok {
			return errors.New("option " + need.name + " is required")
		}
	}
	if o.Generation < 0 {
		return fmt.Errorf("option Generation: got %d, allowed: 0 and more", o.Generation)
	}
	return ingest.CheckMetadata(o.KeyedPartitions)
}

func (o *Options) fillIn() {
	setDefault(&o.MaxChunkEvents, defaultMaxChunkEvents)
	setDefault(&o.MaxChunkBytes, defaultMaxChunkBytes)
	setDefault(&o.TickEvery, defaultTickEvery)
	setDefault(&o.LookEvery, defaultLookEvery)
	setDefault(&o.ReportEvery, defaultReportEvery)
	setDefault(&o.FetchWait, ingest.DefaultFetchWait)
}

func setDefault[T int | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}

// RoutingsChanged says that a routing version has been published: the router looks for it at once, and not when LookEvery is
// over. It never blocks, and may be called at any time.
func (r *Router) RoutingsChanged() { ingest.Wake(r.heard) }

// Run routes until ctx is done, one session per group generation. It returns what Group.Run returns.
func (r *Router) Run(ctx context.Context) error {
	defer r.lastFigures(ctx)
	return r.lags.Run(ctx, ingest.StageRoute, r.opt.Group, func(ctx context.Context, a ingest.Assignment) error {
		return newSession(r, a).run(ctx)
	})
}

// Stats is a snapshot of what this router has done since it was made.
func (r *Router) Stats() Stats { return r.tally.snapshot() }

// lag shows how far a partition of requests is behind.
func (r *Router) lag(partition int) *ingest.Lag { return r.lags.Of(ingest.StageRoute, partition) }
