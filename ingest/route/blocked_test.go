package route

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// loudLog keeps what a router says at level error.
type loudLog struct {
	mu  sync.Mutex
	out bytes.Buffer
}

func (l *loudLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(p)
}

func (l *loudLog) lines() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Split(strings.TrimSuffix(l.out.String(), "\n"), "\n")
}

func (w *world) listen() *loudLog {
	said := &loudLog{}
	w.edit = func(o *Options) {
		o.Logger = slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelError}))
	}
	return said
}

// ticksOf counts the ticks of a source partition.
func (w *world) ticksOf(t *testing.T, p int) int {
	return len(flat(w.keyedOf(t, detectors.KeyedTick, p)))
}

// TestRouteStopsAtABatchThatDoesNotDecode: the partition stands there, says so everywhere, and holds nobody else back; an
// acceptance of exactly that gap goes on behind it, and what stood before it is routed once.
func TestRouteStopsAtABatchThatDoesNotDecode(t *testing.T) {
	var said *loudLog
	calmWorld(t, func(w *world) {
		said = w.listen()
		w.append(1, 20)
		w.spoil(1, spoiled{from: 10, next: 14})
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		rest(ctx, 5*time.Second)
		w.append(0, 3)
		w.append(1, 3)
		before := w.ticksOf(t, 1)
		rest(ctx, 5*time.Second)
		st := w.state(1)
		if st.State != ingest.Halted || st.Offset != 10 || st.GapSource != 1 || st.GapOffset != 14 ||
			!strings.Contains(st.Reason, "CRC-32C") || !strings.Contains(st.Reason, "offsets 10 to 13 would be lost") {
			t.Errorf("reported: %+v", st)
		}
		if w.commit(0).Offset != 3 || w.state(0).State != ingest.Running {
			t.Errorf("partition 0: offset %d, %+v: the others must go on", w.commit(0).Offset, w.state(0))
		}
		if n := w.ticksOf(t, 1) - before; n > 0 || w.ticksOf(t, 0) == 0 {
			t.Errorf("%d ticks tell that nothing is missing of a partition that cannot be read", n)
		}
		if s := r.Stats().Sources[1]; !s.Halted || s.Offset != 10 || s.HighWatermark != 23 {
			t.Errorf("statistics %+v, want it halted, and the lag to grow", s)
		}
		if lines := said.lines(); len(lines) != 1 || !strings.Contains(lines[0], "partition=1") || !strings.Contains(lines[0], "CRC-32C") {
			t.Errorf("said %q, want one line", lines)
		}
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 15, By: "ann"})
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 0, GapSource: 0, GapOffset: 14, By: "ann"})
		w.grant(ingest.Acceptance{Side: ingest.SideKeyed, Partition: 1, GapSource: 1, GapOffset: 14, By: "ann"})
		rest(ctx, 5*time.Second)
		if w.state(1).State != ingest.Halted || r.Stats().AcceptedGaps != 0 {
			t.Errorf("went on by the acceptance of another gap: %+v", w.state(1))
		}
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 14, By: "ann", Reason: "disk"})
		rest(ctx, 5*time.Second)
		if w.state(1).State != ingest.Running || w.commit(1).Offset != 23 || r.Stats().AcceptedGaps != 1 || r.Stats().Sources[1].Halted {
			t.Errorf("after the acceptance: %+v, offset %d", w.state(1), w.commit(1).Offset)
		}
		for q, losses := range w.keyedOf(t, detectors.KeyedLoss, 1) {
			if len(losses) != 1 || losses[0].Offset != 14 {
				t.Errorf("keyed %d: loss records %+v, want one up to 14", q, losses)
			}
		}
		routed := map[int64]bool{}
		for _, k := range flat(w.keyedOf(t, detectors.KeyedEvent, 1)) {
			routed[k.Offset] = true
		}
		for o := range int64(23) {
			if lost := o >= 10 && o < 14; routed[o] == lost {
				t.Errorf("event %d is routed: %v", o, routed[o])
			}
		}
		if n := w.ticksOf(t, 1); n <= before {
			t.Error("a partition that goes on does not tick")
		}
	})
}

// TestRouteGoesOnWhenALeaderIsBack: a partition that nobody answers for stands still with a reason, with nothing that could
// be accepted, and goes on by itself. It does not matter whether the leader went before the partition was adopted or after.
func TestRouteGoesOnWhenALeaderIsBack(t *testing.T) {
	for _, adopted := range []bool{false, true} {
		var said *loudLog
		calmWorld(t, func(w *world) {
			said = w.listen()
			w.append(1, 5)
			if !adopted {
				w.spoil(1, spoiled{leaderless: true})
			}
		}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
			rest(ctx, 5*time.Second)
			w.spoil(1, spoiled{leaderless: true})
			w.append(0, 3)
			w.append(1, 5)
			rest(ctx, 20*time.Second)
			if w.commit(0).Offset != 3 || w.state(0).State != ingest.Running {
				t.Errorf("partition 0 waits for partition 1: offset %d, %+v", w.commit(0).Offset, w.state(0))
			}
			if w.state(1).State == ingest.Halted {
				t.Errorf("an election takes seconds: %+v", w.state(1))
			}
			rest(ctx, 20*time.Second)
			before := w.ticksOf(t, 1)
			rest(ctx, 5*time.Second)
			want := int64(0)
			if adopted {
				want = 5
			}
			if st := w.state(1); st.State != ingest.Halted || st.GapOffset != ingest.NoOffset || st.Offset != want || !strings.Contains(st.Reason, "goes on by itself") {
				t.Errorf("adopted %v, reported: %+v", adopted, st)
			}
			if n := w.ticksOf(t, 1) - before; n > 0 || len(said.lines()) != 1 || !r.Stats().Sources[1].Halted {
				t.Errorf("adopted %v: %d ticks, said %q", adopted, n, said.lines())
			}
			w.mend(1)
			rest(ctx, 15*time.Second)
			if w.state(1).State != ingest.Running || w.commit(1).Offset != 10 || w.ticksOf(t, 1) <= before || len(said.lines()) != 1 {
				t.Errorf("adopted %v, after the leader is back: %+v, offset %d, said %q", adopted, w.state(1), w.commit(1).Offset, said.lines())
			}
		})
	}
}

// TestRouteUnreadablePartitionFreezesNoExpiry: detectors wait for a source partition that cannot be read for as long as for
// one that is silent, and no longer.
func TestRouteUnreadablePartitionFreezesNoExpiry(t *testing.T) {
	calmWorld(t, func(w *world) {
		for p := range simSources {
			w.append(p, 12)
		}
		w.spoil(1, spoiled{from: 10, next: 11})
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		for range 60 {
			w.append(0, 1)
			w.append(2, 1)
			rest(ctx, time.Second)
		}
		p := detectors.NewPartition(detectors.Config{Sources: simSources, Generation: 7, Stall: 30 * time.Second})
		for v := int64(1); v <= simVersions; v++ {
			p.Learn(detectors.NewPlan(simRouting(v)))
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, rec := range w.keyed[0] {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(rec.value, &k); err != nil {
				t.Fatal(err)
			}
			if _, err := p.Fold(rec.at, &k, nil); err != nil {
				t.Fatal(err)
			}
		}
		if behind := simNow().Sub(p.Watermark()); behind > 5*time.Second || len(p.Stalled()) != 1 {
			t.Errorf("the watermark is %v behind, stalled are %v: want source partition 1 to be left out", behind, p.Stalled())
		}
	})
}

// TestRouteReadsAddedPartitions: a partition that was added since is read from its start without a commit. One that was
// there has lost its commit, and one whose beginning is gone has lost events: those are refused.
func TestRouteReadsAddedPartitions(t *testing.T) {
	for _, tc := range []struct {
		name    string
		sources int
		start   int64
		read    bool
	}{
		{"added since", simSources - 1, 0, true},
		{"there from the beginning", simSources, 0, false},
		{"added since, and retention was faster", simSources - 1, 2, false},
		{"nobody knows", 0, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const added = simSources - 1
			calmWorld(t, func(w *world) {
				w.append(added, 5)
				delete(w.commits, added)
				w.starts[added] = tc.start
				w.edit = func(o *Options) { o.Sources = tc.sources }
			}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
				rest(ctx, 5*time.Second)
				if !tc.read {
					if st := w.state(added); st.State != ingest.Refused || !strings.Contains(st.Reason, "no commit") {
						t.Errorf("reported %+v, want it refused", st)
					}
					return
				}
				a, err := ingest.DecodeAnnouncement(w.commit(added).Metadata)
				if err != nil || a.Offset != 5 || a.Generation != 7 || w.state(added).State != ingest.Running {
					t.Errorf("commit %+v, %v, reported %+v", a, err, w.state(added))
				}
				for q, events := range w.keyedOf(t, detectors.KeyedEvent, added) {
					if len(events) > 0 && events[0].Prev != detectors.NoOffset {
						t.Errorf("keyed %d: the first event follows %d, want nothing before it", q, events[0].Prev)
					}
				}
				if ticks := flat(w.keyedOf(t, detectors.KeyedTick, added)); len(ticks) == 0 || ticks[len(ticks)-1].Time == traffic.BeforeTime {
					t.Errorf("%d ticks", len(ticks))
				}
			})
		})
	}
}

// TestRoutePassesAGapLast: what stands before a batch that does not decode is routed, also where the gap was accepted before
// that could be done.
func TestRoutePassesAGapLast(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.append(1, 20)
		w.spoil(1, spoiled{from: 10, next: 14})
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 14, By: "ann"})
		for v := range w.released {
			w.released[v] = w.begin.Add(10 * time.Second) // nothing can be routed before
		}
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		rest(ctx, 20*time.Second)
		routed := map[int64]bool{}
		for _, k := range flat(w.keyedOf(t, detectors.KeyedEvent, 1)) {
			routed[k.Offset] = true
		}
		if len(routed) != 16 || !routed[0] || !routed[9] || w.commit(1).Offset != 20 {
			t.Errorf("%d events are routed, up to %d, want the 16 that can be read", len(routed), w.commit(1).Offset)
		}
	})
}

// askedOf is a Kafka that tells, from its second answer on, whose transaction is open.
type askedOf struct{ times atomic.Int64 }

var _ Transactions = (*askedOf)(nil)

func (a *askedOf) Open(_ context.Context, partition int) (ingest.Transaction, error) {
	found := ingest.Transaction{Start: 10, Producer: 7}
	if a.times.Add(1) == 1 {
		return found, errSim
	}
	found.ID = fmt.Sprintf("payments-%d", partition)
	return found, nil
}

// TestRouteSaysWhoseTransactionHoldsAPartition: its state names the transactional id, which Kafka is asked for until it
// has told it and never again; the metric says how old it is. What comes behind is routed once it has ended.
func TestRouteSaysWhoseTransactionHoldsAPartition(t *testing.T) {
	reg := prometheus.NewRegistry()
	asked := &askedOf{}
	var said *loudLog
	age := func() float64 { return valuesOf(t, reg)["weir_route_open_transaction_seconds partition=1"] }
	calmWorld(t, func(w *world) {
		said = w.listen()
		listening := w.edit
		w.edit = func(o *Options) { listening(o); o.Registerer, o.Transactions = reg, asked }
		w.append(1, 20)
		w.spoil(1, spoiled{from: 10, held: true})
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		rest(ctx, 20*time.Second)
		if st := w.state(1); st.State != ingest.Running || asked.times.Load() != 0 || age() != 0 {
			t.Errorf("after 20 s: %+v, asked %d times, age %v", st, asked.times.Load(), age())
		}
		rest(ctx, 40*time.Second)
		st := w.state(1)
		if st.State != ingest.Halted || st.Offset != 10 || st.GapOffset != ingest.NoOffset ||
			!strings.Contains(st.Reason, "an open transaction stands at offset 10") ||
			!strings.Contains(st.Reason, `its transactional id is "payments-1" (producer 7, start offset 10)`) {
			t.Errorf("after a minute: %+v", st)
		}
		before := age()
		rest(ctx, 30*time.Second)
		if after := age(); before < 55 || after != before+30 {
			t.Errorf("its age is %v, and 30 s later %v", before, after)
		}
		if n := asked.times.Load(); n != 2 {
			t.Errorf("Kafka was asked %d times, want 2: it failed once", n)
		}
		if lines := said.lines(); len(lines) != 2 || !strings.Contains(lines[1], "transactional_id=payments-1") {
			t.Errorf("said %q", lines)
		}
		w.mend(1)
		rest(ctx, 10*time.Second)
		if st := w.state(1); st.State != ingest.Running || w.commit(1).Offset != 20 || age() != 0 {
			t.Errorf("after its end: %+v, offset %d, age %v", st, w.commit(1).Offset, age())
		}
		w.append(1, 5)
		w.spoil(1, spoiled{from: 22, held: true})
		rest(ctx, time.Minute)
		if n := asked.times.Load(); n != 3 || !strings.Contains(w.state(1).Reason, "payments-1") {
			t.Errorf("of another transaction Kafka was asked %d times in all: %+v", n, w.state(1))
		}
	})
}

// TestRouteSaysThatItWaitsForTransactions: a partition that one short transaction after the other holds up goes on, and
// its state says so, with one of their names, which Kafka is asked for twice a minute. Once there are none, it says so
// no more.
func TestRouteSaysThatItWaitsForTransactions(t *testing.T) {
	reg := prometheus.NewRegistry()
	asked := &askedOf{}
	asked.times.Add(1) // it answers
	var said *loudLog
	share := func() float64 { return valuesOf(t, reg)["weir_route_transaction_wait_ratio partition=1"] }
	calmWorld(t, func(w *world) {
		said = w.listen()
		listening := w.edit
		w.edit = func(o *Options) { listening(o); o.Registerer, o.Transactions = reg, asked }
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		for n := range 18 {
			w.append(1, 2)
			w.spoil(1, spoiled{from: int64(2*n + 1), held: true})
			rest(ctx, 20*time.Second)
			if st := w.state(1); st.State != ingest.Running || n < 6 && (st.Reason != "" || asked.times.Load() != 1) {
				t.Fatalf("after %d transactions: %+v, asked %d times", n, st, asked.times.Load())
			}
		}
		st := w.state(1)
		if !strings.Contains(st.Reason, "waits for transactions: for 9") ||
			!strings.Contains(st.Reason, `its transactional id is "payments-1"`) ||
			share() < 0.9 || share() > 1 {
			t.Errorf("after six minutes: %+v, share %v", st, share())
		}
		if n := asked.times.Load() - 1; n < 4 || n > 9 {
			t.Errorf("Kafka was asked %d times", n)
		}
		if lines := said.lines(); len(lines) != 1 || !strings.Contains(lines[0], "transactional_id=payments-1") {
			t.Errorf("said %q", lines)
		}
		w.mend(1)
		rest(ctx, 6*time.Minute)
		if st := w.state(1); st.State != ingest.Running || st.Reason != "" || w.commit(1).Offset != 36 || share() != 0 {
			t.Errorf("six minutes after the last: %+v, share %v", st, share())
		}
	})
}
