package server

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/retry"
)

const (
	lookEvery   = time.Second     // at Kafka
	lookSlowly  = 5 * time.Second // at what stages report to PostgreSQL, and at Redis
	lookTimeout = 3 * time.Second
	quietAfter  = 30 * time.Second // a process that detects reports every two
)

// distant is the pulse of an installation, as it is read from outside: logs and commits in Kafka, what stages report to
// PostgreSQL, what gates tell Redis, whether the servers answer. It is the same wherever the console is served.
// Episodes and blocks are counted by the stages alone: where they run in this process they are asked, elsewhere these
// counters are unknown.
type distant struct {
	kafka      *kafka.Client
	partitions *partitions.Store
	rules      *rulestore.Store
	redis      *blocklist.Store
	mine       func(context.Context) (string, error) // name of this installation
	here       func() console.Pulse                  // the stages in this process; nil: there are none
	namespace  string
	log        *slog.Logger
	start      time.Time

	mu       sync.Mutex
	began    *console.Pulse // the first reading: totals are told from there on
	pulse    console.Pulse
	stopped  []console.Problem
	counted  counting
	gates    []console.Gate
	oddGates int                        // those whose reports cannot be read
	gatesErr error                      // why gates are not known
	foreign  string                     // whose Redis is, where it is another installation's
	identity string                     // fingerprint of the identity map in effect; "": not known
	routing  int64                      // the version that has it; of lookAtIdentity alone
	away     map[string]console.Problem // by part
	troubles map[string]*retry.Trouble
}

// counting is how far DETECT is behind, by its own reports: it commits with its snapshots only.
type counting struct {
	behind int64
	known  bool
}

func newDistant(o Options, desk *history.Store) *distant {
	return &distant{
		kafka: o.Kafka, partitions: desk.Partitions, rules: desk.Rules, redis: o.Redis, here: o.Pulse,
		mine:      desk.Streams.Installation,
		namespace: o.Config.Namespace, log: o.Log, start: service.Now().Std(), away: map[string]console.Problem{},
		troubles: map[string]*retry.Trouble{partKafka: {}, partPostgres: {}, partRedis: {}},
		pulse:    console.Pulse{Unknown: unknownAfar()},
	}
}

// Parts that may be away.
const (
	partKafka    = "Kafka"
	partPostgres = "PostgreSQL"
	partRedis    = "Redis"
)

// unknownAfar are the counters that only the stages' own processes know.
func unknownAfar() []string { return []string{console.CounterHits, console.CounterBlocks} }

// Pulse is what was seen last.
func (d *distant) Pulse() console.Pulse {
	var here console.Pulse
	if d.here != nil {
		here = d.here()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pulse
	if d.here != nil {
		p.Events, p.Keyed, p.Hits, p.Blocks, p.Unknown = here.Events, here.Keyed, here.Hits, here.Blocks, here.Unknown
	}
	if len(p.Stages) == 0 {
		p.Stages = here.Stages // Kafka has not answered yet
	}
	p.Stages = d.counted.into(p.Stages)
	p.Gates, p.GatesUnknown = d.gates, d.gatesErr != nil
	p.Problems = slices.Clone(d.stopped)
	for _, one := range here.Problems {
		if !slices.Contains(p.Problems, one) {
			p.Problems = append(p.Problems, one)
		}
	}
	for _, part := range []string{partKafka, partPostgres, partRedis} {
		if problem, is := d.away[part]; is {
			p.Problems = append(p.Problems, problem)
		}
	}
	if p.Foreign = d.foreign; d.foreign != "" {
		p.Problems = append(p.Problems, console.Problem{Part: partRedis, Detail: d.foreign})
	}
	p.Problems = append(p.Problems, gateProblems(d.gates, d.oddGates)...)
	return p
}

// into puts what DETECT reports into the lags that Kafka tells.
func (c counting) into(stages []console.StageLag) []console.StageLag {
	if !c.known {
		return stages
	}
	out := slices.Clone(stages)
	for i := range out {
		if out[i].Stage == ingest.StageDetect {
			out[i].Records = c.behind
		}
	}
	return out
}

// shownGateProblems bounds what many gates with one mistake fill a page with.
const shownGateProblems = 8

// gateProblems are the doubts about gates, and that so many tell what cannot be read.
func gateProblems(gates []console.Gate, odd int) (all []console.Problem) {
	left := 0
	for _, g := range gates {
		for _, doubt := range g.Doubts {
			if len(all) == shownGateProblems {
				left++
				continue
			}
			all = append(all, console.Problem{Part: "Gate " + g.Instance, Detail: doubt})
		}
	}
	if odd > 0 {
		detail := fmt.Sprintf("include %d whose reports this build cannot read", odd)
		all = append(all, console.Problem{Part: "Gates", Detail: detail})
	}
	if left > 0 {
		detail := fmt.Sprintf("have %d more problems: see the list of them", left)
		all = append(all, console.Problem{Part: "Gates", Detail: detail})
	}
	return all
}

// Run looks until ctx ends.
func (d *distant) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() {
		d.every(ctx, lookEvery, partKafka, "does not answer; lags and rates are as they were", d.lookAtKafka)
	})
	all.Go(func() {
		d.every(ctx, lookSlowly, partPostgres, "does not answer; rules and history cannot be shown or changed", d.lookAtPartitions)
	})
	all.Go(func() {
		const away = "does not answer; blocks cannot be shown, and gates keep those that they know"
		d.every(ctx, lookSlowly, partRedis, away, d.lookAtRedis)
	})
	all.Wait()
	return nil
}

func (d *distant) every(ctx context.Context, pause time.Duration, part, meaning string, look func(ctx context.Context) error) {
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		bounded, cancel := context.WithTimeout(ctx, lookTimeout)
		err := look(bounded)
		cancel()
		if ctx.Err() != nil {
			return
		}
		d.mu.Lock()
		if err != nil {
			d.troubles[part].Failed(d.log, "the console cannot look at "+part, err)
			d.away[part] = console.Problem{Part: part, Detail: meaning}
		} else {
			d.troubles[part].Over(d.log, "the console can look at "+part+" again")
			delete(d.away, part)
		}
		d.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// lookAtKafka reads how long the logs are, and how far each stage's group has come in them.
func (d *distant) lookAtKafka(ctx context.Context) error {
	names := ingest.Live.Topics(d.namespace)
	next := console.Pulse{Unknown: unknownAfar()}
	var err error
	if next.Events, err = d.length(ctx, names.Requests); err != nil {
		return err
	}
	if next.Keyed, err = d.length(ctx, names.Keyed); err != nil {
		return err
	}
	for _, w := range []struct{ stage, topic string }{
		{ingest.StageRoute, names.Requests}, {ingest.StageDetect, names.Keyed}, {ingest.StageRecord, names.Hits},
		{ingest.StageRecordBlocks, names.Blocks}, {ingest.StageEnforce, names.Hits},
	} {
		lags, err := d.kafka.Lag(ctx, ingest.Live.Group(d.namespace, w.stage), w.topic)
		if err != nil {
			return fmt.Errorf("%s: %w", w.stage, err)
		}
		lag := console.StageLag{Stage: w.stage}
		for _, records := range lags {
			lag.Records += records
		}
		next.Stages = append(next.Stages, lag)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.began == nil {
		d.began = &console.Pulse{Events: next.Events, Keyed: next.Keyed}
	}
	next.Events, next.Keyed = max(0, next.Events-d.began.Events), max(0, next.Keyed-d.began.Keyed)
	d.pulse = next
	return nil
}

// length is how many records a topic has ever had: the sum of the ends of its partitions.
func (d *distant) length(ctx context.Context, topic string) (sum int64, err error) {
	n, err := d.kafka.Partitions(ctx, topic)
	if err != nil {
		return 0, err
	}
	bounds, err := d.kafka.Log(topic).Bounds(ctx, ingest.AllPartitions(n))
	for _, b := range bounds {
		sum += b.End
	}
	return sum, err
}

// lookAtPartitions reads which partitions stand still.
func (d *distant) lookAtPartitions(ctx context.Context) error {
	states, err := d.partitions.PartitionStates(ctx, history.Live)
	if err != nil {
		return err
	}
	if err := d.lookAtIdentity(ctx); err != nil {
		return err
	}
	var stopped []console.Problem
	var told time.Time // when a process that detects reported last
	var counted counting
	for _, s := range states {
		if s.Side == ingest.SideKeyed {
			counted.behind += max(0, s.End-s.Offset)
			if s.Reported.After(told) {
				told = s.Reported
			}
		}
		if s.State == ingest.Refused || s.State == ingest.Halted {
			stopped = append(stopped, console.StoppedPartition(string(s.Side), s.Partition))
		}
	}
	silence := service.Now().Std().Sub(told)
	counted.known = silence <= quietAfter
	if !counted.known && !d.beginning() {
		detail := "no process has ever reported: is weir run running?"
		if !told.IsZero() {
			detail = fmt.Sprintf("no process has reported since %s: is weir run running?", told.UTC().Format(time.RFC3339))
		}
		stopped = append(stopped, console.Problem{Part: "Stage detect", Detail: detail})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped, d.counted = stopped, counted
	return nil
}

// beginning reports whether the stages of this process may not have reported yet.
func (d *distant) beginning() bool {
	return d.here != nil && service.Now().Std().Sub(d.start) <= quietAfter
}

// lookAtIdentity reads by which identity map events are read.
func (d *distant) lookAtIdentity(ctx context.Context) error {
	number, err := d.rules.Newest(ctx, history.Live)
	if err != nil || number == 0 || number == d.routing {
		return err
	}
	routing, err := d.rules.Routing(ctx, history.Live, number)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.routing, d.identity = number, routing.Identity.Fingerprint()
	return nil
}

// lookAtRedis asks for a sign of life, and for the gates. That these cannot be read, by a right that is missing, is no
// sign of death.
func (d *distant) lookAtRedis(ctx context.Context) error {
	away := d.redis.Ping(ctx)
	var listing blocklist.GateListing
	err := away
	if away == nil {
		d.lookAtOwner(ctx)
		listing, err = blocklist.NewGateBook(d.redis).List(ctx)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.gatesErr = err; err != nil {
		d.log.DebugContext(ctx, "the console cannot list gates", "error", err)
		d.gates, d.oddGates = nil, 0
		return away
	}
	d.oddGates = listing.Unreadable
	d.gates = make([]console.Gate, len(listing.Gates))
	for i, g := range listing.Gates {
		d.gates[i] = console.Gate{GateReport: g}
		for _, doubt := range g.Doubts(d.identity) {
			d.gates[i].Doubts = append(d.gates[i].Doubts, doubt.Text)
		}
	}
	return nil
}

// lookAtOwner finds out whose Redis is. What cannot be found out is as it was.
func (d *distant) lookAtOwner(ctx context.Context) {
	mine, err := d.mine(ctx)
	if err == nil {
		err = blocklist.NewOwnership(d.redis).RefuseForeign(ctx, mine)
	}
	is := (*blocklist.ForeignError)(nil)
	if err != nil && !errors.As(err, &is) {
		d.log.DebugContext(ctx, "the console cannot find out whose Redis is", "error", err)
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.foreign = ""; is != nil {
		d.foreign = is.Means()
	}
}
