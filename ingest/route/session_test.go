package route

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// calmWorld runs one router in a world. before may change the world, during drives it; both run in the bubble.
func calmWorld(t *testing.T, before func(*world), during func(ctx context.Context, w *world, r *Router, h *simHost)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		before(w)
		host := newSimHost(w)
		router, err := New(host.options())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() {
			if err := router.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		during(ctx, w, router, host)
		cancel()
		running.Wait()
	})
}

// append puts events into a partition's log, now.
func (w *world) append(p int, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range n {
		at := simNow()
		w.requests[p] = append(w.requests[p], simEvent{offset: int64(len(w.requests[p])), appended: at, time: at, ip: "192.0.2.1", device: "tv", user: "u"})
	}
}

// keyedOf decodes the keyed log of one kind: the records of a source partition, by keyed partition.
func (w *world) keyedOf(t *testing.T, kind detectors.KeyedKind, source int) [][]detectors.Keyed {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	out := make([][]detectors.Keyed, simKeyed)
	for q := range w.keyed {
		for _, rec := range w.keyed[q] {
			var k detectors.Keyed
			if err := detectors.DecodeKeyed(rec.value, &k); err != nil {
				t.Fatal(err)
			}
			if k.Kind == kind && k.Source == source {
				out[q] = append(out[q], k)
			}
		}
	}
	return out
}

func (w *world) commit(p int) ingest.Commit {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.commits[p]
}

func (w *world) state(p int) ingest.PartitionStatus {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.states[p]
}

func (w *world) grant(g ingest.Acceptance) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.granted = append(w.granted, g)
}

// TestRouteRefusesAndResumes: a commit moved by hand stops its partition and no other; an acceptance of exactly the
// reported gap writes a loss record to every keyed partition, and routing goes on behind it.
func TestRouteRefusesAndResumes(t *testing.T) {
	calmWorld(t, func(w *world) {
		for p := range simSources {
			w.append(p, 30)
		}
		bad := (&ingest.Announcement{Generation: 7, Offset: 5, End: 8, Version: 1, Prev: sentBefore(5, simKeyed), Progress: 77}).Commit()
		bad.Offset = 20
		w.commits[1] = bad
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		rest(ctx, 5*time.Second)
		st := w.state(1)
		if st.State != ingest.Refused || st.GapOffset != 20 || st.GapSource != 1 || !strings.Contains(st.Reason, "moved by hand") || st.Side != ingest.SideRequests {
			t.Errorf("reported: %+v", st)
		}
		for _, p := range []int{0, 2} {
			if c := w.commit(p); c.Offset != 30 || w.state(p).State != ingest.Running || w.state(p).Offset != 30 {
				t.Errorf("partition %d: offset %d, %+v: the others must go on", p, c.Offset, w.state(p))
			}
		}
		if c := w.commit(1); c.Offset != 20 || len(flat(w.keyedOf(t, detectors.KeyedTick, 1))) > 0 {
			t.Errorf("a refused partition is committed at %d, or ticks", c.Offset)
		}
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 21, By: "ann"})
		w.grant(ingest.Acceptance{Side: ingest.SideKeyed, Partition: 1, GapSource: 1, GapOffset: 20, By: "ann"})
		rest(ctx, 5*time.Second)
		if w.state(1).State != ingest.Refused || len(flat(w.keyedOf(t, detectors.KeyedLoss, 1))) > 0 {
			t.Error("resumed by the acceptance of another gap")
		}
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 1, GapSource: 1, GapOffset: 20, By: "ann", Reason: "known"})
		rest(ctx, 5*time.Second)
		if w.state(1).State != ingest.Running || w.commit(1).Offset != 30 || r.Stats().AcceptedGaps != 1 {
			t.Errorf("after the acceptance: %+v, offset %d", w.state(1), w.commit(1).Offset)
		}
		for q, losses := range w.keyedOf(t, detectors.KeyedLoss, 1) {
			if len(losses) != 1 || losses[0].Offset != 20 || losses[0].Generation != 7 || losses[0].Time != 77 {
				t.Errorf("keyed %d: loss records %+v, want one up to 20", q, losses)
			}
		}
		for q, events := range w.keyedOf(t, detectors.KeyedEvent, 1) {
			for i, k := range events {
				if i == 0 && k.Prev != 19 || k.Offset < 20 {
					t.Errorf("keyed %d: event %d after %d, want none before 20, chained to the loss", q, k.Offset, k.Prev)
				}
			}
		}
	})
}

func flat(parts [][]detectors.Keyed) []detectors.Keyed {
	var all []detectors.Keyed
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}

// TestRouteRetention: when retention passes a running router, it stops there and says so.
func TestRouteRetention(t *testing.T) {
	calmWorld(t, func(w *world) { w.append(0, 10) }, func(ctx context.Context, w *world, _ *Router, h *simHost) {
		rest(ctx, 3*time.Second)
		if w.commit(0).Offset != 10 {
			t.Fatalf("routed up to %d", w.commit(0).Offset)
		}
		w.append(0, 40)
		w.mu.Lock()
		w.starts[0] = 45
		w.mu.Unlock()
		rest(ctx, 4*time.Second)
		st := w.state(0)
		if st.State != ingest.Refused || st.GapOffset != 45 || !strings.Contains(st.Reason, "offsets 10 to 44 would be lost") {
			t.Errorf("reported: %+v", st)
		}
		w.grant(ingest.Acceptance{Side: ingest.SideRequests, Partition: 0, GapOffset: 45, By: "ann"})
		rest(ctx, 4*time.Second)
		if w.state(0).State != ingest.Running || w.commit(0).Offset != 50 {
			t.Errorf("after the acceptance: %+v", w.state(0))
		}
	})
}

// TestRouteTicks: what ticks say of idle partitions, of busy ones, and while a chunk is stuck.
func TestRouteTicks(t *testing.T) {
	calmWorld(t, func(w *world) { w.append(0, 5) }, func(ctx context.Context, w *world, r *Router, h *simHost) {
		rest(ctx, 3*time.Second)
		ticks := w.keyedOf(t, detectors.KeyedTick, 0)
		for q := range ticks {
			last := ticks[q][len(ticks[q])-1]
			age := simNow().Sub(last.Clock)
			if !last.Idle || last.Offset != 5 || age < 0 || age > time.Second || last.Time != w.requests[0][4].time || last.Prev != prevOn(w, t, q, 5) {
				t.Errorf("keyed %d: last tick %+v, %v old", q, last, age)
			}
			if n := len(ticks[q]); n < 10 || n > 16 {
				t.Errorf("keyed %d: %d ticks in 3 s, want one each 200 ms", q, n)
			}
		}
		empty := flat(w.keyedOf(t, detectors.KeyedTick, 1))
		if last := empty[len(empty)-1]; last.Time != traffic.BeforeTime || last.Offset != 0 || last.Prev != detectors.NoOffset || !last.Idle {
			t.Errorf("tick of a partition that never had an event: %+v", last)
		}
		h.world.mu.Lock()
		h.world.stuck = true // event batches fail, ticks come through
		h.world.mu.Unlock()
		before := len(flat(w.keyedOf(t, detectors.KeyedTick, 0)))
		w.append(0, 3)
		rest(ctx, 5*time.Second)
		late := flat(w.keyedOf(t, detectors.KeyedTick, 0))
		if len(late)-before < 4 {
			t.Errorf("%d ticks while a chunk is stuck, want them to go on", len(late)-before)
		}
		seen := 0
		for _, k := range late {
			if k.Offset > 5 {
				t.Errorf("a tick says %d is acknowledged", k.Offset)
			}
			if !k.Idle && k.Offset == 5 {
				seen++
			}
		}
		if seen == 0 || r.Stats().ChunkRetries == 0 {
			t.Errorf("%d ticks were not idle, %d retries: the chunk was not stuck", seen, r.Stats().ChunkRetries)
		}
	})
}

// prevOn is the last event of source 0 before offset on keyed partition q.
func prevOn(w *world, t *testing.T, q int, offset int64) int64 {
	prev := detectors.NoOffset
	for _, k := range w.keyedOf(t, detectors.KeyedEvent, 0)[q] {
		if k.Offset < offset {
			prev = k.Offset
		}
	}
	return prev
}

// TestRouteLetters: a chunk with poison is not committed before its dead letters are acknowledged.
func TestRouteLetters(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.append(0, 3)
		w.requests[0][1].bad = true
		w.deaf = true
	}, func(ctx context.Context, w *world, r *Router, h *simHost) {
		rest(ctx, 3*time.Second)
		if c := w.commit(0); c.Offset != 0 || len(flat(w.keyedOf(t, detectors.KeyedEvent, 0))) == 0 {
			t.Errorf("offset %d: committed before the letter, or records waited for it", c.Offset)
		}
		w.mu.Lock()
		w.deaf = false
		w.mu.Unlock()
		rest(ctx, 3*time.Second)
		if c := w.commit(0); c.Offset != 3 || w.letters[[2]int64{0, 1}] != format.ReasonMalformed {
			t.Errorf("offset %d, letters %v", c.Offset, w.letters)
		}
		want := EventStats{Events: 3, DeadLetters: map[string]int64{format.ReasonMalformed: 1}}
		if got := r.Stats(); got.Events != want.Events || !reflect.DeepEqual(got.DeadLetters, want.DeadLetters) || got.Sources[0].Offset != 3 {
			t.Errorf("stats: %+v", got)
		}
	})
}

// TestRouteLeavesForAVersionItDoesNotKnow: it routes nothing, says so, and tries again.
func TestRouteLeavesForAVersionItDoesNotKnow(t *testing.T) {
	newer := func(number int64) *rules.Routing {
		r := simRouting(number)
		r.RecordFormat = detectors.RecordFormat + 1
		return r
	}
	for _, inherited := range []bool{false, true} {
		calmWorld(t, func(w *world) {
			w.append(0, 3)
			w.routing = newer
			if inherited {
				w.released[1] = traffic.EndOfTime
				for v := range w.released {
					w.released[v] = traffic.EndOfTime
				}
				w.commits[0] = (&ingest.Announcement{Generation: 7, Offset: 0, End: 2, Version: 1, Prev: sentBefore(0, simKeyed)}).Commit()
			}
		}, func(ctx context.Context, w *world, _ *Router, h *simHost) {
			rest(ctx, 3*time.Second)
			generations, err := h.joined()
			if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("record format is %d, this build writes %s",
				detectors.RecordFormat+1, detectors.KnownRecordFormats())) {
				t.Errorf("inherited %v: the session ended with %v", inherited, err)
			}
			if st := w.state(0); st.State != ingest.Refused || !strings.Contains(st.Reason, "record format") {
				t.Errorf("inherited %v: reported %+v", inherited, st)
			}
			if len(flat(w.keyedOf(t, detectors.KeyedEvent, 0))) > 0 || generations < 2 {
				t.Errorf("inherited %v: it routed, or did not leave (%d generations)", inherited, generations)
			}
		})
	}
}

// What a commit announced under a routing version that the rule store has lost is announced and routed by the newest
// one, each event once.
func TestRouteAnnouncesAnewWhatALostVersionHad(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.append(0, 6)
		w.routing = func(number int64) *rules.Routing {
			r := simRouting(number)
			if number == 1 {
				r.Rules, r.Allow, r.Lost = nil, nil, true
			}
			return r
		}
		w.released[2] = w.begin
		for v := 3; v < len(w.released); v++ {
			w.released[v] = traffic.EndOfTime
		}
		w.commits[0] = (&ingest.Announcement{Generation: 7, Offset: 2, End: 4, Version: 1,
			Prev: sentBefore(2, simKeyed)}).Commit()
	}, func(ctx context.Context, w *world, _ *Router, _ *simHost) {
		rest(ctx, 10*time.Second)
		if st := w.state(0); w.commit(0).Offset != 6 || st.State != ingest.Running {
			t.Errorf("offset %d, reported %+v", w.commit(0).Offset, st)
		}
		routed := map[int64]bool{}
		for _, k := range flat(w.keyedOf(t, detectors.KeyedEvent, 0)) {
			routed[k.Offset] = true
			if k.Version != 2 {
				t.Errorf("offset %d was routed by version %d", k.Offset, k.Version)
			}
		}
		for offset := range int64(6) {
			if routed[offset] != (offset >= 2) {
				t.Errorf("offset %d: routed %t", offset, routed[offset])
			}
		}
	})
}

// TestRouteWaitsForTheFirstVersion: before there is one, nothing is announced, and a partition with events is not idle.
func TestRouteWaitsForTheFirstVersion(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.append(0, 3)
		for v := range w.released {
			w.released[v] = w.begin.Add(4 * time.Second)
		}
	}, func(ctx context.Context, w *world, _ *Router, h *simHost) {
		rest(ctx, 3*time.Second)
		ticks := flat(w.keyedOf(t, detectors.KeyedTick, 0))
		if w.commit(0).Offset != 0 || len(ticks) == 0 || ticks[len(ticks)-1].Idle {
			t.Errorf("offset %d, %d ticks", w.commit(0).Offset, len(ticks))
		}
		rest(ctx, 3*time.Second)
		if w.commit(0).Offset != 3 {
			t.Errorf("offset %d after the first version came", w.commit(0).Offset)
		}
	})
}

// TestRouteBeginsWithTheNewestVersion: a process that starts while the newest version cannot be had waits for it, and
// does not begin with the one that the last commit names, which it could have.
func TestRouteBeginsWithTheNewestVersion(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.append(0, 3)
		w.released[2] = w.begin
		for v := 3; v < len(w.released); v++ {
			w.released[v] = traffic.EndOfTime
		}
		w.commits[0] = (&ingest.Announcement{Generation: 7, Offset: 0, End: 0, Version: 1, Prev: sentBefore(0,
			simKeyed)}).Commit()
		w.unnamed = w.begin.Add(25 * time.Second)
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		rest(ctx, 24*time.Second)
		if n := len(flat(w.keyedOf(t, detectors.KeyedEvent, 0))); n > 0 || r.Stats().LookFailures == 0 {
			t.Errorf("%d events were routed before the newest version was known; %d looks failed", n,
				r.Stats().LookFailures)
		}
		rest(ctx, 8*time.Second)
		routed := flat(w.keyedOf(t, detectors.KeyedEvent, 0))
		if w.commit(0).Offset != 3 || len(routed) == 0 {
			t.Errorf("offset %d, %d events", w.commit(0).Offset, len(routed))
		}
		for _, k := range routed {
			if k.Version != 2 {
				t.Errorf("offset %d was routed by version %d", k.Offset, k.Version)
			}
		}
	})
}

// TestRouteIsQuick: an event is on the keyed log soon after it was appended, whatever came or did not come before it.
func TestRouteIsQuick(t *testing.T) {
	const limit = 30 * time.Millisecond // a fetch, a commit and the appends take up to 18 ms in the simulation
	calmWorld(t, func(w *world) {
		w.append(1, 40)
		for i := range w.requests[1] {
			at := w.begin.Add(2*time.Second + time.Duration(i*i)*4*time.Millisecond)
			w.requests[1][i].appended, w.requests[1][i].time = at, at
		}
	}, func(ctx context.Context, w *world, _ *Router, h *simHost) {
		rest(ctx, 10*time.Second)
		seen := 0
		for q := range w.keyed {
			for _, rec := range w.keyed[q] {
				var k detectors.Keyed
				if err := detectors.DecodeKeyed(rec.value, &k); err != nil {
					t.Fatal(err)
				}
				if k.Kind != detectors.KeyedEvent {
					continue
				}
				seen++
				if late := rec.at.Sub(w.requests[1][k.Offset].appended); late > limit {
					t.Errorf("event %d took %v, want at most %v", k.Offset, late, limit)
				}
			}
		}
		if seen < 40 {
			t.Errorf("%d records of 40 events", seen)
		}
	})
}

// TestRouteReplay: an end mark closes its partition, ticks tell of it soon, and no partition of a replay is ever idle.
func TestRouteReplay(t *testing.T) {
	calmWorld(t, func(w *world) {
		w.replay = true
		w.append(0, 3)
		w.append(0, 1)
		w.requests[0][3].closes = true
		w.append(1, 2)
	}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
		rest(ctx, 3*time.Second)
		for p, want := range map[int]traffic.Time{0: traffic.EndOfTime, 1: w.requests[1][1].time, 2: traffic.BeforeTime} {
			ticks := flat(w.keyedOf(t, detectors.KeyedTick, p))
			for _, k := range ticks {
				if k.Idle || k.Clock != 0 {
					t.Errorf("partition %d is idle: %+v", p, k)
				}
			}
			if last := ticks[len(ticks)-1]; last.Time != want {
				t.Errorf("partition %d: the last tick has time %v, want %v", p, last.Time, want)
			}
		}
		if st := r.Stats(); st.EndMarks != 1 || st.Events != 6 || w.commit(0).Offset != 4 {
			t.Errorf("stats %+v, offset %d", st, w.commit(0).Offset)
		}
	})
}
