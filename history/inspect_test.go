package history_test

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/traffic"
)

func machineClock() traffic.Time { return traffic.At(time.Now()) }

func TestInspectTellsOfServerAndSchema(t *testing.T) {
	b := newBed(t)
	got, err := b.Inspect(t.Context(), machineClock)
	if err != nil || got.Pending() != 0 || got.SchemaErr != nil || got.Number < 100000 || got.Version == "" || got.Replica {
		t.Errorf("%+v, %v", got, err)
	}
	if got.Clock < got.Asked.Add(-time.Minute) || got.Clock > got.Answered.Add(time.Minute) {
		t.Errorf("its clock shows %s between %s and %s", got.Clock, got.Asked, got.Answered)
	}
	b.exec(t, "UPDATE weir.schema_migrations SET checksum = 'other' WHERE number = 2")
	if got, err = b.Inspect(t.Context(), machineClock); err != nil || !errors.Is(got.SchemaErr, migrations.ErrEdited) {
		t.Errorf("an edited schema: %+v, %v", got, err)
	}
	b.exec(t, "INSERT INTO weir.schema_migrations (number, name, checksum) VALUES (999, 'later', 'x')")
	b.exec(t, "UPDATE weir.schema_migrations SET checksum = 'other' WHERE number = 999")
	b.exec(t, "DELETE FROM weir.schema_migrations WHERE number = 2")
	if got, err = b.Inspect(t.Context(), machineClock); err != nil || !errors.Is(got.SchemaErr, migrations.ErrNewer) {
		t.Errorf("a newer schema: %+v, %v", got, err)
	}
}

func TestInspectBeforeThereIsASchema(t *testing.T) {
	s := newStore(t, testbed.Postgres(t))
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
	s := newStore(t, "postgres://u:hunter2@127.0.0.1:1/weir")
	var away *history.UnreachableError
	if _, err := s.Inspect(t.Context(), machineClock); !errors.As(err, &away) || away.Address != "127.0.0.1:1" {
		t.Errorf("got %v", err)
	}
}
