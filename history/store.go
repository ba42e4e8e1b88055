// Package history is what weir keeps in PostgreSQL: hits and block decisions, rule versions, modes and routing
// versions, streams, snapshots and who owns a partition. Its recorders are the RECORD stage.
//
// Whatever comes from a client is made Printable before it is stored, so that PostgreSQL takes it; a row that it still
// refuses becomes a dead letter and never holds up its batch.
package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/migrations"
)

// ErrNotFound is wrapped where a stream, rule, routing version or secret is asked for that does not exist.
var ErrNotFound = errors.New("not found")

// ErrNotMigrated says that the schema lacks something this build needs.
var ErrNotMigrated = errors.New("run `weir migrate`")

// Live is the name of the stream that gateways feed. Every other one is a replay, named ReplayPrefix + NAME.
const (
	Live         = string(ingest.Live)
	ReplayPrefix = "replay/"
)

// DefaultMaxConns is how many connections a Store opens at most when Config does not say. Watch takes one more each.
const DefaultMaxConns = 8

// connectTimeout bounds one attempt to connect where the URL has no connect_timeout of its own.
const connectTimeout = 5 * time.Second

// Config is what a Store needs.
type Config struct {
	URL      string // postgres://USER:PASSWORD@HOST:PORT/DATABASE; never logged, never part of an error
	Schema   string // the namespace, see migrations.CheckSchema
	MaxConns int    // 0: DefaultMaxConns
	Logger   *slog.Logger
}

// Store is access to one installation's schema. It is safe for use by many goroutines.
type Store struct {
	pool    *pgxpool.Pool
	schema  string
	address string
	log     *slog.Logger
}

// querier is what a pool, a connection and a transaction have in common.
type querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Open checks the configuration and prepares connections; it makes none. WaitReady does.
func Open(ctx context.Context, c Config) (*Store, error) {
	if c.Logger == nil {
		return nil, errors.New("history: Config.Logger is nil")
	}
	if err := migrations.CheckSchema(c.Schema); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	config, err := parseURL(c.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = DefaultMaxConns
	if c.MaxConns > 0 {
		config.MaxConns = int32(min(c.MaxConns, 10_000))
	}
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = connectTimeout
	}
	// Finds out within half a minute that a silent peer is gone; the driver's own interval is 5 minutes.
	dialer := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 15 * time.Second, Interval: 5 * time.Second, Count: 3}}
	config.ConnConfig.DialFunc = dialer.DialContext
	config.ConnConfig.RuntimeParams["search_path"] = pgx.Identifier{c.Schema}.Sanitize()
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "weir " + c.Schema
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Store{pool: pool, schema: c.Schema, address: addressOf(config.ConnConfig), log: c.Logger}, nil
}

// parseURL reads a connection URL without ever repeating it: a password may stand anywhere in a malformed one.
func parseURL(text string) (*pgxpool.Config, error) {
	const want = "want postgres://USER:PASSWORD@HOST:PORT/DATABASE, special characters of the password percent-encoded"
	u, err := url.Parse(text)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return nil, fmt.Errorf("history: postgres.url is not a PostgreSQL URL (it is not shown, it may hold a password); %s", want)
	}
	config, err := pgxpool.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("history: postgres.url for host %s is not understood: a bad port, option or sslmode; %s",
			u.Hostname(), want)
	}
	return config, nil
}

// Close waits for calls under way and closes all connections.
func (s *Store) Close() { s.pool.Close() }

// Schema is the schema's name, which is the namespace.
func (s *Store) Schema() string { return s.schema }

// Logger is where the store, and what writes into it, tells operators what they should know.
func (s *Store) Logger() *slog.Logger { return s.log }

// Begin opens a transaction. Of a server that cannot be connected to, it says so in one line: UnreachableError.
func (s *Store) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := s.pool.Begin(ctx)
	if err != nil {
		return nil, s.plain(err)
	}
	return tx, nil
}

// Ping makes sure that the server answers and the schema is the one of this build: for /readyz. ErrNotMigrated is
// wrapped where the schema lacks a step.
func (s *Store) Ping(ctx context.Context) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.fail("connecting", err)
	}
	defer conn.Release()
	steps, err := migrations.Status(ctx, conn.Conn(), s.schema)
	if err != nil {
		return s.fail("checking schema "+s.schema, err)
	}
	for _, step := range steps {
		if step.Pending() {
			return fmt.Errorf("history: schema %s at PostgreSQL %s lacks step %d %s of %d: %w",
				s.schema, s.address, step.Number, step.Name, len(steps), ErrNotMigrated)
		}
	}
	return nil
}

// WaitReady returns as soon as Ping succeeds. Until then it tries again, with a back-off up to 2 s, and logs each new
// reason once. After patience, or when ctx ends, it returns the last reason, one line that names the address and what
// to do. A schema that is newer than this build, or edited, is not waited for.
func (s *Store) WaitReady(ctx context.Context, patience time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var told string
	var last error
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := s.Ping(ctx)
		if err == nil {
			return nil
		}
		if errors.Is(err, migrations.ErrNewer) || errors.Is(err, migrations.ErrEdited) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // what was wrong, rather than that time ran out
		}
		if ctx.Err() == nil && err.Error() != told {
			told = err.Error()
			s.log.Warn("PostgreSQL is not ready, trying again", "error", err)
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(pause):
		}
	}
}

// Migrate brings the schema to the form of this build, see migrations.Apply.
func (s *Store) Migrate(ctx context.Context) error {
	return s.withConn(ctx, "migrating", func(conn *pgx.Conn) error {
		return migrations.Apply(ctx, conn, s.schema, s.log)
	})
}

// GrantReader lets role read the documented views, see migrations.GrantReader.
func (s *Store) GrantReader(ctx context.Context, role string) error {
	return s.withConn(ctx, "granting", func(conn *pgx.Conn) error {
		return migrations.GrantReader(ctx, conn, s.schema, role)
	})
}

func (s *Store) withConn(ctx context.Context, doing string, f func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return s.fail(doing, err)
	}
	defer conn.Release()
	if err := f(conn.Conn()); err != nil {
		return s.fail(doing, err)
	}
	return nil
}

// transact runs f in a transaction and names what was being done in its error.
func (s *Store) transact(ctx context.Context, doing string, f func(tx pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, s.pool, f); err != nil {
		return s.fail(doing, err)
	}
	return nil
}
