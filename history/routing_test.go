package history_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestPublishRouting(t *testing.T) {
	b := newBed(t)
	ctx := t.Context()
	if n, err := b.Newest(ctx, history.Live); n != 0 || err != nil {
		t.Fatalf("newest of none: %d, %v", n, err)
	}
	versions := []rules.Version{
		{Document: document("zeta"), Number: 2, Lineage: 1},
		{Document: document("alpha"), Number: 1, Lineage: 1},
	}
	publish := func(list []rules.Version) (int64, bool) {
		t.Helper()
		n, changed, err := b.PublishRouting(ctx, history.Live, func(*rules.Routing) (rules.Routing, error) {
			next := routing()
			next.Number, next.Stream, next.Rules = 77, "other", list
			return next, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n, changed
	}
	for i, step := range []struct {
		rules   []rules.Version
		number  int64
		changed bool
	}{{versions, 1, true}, {versions, 1, false}, {versions[:1], 2, true}, {versions, 3, true}} {
		if n, changed := publish(step.rules); n != step.number || changed != step.changed {
			t.Errorf("step %d: number %d, changed %v; want %d, %v", i, n, changed, step.number, step.changed)
		}
	}
	got, err := b.Routing(ctx, history.Live, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got.Stream != history.Live || got.Number != 3 || len(got.Rules) != 2 || got.Rules[0].ID != "alpha" || got.Rules[1].Number != 2 {
		t.Errorf("stored %+v", got)
	}
	if got.Rules[1].Window != time.Minute || got.Rules[1].Key[1].Field != traffic.FieldDevice {
		t.Errorf("the document did not survive: %+v", got.Rules[1])
	}
	if _, err := b.Routing(ctx, history.Live, 4); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("unknown version: %v", err)
	}
	boom := errors.New("boom")
	_, _, err = b.PublishRouting(ctx, history.Live, func(*rules.Routing) (rules.Routing, error) { return rules.Routing{}, boom })
	if !errors.Is(err, boom) {
		t.Errorf("build's error is lost: %v", err)
	}
	fixed := document("fixed")
	fixed.Algorithm = rules.AlgorithmFixed
	_, _, err = b.PublishRouting(ctx, history.Live, func(prev *rules.Routing) (rules.Routing, error) {
		next := *prev
		next.RecordFormat, next.Rules = 1, []rules.Version{{Document: fixed, Number: 1, Lineage: 1}}
		return next, nil
	})
	if err == nil || !strings.Contains(err.Error(), "weir migrate --record-format 2 raises it") {
		t.Errorf("a version that its record format cannot hold: %v", err)
	}
	if n, err := b.Newest(ctx, history.Live); n != 3 || err != nil {
		t.Errorf("the newest is %d, %v, want 3: ROUTE would stand still at what was refused", n, err)
	}
	if _, _, err := b.PublishRouting(ctx, "replay/none", func(*rules.Routing) (rules.Routing, error) { return rules.Routing{}, nil }); !errors.Is(err, history.ErrNotFound) {
		t.Errorf("published to an unknown stream: %v", err)
	}
}

func TestPublishersWaitForEachOther(t *testing.T) {
	b := newBed(t)
	const publishers = 6
	errs := make([]error, publishers)
	var wg sync.WaitGroup
	for i := range publishers {
		wg.Go(func() {
			_, _, errs[i] = b.PublishRouting(t.Context(), history.Live, func(prev *rules.Routing) (rules.Routing, error) {
				next := routing()
				if prev != nil {
					next = *prev
				}
				next.Format.MaxEventBytes++
				return next, nil
			})
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	r, err := b.Routing(t.Context(), history.Live, publishers)
	if err != nil || r.Format.MaxEventBytes != routing().Format.MaxEventBytes+publishers {
		t.Errorf("%d publishers, the last version says %+v, %v", publishers, r, err)
	}
}

// watcher counts calls of onChange.
type watcher struct {
	calls atomic.Int64
}

func (w *watcher) start(t *testing.T, watch func(ctx context.Context, onChange func())) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		watch(ctx, func() { w.calls.Add(1) })
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	w.reach(t, 1, 10*time.Second)
}

// reach waits for the n-th call.
func (w *watcher) reach(t *testing.T, n int64, within time.Duration) {
	t.Helper()
	testbed.Eventually(t, within, func() error {
		if got := w.calls.Load(); got < n {
			return fmt.Errorf("%d calls, want %d", got, n)
		}
		return nil
	})
}

func TestWatch(t *testing.T) {
	b := newBed(t)
	var routing, modes watcher
	routing.start(t, b.Watch)
	modes.start(t, b.WatchModes)
	b.publish(t, rules.Format{Name: "weir"})
	routing.reach(t, 2, time.Second) // less than the polling interval: by notification

	before := routing.calls.Load()
	// A change without a notification, as behind a connection pooler that swallows them.
	b.exec(t, `INSERT INTO weir.routing_versions (stream, number, document)
		SELECT stream, 2, jsonb_set(document::jsonb, '{number}', '2')::text FROM weir.routing_versions WHERE number = 1`)
	routing.reach(t, before+1, 10*time.Second)

	apply(t, b, rulesOf(document("flood")))
	modes.reach(t, 2, time.Second)
	before = modes.calls.Load()
	setMode(t, b, "flood", rules.ModeOff)
	modes.reach(t, before+1, time.Second)
}

func TestWatchOutlivesItsConnection(t *testing.T) {
	b := newBed(t)
	var w watcher
	w.start(t, b.Watch)
	for round := range 3 {
		before := w.calls.Load()
		killed := b.number(t, `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
			WHERE datname = current_database() AND pid <> pg_backend_pid()`)
		if killed == 0 {
			t.Fatal("there was no connection to kill")
		}
		w.reach(t, before+1, 10*time.Second) // it has connected again
		before = w.calls.Load()
		var err error
		testbed.Eventually(t, 10*time.Second, func() error { // the pool finds out about its dead connections
			_, _, err = b.PublishRouting(t.Context(), history.Live, func(*rules.Routing) (rules.Routing, error) {
				next := routing()
				next.Format.MaxEventBytes = round + 1
				return next, nil
			})
			return err
		})
		w.reach(t, before+1, time.Second)
	}
}
