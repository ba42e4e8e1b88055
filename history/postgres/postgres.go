// Package postgres is one installation's schema in PostgreSQL, as connections: opening them and waiting for the server,
// transactions, the server's state, notifications of changes, and errors that say where and what to do. The tables belong to
// the packages beside it.
package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirhq/weir/internal/clocks"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/traffic"
)

// ErrNotFound is wrapped where a stream, rule, routing version or secret that was asked for does not exist.
var ErrNotFound = errors.New("not found")

// ErrNotMigrated says that the schema lacks something this build needs.
var ErrNotMigrated = errors.New("run `weir migrate`")

// DefaultMaxConns is how many connections a DB opens at most where Config does not say. Each Watch takes one more.
const DefaultMaxConns = 8

// mostConns is how many connections a pool has at most, whatever it is told.
const mostConns = 10_000

// connectTimeout bounds one attempt to connect where the URL has no connect_timeout of its own.
const connectTimeout = 5 * time.Second

// Config is what a DB needs.
type Config struct {
	URL      string // postgres://USER:PASSWORD@HOST:PORT/DATABASE; never logged, never part of an error
	Schema   string // which is the namespace, see migrations.CheckSchema
	MaxConns int    // 0: DefaultMaxConns; of Work
	// Lanes have connections of their own, beside those of MaxConns.
	Lanes  map[Lane]LaneConfig
	Logger *slog.Logger
}

// DB is access to one installation's schema: statements need not name it. It is safe for concurrent use.
type DB struct {
	pool    *pgxpool.Pool // of Work
	lanes   [numLanes]*pgxpool.Pool
	schema  string
	address string // host:port, or a socket's path, for messages
	log     *slog.Logger
	poll    time.Duration // pollInterval, but for tests
}

// Querier is what a DB, a connection and a transaction have in common.
type Querier interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

var _ Querier = (*DB)(nil)

// Open checks the configuration and prepares connections; it makes none. WaitReady does.
func Open(ctx context.Context, c Config) (*DB, error) {
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
		config.MaxConns = int32(min(c.MaxConns, mostConns))
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
	// Of a query of thirty days the tables of all of them are compiled, each time: that takes longer than the query.
	if config.ConnConfig.RuntimeParams["jit"] == "" {
		config.ConnConfig.RuntimeParams["jit"] = "off"
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	db := &DB{pool: pool, schema: c.Schema, address: addressOf(config.ConnConfig), log: c.Logger, poll: pollInterval}
	if err := db.openLanes(ctx, config, &c); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
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
func (db *DB) Close() {
	for _, own := range db.lanes {
		if own != nil {
			own.Close()
		}
	}
	db.pool.Close()
}

// Schema is the schema's name, which is the namespace.
func (db *DB) Schema() string { return db.schema }

// Logger is for messages to operators, also for those who write through the DB.
func (db *DB) Logger() *slog.Logger { return db.log }

// Begin opens a transaction. Of a server that cannot be connected to, it says so in one line: UnreachableError.
func (db *DB) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := db.of(ctx).Begin(ctx)
	if err != nil {
		return nil, db.plain(err)
	}
	return tx, nil
}

// Ping makes sure that the server answers and the schema is the one of this build: for /readyz. ErrNotMigrated is
// wrapped where the schema lacks a step.
func (db *DB) Ping(ctx context.Context) error {
	conn, err := db.of(ctx).Acquire(ctx)
	if err != nil {
		return db.Fail("connecting", err)
	}
	defer conn.Release()
	steps, err := migrations.Status(ctx, conn.Conn(), db.schema)
	if err != nil {
		return db.Fail("checking schema "+db.schema, err)
	}
	for _, step := range steps {
		if step.Pending() {
			return fmt.Errorf("history: schema %s at PostgreSQL %s lacks step %d %s of %d: %w",
				db.schema, db.address, step.Number, step.Name, len(steps), ErrNotMigrated)
		}
	}
	return nil
}

// WaitReady returns nil as soon as Ping succeeds. Until then it tries again, with a backoff up to 2 s, and logs why. After
// timeout, or when ctx ends, it returns the last reason, one line that names the address and what to do. For a schema that is
// newer than this build, or edited, it does not wait.
func (db *DB) WaitReady(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	var trouble retry.Trouble
	var last error
	backoff := retry.NewBackoff(100*time.Millisecond, 2*time.Second)
	for {
		err := db.Ping(ctx)
		if err == nil {
			trouble.Over(db.log, "PostgreSQL is ready")
			return nil
		}
		if errors.Is(err, migrations.ErrNewer) || errors.Is(err, migrations.ErrEdited) {
			return err
		}
		if ctx.Err() == nil || last == nil {
			last = err // what was wrong, rather than that time ran out
		}
		if ctx.Err() == nil {
			trouble.Failed(db.log, "PostgreSQL is not ready, trying again", err)
		}
		if backoff.Wait(ctx) != nil {
			return last
		}
	}
}

// Migrate brings the schema to the form of this build, see migrations.Apply.
func (db *DB) Migrate(ctx context.Context) error {
	return db.withConn(ctx, "migrating", func(conn *pgx.Conn) error {
		return migrations.Apply(ctx, conn, db.schema, db.log)
	})
}

// withConn lends f a connection.
func (db *DB) withConn(ctx context.Context, doing string, f func(*pgx.Conn) error) error {
	conn, err := db.of(ctx).Acquire(ctx)
	if err != nil {
		return db.Fail(doing, err)
	}
	defer conn.Release()
	if err := f(conn.Conn()); err != nil {
		return db.Fail(doing, err)
	}
	return nil
}

// Transact runs f in a transaction: committed where f returns nil, rolled back otherwise. Its error names doing.
func (db *DB) Transact(ctx context.Context, doing string, f func(tx pgx.Tx) error) error {
	if err := pgx.BeginFunc(ctx, db.of(ctx), f); err != nil {
		return db.Fail(doing, err)
	}
	return nil
}

// Exec runs a statement. Callers give its error to Fail, and so with Query, QueryRow and SendBatch.
func (db *DB) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return db.of(ctx).Exec(ctx, sql, args...)
}

// Query asks for rows, which the caller must read to the end or close.
func (db *DB) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return db.of(ctx).Query(ctx, sql, args...)
}

// QueryRow asks for one row.
func (db *DB) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return db.of(ctx).QueryRow(ctx, sql, args...)
}

// SendBatch runs statements in one round trip and one transaction.
func (db *DB) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return db.of(ctx).SendBatch(ctx, b)
}

// NoRows gives the driver's "no rows" the name that callers know: ErrNotFound.
func NoRows(err error) error {
	if errors.Is(err, pgx.ErrNoRows) {
		return ErrNotFound
	}
	return err
}

// Fail wraps err with what was being done.
func (db *DB) Fail(doing string, err error) error {
	return fmt.Errorf("history: %s: %w", doing, db.plain(err))
}

// plain turns the driver's account of a failed connection into UnreachableError, and returns other errors as they are.
func (db *DB) plain(err error) error { return unreachable(db.address, err) }

// Now is the server's clock.
func (db *DB) Now(ctx context.Context) (traffic.Time, error) {
	var now time.Time
	if err := db.pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now); err != nil {
		return 0, db.Fail("asking for the time", err)
	}
	return traffic.At(now), nil
}

// Clock reads the server's clock between two readings of this machine's.
func (db *DB) Clock(ctx context.Context, clock func() traffic.Time) (r clocks.Reading, heard bool, err error) {
	err = db.withConn(ctx, "asking for the time", func(conn *pgx.Conn) error {
		r.Asked = clock()
		err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(ScanTime(&r.Theirs))
		r.Answered = clock()
		return err
	})
	return r, err == nil, err
}

// Inspected describes the server and the schema.
type Inspected struct {
	Address string
	Version string // 15.4
	Number  int    // 150004
	Replica bool   // it is a standby and takes no writes
	// Steps are the migrations of this build; SchemaErr wraps migrations.ErrNewer or migrations.ErrEdited where this
	// build must not work on the schema.
	Steps     []migrations.Step
	SchemaErr error
	// Clock is the server's clock, read between Asked and Answered of this machine.
	Clock, Asked, Answered traffic.Time
}

// Inspect asks the server about itself and changes nothing; the schema need not exist. clock is this machine's.
func (db *DB) Inspect(ctx context.Context, clock func() traffic.Time) (Inspected, error) {
	found := Inspected{Address: db.address}
	err := db.withConn(ctx, "inspecting", func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()`).
			Scan(&found.Version, &found.Number, &found.Replica)
		if err != nil {
			return err
		}
		found.Asked = clock()
		if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(ScanTime(&found.Clock)); err != nil {
			return err
		}
		found.Answered = clock()
		found.Steps, err = migrations.Status(ctx, conn, db.schema)
		if errors.Is(err, migrations.ErrNewer) || errors.Is(err, migrations.ErrEdited) {
			found.SchemaErr, err = err, nil
		}
		return err
	})
	return found, err
}

// Pending counts the migrations that the schema lacks.
func (i *Inspected) Pending() int {
	n := 0
	for _, step := range i.Steps {
		if step.Pending() {
			n++
		}
	}
	return n
}

// Origin identifies the schema: a digest of its first deployment secret, which is drawn when the schema is made, so that one
// that was dropped and made again has another. It is "" where there is no schema, or an empty one, and "unknown" for a schema
// that weir has not made.
func (db *DB) Origin(ctx context.Context) (string, error) {
	var relations int
	var secrets bool
	err := db.of(ctx).QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE c.relname = 'secrets') > 0
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`, db.schema).Scan(&relations, &secrets)
	if err != nil {
		return "", db.Fail("looking for schema "+db.schema, err)
	}
	if relations == 0 {
		return "", nil
	}
	var values [][]byte
	if secrets {
		err := db.of(ctx).QueryRow(ctx,
			"SELECT array_agg(value) FROM (SELECT value FROM secrets ORDER BY created_at, id LIMIT 1) first",
		).Scan(&values)
		if err != nil {
			return "", db.Fail("finding the deployment secret", err)
		}
	}
	if len(values) == 0 {
		return "unknown", nil
	}
	digest := sha256.Sum256(append([]byte("weir schema "), values[0]...))
	return hex.EncodeToString(digest[:12]), nil
}
