// Package migrations brings a PostgreSQL schema to the form that this build of weir works with. The steps are the SQL
// files in sql/, embedded; a step that was released is never edited, only followed by another one. A step is additive: processes of the
// build before it work on, and start, on the schema that has it. One that cannot be begins with the line "-- breaking". That rule,
// and what an older build does about a newer schema, are why no library (tern, goose) runs the steps: they number and apply, no more.
package migrations

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed sql/*.sql
var files embed.FS

// ErrNewer says that the schema was written by a newer build of weir than this one.
var ErrNewer = errors.New("the schema is newer than this build of weir: use that build, or a newer one")

// ErrEdited says that a step was applied in another form than this build carries.
var ErrEdited = errors.New("an applied step differs from the one in this build")

// Step is one migration.
type Step struct {
	Number   int
	Name     string // of the file, without number and extension
	Checksum string // SHA-256 of the file, hex
	Applied  time.Time
	// Breaking: builds that do not know the step must not work on a schema that has it, and refuse to. All other steps are
	// additive: in the middle of an upgrade, processes of the build before go on, and are started again, beside it.
	Breaking bool
	sql      string
}

// Steps up to lastUnmarked are all recorded as breaking ones, as by the builds that brought them. A later one is breaking
// when its file begins with breakingMark.
const (
	lastUnmarked = 7
	breakingMark = "-- breaking"
)

// table is the table that records the step. Builds refuse a schema with unknown steps in schema_migrations, and ignore unknown
// ones in schema_additions.
func (s Step) table() string {
	if s.Breaking {
		return "schema_migrations"
	}
	return "schema_additions"
}

// Pending reports whether the step has not been applied.
func (s Step) Pending() bool { return s.Applied.IsZero() }

var schemaPattern = regexp.MustCompile(`^[a-z][a-z0-9_]{0,39}$`)

// CheckSchema says whether name can be the name of weir's schema: a letter, then up to 39 of a-z, 0-9 and _, and not
// one of PostgreSQL's own, which start with pg_.
func CheckSchema(name string) error {
	if !schemaPattern.MatchString(name) || strings.HasPrefix(name, "pg_") {
		return fmt.Errorf("schema %q: allowed are a letter, then up to 39 of a-z, 0-9 and _, not starting with pg_", name)
	}
	return nil
}

// Steps lists the steps that this build carries, ascending from 1 without a hole.
func Steps() ([]Step, error) {
	names, err := fs.Glob(files, "sql/*.sql") // sorted by name
	if err != nil {
		return nil, err
	}
	steps := make([]Step, 0, len(names))
	for i, name := range names {
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		digits, rest, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(name, "sql/"), ".sql"), "_")
		number, err := strconv.Atoi(digits)
		if err != nil || number != i+1 {
			return nil, fmt.Errorf("migration %s: its number is to be %04d", name, i+1)
		}
		sum := sha256.Sum256(text)
		steps = append(steps, Step{
			Number: number, Name: rest, Checksum: hex.EncodeToString(sum[:]), sql: string(text),
			Breaking: number <= lastUnmarked || strings.HasPrefix(string(text), breakingMark),
		})
	}
	return steps, nil
}

// Status compares the schema with the steps of this build. The steps that the schema lacks are Pending; a schema that
// does not exist lacks all. ErrNewer and ErrEdited mean that this build must not work on the schema.
func Status(ctx context.Context, conn *pgx.Conn, schema string) ([]Step, error) {
	if err := CheckSchema(schema); err != nil {
		return nil, err
	}
	steps, err := Steps()
	if err != nil {
		return nil, err
	}
	for _, breaking := range []bool{true, false} {
		if err := compare(ctx, conn, schema, breaking, steps); err != nil {
			return steps, err
		}
	}
	return steps, nil
}

// compare fills in when each of the breaking steps, or of the additive ones, was applied.
func compare(ctx context.Context, conn *pgx.Conn, schema string, breaking bool, steps []Step) error {
	table := pgx.Identifier{schema, Step{Breaking: breaking}.table()}.Sanitize()
	var exists bool
	if err := conn.QueryRow(ctx, "SELECT to_regclass($1) IS NOT NULL", table).Scan(&exists); err != nil {
		return fmt.Errorf("looking for schema %s: %w", schema, err)
	}
	if !exists {
		return nil
	}
	rows, err := conn.Query(ctx, "SELECT number, name, checksum, applied_at FROM "+table+" ORDER BY number")
	if err != nil {
		return fmt.Errorf("reading %s: %w", table, err)
	}
	applied, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Step, err error) {
		return s, row.Scan(&s.Number, &s.Name, &s.Checksum, &s.Applied)
	})
	if err != nil {
		return fmt.Errorf("reading %s: %w", table, err)
	}
	for _, a := range applied {
		if a.Number > len(steps) && !breaking {
			continue
		}
		if a.Number > len(steps) {
			return fmt.Errorf("step %d %s is applied, this build knows %d steps: %w", a.Number, a.Name, len(steps), ErrNewer)
		}
		if steps[a.Number-1].Checksum != a.Checksum {
			return fmt.Errorf("step %d %s: %w", a.Number, a.Name, ErrEdited)
		}
		steps[a.Number-1].Applied = a.Applied
	}
	return nil
}

// Apply creates schema if need be and applies the steps that it lacks, all in one transaction: on an error nothing has
// changed. Several callers may do so at once; they wait for each other. The first one also makes the deployment secret.
// Each lets Reader read the views. A schema that lacks nothing is left as it is.
func Apply(ctx context.Context, conn *pgx.Conn, schema string, log *slog.Logger) error {
	if err := CheckSchema(schema); err != nil {
		return err
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Held to the end of the transaction, so what follows sees what the one before us did.
		if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended($1, 0))", "weir migrate "+schema); err != nil {
			return fmt.Errorf("waiting for another migration: %w", err)
		}
		if err := prepare(ctx, tx, schema); err != nil {
			return err
		}
		steps, err := Status(ctx, tx.Conn(), schema)
		if err != nil {
			return err
		}
		for _, step := range steps {
			if !step.Pending() {
				continue
			}
			if err := step.apply(ctx, tx); err != nil {
				return err
			}
			log.Info("migration applied", "schema", schema, "number", step.Number, "name", step.Name)
		}
		if err := admitReader(ctx, tx, schema, log); err != nil {
			return err
		}
		return ensureSecret(ctx, tx)
	})
	if err != nil {
		return fmt.Errorf("migrating schema %s: %w", schema, err)
	}
	return nil
}

// prepare makes the schema and its list of steps, and directs what follows in the transaction there.
func prepare(ctx context.Context, tx pgx.Tx, schema string) error {
	quoted := pgx.Identifier{schema}.Sanitize()
	const list = ` (
			number     bigint PRIMARY KEY,
			name       text NOT NULL,
			checksum   text NOT NULL,
			applied_at timestamptz NOT NULL DEFAULT now())`
	for _, statement := range []string{
		"CREATE SCHEMA IF NOT EXISTS " + quoted,
		"SET LOCAL search_path TO " + quoted,
		"CREATE TABLE IF NOT EXISTS schema_migrations" + list,
		"CREATE TABLE IF NOT EXISTS schema_additions" + list,
	} {
		if _, err := tx.Exec(ctx, statement); err != nil {
			return fmt.Errorf("preparing the schema: %w", err)
		}
	}
	return nil
}

func (s Step) apply(ctx context.Context, tx pgx.Tx) error {
	// The simple protocol takes a file of several statements; it has no arguments.
	if _, err := tx.Conn().PgConn().Exec(ctx, s.sql).ReadAll(); err != nil {
		return fmt.Errorf("step %d %s: %w", s.Number, s.Name, err)
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+s.table()+" (number, name, checksum) VALUES ($1, $2, $3)",
		s.Number, s.Name, s.Checksum)
	if err != nil {
		return fmt.Errorf("recording step %d %s: %w", s.Number, s.Name, err)
	}
	return nil
}

// ensureSecret makes the secret under which keys become fingerprints, once in the life of a schema.
func ensureSecret(ctx context.Context, tx pgx.Tx) error {
	var value [16]byte
	if _, err := rand.Read(value[:]); err != nil {
		return fmt.Errorf("making the deployment secret: %w", err)
	}
	_, err := tx.Exec(ctx, "INSERT INTO secrets (id, value) SELECT 's1', $1 WHERE NOT EXISTS (SELECT 1 FROM secrets)", value[:])
	if err != nil {
		return fmt.Errorf("storing the deployment secret: %w", err)
	}
	return nil
}
