package migrations_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/internal/local"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/migrations"
)

// names are the relations of a kind in the schema weir.
func names(t *testing.T, conn *pgx.Conn, kind string) []string {
	t.Helper()
	rows, err := conn.Query(t.Context(), `SELECT relname::text FROM pg_class WHERE relnamespace = 'weir'::regnamespace AND relkind = $1::text::"char" ORDER BY 1`, kind)
	if err != nil {
		t.Fatal(err)
	}
	found, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(found) == 0 {
		t.Fatalf("relations of kind %s: %v, %v", kind, found, err)
	}
	return found
}

// The role for dashboards reads every view, and nothing else: no table and so no secret, and it writes nowhere.
func TestReaderSeesViewsOnly(t *testing.T) {
	url := testbed.Postgres(t)
	owner, conn := connect(t, url), connect(t, url)
	if err := migrations.Apply(t.Context(), owner, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	all, tables := names(t, owner, "v"), slices.Concat(names(t, owner, "r"), names(t, owner, "p"))
	views := published(all)
	tables = append(tables, slices.DeleteFunc(all, func(v string) bool { return slices.Contains(views, v) })...)
	if _, err := conn.Exec(t.Context(), "SET SESSION AUTHORIZATION "+migrations.Reader); err != nil {
		t.Fatal(err)
	}
	for _, view := range views {
		if _, err := conn.Exec(t.Context(), "SELECT * FROM weir."+view); err != nil {
			t.Errorf("%s may not read %s: %v", migrations.Reader, view, err)
		}
	}
	refused := []string{"CREATE TABLE weir.mine (x int)", "CREATE FUNCTION weir.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'", "DROP VIEW weir.hits_v",
		"SELECT nextval('weir.stream_generation')", "CREATE ROLE mine", "SET ROLE postgres"}
	for _, table := range tables {
		refused = append(refused, "SELECT FROM weir."+table, "DELETE FROM weir."+table, "TRUNCATE weir."+table)
	}
	for _, view := range views {
		refused = append(refused, "DELETE FROM weir."+view, "CREATE RULE mine AS ON INSERT TO weir."+view+" DO INSTEAD NOTHING")
	}
	refused = append(refused, "UPDATE weir.hits_v SET events = 0", "INSERT INTO weir.audit_v (actor) VALUES ('mine')")
	for _, statement := range refused {
		if _, err := conn.Exec(t.Context(), statement); err == nil {
			t.Errorf("%s may %s", migrations.Reader, statement)
		}
	}
}

// published are the views for everybody; the others are weir's own.
func published(views []string) []string {
	return slices.DeleteFunc(slices.Clone(views), func(v string) bool { return !strings.HasSuffix(v, "_v") })
}

func TestViewsAreDocumented(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join("..", "docs", "history.md"))
	if err != nil {
		t.Fatal(err)
	}
	var documented []string
	for _, heading := range regexp.MustCompile(`(?m)^### .*$`).FindAllString(string(text), -1) {
		documented = append(documented, regexp.MustCompile(`\w+_v\b`).FindAllString(heading, -1)...)
	}
	slices.Sort(documented)
	if views := published(names(t, conn, "v")); !slices.Equal(views, documented) {
		t.Errorf("docs/history.md describes %v, and there are %v", documented, views)
	}
}

// What a later migration adds, or an administrator took away, the next weir migrate gives.
func TestReaderIsGivenWhatItLacks(t *testing.T) {
	conn := connect(t, testbed.Postgres(t))
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	for _, statement := range []string{
		"DROP VIEW weir.late_v", "CREATE VIEW weir.late_v AS SELECT 1 AS one", "REVOKE ALL ON weir.hits_v FROM weir_read", "REVOKE USAGE ON SCHEMA weir FROM weir_read",
		"REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA weir FROM PUBLIC, weir_read",
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
		t.Fatal(err)
	}
	var withheld []string
	if err := conn.QueryRow(t.Context(), `SELECT array_agg(proname::text) FROM pg_proc
		WHERE pronamespace = 'weir'::regnamespace AND NOT has_function_privilege('weir_read', oid,
			'EXECUTE') AND prorettype <> 'trigger'::regtype
		AND proname <> 'store_life'`).Scan(&withheld); err != nil || withheld != nil {
		t.Errorf("weir_read may not call %v (%v)", withheld, err)
	}
	_, err := conn.Exec(t.Context(), "SET SESSION AUTHORIZATION weir_read; SELECT weir.subject_text(subject) FROM weir.hits_v; SELECT * FROM weir.late_v")
	if err != nil {
		t.Error(err)
	}
}

// asOwner makes a connection one of a new role, which may make schemas and nothing else.
func asOwner(t *testing.T, conn *pgx.Conn) (owner string) {
	t.Helper()
	owner = testbed.Namespace(t)
	for _, statement := range []string{
		"CREATE ROLE " + owner, "GRANT CREATE ON DATABASE " + conn.Config().Database + " TO " + owner, "SET SESSION AUTHORIZATION " + owner,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), fmt.Sprintf("RESET SESSION AUTHORIZATION; DROP OWNED BY %s CASCADE; DROP ROLE %s", owner, owner)); err != nil {
			t.Error(err)
		}
	})
	return owner
}

// The owner of a schema need not be allowed to make roles. The server has none yet: roles belong to it, and other tests' migrations made one.
func TestOwnerMayNotMakeRoles(t *testing.T) {
	testbed.Record(t, testbed.PostgresKind, testbed.Embedded)
	server, err := local.StartPostgres(t.Context(), local.PostgresOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	conn := connect(t, server.URL())
	asOwner(t, conn)
	for range 2 {
		if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
			t.Fatal(err)
		}
	}
	var there bool
	if err := conn.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", migrations.Reader).Scan(&there); err != nil || there {
		t.Errorf("there is a role %s: %t (%v), made by somebody who may not", migrations.Reader, there, err)
	}
}

// What belongs to others stays as they have it: a migration neither fails on it nor gives it away, and says what dashboards lack.
func TestViewsOfOthers(t *testing.T) {
	for _, superuser := range []bool{true, false} {
		t.Run(fmt.Sprintf("superuser=%t", superuser), func(t *testing.T) {
			url := testbed.Postgres(t)
			admin, conn := connect(t, url), connect(t, url)
			run := func(statements ...string) {
				t.Helper()
				for _, statement := range statements {
					if _, err := admin.Exec(t.Context(), statement); err != nil {
						t.Fatalf("%s: %v", statement, err)
					}
				}
			}
			run("DO $$ BEGIN CREATE ROLE weir_read; EXCEPTION WHEN duplicate_object THEN NULL; END $$")
			if !superuser {
				asOwner(t, conn)
			}
			if err := migrations.Apply(t.Context(), conn, "weir", quiet()); err != nil {
				t.Fatal(err)
			}
			dba, friend := testbed.Namespace(t), testbed.Namespace(t)
			run("CREATE ROLE "+dba, "CREATE ROLE "+friend)
			t.Cleanup(func() {
				if _, err := admin.Exec(context.Background(), fmt.Sprintf("DROP OWNED BY %s, %s CASCADE; DROP ROLE %s, %s", dba, friend, dba, friend)); err != nil {
					t.Error(err)
				}
			})
			run("CREATE VIEW weir.salaries_v AS SELECT 1 AS one", "ALTER VIEW weir.salaries_v OWNER TO "+dba,
				"CREATE FUNCTION weir.salary() RETURNS int LANGUAGE sql AS 'SELECT 1'", "REVOKE EXECUTE ON FUNCTION weir.salary() FROM PUBLIC",
				"REVOKE ALL ON weir.hits_v, weir.late_v, weir.audit_v, weir.blocks_v FROM weir_read",
				"REVOKE EXECUTE ON FUNCTION weir.read_sample(text) FROM PUBLIC, weir_read", "ALTER FUNCTION weir.read_sample(text) OWNER TO "+dba,
				"ALTER VIEW weir.late_v OWNER TO "+dba, "ALTER VIEW weir.audit_v OWNER TO "+dba, "ALTER VIEW weir.blocks_v OWNER TO "+friend)
			if !superuser {
				var migrator string
				if err := conn.QueryRow(t.Context(), "SELECT current_user").Scan(&migrator); err != nil {
					t.Fatal(err)
				}
				// The owner of one lets the migrator pass it on, that of the other has it as a member.
				run("GRANT SELECT ON weir.audit_v TO "+migrator+" WITH GRANT OPTION", "GRANT "+friend+" TO "+migrator,
					"GRANT SELECT ON weir.late_v TO "+migrator)
			}
			var told strings.Builder
			if err := migrations.Apply(t.Context(), conn, "weir", slog.New(slog.NewTextHandler(&told, nil))); err != nil {
				t.Fatal(err)
			}
			for privilege, want := range map[string]bool{
				"has_table_privilege('weir_read', 'weir.hits_v', 'SELECT')":                true,
				"has_table_privilege('weir_read', 'weir.audit_v', 'SELECT')":               true,
				"has_table_privilege('weir_read', 'weir.blocks_v', 'SELECT')":              true,
				"has_table_privilege('weir_read', 'weir.late_v', 'SELECT')":                superuser,
				"has_function_privilege('weir_read', 'weir.read_sample(text)', 'EXECUTE')": superuser,
				"has_table_privilege('weir_read', 'weir.salaries_v', 'SELECT')":            false,
				"has_function_privilege('weir_read', 'weir.salary()', 'EXECUTE')":          false,
			} {
				var got bool
				if err := admin.QueryRow(t.Context(), "SELECT "+privilege).Scan(&got); err != nil || got != want {
					t.Errorf("%s: %t (%v), want %t", privilege, got, err, want)
				}
			}
			lines := regexp.MustCompile(`level=WARN .*owner=(\S+) statement="(.*)"`).FindAllStringSubmatch(told.String(), -1)
			var missing []string
			for _, l := range lines {
				missing = append(missing, l[1]+": "+l[2])
			}
			want := []string{dba + ": GRANT SELECT ON weir.late_v TO weir_read", dba + ": GRANT EXECUTE ON FUNCTION weir.read_sample(text) TO weir_read"}
			if superuser {
				want = nil
			}
			if !slices.Equal(missing, want) {
				t.Errorf("told is %v, want %v\n%s", missing, want, told.String())
			}
		})
	}
}
