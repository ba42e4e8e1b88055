package postgres_test

import (
	"errors"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestOpenRefusesBadConfiguration(t *testing.T) {
	const password = "hunter2"
	tests := []struct{ name, url, schema, want string }{
		{"no URL at all", "host=localhost password=" + password, historytest.Schema, "postgres://USER:PASSWORD"},
		{"unescaped password", "postgres://weir:" + password + "#x@localhost/weir", historytest.Schema, "percent-encoded"},
		{"bad escape", "postgres://weir:" + password + "%zz@localhost/weir", historytest.Schema, "percent-encoded"},
		{"bad port", "postgres://weir:" + password + "@localhost:99999/weir", historytest.Schema, "localhost"},
		{"bad sslmode", "postgres://weir:" + password + "@localhost/weir?sslmode=maybe", historytest.Schema, "sslmode"},
		{"schema", "postgres://weir:" + password + "@localhost/weir", "no-good", `"no-good"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := postgres.Open(t.Context(), postgres.Config{URL: tt.url, Schema: tt.schema, Logger: slog.New(slog.DiscardHandler)})
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("got %v, want something with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), password) || strings.Contains(err.Error(), "\n") {
				t.Errorf("the password is told, or there is more than one line: %q", err)
			}
		})
	}
}

func TestUnreachableIsOneLine(t *testing.T) {
	// A port that was free a moment ago: nobody listens there.
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dead := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	good, err := url.Parse(testbed.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	noDatabase := *good
	noDatabase.Path = "/nobody_made_this"
	tests := []struct{ name, url, address, want string }{
		{"nobody listens", "postgres://weir:hunter2@" + dead + "/weir", dead, "connection refused"},
		{"no such database", noDatabase.String(), good.Host, "create the database"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := historytest.Open(t, tt.url)
			err := s.WaitReady(t.Context(), 300*time.Millisecond)
			var unreachable *postgres.UnreachableError
			if !errors.As(err, &unreachable) {
				t.Fatalf("got %v, want UnreachableError", err)
			}
			text := err.Error()
			if !strings.Contains(text, tt.address) || !strings.Contains(text, tt.want) {
				t.Errorf("%q names not both %s and %q", text, tt.address, tt.want)
			}
			if strings.Contains(text, "hunter2") || strings.Contains(text, "\n") {
				t.Errorf("the password is told, or there is more than one line: %q", text)
			}
		})
	}
}

func TestWaitReadyWaitsForMigrate(t *testing.T) {
	s := historytest.Open(t, testbed.Postgres(t))
	if err := s.Ping(t.Context()); !errors.Is(err, postgres.ErrNotMigrated) {
		t.Fatalf("an empty database: got %v, want ErrNotMigrated", err)
	}
	ready := make(chan error, 1)
	go func() { ready <- s.WaitReady(t.Context(), time.Minute) }()
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-ready; err != nil {
		t.Fatal(err)
	}
}
