package history

import (
	"context"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/traffic"
)

// Days says under which day a row of the live stream is kept, and makes the tables of days.
type Days interface {
	// Of is the day of a row of that time; false: it has none, and goes to the table without days.
	Of(t traffic.Time) (retention.Day, bool)
	// Need returns after the days have tables.
	Need(ctx context.Context, days []retention.Day) error
	// Forget has Need look again at what there is.
	Forget()
}

var _ Days = (*retention.Days)(nil)

// dayed writes rows of the live stream by their days. An id that stands in the table without days goes on there: an older build has written
// it, or the row had no day. Older builds that write meanwhile are held to the same by the triggers of step 18 of the migrations, under the
// lock that enter takes.
type dayed struct {
	base *upsert // the table without days, of replays and of older builds
	days string  // the table by day
	// opened is the expression of a row's column opened in the table by day, of a row i without one; empty: it has no such column.
	opened string
	// near limits, for a row i and a stored row h, the days in which the same id may stand under another day; empty: an id has one day for ever.
	near string
}

// dayColumn is the last of the columns that rows of a dayed have: a time.Time, nil without a day.
const dayColumn = "day"

// enter begins a transaction that writes by days: builds that do not know them wait for it, and it for them.
func enter(ctx context.Context, tx pgx.Tx) error {
	_, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock_shared(hashtextextended('weir days ' || current_schema(), 0)), set_config('weir.days', 'known', true)")
	if err != nil {
		return fmt.Errorf("waiting for writers of older builds: %w", err)
	}
	return nil
}

// run writes rows, in the order of base's columns and then their day. No two have the same id.
func (d *dayed) run(ctx context.Context, tx pgx.Tx, rows [][]any) error {
	if len(rows) == 0 {
		return nil
	}
	columns := append(append([]string{}, d.base.columns...), dayColumn)
	incoming := d.days + "_incoming"
	_, err := tx.Exec(ctx, "CREATE TEMP TABLE IF NOT EXISTS "+incoming+" ON COMMIT DELETE ROWS AS SELECT "+strings.Join(d.base.columns, ", ")+
		", NULL::date AS "+dayColumn+" FROM "+d.base.table+" WITH NO DATA")
	if err != nil {
		return err
	}
	if _, err := tx.CopyFrom(ctx, pgx.Identifier{incoming}, columns, pgx.CopyFromRows(rows)); err != nil {
		return err
	}
	undated, moved, err := d.place(ctx, tx, incoming, rows)
	if err != nil {
		return err
	}
	if err := d.writeDays(ctx, tx, incoming, moved); err != nil {
		return err
	}
	if !undated {
		return nil
	}
	list := strings.Join(d.base.columns, ", ")
	_, err = tx.Exec(ctx, "INSERT INTO "+d.base.table+" AS h ("+list+") SELECT "+list+" FROM "+incoming+
		" WHERE "+dayColumn+" IS NULL ORDER BY id ON CONFLICT (stream, id) "+d.base.update)
	return err
}

// place gives rows whose id stands somewhere the day, or the lack of one, under which it stands. It reports whether any may be without, and
// whether the rows may be out of order now: what is updated moves.
// The look-ups are sub-selects, which PostgreSQL does by index, one for each row: a join of rows that it knows nothing about with a table
// of millions might be anything.
func (d *dayed) place(ctx context.Context, tx pgx.Tx, incoming string, rows [][]any) (undated, moved bool, err error) {
	for _, row := range rows {
		undated = undated || row[len(row)-1] == nil
	}
	if undated {
		_, err := tx.Exec(ctx, "UPDATE "+incoming+" i SET day = (SELECT h.day FROM "+d.days+" h WHERE h.id = i.id LIMIT 1) WHERE i.day IS NULL")
		if err != nil {
			return false, false, err
		}
	}
	if d.near != "" {
		_, err := tx.Exec(ctx, "UPDATE "+incoming+" i SET day = coalesce((SELECT h.day FROM "+d.days+" h WHERE h.id = i.id AND "+d.near+
			" ORDER BY h.day LIMIT 1), i.day) WHERE i.day IS NOT NULL")
		if err != nil {
			return false, false, err
		}
	}
	moved = undated || d.near != ""
	var standing bool
	if err := tx.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+d.base.table+" WHERE stream = 'live')").Scan(&standing); err != nil {
		return false, false, err
	}
	if !standing {
		return undated, moved, nil
	}
	tag, err := tx.Exec(ctx, "UPDATE "+incoming+" i SET day = NULL WHERE i.day IS NOT NULL AND (SELECT true FROM "+d.base.table+
		" h WHERE h.stream = 'live' AND h.id = i.id)")
	taken := tag.RowsAffected() > 0
	return undated || taken, moved || taken, err
}

func (d *dayed) writeDays(ctx context.Context, tx pgx.Tx, incoming string, moved bool) error {
	columns := append([]string{dayColumn}, d.base.columns[1:]...) // all rows are of the live stream
	values := strings.Join(columns, ", ")
	if d.opened != "" {
		values = strings.Replace(values, " opened,", " "+d.opened+",", 1)
	}
	order := "" // rows come as they were given, in the order in which all writers lock them
	if moved {
		order = " ORDER BY id"
	}
	_, err := tx.Exec(ctx, "INSERT INTO "+d.days+" AS h ("+strings.Join(columns, ", ")+") SELECT "+values+" FROM "+incoming+
		" i WHERE day IS NOT NULL"+order+" ON CONFLICT (id, day) "+d.base.update)
	return err
}
