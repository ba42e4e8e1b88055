package service

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

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/console/turns"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/kafka"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// AnswerTimeout is how long a command that answers a question waits for each server.
const AnswerTimeout = 10 * time.Second

// forever is how long processes that run until a signal wait for a server: as long as it takes.
const forever = 10 * 365 * config.Day

// Now is this machine's clock.
func Now() traffic.Time { return traffic.At(time.Now()) }

// OpenHistory opens the database of the configured installation. It connects when it is first asked.
func OpenHistory(ctx context.Context, c *config.Config, log *slog.Logger) (*history.Store, error) {
	return history.Open(ctx, postgres.Config{URL: c.Postgres.URL.Reveal(), Schema: c.Namespace, Logger: log})
}

// openLookups opens the database for short questions that somebody waits for.
func openLookups(ctx context.Context, c *config.Config, log *slog.Logger) (*history.Store, error) {
	const connections = 2
	return history.Open(ctx, postgres.Config{URL: c.Postgres.URL.Reveal(), Schema: c.Namespace, MaxConns: connections, Logger: log})
}

// OpenDesk opens the database for the console. What people change, and signing in, has connections of its own, which
// neither questions nor the evidence of promotions take, and none is a stage's.
func OpenDesk(ctx context.Context, c *config.Config, log *slog.Logger) (*history.Store, error) {
	const (
		acts, questions, evidence, shared = 6, turns.DefaultAll, 2, 2
		// What asks has ended by then, unless it hangs.
		questionTimeout, sharedTimeout = 12 * time.Second, 10 * time.Second
	)
	return history.Open(ctx, postgres.Config{
		URL: c.Postgres.URL.Reveal(), Schema: c.Namespace, MaxConns: acts, Logger: log,
		Lanes: map[postgres.Lane]postgres.LaneConfig{
			postgres.Questions: {MaxConns: questions, Timeout: questionTimeout},
			postgres.Evidence:  {MaxConns: evidence},
			postgres.Shared:    {MaxConns: shared, Timeout: sharedTimeout},
		},
	})
}

// Weighing is ctx for what an act is judged by, where it is an act's: no other act waits for its connections.
func Weighing(ctx context.Context) context.Context {
	if postgres.LaneOf(ctx) != postgres.Work {
		return ctx
	}
	return postgres.In(ctx, postgres.Evidence)
}

// OpenKafka makes the Kafka client of the configured installation. Its metrics go to registry, nowhere without one.
func OpenKafka(c *config.Config, log *slog.Logger, registry prometheus.Registerer) (*kafka.Client, error) {
	secure, err := clientTLS(&c.Kafka.TLS, "kafka.tls")
	if err != nil {
		return nil, err
	}
	return kafka.New(kafka.Config{
		Brokers: c.Kafka.Brokers, TLS: secure, Logger: log, Registerer: registry, Committed: committedTopics(c),
		SASL: kafka.SASL{
			Mechanism: c.Kafka.SASL.Mechanism, User: c.Kafka.SASL.Username, Password: c.Kafka.SASL.Password.Reveal(),
		},
	})
}

// committedTopics are those that others may write in transactions. Nobody but weir is meant to write the other ones,
// and weir writes without transactions: one that is open there is an attack or a mistake, and no reader waits for it.
func committedTopics(c *config.Config) []string {
	if c.Kafka.RequestsIsolation == config.ReadUncommitted {
		return nil
	}
	return []string{ingest.Live.Topics(c.Namespace).Requests}
}

// WaitKafka waits for Kafka, for timeout at most.
func WaitKafka(ctx context.Context, k *kafka.Client, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return k.WaitReady(ctx)
}

// OpenRedis makes the client of the configured installation's blocklist. It connects when it is first asked.
func OpenRedis(c *config.Config) (*blocklist.Store, error) {
	server, err := RedisServer(&c.Redis)
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
	store.Except(blocklist.NewNeverList(c.NeverBlock, Now))
	return store, nil
}

// RedisServer says where Redis is. username and password go before those in the URL.
func RedisServer(c *config.Redis) (blocklist.Server, error) {
	secure, err := clientTLS(&c.TLS, "redis.tls")
	if err != nil {
		return blocklist.Server{}, err
	}
	if len(c.Addresses) > 0 {
		return blocklist.Server{Cluster: c.Addresses, Username: c.Username, Password: c.Password.Reveal(), TLS: secure}, nil
	}
	u, err := url.Parse(c.URL.Reveal())
	if err != nil {
		return blocklist.Server{}, fmt.Errorf("redis.url: not a URL (it is not shown, it may hold a password)")
	}
	name, password := c.Username, c.Password.Reveal()
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

// WaitRedis waits for Redis, all masters of a cluster, for timeout at most, and logs why it does not answer.
func WaitRedis(ctx context.Context, s *blocklist.Store, timeout time.Duration, log *slog.Logger) error {
	return waitAnswer(ctx, s.Ping, timeout, log)
}

// waitStreams is WaitRedis for those who can work while a master of a cluster is away.
func waitStreams(ctx context.Context, s *blocklist.Store, timeout time.Duration, log *slog.Logger) error {
	return waitAnswer(ctx, s.PingStreams, timeout, log)
}

func waitAnswer(ctx context.Context, ping func(ctx context.Context) error, timeout time.Duration, log *slog.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return retry.Do(ctx, log, "Redis is not ready, trying again", ping)
}

// clientTLS makes the TLS settings of a client; nil without TLS. path is the section, for errors.
func clientTLS(c *config.TLS, path string) (*tls.Config, error) {
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
