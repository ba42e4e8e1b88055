package history

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
)

// upsert brings many rows into a table in three steps: COPY into a temporary table of the connection, and one INSERT …
// ON CONFLICT from there. It is several times as fast as single INSERTs. No two rows of a call may have the same key.
type upsert struct {
	table   string
	columns []string
	update  string // what follows ON CONFLICT (stream, id); h is the stored row, excluded the new one
}

func (u *upsert) run(ctx context.Context, tx pgx.Tx, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	incoming := u.table + "_incoming"
	columns := strings.Join(u.columns, ", ")
	// The table stays with the connection and is empty at each commit: making it anew for each batch would bloat the
	// catalogue.
	_, err := tx.Exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS "+incoming+" ON COMMIT DELETE ROWS AS SELECT "+columns+
		" FROM "+u.table+" WITH NO DATA")
	if err != nil {
		return err
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{incoming}, u.columns, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, "INSERT INTO "+u.table+" AS h ("+columns+") SELECT "+columns+" FROM "+incoming+
		" ON CONFLICT (stream, id) "+u.update)
	return err
}
