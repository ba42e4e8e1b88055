package service

import (
	"context"
	"log/slog"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/clocks"
)

// The stores as processes name them when they compare clocks.
const (
	storeKafka    = "kafka"
	storeRedis    = "redis"
	storePostgres = "postgres"
)

// What a process does, as it tells doctor.
const (
	DoesStages  = "stages"
	DoesConsole = "console"
	DoesIngest  = "ingest"
)

// WatchClocks makes the part that compares this process's clock with those of the stores that it talks to, and tells
// doctor of it. does says what the process does.
func WatchClocks(in *Installation, build string, does ...string) (Part, error) {
	name, err := processName()
	if err != nil {
		return Part{}, err
	}
	o := clocks.Options{
		Sources: []clocks.Source{{Store: storeKafka, Read: kafka.Clock(in.Kafka)},
			{Store: storePostgres, Read: in.History.Clock}},
		Clock: Now, Logger: in.Log, Registerer: in.registry,
		Announce: func(ctx context.Context, offsets []clocks.Offset) error {
			told := partitions.Process{Instance: name, Does: strings.Join(does, ","), Build: build,
				Offsets: make(map[string]float64, len(offsets))}
			for _, o := range offsets {
				told.Offsets[o.Store] = o.Apart.Seconds()
			}
			return in.History.Partitions.Announce(ctx, told)
		},
		Leave: func(ctx context.Context) error { return in.History.Partitions.Leave(ctx, name) },
	}
	if in.Redis != nil {
		o.Sources = append(o.Sources, clocks.Source{Store: storeRedis, Read: blocklist.Clock(in.Redis)})
	}
	w, err := clocks.NewWatch(o)
	if err != nil {
		return Part{}, err
	}
	return Part{"clocks", w.Run}, nil
}

// WatchRedisClock makes a gate's Watch: Redis is all that it talks to.
func WatchRedisClock(redis *blocklist.Store, log *slog.Logger, registry prometheus.Registerer) (*clocks.Watch, error) {
	return clocks.NewWatch(clocks.Options{
		Sources: []clocks.Source{{Store: storeRedis, Read: blocklist.Clock(redis)}},
		Clock:   Now, Logger: log, Registerer: registry,
	})
}

// Beside runs a part of a short-lived command beside its work. The returned function ends it, and waits for its end.
func Beside(ctx context.Context, log *slog.Logger, p Part) func() {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := p.Run(ctx); err != nil {
			log.Warn("a part has ended, and the command goes on", "part", p.Name, "error", err)
		}
	}()
	return func() { stop(); <-ended }
}
