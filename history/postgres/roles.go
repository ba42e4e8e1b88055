package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/migrations"
)

// InspectedRoles is who works on the schema and who reads it, and what they may do.
type InspectedRoles struct {
	User      string
	Superuser bool
	Owners    []string // of the schema and of what is in it, where User has not their rights; ascending
	Withheld  []string // tables that User may not both read and write; ascending

	Reader     bool     // there is migrations.Reader
	ReaderIn   bool     // it may log in
	ReaderLack []string // the statements that give it what it lacks
	ReaderOver []string // tables that it may read or write, which are none of the views; ascending
}

// InspectRoles asks what the role of this connection may do in the schema, which exists, and what migrations.Reader may. It changes nothing.
func (db *DB) InspectRoles(ctx context.Context) (InspectedRoles, error) {
	var found InspectedRoles
	err := db.withConn(ctx, "inspecting roles", func(conn *pgx.Conn) error {
		err := conn.QueryRow(ctx, `
			WITH of AS (SELECT c.oid, c.relname, c.relowner, c.relkind IN ('r', 'p') AS holds FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = $1 AND c.relkind IN ('r', 'p', 'v') AND NOT c.relispartition)
			SELECT current_user::text, (SELECT rolsuper FROM pg_roles WHERE rolname = current_user),
				ARRAY(SELECT pg_get_userbyid(o)::text FROM (SELECT relowner AS o FROM of UNION SELECT nspowner FROM pg_namespace WHERE nspname = $1) owners
					WHERE NOT pg_has_role(o, 'USAGE') ORDER BY 1),
				ARRAY(SELECT relname::text FROM of WHERE holds AND NOT (has_table_privilege(oid, 'SELECT') AND has_table_privilege(oid, 'INSERT')
					AND has_table_privilege(oid, 'UPDATE') AND has_table_privilege(oid, 'DELETE')) ORDER BY 1)`, db.schema).
			Scan(&found.User, &found.Superuser, &found.Owners, &found.Withheld)
		if err != nil {
			return err
		}
		rows, err := conn.Query(ctx, `
			SELECT r.rolcanlogin, ARRAY(SELECT c.relname::text FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
				WHERE n.nspname = $2 AND c.relkind IN ('r', 'p') AND NOT c.relispartition
				AND has_table_privilege(r.oid, c.oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE') ORDER BY 1)
			FROM pg_roles r WHERE r.rolname = $1`, migrations.Reader, db.schema)
		if err != nil {
			return err
		}
		_, err = pgx.ForEachRow(rows, []any{&found.ReaderIn, &found.ReaderOver}, func() error { found.Reader = true; return nil })
		if err != nil {
			return fmt.Errorf("what %s may do: %w", migrations.Reader, err)
		}
		found.ReaderLack, err = migrations.ReaderLacks(ctx, conn, db.schema)
		return err
	})
	return found, err
}
