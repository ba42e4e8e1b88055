package migrations_test

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
)

func TestMain(m *testing.M) { os.Exit(testbed.Main(m)) }

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return conn
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func secretOf(t *testing.T, conn *pgx.Conn) string {
	t.Helper()
	var id, value string
	if err := conn.QueryRow(t.Context(), "SELECT id, encode(value, 'hex') FROM weir.secrets").Scan(&id, &value); err != nil {
		t.Fatal(err)
	}
	return id + " " + value
}

func TestApplyOnceAndForAll(t *testing.T) {
	url := testbed.Postgres(t)
	conn := connect(t, url)
	steps, err := migrations.Status(t.Context(), conn, "weir")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if !s.Pending() {
			t.Errorf("step %d of a schema that does not exist counts as applied", s.Number)
		}
	}

	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		c := connect(t, url)
		wg.Go(func() { errs[i] = migrations.Apply(t.Context(), c, "weir", quiet()) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatalf("applied by four at once: %v", err)
	}
	before := secretOf(t, conn)
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatalf("applied again: %v", err)
	}
	if after := secretOf(t, conn); after != before {
		t.Error("the deployment secret changed with a second migrate")
	}
	steps, err = migrations.Status(t.Context(), conn, "weir")
	if err != nil || len(steps) == 0 {
		t.Fatalf("status: %d steps, %v", len(steps), err)
	}
	for _, s := range steps {
		if s.Pending() {
			t.Errorf("step %d %s is still pending", s.Number, s.Name)
		}
	}
}

func TestSchemasShareADatabase(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	for _, schema := range []string{"weir", "other"} {
		if err := migrations.Apply(t.Context(), conn, schema, quiet()); err != nil {
			t.Fatal(err)
		}
	}
	var same bool
	err := conn.QueryRow(t.Context(), "SELECT (SELECT value FROM weir.secrets) = (SELECT value FROM other.secrets)").Scan(&same)
	if err != nil || same {
		t.Errorf("secrets equal: %v, error %v", same, err)
	}
}

func TestApplyRefuses(t *testing.T) {
	tests := []struct {
		name, spoil string
		want        error
	}{
		{"newer schema", "INSERT INTO weir.schema_migrations VALUES (9999, 'future', 'x')", migrations.ErrNewer},
		{"edited step", "UPDATE weir.schema_migrations SET checksum = 'x' WHERE number = 1", migrations.ErrEdited},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			conn := connect(t, testbed.Postgres(t))
			if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), tt.spoil); err != nil {
				t.Fatal(err)
			}
			if err := migrations.Apply(t.Context(), conn, "weir", quiet()); !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
}

// A step that a newer build has added holds up no process of this one: in the middle of an upgrade, one that crashes is
// started again on the newer schema. Only a breaking step does, and one that was edited.
func TestAdditionsOfANewerBuildAreNoObstacle(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO weir.schema_additions VALUES (9999, 'future', 'x')"); err != nil {
		t.Fatal(err)
	}
	steps, err := migrations.Status(t.Context(), conn, "weir")
	if err != nil || slices.ContainsFunc(steps, migrations.Step.Pending) {
		t.Errorf("%+v, %v", steps, err)
	}
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Error(err)
	}
	if _, err := conn.Exec(t.Context(), "INSERT INTO weir.schema_additions VALUES (1, 'streams', 'x')"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); !errors.Is(err, migrations.ErrEdited) {
		t.Errorf("an edited addition: %v", err)
	}
}

// An installation of step 12, with rows, gets what the rule language brought: additions, which hold up no process of the build before, and
// which the role of dashboards may read at once.
func TestFromStep12(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	before := secretOf(t, conn)
	for _, statement := range []string{
		"DROP VIEW weir.hits_all, weir.hits_beside_all, weir.block_decisions_all CASCADE", "DROP TABLE weir.hits_by_day, weir.hits_beside_by_day, weir.block_decisions_by_day",
		"ALTER TABLE weir.rule_modes DROP CONSTRAINT rule_modes_generation, DROP CONSTRAINT rule_modes_changed",
		"DROP TABLE weir.rule_texts, weir.mode_keys, weir.processes, weir.read_positions",
		"DROP TABLE weir.hit_counts, weir.hit_points, weir.limit_raises", "DROP TABLE weir.refusals CASCADE",
		"DROP TABLE weir.rule_numbers", "DROP FUNCTION " +
			"weir.store_life", "DROP TABLE weir.block_orders, " +
			"weir.never_block_entries", "DROP SEQUENCE weir.never_block_revision",
		"DROP TABLE weir.hits_left_out CASCADE",
		"DROP VIEW weir.event_minutes_v, weir.rule_event_minutes_v", "DROP TABLE weir.event_minutes, weir.rule_event_minutes", "DROP TABLE weir.rule_minutes CASCADE",
		"DROP FUNCTION weir.hit_to_its_day, weir.decision_to_its_day, weir.hit_changed, weir.limit_raised CASCADE",
		"DROP TABLE weir.hit_hours, weir.hit_sums, weir.hit_sums_stale",
		"DROP TABLE weir.hits_beside, weir.pending_versions, weir.raised_limits, weir.allow_versions",
		"ALTER TABLE weir.partition_states DROP COLUMN address, DROP COLUMN " +
			"stopped_at", "ALTER TABLE weir.hits DROP COLUMN reason, DROP COLUMN opened, DROP COLUMN known_good, " +
			"DROP COLUMN refused",
		"DROP FUNCTION weir.end_unknown_canary, weir.refuse_change CASCADE",
		"DROP TABLE weir.dossiers, weir.sign_ins, weir.sessions, weir.session_keys, weir.invites, weir.saved_views",
		`ALTER TABLE weir.rule_modes DROP COLUMN canary_share, DROP COLUMN canary_step, DROP COLUMN canary_since, DROP COLUMN canary_steps, DROP COLUMN canary_hold, DROP COLUMN predicted,
			DROP COLUMN dossier, DROP COLUMN fell_generation CASCADE`,
		"DROP VIEW weir.audit_v", "ALTER TABLE weir.audit DROP COLUMN before, DROP COLUMN after, DROP COLUMN via",
		"CREATE VIEW weir.audit_v AS SELECT seq, at, actor, action, object, reason, detail FROM weir.audit",
		"DELETE FROM weir.schema_additions WHERE number > 12",
		"INSERT INTO weir.rule_versions (rule, version, lineage, document, source, hash, author, reason) VALUES ('tokens', 1, 1, '{}', '', '', 'ann', '')",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	steps, err := migrations.Status(t.Context(), conn, "weir")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		if s.Pending() != (s.Number > 12) || s.Number > 12 && s.Breaking {
			t.Errorf("step %d %s: pending %v, breaking %v", s.Number, s.Name, s.Pending(), s.Breaking)
		}
	}
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	var rows int
	var may bool
	err = conn.QueryRow(t.Context(), "SELECT (SELECT count(*) FROM weir.rule_versions), has_table_privilege($1, 'weir.hits_beside_v', 'SELECT') AND has_table_privilege($1, 'weir.hits_v', 'SELECT')", migrations.Reader).Scan(&rows, &may)
	if err != nil || rows != 1 || !may || secretOf(t, conn) != before {
		t.Errorf("%d rows, %s may read: %v, %v", rows, migrations.Reader, may, err)
	}
}

// The first seven steps are recorded where the builds that brought them look; the later ones by what they say.
func TestStepsAreRecordedByTheirKind(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	steps, err := migrations.Steps()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range steps {
		table := "schema_additions"
		if s.Breaking {
			table = "schema_migrations"
		}
		var rows int
		err := conn.QueryRow(t.Context(), "SELECT count(*) FROM weir."+table+" WHERE number = $1", s.Number).Scan(&rows)
		if err != nil || rows != 1 || s.Number <= 7 && !s.Breaking {
			t.Errorf("step %d %s, breaking %v: %d rows in %s, %v", s.Number, s.Name, s.Breaking, rows, table, err)
		}
	}
}

func TestApplyIsOneTransaction(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	// A table of ours that somebody else has put there makes a step fail halfway.
	if _, err := conn.Exec(t.Context(), "CREATE SCHEMA weir; CREATE TABLE weir.losses (x int)"); err != nil {
		t.Fatal(err)
	}
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err == nil || !strings.Contains(err.Error(), "losses") {
		t.Fatalf("want an error that names losses, got %v", err)
	}
	var tables int
	if err := conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_tables WHERE schemaname = 'weir'").Scan(&tables); err != nil || tables != 1 {
		t.Errorf("%d tables are left of a failed migration (%v), want the foreign one only", tables, err)
	}
}

func TestCheckSchema(t *testing.T) {
	for name, ok := range map[string]bool{
		"weir": true, "t0123456789ab": true, "a_b": true,
		"": false, "Weir": false, "1weir": false, "pg_weir": false, "a-b": false, `a"b`: false, strings.Repeat("a", 41): false,
	} {
		if err := migrations.CheckSchema(name); (err == nil) != ok {
			t.Errorf("%q: %v, want ok=%v", name, err, ok)
		}
	}
}
