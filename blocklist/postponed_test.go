package blocklist

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/weirhq/weir/internal/testbed"
)

// postponing is a stage on a Redis of its own that is full, and a reconciler that has left block 0 out of a sweep and pauses
// for a minute of a clock that stands as good as still.
type postponing struct {
	*stage
	all  bulk
	rec  *Reconciler
	room func()
}

func postponed(t *testing.T, options ...string) *postponing {
	t.Helper()
	p := &postponing{stage: newStage(t, testbed.OwnRedis(t, options...).Server())}
	p.all = manyBlocks(50, p.clock.now())
	p.rec = sweeper(t, p.stage, p.all)
	p.rec.o.Interval, p.rec.o.Sweep = time.Minute, time.Minute
	if err := p.rec.Check(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.lose(0)
	p.room = full(t, p.stage)
	p.clock.add(p.rec.o.Sweep)
	p.leavesOut(1)
	p.waits()
	return p
}

func (p *postponing) lose(i int) {
	p.t.Helper()
	if err := p.client.Del(p.t.Context(), p.keys.Block(p.all[i].Subject, floodRule)).Err(); err != nil {
		p.t.Fatal(err)
	}
}

// leavesOut has the reconciler do a round in which Redis takes all but n blocks.
func (p *postponing) leavesOut(n int) {
	p.t.Helper()
	var left *unassertedError
	err := p.rec.Check(p.t.Context())
	if !errors.As(err, &left) || left.missing != n || left.all != len(p.all) || !strings.Contains(err.Error(), "maxmemory") {
		p.t.Fatalf("a round on a full Redis: %v, want %d of %d left out", err, n, len(p.all))
	}
}

// waits has the reconciler look, and not do the round again that is postponed.
func (p *postponing) waits() {
	p.t.Helper()
	before := testutil.ToFloat64(p.rec.metrics.compared)
	if err := p.rec.Check(p.t.Context()); err == nil || testutil.ToFloat64(p.rec.metrics.compared) != before {
		p.t.Fatalf("the round is not postponed: %v", err)
	}
}

func (p *postponing) flush() {
	p.t.Helper()
	if err := p.client.FlushAll(p.t.Context()).Err(); err != nil {
		p.t.Fatal(err)
	}
}

// putsBack has the reconciler look once, and finds every block and the marker.
func (p *postponing) putsBack(cause string) {
	p.t.Helper()
	if err := p.rec.Check(p.t.Context()); err != nil {
		p.t.Fatalf("the look after a %s: %v", cause, err)
	}
	for i := range p.all {
		if b, _, err := p.store.Get(p.t.Context(), p.all[i].Subject, floodRule); err != nil || b == nil {
			p.t.Fatalf("block %d after a %s: %+v, %v", i, cause, b, err)
		}
	}
	if known, err := p.store.HasMarker(p.t.Context()); err != nil || !known {
		p.t.Errorf("no marker after a %s: %v", cause, err)
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
		if err := p.client.Set(t.Context(), p.keys.Lease(), "another one", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		p.room = full(t, p.stage)
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
	_ = p.client.Do(t.Context(), "debug", "restart").Err()
	testbed.Eventually(t, 20*time.Second, func() error { return p.client.Ping(t.Context()).Err() })
	if known, err := p.store.HasMarker(t.Context()); err != nil || !known {
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
	stream := p.keys.Stream(streamReconcile)
	told := func() (ops []any) {
		t.Helper()
		entries, err := p.client.XRange(t.Context(), stream, "-", "+").Result()
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
	if err := errors.Join(p.client.Del(t.Context(), stream).Err(), p.client.Set(t.Context(), stream, "x", 0).Err()); err != nil {
		t.Fatal(err)
	}
	p.clock.add(p.rec.o.Sweep)
	if err := p.rec.Check(t.Context()); err == nil {
		t.Fatal("a round that could tell nobody succeeds")
	}
	if b, _, err := p.store.Get(t.Context(), p.all[0].Subject, floodRule); err != nil || b == nil {
		t.Fatalf("block 0: %+v, %v", b, err)
	}
	p.waits()
	if err := p.client.Del(t.Context(), stream).Err(); err != nil {
		t.Fatal(err)
	}
	p.waits()
	if got := fmt.Sprint(told()); got != "[reload]" {
		t.Errorf("told by a look while the round waits: %s, want a reload", got)
	}
	p.waits()
	p.lose(2)
	p.clock.add(p.rec.o.Sweep)
	p.putsBack(causeSweep)
	if got := fmt.Sprint(told()); got != "[reload block]" {
		t.Errorf("told in all: %s, want one reload, and then what was put back since", got)
	}
}
