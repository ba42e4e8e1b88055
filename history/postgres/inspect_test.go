package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/traffic"
)

func machineClock() traffic.Time { return traffic.At(time.Now()) }

func TestInspectTellsOfServerAndSchema(t *testing.T) {
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
