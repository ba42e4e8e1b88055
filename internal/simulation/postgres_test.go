package simulation

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/simulation/judge"
	"github.com/weirhq/weir/traffic"
)

// database is PostgreSQL as far as RECORD uses it: COPY into a temporary table and INSERT … ON CONFLICT from there. It
// does what the statement's own text says: greatest, least, OR.
type database struct{ *host }

var _ history.Transactions = database{}

// row is a stored row: whole numbers, texts and truths by column.
type row map[string]any

func (d database) Logger() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (d database) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := d.pass(ctx, lane(ctx), time.Millisecond, 20*time.Millisecond); err != nil {
		return nil, err
	}
	if d.fails(lane(ctx), .03) {
		return nil, errFault
	}
	return &transaction{db: d, incoming: map[string][]row{}}, nil
}

// transaction collects what is to be done, and does it when it is committed.
type transaction struct {
	pgx.Tx   // what RECORD does not use
	db       database
	incoming map[string][]row
	work     []func() // under the world's lock
	closed   bool
}

func (t *transaction) CopyFrom(_ context.Context, table pgx.Identifier, columns []string, from pgx.CopyFromSource) (int64, error) {
	n := int64(0)
	for from.Next() {
		values, err := from.Values()
		if err != nil {
			return n, err
		}
		r := row{}
		for i, c := range columns {
			if r[c], err = plain(values[i]); err != nil {
				return n, err
			}
		}
		t.incoming[table[0]] = append(t.incoming[table[0]], r)
		n++
	}
	return n, from.Err()
}

// plain is a value as rows hold it.
func plain(value any) (any, error) {
	switch v := value.(type) {
	case int:
		return int64(v), nil
	case int16:
		return int64(v), nil
	case pgtype.TimestamptzValuer:
		stamp, err := v.TimestamptzValue()
		switch {
		case err != nil:
			return nil, err
		case stamp.InfinityModifier == pgtype.Infinity:
			return int64(traffic.EndOfTime), nil
		case stamp.InfinityModifier == pgtype.NegativeInfinity:
			return int64(traffic.BeforeTime), nil
		}
		return stamp.Time.UnixMicro(), nil
	}
	return value, nil
}

func (t *transaction) Exec(_ context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if strings.HasPrefix(sql, "CREATE TEMP TABLE IF NOT EXISTS") {
		return pgconn.CommandTag{}, nil
	}
	if strings.HasPrefix(sql, "WITH told AS (") {
		return pgconn.CommandTag{}, t.raise(sql, args)
	}
	words := strings.Fields(sql)
	if len(words) < 3 || words[0] != "INSERT" || !strings.Contains(sql, "ON CONFLICT (stream, id) DO UPDATE SET") {
		return pgconn.CommandTag{}, errors.New("the simulated database does not know this statement: " + sql)
	}
	table, updates := words[2], t.db.w.lab.updates(sql)
	rows := t.incoming[table+"_incoming"]
	t.work = append(t.work, func() {
		for _, r := range rows {
			t.db.w.upsert(table, r, updates)
		}
	})
	return pgconn.CommandTag{}, nil
}

// raise takes the counts of running episodes, which raise rows that are there: the ids and seven columns.
func (t *transaction) raise(sql string, args []any) error {
	columns := []string{"events", "peak", "last", "users", "devices", "refused", "known_good"}
	table := regexp.MustCompile(`UPDATE (\w+) h SET`).FindStringSubmatch(sql)
	ids, isList := args[1].([]string)
	if table == nil || !isList || len(args) != 2+len(columns) {
		return errors.New("the simulated database does not know this statement: " + sql)
	}
	var updates []update
	for _, c := range columns {
		updates = append(updates, update{c, "greatest"})
	}
	for i, id := range ids {
		r := row{"id": id}
		for n, c := range columns {
			value := reflect.ValueOf(args[2+n]).Index(i).Interface()
			var err error
			if r[c], err = plain(value); err != nil {
				return err
			}
		}
		t.work = append(t.work, func() {
			if t.db.w.tables[table[1]][id] != nil {
				t.db.w.upsert(table[1], r, updates)
			}
		})
	}
	return nil
}

// SendBatch takes single INSERTs: losses, and audits of releases.
func (t *transaction) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		t.work = append(t.work, func() {
			if strings.HasPrefix(q.SQL, "INSERT INTO losses") {
				t.db.w.say("a loss is recorded: %v", q.Arguments)
			}
		})
	}
	return batchDone{}
}

type batchDone struct{ pgx.BatchResults }

func (batchDone) Close() error { return nil }

// Commit does all or nothing, and may lose the answer.
func (t *transaction) Commit(ctx context.Context) error {
	if err := t.db.pass(ctx, lane(ctx), time.Millisecond, 20*time.Millisecond); err != nil {
		return err
	}
	t.closed = true
	failed := t.db.fails(lane(ctx), t.db.w.loss)
	if failed && t.db.below(lane(ctx), 2) == 0 {
		return errFault
	}
	t.db.w.mu.Lock()
	defer t.db.w.mu.Unlock()
	for _, do := range t.work {
		do()
	}
	if failed {
		return errFault
	}
	return nil
}

func (t *transaction) Rollback(context.Context) error {
	if t.closed {
		return pgx.ErrTxClosed
	}
	t.closed = true
	return nil
}

// update is what an upsert does to a column that stands.
type update struct{ column, how string }

// parseUpdates reads the SET part of a statement. What it does not know stays as it was first.
func parseUpdates(sql string) []update {
	_, set, _ := strings.Cut(sql, "DO UPDATE SET")
	set, _, _ = strings.Cut(set, "\tWHERE ")
	one := regexp.MustCompile(`(\w+)\s*=\s*(?:(greatest|least)\(h\.\w+, excluded\.\w+\)|h\.\w+ (OR) excluded\.\w+)`)
	var out []update
	for _, m := range one.FindAllStringSubmatch(set, -1) {
		out = append(out, update{column: m[1], how: m[2] + m[3]})
	}
	return out
}

// upsert puts a row into a table; the world's lock must be held.
func (w *world) upsert(table string, r row, updates []update) {
	id, _ := r["id"].(string)
	if w.tables[table] == nil {
		w.tables[table] = map[string]row{}
	}
	was, known := w.tables[table][id]
	if !known {
		w.tables[table][id] = r
		return
	}
	w.seen.rowsAgain++
	for _, u := range updates {
		a, b := was[u.column], r[u.column]
		switch {
		case w.bugs.overwriteRows:
			was[u.column] = b
		case u.how == "greatest" && above(b, a), u.how == "least" && above(a, b), u.how == "OR" && b == true:
			was[u.column] = b
		}
	}
}

func above(a, b any) bool {
	switch x := a.(type) {
	case int64:
		y, ok := b.(int64)
		return ok && x > y
	case string:
		y, ok := b.(string)
		return ok && x > y
	}
	return false
}

func (r row) number(column string) int64 {
	n, _ := r[column].(int64)
	return n
}

func (r row) text(column string) string {
	s, _ := r[column].(string)
	return s
}

// rows are a table's, by id.
func (w *world) rows(table string) []row {
	var out []row
	for _, id := range slices.Sorted(maps.Keys(w.tables[table])) {
		out = append(out, w.tables[table][id])
	}
	return out
}

// recorded is what history holds, as the judge reads it.
func (w *world) recorded() (hits []judge.Hit, late []judge.LateSum) {
	for _, r := range w.rows("hits") {
		hits = append(hits, judge.Hit{
			ID: r.text("id"), Rule: r.text("rule"), Subject: r.text("subject"), Lineage: int(r.number("lineage")),
			Keyed: int(r.number("keyed_partition")), Closed: r.number("phase") == 3, Merged: r.number("phase") == 4,
			First: r.number("first"), Last: r.number("last"), Count: r.number("events"),
		})
	}
	for _, r := range w.rows("late_sums") {
		late = append(late, judge.LateSum{
			Rule: r.text("rule"), Lineage: int(r.number("lineage")), Source: int(r.number("source_partition")),
			Keyed: int(r.number("keyed_partition")), Minute: r.number("minute"), Count: r.number("events"),
		})
	}
	return hits, late
}
