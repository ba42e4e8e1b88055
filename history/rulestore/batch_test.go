package rulestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirhq/weir/history/audit"
)

// counted is a transaction that remembers what was sent to it, trip by trip, and fails at the statements that are about refused.
type counted struct {
	pgx.Tx
	trips   [][]string // the first argument of each statement
	refused string
}

func (c *counted) SendBatch(_ context.Context, b *pgx.Batch) pgx.BatchResults {
	var trip []string
	for _, q := range b.QueuedQueries {
		trip = append(trip, q.Arguments[0].(string))
	}
	c.trips = append(c.trips, trip)
	return &countedResults{trip: trip, refused: c.refused}
}

type countedResults struct {
	pgx.BatchResults
	trip    []string
	refused string
	err     error
}

func (r *countedResults) Exec() (pgconn.CommandTag, error) {
	if r.err == nil && r.trip[0] == r.refused {
		r.err = errors.New("refused")
	}
	r.trip = r.trip[1:]
	return pgconn.CommandTag{}, r.err
}

func (r *countedResults) Close() error { return r.err }

// Many statements are few round trips, in the order in which they were queued; what is sent at once is bounded by number and size.
func TestBatchesAreFewRoundTrips(t *testing.T) {
	for _, tt := range []struct {
		rules, text, most int
	}{{1, 10, 1}, {10_000, 10, 31}, {100, 64 << 10, 13}} {
		tx := &counted{}
		b := &batch{tx: tx}
		var want []string
		for i := range tt.rules {
			name := fmt.Sprintf("rule-%05d", i)
			b.object = name
			for range 2 {
				b.queue("INSERT", name, strings.Repeat("x", tt.text))
				want = append(want, name)
			}
			b.audit(audit.Entry{Actor: name})
			want = append(want, name)
			if err := b.sendFull(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(b.send(t.Context()), b.send(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := slices.Concat(tx.trips...); !slices.Equal(got, want) {
			t.Errorf("%d rules: %d statements of %d, or in another order", tt.rules, len(got), len(want))
		}
		if len(tx.trips) > tt.most {
			t.Errorf("%d rules of %d bytes: %d round trips, want at most %d", tt.rules, tt.text, len(tx.trips), tt.most)
		}
		for _, trip := range tx.trips {
			if len(trip) >= maxBatch+3 || len(trip)*tt.text*2/3 >= maxBatchBytes+2*tt.text {
				t.Errorf("%d rules of %d bytes: %d statements at once", tt.rules, tt.text, len(trip))
			}
		}
	}
}

// The error of a batch says what the statement is about, whichever round trip it was in; nothing more is sent.
func TestABatchSaysWhatWasRefused(t *testing.T) {
	tx := &counted{refused: "rule-01500"}
	b := &batch{tx: tx}
	var err error
	for i := 0; i < 5000 && err == nil; i++ {
		name := fmt.Sprintf("rule-%05d", i)
		b.object = "rule " + name
		b.queue("INSERT", name)
		err = b.sendFull(t.Context())
	}
	if err == nil || err.Error() != "rule rule-01500: refused" || len(tx.trips) != 2 {
		t.Errorf("%v, after %d round trips", err, len(tx.trips))
	}
}
