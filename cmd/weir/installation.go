package main

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
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/consume"
	"github.com/weirhq/weir/ingest/kafka"
)

// installation is the servers of one namespace, connected, and what all stages need to know of its stream.
type installation struct {
	conf     *config
	log      *slog.Logger
	registry *prometheus.Registry

	history *history.Store
	kafka   *kafka.Client
	redis   *blocklist.Store // nil where nobody needs it
	// lookups is the database for those who block, with connections of its own: what is asked for each block must not
	// wait behind what RECORD and snapshots write. Nil like redis.
	lookups *history.Store

	stream   history.Stream
	names    ingest.Names
	secret   detectors.Secret
	secretID string
	requests int // partitions, as the topics have them
	hits     int
	blocks   int
	keyed    ingest.Retention
	dead     ingest.DeadLetters

	closers []func()
}

func (in *installation) close() { closeAll(in.closers) }

// open makes the clients. It connects nowhere yet.
func open(ctx context.Context, c *config, log *slog.Logger, registry *prometheus.Registry, withRedis bool) (*installation, error) {
	in := &installation{conf: c, log: log, registry: registry}
	var err error
	if in.history, err = openHistory(ctx, c, log); err != nil {
		return nil, err
	}
	in.closers = append(in.closers, in.history.Close)
	if in.kafka, err = openKafka(c, log, registry); err != nil {
		in.close()
		return nil, err
	}
	in.closers = append(in.closers, func() { _ = in.kafka.Close() })
	if !withRedis {
		return in, nil
	}
	if in.redis, err = openRedis(c); err != nil {
		in.close()
		return nil, err
	}
	in.closers = append(in.closers, func() { _ = in.redis.Close() })
	if in.lookups, err = openLookups(ctx, c, log); err != nil {
		in.close()
		return nil, err
	}
	in.closers = append(in.closers, in.lookups.Close)
	return in, nil
}

// wait waits until the servers answer, for patience at most; each one that does not is logged with its address and what
// to do about it.
func (in *installation) wait(ctx context.Context, patience time.Duration) error {
	if err := waitKafka(ctx, in.kafka, patience); err != nil {
		return err
	}
	if err := in.history.WaitReady(ctx, patience); err != nil {
		return err
	}
	if in.redis == nil {
		return nil
	}
	return waitStreams(ctx, in.redis, patience, in.log)
}

// enter looks up the stream and checks its topics: those that migrate, or a replay, has made.
func (in *installation) enter(ctx context.Context, stream string, topics ingest.TopicSettings) error {
	var err error
	if in.stream, err = in.history.Stream(ctx, stream); err != nil {
		return fmt.Errorf("%w: run weir migrate", err)
	}
	in.names = ingest.TopicNames(in.conf.Namespace, stream)
	if err := in.kafka.VerifyTopics(ctx, topics.Topics(in.names)); err != nil {
		return err
	}
	for _, t := range []struct {
		topic string
		n     *int
	}{{in.names.Requests, &in.requests}, {in.names.Hits, &in.hits}, {in.names.Blocks, &in.blocks}} {
		if *t.n, err = in.kafka.Partitions(ctx, t.topic); err != nil {
			return err
		}
	}
	if in.keyed, err = in.kafka.Retention(ctx, in.names.Keyed); err != nil {
		return err
	}
	if in.secretID, in.secret, err = in.history.Secret(ctx); err != nil {
		return err
	}
	in.dead, err = consume.NewDeadLetters(consume.DeadLetterOptions{
		Appender: in.kafka.Appender(in.names.Dead), Logger: in.log, Registerer: in.registry,
	})
	return err
}

// probes are what /readyz asks.
func (in *installation) probes() []probe {
	all := []probe{{"kafka", in.kafka.Ping}, {"postgres", in.history.Ping}}
	if in.redis != nil {
		all = append(all, probe{"redis", in.redis.Ping})
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
