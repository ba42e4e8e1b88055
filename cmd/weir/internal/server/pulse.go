package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/console"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/partitions"
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

// distant is the pulse of stages that run in other processes, as far as it can be read from outside: logs and commits in Kafka, what
// stages report to PostgreSQL, whether the servers answer. Episodes and blocks are counted by the stages alone, so they are unknown.
type distant struct {
	kafka      *kafka.Client
	partitions *partitions.Store
	redis      func(ctx context.Context) error
	namespace  string
	log        *slog.Logger

	mu       sync.Mutex
	began    *console.Pulse // the first reading: totals are told from there on
	pulse    console.Pulse
	stopped  []console.Problem
	away     map[string]console.Problem // by part
	troubles map[string]*retry.Trouble
}

func newDistant(k *kafka.Client, p *partitions.Store, redis func(ctx context.Context) error, namespace string, log *slog.Logger) *distant {
	return &distant{
		kafka: k, partitions: p, redis: redis, namespace: namespace, log: log, away: map[string]console.Problem{},
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
	d.mu.Lock()
	defer d.mu.Unlock()
	p := d.pulse
	p.Problems = slices.Clone(d.stopped)
	for _, part := range []string{partKafka, partPostgres, partRedis} {
		if problem, is := d.away[part]; is {
			p.Problems = append(p.Problems, problem)
		}
	}
	return p
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
		d.every(ctx, lookSlowly, partRedis, "does not answer; blocks cannot be shown, and gates keep those that they know", d.redis)
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
	var stopped []console.Problem
	var told time.Time // when a process that detects reported last
	for _, s := range states {
		if s.Side == ingest.SideKeyed && s.Reported.After(told) {
			told = s.Reported
		}
		if s.State == ingest.Refused || s.State == ingest.Halted {
			stopped = append(stopped, console.StoppedPartition(string(s.Side), s.Partition))
		}
	}
	if silence := service.Now().Std().Sub(told); silence > quietAfter {
		detail := "no process has ever reported: is weir run running?"
		if !told.IsZero() {
			detail = fmt.Sprintf("no process has reported since %s: is weir run running?", told.UTC().Format(time.RFC3339))
		}
		stopped = append(stopped, console.Problem{Part: "Stage detect", Detail: detail})
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.stopped = stopped
	return nil
}
