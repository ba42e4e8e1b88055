package testbed

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/local"
)

// Postgres returns the URL of an empty database made for this test and dropped when it ends: on the real server in
// WEIR_TEST_POSTGRES, or on a private server that the tests of one binary share. The private one is started from the
// programs on this machine at the first call and ends with the process. Where there is no PostgreSQL the test fails
// and names the ways to get one.
func Postgres(t testing.TB) string {
	t.Helper()
	// template0 has no connections, ever; copying template1 fails while any other client looks at it.
	return database(t, postgresServer(t), "template0")
}

// PostgresCopy is Postgres with what prepare writes into a database, once on a server: the test gets a copy of that one. name stands for all
// that prepare does, of lower-case letters, digits and _. prepare leaves no connection open.
func PostgresCopy(t testing.TB, name string, prepare func(url string) error) string {
	t.Helper()
	admin := postgresServer(t)
	template := "weir_template_" + name
	if err := makeTemplate(admin, template, prepare); err != nil {
		t.Fatalf("the database that tests copy: %v", err)
	}
	return database(t, admin, template)
}

// postgresServer is the URL of the server for this test's databases, of a role that may create some.
func postgresServer(t testing.TB) string {
	t.Helper()
	if admin := configured(t, PostgresKind); admin != "" {
		return admin
	}
	Record(t, PostgresKind, Embedded)
	admin, err := shared.start()
	if err != nil {
		t.Fatalf("private PostgreSQL: %v", err)
	}
	return admin
}

// database makes a copy of template for the test.
func database(t testing.TB, admin, template string) string {
	t.Helper()
	name := "weir_test_" + random(t, 8)
	if err := copyDatabase(admin, name, template); err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	address, err := at(admin, name)
	if err != nil {
		t.Fatal(err)
	}
	return address
}

// at is the URL of a database on admin's server.
func at(admin, database string) (string, error) {
	address, err := url.Parse(admin)
	if err != nil { // which may hold a password
		return "", fmt.Errorf("%s is not a URL such as postgres://user:password@host:port/postgres", PostgresKind.Env())
	}
	address.Path = "/" + database
	query := address.Query()
	query.Set("connect_timeout", "120") // a machine that stands still for seconds is no fault of who connects
	address.RawQuery = query.Encode()
	return address.String(), nil
}

// makeTemplate has prepare fill a database, unless another test has done so: test binaries that run at the same time wait for each other. It gets
// its name when it is ready, so that one which broke off is never copied.
func makeTemplate(admin, name string, prepare func(url string) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }() // which lets go of the lock
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock(hashtextextended($1, 0))", name); err != nil {
		return err
	}
	var made bool
	if err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_database WHERE datname = $1)", name).Scan(&made); err != nil || made {
		return err
	}
	unready := name + "_new"
	address, err := at(admin, unready)
	if err != nil {
		return err
	}
	for _, step := range []func() error{
		func() error { return run(ctx, conn, "DROP DATABASE IF EXISTS "+unready+" WITH (FORCE)") },
		func() error { return run(ctx, conn, "CREATE DATABASE "+unready+" TEMPLATE template0") },
		func() error { return prepare(address) },
		// What has hung up may be there for a moment yet, and nobody is let in from here on.
		func() error { return run(ctx, conn, "ALTER DATABASE "+unready+" WITH ALLOW_CONNECTIONS false") },
		func() error { return run(ctx, conn, "ALTER DATABASE "+unready+" RENAME TO "+name) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func run(ctx context.Context, conn *pgx.Conn, statement string) error {
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// waysOut is what somebody who runs the tests can do about a machine without PostgreSQL.
const waysOut = `ways out: install it (apt-get install postgresql, brew install postgresql@17); or set ` +
	`WEIR_TEST_POSTGRES=postgres://user:password@host:port/postgres to use a server of yours, with a role that may create ` +
	`databases; or run "make test", which does its own set-up`

// copyDatabase copies files as files where the server asks how, from PostgreSQL 15 on: its own choice, page by page
// through the log, takes twice the time.
func copyDatabase(admin, name, template string) error {
	return connected(admin, func(ctx context.Context, conn *pgx.Conn) error {
		var asks bool
		if err := conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int >= "+
			"150000").Scan(&asks); err != nil {
			return err
		}
		statement := "CREATE DATABASE " + name + " TEMPLATE " + template
		if asks {
			statement += " STRATEGY file_copy"
		}
		return run(ctx, conn, statement)
	})
}

func execute(admin, statement string) error {
	return connected(admin, func(ctx context.Context, conn *pgx.Conn) error { return run(ctx, conn, statement) })
}

// connected has do work with a connection of its own, for half a minute at most.
func connected(admin string, do func(ctx context.Context, conn *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	err = do(ctx, conn)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	return err
}

// shared is the private server of this test binary: see the package comment for why it may be process-wide.
var shared sharedPostgres

type sharedPostgres struct {
	mu     sync.Mutex
	server *local.Postgres
	err    error // of the first start; a second try would only take longer to say the same
}

func (s *sharedPostgres) start() (url string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil && s.err == nil {
		// Not the test's context: the server serves those that come after it, too.
		s.server, s.err = local.StartPostgres(context.Background(), local.PostgresOptions{})
	}
	if errors.Is(s.err, local.ErrNoPostgres) {
		return "", fmt.Errorf("%w; %s", local.ErrNoPostgres, waysOut)
	}
	if s.err != nil {
		return "", s.err
	}
	return s.server.URL(), nil
}

func (s *sharedPostgres) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.server == nil {
		return nil
	}
	server := s.server
	s.server = nil
	return server.Close()
}
