package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/traffic"
)

// askPatience is how long a command that answers a question waits for a server. Long-running processes wait as long as
// it takes.
const askPatience = 10 * time.Second

// forEver is the patience of long-running processes.
const forEver = 10 * 365 * day

// now is this machine's clock.
func now() traffic.Time { return traffic.At(time.Now()) }

// store is an installation's history with the configuration that led to it.
type store struct {
	*history.Store
	config *config
	log    *slog.Logger
}

// withStore opens the history of the configured installation for a command that asks or changes something.
func (a *app) withStore(cmd *cobra.Command, work func(ctx context.Context, s *store) error) error {
	c, err := a.config(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	log := a.quietLogger(c)
	s, err := openHistory(ctx, c, log)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.WaitReady(ctx, askPatience); err != nil {
		return err
	}
	return work(ctx, &store{Store: s, config: c, log: log})
}

// quietLogger is the logger of commands that answer on standard output: only what goes wrong is worth a line beside it.
func (a *app) quietLogger(c *config) *slog.Logger {
	quiet := c.Log
	if quiet.Level == "info" {
		quiet.Level = "warn"
	}
	return newLogger(quiet, a.stderr)
}

func openHistory(ctx context.Context, c *config, log *slog.Logger) (*history.Store, error) {
	return history.Open(ctx, history.Config{URL: c.Postgres.URL.reveal(), Schema: c.Namespace, Logger: log})
}

// openLookups opens the database for short questions that somebody waits for.
func openLookups(ctx context.Context, c *config, log *slog.Logger) (*history.Store, error) {
	const connections = 2
	return history.Open(ctx, history.Config{URL: c.Postgres.URL.reveal(), Schema: c.Namespace, MaxConns: connections, Logger: log})
}

func openKafka(c *config, log *slog.Logger, registry prometheus.Registerer) (*kafka.Client, error) {
	secure, err := c.Kafka.TLS.client("kafka.tls")
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Config{
		Brokers: c.Kafka.Brokers, TLS: secure, Logger: log, Registerer: registry,
		SASL: kafka.SASL{
			Mechanism: c.Kafka.SASL.Mechanism, User: c.Kafka.SASL.Username, Password: c.Kafka.SASL.Password.reveal(),
		},
	})
}

// waitKafka waits for Kafka, for patience at most.
func waitKafka(ctx context.Context, k *kafka.Client, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return k.WaitReady(ctx)
}

func openRedis(c *config) (*blocklist.Store, error) {
	server, err := c.Redis.server()
	if err != nil {
		return nil, err
	}
	store, err := blocklist.Connect(server, c.Namespace)
	if err != nil {
		return nil, err
	}
	crowds := blocklist.Crowds{PerAddress: c.Blocks.PerAddress}
	for f := range traffic.NumFields {
		if !c.Identity.Vouched(f) {
			crowds.Claimed = append(crowds.Claimed, f)
		}
	}
	store.Bound(crowds)
	store.Except(blocklist.NewNeverBlock(c.NeverBlock))
	return store, nil
}

// server says where Redis is. username and password go before those in the URL.
func (c *redisConfig) server() (blocklist.Server, error) {
	secure, err := c.TLS.client("redis.tls")
	if err != nil {
		return blocklist.Server{}, err
	}
	if len(c.Addresses) > 0 {
		return blocklist.Server{Cluster: c.Addresses, Username: c.Username, Password: c.Password.reveal(), TLS: secure}, nil
	}
	u, err := url.Parse(c.URL.reveal())
	if err != nil {
		return blocklist.Server{}, fmt.Errorf("redis.url: not a URL (it is not shown, it may hold a password)")
	}
	name, password := c.Username, c.Password.reveal()
	if name == "" {
		name = u.User.Username()
	}
	if password == "" {
		password, _ = u.User.Password()
	}
	u.User = nil
	if name != "" || password != "" {
		u.User = url.UserPassword(name, password)
	}
	return blocklist.Server{URL: u.String(), TLS: secure}, nil
}

// waitRedis waits for Redis, all masters of a cluster, with a back-off, for patience at most, and logs each new reason once.
func waitRedis(ctx context.Context, s *blocklist.Store, patience time.Duration, log *slog.Logger) error {
	return waitAnswer(ctx, s.Ping, patience, log)
}

// waitStreams is waitRedis for who can work while a master of a cluster is away.
func waitStreams(ctx context.Context, s *blocklist.Store, patience time.Duration, log *slog.Logger) error {
	return waitAnswer(ctx, s.PingStreams, patience, log)
}

func waitAnswer(ctx context.Context, ping func(ctx context.Context) error, patience time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return persist(ctx, log, "Redis is not ready, trying again", ping)
}

// persist tries until it works or ctx ends, with pauses from 100 ms to 5 s. Each new reason is logged once; the last one
// is the error.
func persist(ctx context.Context, log *slog.Logger, message string, try func(ctx context.Context) error) error {
	told, wait := "", 100*time.Millisecond
	var last error
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err // what is wrong, rather than that time ran out
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			log.Warn(message, "error", err)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return last
		case <-timer.C:
		}
		wait = min(2*wait, 5*time.Second)
	}
}

// client makes the TLS settings of a client; nil without TLS. path is the section, for errors.
func (c *tlsConfig) client(path string) (*tls.Config, error) {
	if !c.Enabled {
		return nil, nil
	}
	t := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.ServerName}
	if c.CAFile != "" {
		pem, err := os.ReadFile(c.CAFile)
		if err != nil {
			return nil, fmt.Errorf("%s.ca_file: %w", path, err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s.ca_file: %s holds no certificate; allowed: PEM", path, c.CAFile)
		}
	}
	if c.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("%s.cert_file, %s.key_file: %w", path, path, err)
		}
		t.Certificates = []tls.Certificate{pair}
	}
	return t, nil
}

// topicSettings is what the configuration says about topics.
func (c *config) topicSettings() ingest.TopicSettings {
	p, r := c.Kafka.Partitions, c.Kafka.Retention
	return ingest.TopicSettings{
		RequestsPartitions: p.Requests, KeyedPartitions: p.Keyed, HitsPartitions: p.Hits, BlocksPartitions: p.Hits,
		DeadPartitions: 1, Replication: c.Kafka.Replication,
		RequestsRetention: time.Duration(r.Requests), KeyedRetention: time.Duration(r.Keyed), HitsRetention: time.Duration(r.Hits),
		BlocksRetention: time.Duration(r.Blocks), DeadRetention: time.Duration(r.Dead),
	}
}
