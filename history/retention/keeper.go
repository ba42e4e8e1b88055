package retention

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/sums"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	keepEvery = time.Minute
	// lockWait is how long the dropping of a day waits for queries that read it. Everybody who comes later waits behind it meanwhile.
	lockWait = 500 * time.Millisecond
	// portion is how many rows are deleted in one transaction.
	portion = 5000
	// keepPoints is how long it is kept how far an episode was, minute by minute: an episode is cut after a day.
	keepPoints = 25 * time.Hour
	// keepTimeout bounds one statement to a server that has taken it and does not answer.
	keepTimeout = 30 * time.Second
)

// Options are what a Keeper needs.
type Options struct {
	DB     *postgres.DB
	Days   *Days         // which it makes ahead
	Keep   time.Duration // how long history is kept; 0: for ever
	Logger *slog.Logger
	// Now is what history's age is measured by. Without one the database is asked, and a process whose clock is
	// behind it waits for its own.
	Now func(ctx context.Context) (traffic.Time, error)
}

// Keeper makes days ahead and drops what is over. Any number of processes may run one; they take turns.
type Keeper struct {
	Options
	metrics *metrics
}

// NewKeeper checks the options and registers metrics.
func NewKeeper(o Options, registry prometheus.Registerer) (*Keeper, error) {
	if o.Keep != 0 && o.Keep < LeastKeep {
		return nil, fmt.Errorf("history.retention: got %v; allowed: 0 (for ever), and %v or more", o.Keep, LeastKeep)
	}
	m, err := newMetrics(registry)
	if err != nil {
		return nil, err
	}
	k := &Keeper{Options: o, metrics: m}
	if k.Now == nil {
		k.Now = k.byBothClocks
	}
	return k, nil
}

// byBothClocks is the lesser of the database's time and this machine's: what is dropped is over by both of them. One
// process with a clock that is ahead would drop the history of all.
func (k *Keeper) byBothClocks(ctx context.Context) (traffic.Time, error) {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	now, err := k.DB.Now(ctx)
	return min(now, k.Days.clock()), err
}

// Run keeps once a minute until ctx is done. What fails is tried again a minute later.
func (k *Keeper) Run(ctx context.Context) error {
	ticker := time.NewTicker(keepEvery)
	defer ticker.Stop()
	var trouble retry.Trouble
	for {
		switch err := k.Once(ctx); {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			k.metrics.failures.Inc()
			trouble.Failed(k.Logger, "history is not kept within its time, trying again in a minute", err)
		default:
			trouble.Over(k.Logger, "history is kept within its time again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Once makes what is missing ahead, drops what is over, whole days first, then rows, a portion a transaction, and sums up hours that are over. It
// ends between two portions when ctx does.
func (k *Keeper) Once(ctx context.Context) error {
	now, err := k.Now(ctx)
	if err != nil {
		return err
	}
	if err := k.Days.AheadOf(ctx, now); err != nil {
		return k.DB.Fail("making days ahead", err)
	}
	errDrop := k.dropDays(ctx, now)
	errPoints := k.deleteAll(ctx, pointsTable, "rule = ANY (ARRAY(SELECT rule FROM rule_modes)) AND minute < $1",
		postgres.Timestamp(now.Add(-keepPoints)))
	var errRows error
	if k.Keep != 0 {
		errRows = k.deleteRows(ctx, now.Add(-k.Keep))
	}
	return errors.Join(errDrop, errPoints, errRows, k.sumUp(ctx))
}

// sumUp makes sums of the hours since the oldest day.
func (k *Keeper) sumUp(ctx context.Context) error {
	days, err := Existing(ctx, k.DB, HitsByDay)
	if err != nil {
		return k.DB.Fail("listing the days of hits", err)
	}
	if len(days) == 0 {
		return nil
	}
	made, err := sums.NewMaker(k.DB).Once(ctx, days[0].Start())
	k.metrics.hours.Add(float64(made.Hours))
	k.metrics.again.Add(float64(made.Again))
	return err
}

// Existing lists the days that a table has, ascending.
func Existing(ctx context.Context, q postgres.Querier, table string) ([]Day, error) {
	rows, err := q.Query(ctx, `SELECT c.relname::text FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
		WHERE i.inhparent = to_regclass(format('%I.%I', current_schema(), $1::text)) ORDER BY 1`, table)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var days []Day
	for _, name := range names {
		if day, ok := dayOfPartition(table, name); ok {
			days = append(days, day)
		}
	}
	return days, nil
}

// dropDays drops the tables of days that are over as a whole.
func (k *Keeper) dropDays(ctx context.Context, now traffic.Time) error {
	var errs []error
	for _, table := range Tables() {
		days, err := Existing(ctx, k.DB, table)
		if err != nil {
			return k.DB.Fail("listing the days of "+table, err)
		}
		left := len(days)
		over, err := k.over(ctx, slices.Clone(days), now)
		if err != nil {
			return err
		}
		for _, day := range over {
			if ctx.Err() != nil {
				break
			}
			if err := k.dropDay(ctx, table, day); err != nil {
				errs = append(errs, err)
				break // the next minute goes on with the oldest
			}
			left--
			k.metrics.dropped.WithLabelValues(table).Inc()
			k.Logger.InfoContext(ctx, "a day of history is over", "table", table, "day", day.String())
		}
		k.metrics.days.WithLabelValues(table).Set(float64(left))
	}
	return errors.Join(errs...)
}

// over are those of a table's days, ascending, that are to be dropped.
func (k *Keeper) over(ctx context.Context, days []Day, now traffic.Time) ([]Day, error) {
	old := 0
	for k.Keep != 0 && old < len(days) && (days[old]+1).Start() <= now.Add(-k.Keep) {
		old++
	}
	if old == 0 {
		return nil, nil
	}
	newest, err := k.newest(ctx)
	if err != nil {
		return nil, k.DB.Fail("looking for the newest day of history", err)
	}
	return slices.DeleteFunc(days[:old:old], func(d Day) bool { return d >= newest }), nil
}

// newest is the last day that holds a row. It is kept whatever the time: should all clocks be wrong at once, not all
// is gone.
func (k *Keeper) newest(ctx context.Context) (Day, error) {
	tables := map[Day][]string{}
	for _, table := range Tables() {
		days, err := Existing(ctx, k.DB, table)
		if err != nil {
			return 0, err
		}
		for _, day := range days {
			tables[day] = append(tables[day], day.partition(table))
		}
	}
	for _, day := range slices.Backward(slices.Sorted(maps.Keys(tables))) {
		for _, table := range tables[day] {
			var holds bool
			if err := k.DB.QueryRow(ctx, "SELECT EXISTS (SELECT FROM "+table+")").Scan(&holds); err != nil || holds {
				return day, err
			}
		}
	}
	return math.MaxInt64, nil
}

// dropDay drops one table. A query that reads it, for longer than lockWait, has it stay until the next minute.
func (k *Keeper) dropDay(ctx context.Context, table string, day Day) error {
	err := k.transact(ctx, fmt.Sprintf("dropping %s of %s", day, table), func(ctx context.Context, tx pgx.Tx) error {
		if err := lock(ctx, tx); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, fmt.Sprintf("SET LOCAL lock_timeout = %d", lockWait.Milliseconds())); err != nil {
			return err
		}
		name := day.partition(table)
		if table == decisionsByDay {
			if err := keepStanding(ctx, tx, name); err != nil {
				return err
			}
		}
		if table == HitsByDay {
			if err := sums.Drop(ctx, tx, (day + 1).Start()); err != nil {
				return err
			}
		}
		_, err := tx.Exec(ctx, "DROP TABLE IF EXISTS "+name)
		return err
	})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == "55P03" {
		return fmt.Errorf("%w; a query has been reading it for longer than %v", err, lockWait)
	}
	return err
}

// keepStanding moves the decisions whose blocks are in force to the table without days: Redis is rebuilt from them.
func keepStanding(ctx context.Context, tx pgx.Tx, partition string) error {
	const columns = `id, action, reason, rule, subject, ip, device, user_id, api_key, session, hit, generation, since, until, at, decided_by, recorded_at`
	if _, err := tx.Exec(ctx, "SELECT set_config('weir.days', 'known', true)"); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO block_decisions (stream, `+columns+`) SELECT 'live', `+columns+` FROM `+partition+`
		WHERE until > now() AND action IN ('written', 'extended') ON CONFLICT (stream, id) DO NOTHING`)
	return err
}

// pointsTable says how far episodes were, minute by minute.
const pointsTable = "hit_points"

// rowsOver selects rows without a day that are over.
type rowsOver struct{ table, live string }

// withoutDays are the tables that lose rows by time, and which rows of the live stream: $1 is before when. A replay loses all of its rows
// in them once it is that old.
func withoutDays() []rowsOver {
	return []rowsOver{
		{"hits", "last < $1"},
		{"hits_beside", "last < $1"},
		{"block_decisions", "at < $1 AND coalesce(until < now(), true)"},
		{"late_sums", "minute < $1"},
		{"uncounted_sums", "minute < $1"},
		{"rule_minutes", "rule = ANY (ARRAY(SELECT rule FROM rule_modes)) AND minute < $1"}, // its index begins with the rule
		{"hits_left_out", "minute < $1"},
		{"event_minutes", "minute < $1"},
		{"refusals", "minute < $1"},
		{"rule_event_minutes", "rule = ANY (ARRAY(SELECT rule FROM rule_modes)) AND minute < $1"}, // likewise
	}
}

// deleteRows deletes what was over before a time, from the tables that have no days.
func (k *Keeper) deleteRows(ctx context.Context, before traffic.Time) error {
	rows, err := k.DB.Query(ctx, "SELECT name FROM streams WHERE name <> 'live' AND coalesce(finished_at, created_at) < $1", postgres.Timestamp(before))
	if err != nil {
		return k.DB.Fail("listing replays that are over", err)
	}
	replays, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return k.DB.Fail("listing replays that are over", err)
	}
	if err := k.deleteAll(ctx, "block_orders", "until < $1", postgres.Timestamp(before)); err != nil {
		return err
	}
	for _, over := range withoutDays() {
		if err := k.deleteAll(ctx, over.table, "stream = 'live' AND "+over.live, postgres.Timestamp(before)); err != nil {
			return err
		}
		if len(replays) == 0 {
			continue
		}
		if err := k.deleteAll(ctx, over.table, "stream = ANY ($1)", replays); err != nil {
			return err
		}
	}
	return nil
}

func (k *Keeper) deleteAll(ctx context.Context, table, condition string, arg any) error {
	sql := fmt.Sprintf("DELETE FROM %s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %s WHERE %s LIMIT %d))", table, table, condition, portion)
	for ctx.Err() == nil {
		deleted := int64(0)
		err := k.transact(ctx, "deleting rows of "+strings.ReplaceAll(table, "_", " "), func(ctx context.Context, tx pgx.Tx) error {
			tag, err := tx.Exec(ctx, sql, arg)
			deleted = tag.RowsAffected()
			return err
		})
		if err != nil {
			return err
		}
		k.metrics.expired.WithLabelValues(table).Add(float64(deleted))
		if deleted < portion {
			return nil
		}
	}
	return ctx.Err()
}

func (k *Keeper) transact(ctx context.Context, doing string, do func(ctx context.Context, tx pgx.Tx) error) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	return k.DB.Transact(ctx, doing, func(tx pgx.Tx) error { return do(ctx, tx) })
}
