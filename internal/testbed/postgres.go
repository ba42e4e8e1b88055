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
	admin := configured(t, PostgresKind)
	if admin == "" {
		Record(t, PostgresKind, Embedded)
		var err error
		if admin, err = shared.start(); err != nil {
			t.Fatalf("private PostgreSQL: %v", err)
		}
	}
	name := "weir_test_" + random(t, 8)
	address, err := url.Parse(admin)
	if err != nil {
		t.Fatalf("%s is not a URL such as postgres://user:password@host:port/postgres", PostgresKind.Env())
	}
	// template0 has no connections, ever; copying template1 fails while any other client looks at it.
	if err := execute(admin, "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		t.Fatalf("a database for the test: %v", err)
	}
	t.Cleanup(func() {
		if err := execute(admin, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)"); err != nil {
			t.Errorf("dropping the test's database: %v", err)
		}
	})
	address.Path = "/" + name
	return address.String()
}

// waysOut is what somebody who runs the tests can do about a machine without PostgreSQL.
const waysOut = `ways out: install it (apt-get install postgresql, brew install postgresql@17); or set ` +
	`WEIR_TEST_POSTGRES=postgres://user:password@host:port/postgres to use a server of yours, with a role that may create ` +
	`databases; or run "make test", which does its own set-up`

func execute(admin, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, admin)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	if closeErr := conn.Close(ctx); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
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
