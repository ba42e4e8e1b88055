package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/traffic"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func TestOpenRefusesBadConfiguration(t *testing.T) {
	t.Parallel()
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
	dead := fmt.Sprint("127.0.0.1:", testbed.FreePort(t)) // nobody listens there
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
			text, patience := "", 300*time.Millisecond
			testbed.Eventually(t, 20*time.Second, func() error {
				err := s.WaitReady(t.Context(), patience)
				patience *= 2 // within it a busy machine may not come to be refused
				var unreachable *postgres.UnreachableError
				if !errors.As(err, &unreachable) {
					t.Fatalf("got %v, want UnreachableError", err)
				}
				if text = err.Error(); !strings.Contains(text, tt.address) || !strings.Contains(text, tt.want) {
					return fmt.Errorf("%q names not both %s and %q", text, tt.address, tt.want)
				}
				return nil
			})
			if strings.Contains(text, "hunter2") || strings.Contains(text, "\n") {
				t.Errorf("the password is told, or there is more than one line: %q", text)
			}
		})
	}
}

func TestWaitReadyWaitsForMigrate(t *testing.T) {
	t.Parallel()
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

func machineClock() traffic.Time { return traffic.At(time.Now()) }

func TestInspectTellsOfServerAndSchema(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	got, err := b.Inspect(t.Context(), machineClock)
	if err != nil || got.Pending() != 0 || got.SchemaErr != nil || got.Number < 100000 || got.Version == "" || got.Replica {
		t.Errorf("%+v, %v", got, err)
	}
	if got.Clock < got.Asked.Add(-time.Minute) || got.Clock > got.Answered.Add(time.Minute) {
		t.Errorf("its clock shows %s between %s and %s", got.Clock, got.Asked, got.Answered)
	}
	b.Run(t, "UPDATE weir.schema_migrations SET checksum = 'other' WHERE number = 2")
	if got, err = b.Inspect(t.Context(), machineClock); err != nil || !errors.Is(got.SchemaErr, migrations.ErrEdited) {
		t.Errorf("an edited schema: %+v, %v", got, err)
	}
	b.Run(t, "INSERT INTO weir.schema_migrations (number, name, checksum) VALUES (999, 'later', 'x')")
	b.Run(t, "UPDATE weir.schema_migrations SET checksum = 'other' WHERE number = 999")
	b.Run(t, "DELETE FROM weir.schema_migrations WHERE number = 2")
	if got, err = b.Inspect(t.Context(), machineClock); err != nil || !errors.Is(got.SchemaErr, migrations.ErrNewer) {
		t.Errorf("a newer schema: %+v, %v", got, err)
	}
}

func TestInspectBeforeThereIsASchema(t *testing.T) {
	t.Parallel()
	s := historytest.Open(t, testbed.Postgres(t))
	steps, err := migrations.Steps()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Inspect(t.Context(), machineClock)
	if err != nil || got.Pending() != len(steps) {
		t.Errorf("%d of %d steps pending, %v", got.Pending(), len(steps), err)
	}
}

func TestInspectOfAServerThatIsAway(t *testing.T) {
	s := historytest.Open(t, "postgres://u:hunter2@127.0.0.1:1/weir")
	var away *postgres.UnreachableError
	if _, err := s.Inspect(t.Context(), machineClock); !errors.As(err, &away) || away.Address != "127.0.0.1:1" {
		t.Errorf("got %v", err)
	}
}

// A schema is known by its making: one that is dropped and made again is another, and so is that of somebody else.
func TestOrigin(t *testing.T) {
	t.Parallel()
	url := testbed.Postgres(t)
	s := historytest.Open(t, url)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	origin := func(want string) string {
		t.Helper()
		got, err := s.Origin(t.Context())
		if err != nil || want != "*" && got != want {
			t.Errorf("origin %q, %v, want %q", got, err, want)
		}
		return got
	}
	exec("DROP SCHEMA IF EXISTS " + s.Schema() + " CASCADE")
	origin("")
	exec("CREATE SCHEMA " + s.Schema())
	origin("")
	exec("CREATE TABLE " + s.Schema() + ".wine (year int)")
	origin("unknown")
	made := map[string]bool{}
	for range 2 {
		exec("DROP SCHEMA " + s.Schema() + " CASCADE")
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		first := origin("*")
		origin(first)
		made[first] = true
	}
	if len(made) != 2 || made[""] || made["unknown"] {
		t.Errorf("origins %v", made)
	}
}
