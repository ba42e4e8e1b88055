package reconcile

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/blocklist/internal/blocktest"
	"github.com/weirhq/weir/internal/testbed"
)

// postponing is a stage on a Redis of its own that is full, and a reconciler that has left block 0 out of a sweep and pauses
// for a minute of a clock that stands as good as still.
type postponing struct {
	*blocktest.Stage
	all  bulk
	rec  *Reconciler
	room func()
}

func postponed(t *testing.T, options ...string) *postponing {
	t.Helper()
	p := &postponing{Stage: blocktest.NewStage(t, testbed.OwnRedis(t, options...).Server())}
	p.all = manyBlocks(50, p.Clock.Now())
	p.rec = sweeper(t, p.Stage, p.all)
	p.rec.interval, p.rec.sweep = time.Minute, time.Minute
	if err := p.rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.lose(0)
	p.room = blocktest.Full(t, p.Stage)
	p.Clock.Add(p.rec.sweep)
	p.leavesOut(1)
	p.waits()
	return p
}

func (p *postponing) lose(i int) {
	p.T.Helper()
	if err := p.Client.Del(p.T.Context(), p.Keys.Block(p.all[i].Subject, blocktest.FloodRule)).Err(); err != nil {
		p.T.Fatal(err)
	}
}

// leavesOut has the reconciler do a round in which Redis takes all but n blocks.
func (p *postponing) leavesOut(n int) {
	p.T.Helper()
	var left *unassertedError
	err := p.rec.Check(p.T.Context())
	if !errors.As(err, &left) || left.missing != n || left.all != len(p.all) || !strings.Contains(err.Error(), "maxmemory") {
		p.T.Fatalf("a round on a full Redis: %v, want %d of %d left out", err, n, len(p.all))
	}
}

// waits has the reconciler look, and not do the round again that is postponed.
func (p *postponing) waits() {
	p.T.Helper()
	before := testutil.ToFloat64(p.rec.metrics.compared)
	if err := p.rec.Check(p.T.Context()); err == nil || testutil.ToFloat64(p.rec.metrics.compared) != before {
		p.T.Fatalf("the round is not postponed: %v", err)
	}
}

func (p *postponing) flush() {
	p.T.Helper()
	if err := p.Client.FlushAll(p.T.Context()).Err(); err != nil {
		p.T.Fatal(err)
	}
}

// putsBack has the reconciler look once, and finds every block and the marker.
func (p *postponing) putsBack(cause string) {
	p.T.Helper()
	if err := p.rec.Check(p.T.Context()); err != nil {
		p.T.Fatalf("the look after a %s: %v", cause, err)
	}
	for i := range p.all {
		if b, _, err := p.Store.Get(p.T.Context(), p.all[i].Subject, blocktest.FloodRule); err != nil || b == nil {
			p.T.Fatalf("block %d after a %s: %+v, %v", i, cause, b, err)
		}
	}
	if known, err := p.Store.HasMarker(p.T.Context()); err != nil || !known {
		p.T.Errorf("no marker after a %s: %v", cause, err)
	}
}

// What Redis forgets while a sweep is postponed is put back with the next look, and so is what it forgets again while that
// is postponed.
func TestFlushDoesNotWaitBehindAPostponedRound(t *testing.T) {
	t.Run("of a sweep", func(t *testing.T) {
		p := postponed(t)
		p.room()
		p.waits() // room is no cause to look at everything
		p.flush()
		p.putsBack(causeFlush)
		if got := testutil.ToFloat64(p.rec.metrics.runs.WithLabelValues(causeFlush)); got != 2 {
			t.Errorf("%v rounds for a flush, want that and the first", got)
		}
	})
	t.Run("of a flush", func(t *testing.T) {
		p := postponed(t)
		p.room()
		p.flush()
		if err := p.Client.Set(t.Context(), p.Keys.Lease(), "another one", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		p.room = blocktest.Full(t, p.Stage)
		p.leavesOut(len(p.all))
		p.room()
		p.waits()
		p.flush()
		p.putsBack(causeFlush)
	})
}

// A server that comes back as another one may have lost its last writes, and kept the marker.
func TestFailoverDoesNotWaitBehindAPostponedRound(t *testing.T) {
	p := postponed(t, "--appendonly", "yes", "--enable-debug-command", "yes")
	p.room()
	p.lose(1)
	p.waits() // neither is a cause to look at everything
	_ = p.Client.Do(t.Context(), "debug", "restart").Err()
	testbed.Eventually(t, 20*time.Second, func() error { return p.Client.Ping(t.Context()).Err() })
	if known, err := p.Store.HasMarker(t.Context()); err != nil || !known {
		t.Fatalf("the server has come back without the marker: %v", err)
	}
	p.putsBack(causeFailover)
	if got := testutil.ToFloat64(p.rec.metrics.runs.WithLabelValues(causeFailover)); got != 1 {
		t.Errorf("%v rounds for a failover, want 1", got)
	}
}

// Gates that have not been told of what a round put back are told with the next look that can, though the round waits.
func TestReloadDoesNotWaitBehindAPostponedRound(t *testing.T) {
	p := postponed(t)
	stream := p.Keys.Stream(blocklist.StreamReconcile)
	told := func() (ops []any) {
		t.Helper()
		entries, err := p.Client.XRange(t.Context(), stream, "-", "+").Result()
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			ops = append(ops, e.Values["op"])
		}
		return ops
	}
	p.room()
	p.lose(1)
	// Nothing can be appended to what is no stream.
	if err := errors.Join(p.Client.Del(t.Context(), stream).Err(), p.Client.Set(t.Context(), stream, "x", 0).Err()); err != nil {
		t.Fatal(err)
	}
	p.Clock.Add(p.rec.sweep)
	if err := p.rec.Check(t.Context()); err == nil {
		t.Fatal("a round that could tell nobody succeeds")
	}
	if b, _, err := p.Store.Get(t.Context(), p.all[0].Subject, blocktest.FloodRule); err != nil || b == nil {
		t.Fatalf("block 0: %+v, %v", b, err)
	}
	p.waits()
	if err := p.Client.Del(t.Context(), stream).Err(); err != nil {
		t.Fatal(err)
	}
	p.waits()
	if got := fmt.Sprint(told()); got != "[reload]" {
		t.Errorf("told by a look while the round waits: %s, want a reload", got)
	}
	p.waits()
	p.lose(2)
	p.Clock.Add(p.rec.sweep)
	p.putsBack(causeSweep)
	if got := fmt.Sprint(told()); got != "[reload block]" {
		t.Errorf("told in all: %s, want one reload, and then what was put back since", got)
	}
}
