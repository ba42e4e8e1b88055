package history

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/migrations"
	"github.com/weirhq/weir/traffic"
)

// Inspected is what PostgreSQL says about itself and the schema.
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
func (s *Store) Inspect(ctx context.Context, clock func() traffic.Time) (Inspected, error) {
	found := Inspected{Address: s.address}
	err := s.withConn(ctx, "inspecting", func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `SELECT current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()`).
			Scan(&found.Version, &found.Number, &found.Replica)
		if err != nil {
			return err
		}
		found.Asked = clock()
		if err := conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(scanTime(&found.Clock)); err != nil {
			return err
		}
		found.Answered = clock()
		found.Steps, err = migrations.Status(ctx, conn, s.schema)
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
