package retention

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/traffic"
)

const (
	// DefaultKeep is how long history is kept where nobody says.
	DefaultKeep = 90 * 24 * time.Hour
	// LeastKeep is the shortest time: an episode may last a day, and goes on in the day on which it began.
	LeastKeep = 2 * 24 * time.Hour
	// ahead is how many days after today are there.
	ahead = 7
	// mostAhead is how far ahead of today a row may lie and have a day: clocks of gateways are a little fast, and no more.
	mostAhead = 2
)

// Transactions is what the making of days needs of a database.
type Transactions interface {
	Begin(ctx context.Context) (pgx.Tx, error)
}

// Days knows which days there are and makes those that are missing. It is safe for concurrent use.
type Days struct {
	db    Transactions
	keep  time.Duration
	clock func() traffic.Time

	mu    sync.Mutex
	known map[Day]bool
}

// NewDays makes days in db. keep is how far back a row may lie and have a day, 0: DefaultKeep.
func NewDays(db Transactions, keep time.Duration, clock func() traffic.Time) *Days {
	if keep == 0 {
		keep = DefaultKeep
	}
	return &Days{db: db, keep: keep, clock: clock, known: map[Day]bool{}}
}

// Of is the day under which a row of time t is kept. What lies further back than history is kept, or ahead of the clock, has none: nobody
// shall make as many tables as there are days.
func (d *Days) Of(t traffic.Time) (Day, bool) {
	now := d.clock()
	if t == 0 || t < now.Add(-d.keep) || t > now.Add(mostAhead*24*time.Hour) {
		return 0, false
	}
	return DayOf(t), true
}

// Need makes those of the days that are missing.
func (d *Days) Need(ctx context.Context, days []Day) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	missing := slices.DeleteFunc(slices.Clone(days), func(day Day) bool { return d.known[day] })
	if len(missing) == 0 {
		return nil
	}
	for _, day := range missing {
		if err := pgx.BeginFunc(ctx, d.db, func(tx pgx.Tx) error { return Make(ctx, tx, day) }); err != nil {
			return fmt.Errorf("making the tables of %s: %w", day, err)
		}
		d.known[day] = true
	}
	return nil
}

// Forget has Need look again.
func (d *Days) Forget() {
	d.mu.Lock()
	defer d.mu.Unlock()
	clear(d.known)
}

// Make makes the tables of a day, where they are missing. Reading and writing of other days goes on meanwhile: the table is made for itself
// and then attached, which waits for no query.
func Make(ctx context.Context, tx pgx.Tx, day Day) error {
	if err := lock(ctx, tx); err != nil {
		return err
	}
	for _, table := range Tables() {
		name := day.partition(table)
		var exists bool
		if err := tx.QueryRow(ctx, "SELECT to_regclass(format('%I.%I', current_schema(), $1::text)) IS NOT NULL", name).Scan(&exists); err != nil {
			return err
		}
		if exists {
			continue
		}
		for _, statement := range []string{
			"CREATE TABLE " + name + " (LIKE " + table + " INCLUDING ALL)",
			"ALTER TABLE " + table + " ATTACH PARTITION " + name + " FOR VALUES FROM ('" + day.String() + "') TO ('" + (day + 1).String() + "')",
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// Ahead makes the tables of yesterday, today and a week ahead, as far as they are missing.
func (d *Days) Ahead(ctx context.Context) error { return d.AheadOf(ctx, d.clock()) }

// AheadOf does what Ahead does, as of now.
func (d *Days) AheadOf(ctx context.Context, now traffic.Time) error {
	today := DayOf(now)
	var days []Day
	for day := today - 1; day <= today+ahead; day++ {
		days = append(days, day)
	}
	return d.Need(ctx, days)
}

// lock has those who make and drop days wait for each other.
func lock(ctx context.Context, tx pgx.Tx) error {
	if _, err := tx.Exec(ctx, "SELECT pg_advisory_xact_lock(hashtextextended('weir make days ' || current_schema(), 0))"); err != nil {
		return fmt.Errorf("waiting for others who make days: %w", err)
	}
	return nil
}

// Missing reports whether err says that a row's day has no table.
func Missing(err error) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == "23514" && refused.ConstraintName == "" && slices.Contains(Tables(), refused.TableName)
}
