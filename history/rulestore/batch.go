package rulestore

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/audit"
)

// What is sent to the server at once, at most, but for the last statement: it is held in memory on both sides.
const (
	maxBatch      = 1000    // statements
	maxBatchBytes = 1 << 20 // of their texts
)

// batch gathers statements of a transaction and has them run in the order in which they were queued, many in one round trip: ten
// thousand rules would wait for the server thirty thousand times.
type batch struct {
	tx     pgx.Tx
	object string // what the next statements are about, for errors: "rule a"; empty where the transaction's name says it
	queued pgx.Batch
	about  []string // the object of each
	bytes  int
}

// queue adds a statement without results.
func (b *batch) queue(sql string, args ...any) {
	b.queued.Queue(sql, args...)
	b.about = append(b.about, b.object)
	for _, arg := range args {
		if text, ok := arg.(string); ok {
			b.bytes += len(text)
		}
	}
}

// audit adds an entry of the audit trail.
func (b *batch) audit(e audit.Entry) {
	audit.Queue(&b.queued, e)
	b.about = append(b.about, b.object)
	b.bytes += len(e.Reason) + len(e.Detail) + len(e.Before) + len(e.After)
}

// sendFull runs what is queued if that is as much as one round trip may be.
func (b *batch) sendFull(ctx context.Context) error {
	if len(b.about) < maxBatch && b.bytes < maxBatchBytes {
		return nil
	}
	return b.send(ctx)
}

// send runs what is queued. The error says what the statement is about that failed; those behind it were not run.
func (b *batch) send(ctx context.Context) error {
	if len(b.about) == 0 {
		return nil
	}
	results := b.tx.SendBatch(ctx, &b.queued)
	var failed error
	for _, about := range b.about {
		if _, failed = results.Exec(); failed != nil && about != "" {
			failed = fmt.Errorf("%s: %w", about, failed)
		}
		if failed != nil {
			break
		}
	}
	if err := results.Close(); failed == nil { // which repeats the error of a statement
		failed = err
	}
	*b = batch{tx: b.tx, object: b.object}
	return failed
}
