package postgres_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirhq/weir/history/historytest"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/internal/testbed"
)

// streamNames changes with every new stream.
func streamNames() postgres.Topic {
	return postgres.Topic{Name: "names", Fingerprint: "SELECT count(*), 0::bigint FROM streams"}
}

// watcher counts the calls of a watch.
type watcher struct{ calls atomic.Int64 }

func watch(t *testing.T, b *historytest.Bed) *watcher {
	t.Helper()
	var w watcher
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Watch(ctx, streamNames(), func() { w.calls.Add(1) })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	w.reach(t, 1)
	return &w
}

// reach waits for the n-th call.
func (w *watcher) reach(t *testing.T, n int64) {
	t.Helper()
	testbed.Eventually(t, 20*time.Second, func() error {
		if got := w.calls.Load(); got < n {
			return fmt.Errorf("%d calls, want %d", got, n)
		}
		return nil
	})
}

// cut ends the connections that listen.
func cut(t *testing.T, b *historytest.Bed) {
	t.Helper()
	if n := b.Number(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
		WHERE datname = current_database() AND query LIKE '%FROM streams' AND pid <> pg_backend_pid()`); n != 1 {
		t.Fatalf("%d connections listened", n)
	}
}

func notify(t *testing.T, b *historytest.Bed) {
	t.Helper()
	// The pool may have to find out that a connection is dead.
	testbed.Eventually(t, 20*time.Second, func() error {
		return b.Transact(t.Context(), "telling", func(tx pgx.Tx) error { return b.Notify(t.Context(), tx, streamNames(), "") })
	})
}

// Where polls are far apart, a change is heard by its notification: at once, and again after the connection was lost.
func TestAChangeIsHeardLongBeforeThePoll(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PollEvery(time.Hour) // longer than anybody waits here
	w := watch(t, b)
	calls := int64(1)
	for range 3 {
		notify(t, b)
		calls++
		w.reach(t, calls)
		cut(t, b)
		calls++ // it has connected again
		w.reach(t, calls)
	}
}

// A change that nobody notified of is found by polling, and once.
func TestAChangeWithoutANotificationIsFound(t *testing.T) {
	t.Parallel()
	b := historytest.New(t)
	b.PollEvery(10 * time.Millisecond)
	w := watch(t, b)
	for n := range int64(3) {
		b.Run(t, "INSERT INTO weir.streams (name, requests_partitions, keyed_partitions, hits_partitions) VALUES ($1, 1, 1, 1)",
			fmt.Sprintf("replay/%d", n))
		w.reach(t, n+2)
	}
	cut(t, b)
	w.reach(t, 5)
	if got := w.calls.Load(); got != 5 {
		t.Errorf("%d calls, want 5", got)
	}
}
