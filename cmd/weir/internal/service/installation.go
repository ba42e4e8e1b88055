// Package service opens the servers of an installation, makes the stages of its stream, and runs and stops them in order.
// The commands of weir call it; it prints nothing.
package service

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/enforce"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/ingest/route"
)

// Installation is the servers of one namespace, connected, and what all stages need to know of its stream.
type Installation struct {
	Config   *config.Config
	Log      *slog.Logger
	registry prometheus.Registerer

	History *history.Store
	Kafka   *kafka.Client
	Redis   *blocklist.Store // nil unless Open was told that it is needed
	// lookups is the database as ENFORCE reads it, over connections of its own: the look-ups for each block must not wait
	// behind the writes of RECORD and of snapshots. Nil like Redis.
	lookups *history.Store

	// Of the stream that Enter was told of; before that they are zero.
	Stream             streams.Stream
	Names              ingest.TopicNames // of its topics
	RequestsPartitions int               // as the topics have them
	HitsPartitions     int
	blocksPartitions   int
	keyedRetention     ingest.Retention
	DeadLetters        ingest.DeadLetters
	SecretID           string
	secret             detectors.Secret

	address string  // where this process answers what it counts; empty: nowhere
	working working // the stages that were made
	closers []func()
}

// Close gives the clients back, the newest first.
func (in *Installation) Close() { CloseAll(in.closers) }

// Open makes the clients, that of Redis and the database for lookups only where they are needed. It connects nowhere yet.
func Open(ctx context.Context, c *config.Config, log *slog.Logger, registry prometheus.Registerer, withRedis bool) (*Installation, error) {
	in := &Installation{Config: c, Log: log, registry: registry}
	var err error
	if in.History, err = OpenHistory(ctx, c, log); err != nil {
		return nil, err
	}
	in.closers = append(in.closers, in.History.Close)
	if in.Kafka, err = OpenKafka(c, log, registry); err != nil {
		in.Close()
		return nil, err
	}
	in.closers = append(in.closers, func() { _ = in.Kafka.Close() })
	if !withRedis {
		return in, nil
	}
	if in.Redis, err = OpenRedis(c); err != nil {
		in.Close()
		return nil, err
	}
	in.closers = append(in.closers, func() { _ = in.Redis.Close() })
	if in.lookups, err = openLookups(ctx, c, log); err != nil {
		in.Close()
		return nil, err
	}
	in.closers = append(in.closers, in.lookups.Close)
	blocklist.SignModes(in.Redis, in.lookups.Streams.ModesSeed)
	blocklist.ActFor(in.Redis, in.lookups.Streams.Installation)
	return in, nil
}

// Wait waits until the servers answer, for timeout at most; each one that does not is logged with its address and what
// to do about it.
func (in *Installation) Wait(ctx context.Context, timeout time.Duration) error {
	if err := WaitKafka(ctx, in.Kafka, timeout); err != nil {
		return err
	}
	if err := in.History.WaitReady(ctx, timeout); err != nil {
		return err
	}
	if in.Redis == nil {
		return nil
	}
	return waitStreams(ctx, in.Redis, timeout, in.Log)
}

// Enter looks up the stream and its secret, and checks its topics: those that migrate, or a replay, has made.
func (in *Installation) Enter(ctx context.Context, stream string, topics ingest.TopicSettings) error {
	err := enterOpenly(ctx, in, stream, topics.Topics(ingest.Stream(stream).Topics(in.Config.Namespace)))
	if err != nil {
		return err
	}
	for _, t := range []struct {
		topic string
		n     *int
	}{{in.Names.Hits, &in.HitsPartitions}, {in.Names.Blocks, &in.blocksPartitions}} {
		if *t.n, err = in.Kafka.Partitions(ctx, t.topic); err != nil {
			return err
		}
	}
	if in.keyedRetention, err = in.Kafka.Retention(ctx, in.Names.Keyed); err != nil {
		return err
	}
	in.SecretID, in.secret, err = in.History.Streams.Secret(ctx)
	return err
}

// enterOpenly is what Enter is for those who bring events, or ask about them: they have no business with the secret,
// nor with topics other than those that they write or read.
func enterOpenly(ctx context.Context, in *Installation, stream string, topics []ingest.TopicSpec) error {
	var err error
	if in.Stream, err = in.History.Streams.Find(ctx, stream); err != nil {
		return fmt.Errorf("%w: run weir migrate", err)
	}
	in.Names = ingest.Stream(stream).Topics(in.Config.Namespace)
	if err := in.Kafka.VerifyTopics(ctx, topics); err != nil {
		return err
	}
	if in.RequestsPartitions, err = in.Kafka.Partitions(ctx, in.Names.Requests); err != nil {
		return err
	}
	in.DeadLetters, err = consume.NewDeadLetters(consume.DeadLetterOptions{
		Appender: in.Kafka.Appender(in.Names.Dead), Logger: in.Log, Registerer: in.registry,
		Reasons: map[string][]string{
			archive.Stage: archive.DeadReasons(), ingest.StageRoute: route.DeadReasons(), ingest.StageRecord: history.DeadReasons(), ingest.StageEnforce: enforce.DeadReasons(),
		},
	})
	return err
}

// Probes are what /readyz asks.
func (in *Installation) Probes() []Probe {
	all := []Probe{{"kafka", in.Kafka.Ping}, {"postgres", in.History.Ping}}
	if in.Redis != nil {
		all = append(all, Probe{"redis", in.Redis.Ping})
	}
	return all
}

// processName names this process among all, different at every start: owner of keyed partitions.
func processName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return "", fmt.Errorf("naming this process: %w", err)
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), hex.EncodeToString(id[:])), nil
}
