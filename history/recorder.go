package history

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history/retention"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// DeadLetters takes the records that could not be stored. Put returns after they are safe.
type DeadLetters interface {
	Put(ctx context.Context, letters []traffic.DeadLetter) error
}

// Transactions is what the recorders need of a Store: transactions for batches, and a log for records that are not stored.
type Transactions interface {
	// Begin opens a transaction, which the recorder commits or rolls back.
	Begin(ctx context.Context) (pgx.Tx, error)
	Logger() *slog.Logger
}

var _ Transactions = (*Store)(nil)

// Reasons of dead letters.
const (
	reasonMalformed = "malformed" // does not decode
	reasonRefused   = "refused"   // PostgreSQL does not take the row
)

// DeadReasons are all reasons of dead letters of RECORD.
func DeadReasons() []string { return []string{reasonMalformed, reasonRefused} }

// item is one decoded record and the message that it came in.
type item[R any] struct {
	message *traffic.Message
	row     R
}

// recorder is what the sinks of RECORD share: a batch is done when each of its records is stored or, where PostgreSQL refuses
// its row, in the dead letters.
type recorder[R any] struct {
	store   Transactions
	letters DeadLetters
	topic   string
	metrics *recordMetrics
	decode  func(value []byte) (R, error)
	table   func(row *R) string // that it is stored in
	write   func(ctx context.Context, tx pgx.Tx, rows []item[R]) error
	days    Days                               // nil: no row has a day
	day     func(row *R) (retention.Day, bool) // of the row; false: none
}

// storeTimeout bounds the storing of one batch, which takes milliseconds. A server that has taken the statement and gives no
// answer, because it is frozen or its machine is gone, is then asked again over another connection, and operators hear of it.
const storeTimeout = 30 * time.Second

// read decodes batch. A damaged record becomes a dead letter. A record that a newer build wrote ends the reading: newer is its
// error, and items are the records before it, which can be stored.
func (r *recorder[R]) read(batch []traffic.Message) (items []item[R], letters []traffic.DeadLetter, newer error) {
	items = make([]item[R], 0, len(batch))
	for i := range batch {
		m := &batch[i]
		row, err := r.decode(m.Value)
		if unknown := (*detectors.UnknownFormatError)(nil); errors.As(err, &unknown) {
			return items, letters, fmt.Errorf("partition %d offset %d: %w", m.Partition, m.Offset, err)
		}
		if err != nil {
			letters = append(letters, r.letter(reasonMalformed, err, m))
			continue
		}
		items = append(items, item[R]{message: m, row: row})
	}
	return items, letters, nil
}

// apply returns nil only after every record of batch is stored or in the dead letters.
func (r *recorder[R]) apply(ctx context.Context, batch []traffic.Message) error {
	items, letters, newer := r.read(batch)
	bounded, cancel := context.WithTimeout(ctx, storeTimeout)
	stored := map[string]int{}
	refused, err := r.putByDays(bounded, items, stored)
	cancel()
	if err != nil {
		return fmt.Errorf("history: recording %s: %w", r.topic, err)
	}
	if newer != nil { // the letters are put once, with the batch that passes
		return fmt.Errorf("history: recording %s: %w", r.topic, newer)
	}
	letters = append(letters, refused...)
	if len(letters) > 0 {
		if err := r.letters.Put(ctx, letters); err != nil {
			return err
		}
	}
	r.metrics.stored(stored)
	for i := range letters {
		r.store.Logger().Warn("record not stored, see the dead letters", "topic", r.topic, "partition", letters[i].Partition,
			"offset", letters[i].Offset, "reason", letters[i].Reason, "detail", letters[i].Detail)
	}
	return nil
}

// putByDays is put, with tables for the days of the items. One that is gone meanwhile is made again.
func (r *recorder[R]) putByDays(ctx context.Context, items []item[R], stored map[string]int) (refused []traffic.DeadLetter, err error) {
	if r.days == nil {
		return r.put(ctx, items, stored)
	}
	for again := false; ; again = true {
		if err := r.days.Need(ctx, r.daysOf(items)); err != nil {
			return nil, err
		}
		clear(stored)
		refused, err = r.put(ctx, items, stored)
		if again || !retention.Missing(err) {
			return refused, err
		}
		r.days.Forget()
	}
}

// daysOf lists the days of items, each once.
func (r *recorder[R]) daysOf(items []item[R]) []retention.Day {
	var days []retention.Day
	for i := range items {
		if day, ok := r.day(&items[i].row); ok && !slices.Contains(days, day) {
			days = append(days, day)
		}
	}
	return days
}

// put stores items in one transaction. Where PostgreSQL refuses it because of the data, each half is tried by itself,
// down to the single record, which becomes a dead letter. Transactions of their own are as good as savepoints here,
// because rows do not depend on each other and storing one twice changes nothing. stored gets the number of records of each
// table.
func (r *recorder[R]) put(ctx context.Context, items []item[R], stored map[string]int) (refused []traffic.DeadLetter, err error) {
	if len(items) == 0 {
		return nil, nil
	}
	err = pgx.BeginFunc(ctx, r.store, func(tx pgx.Tx) error { return r.write(ctx, tx, items) })
	switch {
	case err == nil:
		for i := range items {
			stored[r.table(&items[i].row)]++
		}
		return nil, nil
	case !isRefusal(err):
		return nil, err
	case len(items) == 1:
		return []traffic.DeadLetter{r.letter(reasonRefused, err, items[0].message)}, nil
	}
	half := len(items) / 2
	refused, err = r.put(ctx, items[:half], stored)
	if err != nil {
		return nil, err
	}
	rest, err := r.put(ctx, items[half:], stored)
	return append(refused, rest...), err
}

func (r *recorder[R]) letter(reason string, err error, m *traffic.Message) traffic.DeadLetter {
	const maxDetail = 500 // PostgreSQL's messages may quote the value
	detail := traffic.Printable(err.Error())
	if len(detail) > maxDetail {
		detail = strings.ToValidUTF8(detail[:maxDetail], "") + "…"
	}
	return traffic.NewDeadLetter(ingest.StageRecord, reason, detail, r.topic, *m)
}

// isRefusal reports whether PostgreSQL took exception to the data, so that sending the same again cannot help: SQLSTATE
// classes 22 (data exception), 23 (integrity constraint violation) and 54 (program limit exceeded: a value too large
// for an index). All else, above all a lost connection, may pass.
func isRefusal(err error) bool {
	var refused *pgconn.PgError
	if !errors.As(err, &refused) || len(refused.Code) != 5 || retention.Missing(err) {
		return false
	}
	switch refused.Code[:2] {
	case "22", "23", "54":
		return true
	}
	return false
}

// upsert writes many rows into a table: COPY into a temporary table of the connection, and one INSERT … ON CONFLICT from
// there. It is several times as fast as single INSERTs. No two rows of a call may have the same id.
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
