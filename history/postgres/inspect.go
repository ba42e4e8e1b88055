package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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

// Origin names this making of the schema: a digest of its first deployment secret, which is drawn when it is made. It is ""
// where there is no schema, or an empty one, and "unknown" for a schema that holds other things.
func (db *DB) Origin(ctx context.Context) (string, error) {
	var relations int
	var secrets bool
	err := db.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE c.relname = 'secrets') > 0
		FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1`, db.schema).Scan(&relations, &secrets)
	if err != nil {
		return "", db.Fail("looking for schema "+db.schema, err)
	}
	if relations == 0 {
		return "", nil
	}
	var values [][]byte
	if secrets {
		if err := db.pool.QueryRow(ctx, "SELECT array_agg(value) FROM (SELECT value FROM secrets ORDER BY created_at, id LIMIT 1) first").Scan(&values); err != nil {
			return "", db.Fail("finding the deployment secret", err)
		}
	}
	if len(values) == 0 {
		return "unknown", nil
	}
	digest := sha256.Sum256(append([]byte("weir schema "), values[0]...))
	return hex.EncodeToString(digest[:12]), nil
}
