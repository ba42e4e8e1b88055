package migrations

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/jackc/pgx/v5"
)

// Reader is the role for dashboards and analysts: it may read the views of every schema of weir on its server, with the functions
// that they are made of, and nothing else.
const Reader = "weir_read"

// readerMay lists what Reader may read and call: the views and functions that docs/history.md describes. What others have put into the
// schema is theirs to give.
func readerMay() (views, functions []string) {
	return []string{
			"audit_v", "block_decisions_v", "blocks_v", "episodes_v", "event_minutes_v", "hits_beside_v", "hits_left_out_v", "hits_v", "late_v", "losses_v", "rule_days_v", "rule_event_minutes_v",
			"refusals_v", "rule_hours_v", "rule_minutes_v", "rule_versions_v", "rules_v", "samples_v", "source_days_v",
			"source_hours_v", "streams_v", "uncounted_v",
		}, []string{
			"never_blocked", "parse_address", "read_sample", "source_forms", "stored_subject", "subject_text",
		}
}

// lacking is a privilege that Reader does not have.
type lacking struct {
	Grant string // the statement that gives it
	Owner string // of the view, function or schema
	May   bool   // whether this connection may give it
}

// admitReader gives Reader what it lacks. A server without that role, whose administrator has made none, stays without. What belongs to
// somebody else, who has not let the role of this connection pass it on, is left to them and told to log.
func admitReader(ctx context.Context, tx pgx.Tx, schema string, log *slog.Logger) error {
	lacks, err := readerLacks(ctx, tx, schema)
	if err != nil {
		return err
	}
	for _, l := range lacks {
		if !l.May {
			log.WarnContext(ctx, "dashboards lack what belongs to another role; let it, or an administrator, run the statement", "owner", l.Owner, "statement", l.Grant)
			continue
		}
		if _, err := tx.Exec(ctx, l.Grant); err != nil {
			return fmt.Errorf("%s: %w", l.Grant, err)
		}
	}
	return nil
}

// ReaderLacks gives the statements that let Reader read the views of a schema; none where it may read them all, and where there is no such role.
func ReaderLacks(ctx context.Context, conn *pgx.Conn, schema string) ([]string, error) {
	lacks, err := readerLacks(ctx, conn, schema)
	grants := make([]string, len(lacks))
	for i, l := range lacks {
		grants[i] = l.Grant
	}
	return grants, err
}

type asker interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func readerLacks(ctx context.Context, q asker, schema string) ([]lacking, error) {
	views, functions := readerMay()
	rows, err := q.Query(ctx, `
		WITH schema AS (SELECT n.oid, n.nspname, n.nspowner, r.oid AS reader, r.rolname FROM pg_roles r, pg_namespace n WHERE r.rolname = $1 AND n.nspname = $2)
		SELECT format('GRANT USAGE ON SCHEMA %I TO %I', s.nspname, s.rolname) AS grant, pg_get_userbyid(s.nspowner)::text AS owner,
			pg_has_role(s.nspowner, 'USAGE') OR has_schema_privilege(s.oid, 'USAGE WITH GRANT OPTION') AS may
		FROM schema s WHERE NOT has_schema_privilege(s.reader, s.oid, 'USAGE')
		UNION ALL
		SELECT format('GRANT SELECT ON %I.%I TO %I', s.nspname, c.relname, s.rolname), pg_get_userbyid(c.relowner)::text,
			pg_has_role(c.relowner, 'USAGE') OR has_table_privilege(c.oid, 'SELECT WITH GRANT OPTION')
		FROM schema s JOIN pg_class c ON c.relnamespace = s.oid
		WHERE c.relkind = 'v' AND c.relname = ANY ($3) AND NOT has_table_privilege(s.reader, c.oid, 'SELECT')
		UNION ALL
		SELECT format('GRANT EXECUTE ON FUNCTION %I.%I(%s) TO %I', s.nspname, p.proname, oidvectortypes(p.proargtypes), s.rolname), pg_get_userbyid(p.proowner)::text,
			pg_has_role(p.proowner, 'USAGE') OR has_function_privilege(p.oid, 'EXECUTE WITH GRANT OPTION')
		FROM schema s JOIN pg_proc p ON p.pronamespace = s.oid
		WHERE p.proname = ANY ($4) AND NOT has_function_privilege(s.reader, p.oid, 'EXECUTE')`, Reader, schema, views, functions)
	if err != nil {
		return nil, fmt.Errorf("what %s may read: %w", Reader, err)
	}
	lacks, err := pgx.CollectRows(rows, pgx.RowToStructByName[lacking])
	if err != nil {
		return nil, fmt.Errorf("what %s may read: %w", Reader, err)
	}
	return lacks, nil
}
