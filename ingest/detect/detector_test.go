package detect_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// running is a detector at work.
type running struct {
	*detect.Detector
	group  *oneMember
	cancel context.CancelFunc
	done   chan error
}

func (w *detectWorld) run(owner string, partitions ...int) *running {
	return w.begin(owner, partitions)
}

// begin is run with other options.
func (w *detectWorld) begin(owner string, partitions []int, edit ...func(*detect.Options)) *running {
	group := alone(partitions...)
	group.commits = groupCommits{w}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{Detector: w.detector(owner, group, edit...), group: group, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- r.Run(ctx) }()
	return r
}

func (r *running) stop(t testing.TB) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("a stopped detector returns %v", err)
	}
}

func (r *running) ended(t testing.TB) {
	t.Helper()
	select {
	case <-r.Ended():
	case <-time.After(10 * time.Minute):
		t.Fatal("the log does not come to its end")
	}
}

func TestDetectGivesWhatTheLogSays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 3)
		w.fill(100)
		w.failures = 9 // some of them after the hits were written
		r := w.run("a", 0, 1, 2)
		r.ended(t)
		r.stop(t)
		if n := len(w.expect()); n < 20 {
			t.Fatalf("only %d hits expected: the story proves nothing", n)
		}
		w.check()
	})
}

// TestDetectSurvivesCrashes kills the owner at random instants: its last moments reach neither store nor topic, and the
// next owner has only what was stored. Some owners live on as zombies for a while.
func TestDetectSurvivesCrashes(t *testing.T) {
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rnd := rand.New(rand.NewPCG(seed, 1))
			w := newDetectWorld(t, 2)
			w.fill(120)
			var zombies []*running
			for n := range 5 {
				r := w.run(fmt.Sprint("owner-", n), 0, 1)
				pass(time.Duration(rnd.IntN(3000)) * time.Millisecond) // the bubble's clock
				if rnd.IntN(3) == 0 {
					zombies = append(zombies, r)
					continue
				}
				w.mu.Lock()
				w.failures = 10_000 // first the hits topic is away: what is stored then must not claim that they were sent
				w.mu.Unlock()
				pass(time.Duration(rnd.IntN(3000)) * time.Millisecond)
				w.mu.Lock()
				w.storeDown = rnd.IntN(2) == 0 // then nothing that it still does arrives
				w.mu.Unlock()
				r.stop(t)
				w.mu.Lock()
				w.storeDown, w.failures = false, rnd.IntN(4)
				w.mu.Unlock()
			}
			r := w.run("last", 0, 1)
			r.ended(t)
			r.stop(t)
			for _, z := range zombies {
				z.stop(t)
			}
			if !w.check() {
				t.Errorf("with seed %d", seed)
			}
		})
	}
}

func TestDetectKeepsWarmMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(100)
		r := w.run("a", 0)
		pass(300 * time.Millisecond)
		r.group.end <- struct{}{}
		r.ended(t)
		r.stop(t)
		if w.taken != 1 {
			t.Errorf("the epoch was raised %d times, want once: memory was warm", w.taken)
		}
		w.check()
	})
}

func TestDetectIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(100)
		a := w.run("a", 0)
		pass(100 * time.Millisecond)
		b := w.run("b", 0) // takes over while a still believes in itself
		b.ended(t)
		pass(5 * time.Second)
		errs := fmt.Sprint(a.group.returned())
		if !strings.Contains(errs, ingest.ErrFenced.Error()) {
			t.Errorf("the first owner was not told: %s", errs)
		}
		a.stop(t)
		b.stop(t)
		w.check()
	})
}

func TestDetectStopsAtAHoleUntilAccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 2)
		w.fill(50)
		w.put(0, detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: 90, Prev: 80, Time: traffic.EndOfTime})
		r := w.watch("a", func(*detect.Options) {}, 0, 1)
		pass(20 * time.Second)
		w.mu.Lock()
		halted, running := w.states[0], w.states[1]
		w.accepted = append(w.accepted,
			ingest.Acceptance{Side: ingest.SideKeyed, Partition: 0, GapSource: halted.GapSource, GapOffset: halted.GapOffset + 1},
			ingest.Acceptance{Side: ingest.SideKeyed, Partition: 0, GapSource: halted.GapSource + 1, GapOffset: halted.GapOffset},
			ingest.Acceptance{Side: ingest.SideKeyed, Partition: 0, GapSource: ingest.GapInKeyed, GapOffset: halted.GapOffset},
			ingest.Acceptance{Side: ingest.SideKeyed, Partition: 1, GapSource: halted.GapSource, GapOffset: halted.GapOffset},
			ingest.Acceptance{Side: ingest.SideRequests, Partition: 0, GapSource: halted.GapSource, GapOffset: halted.GapOffset},
		)
		w.mu.Unlock()
		pass(10 * time.Second)
		if said := r.errors(); len(said) != 1 || w.state(0).State != ingest.Halted {
			t.Errorf("said %q, %+v: want it to stop once, whatever other gap is accepted", said, w.state(0))
		}
		w.mu.Lock()
		w.accepted = append(w.accepted, ingest.Acceptance{
			Side: ingest.SideKeyed, Partition: 0, GapSource: halted.GapSource, GapOffset: halted.GapOffset, By: "ops", Reason: "test",
		})
		w.mu.Unlock()
		if halted.State != ingest.Halted || !strings.Contains(halted.Reason, "80") || running.State != ingest.Running {
			t.Fatalf("states %+v and %+v", halted, running)
		}
		pass(10 * time.Second)
		r.stop(t)
		losses := 0
		for _, h := range w.hits {
			if h.Kind == detectors.KindLoss {
				losses++
			}
		}
		if losses != 1 {
			t.Errorf("%d loss records, want one", losses)
		}
	})
}

func TestDetectUsesTheOlderOfTwoSnapshotsWhenOneIsTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(200)
		a := w.run("a", 0)
		pass(2500 * time.Millisecond)
		a.stop(t)
		if len(w.generations[0]) != 2 {
			t.Fatalf("%d generations are stored", len(w.generations[0]))
		}
		torn, older := &w.generations[0][0], w.generations[0][1].Offset
		torn.pieces = torn.pieces[:len(torn.pieces)/2]
		b := w.run("b", 0)
		b.ended(t)
		b.stop(t)
		if !slices.Contains(w.loaded, older) {
			t.Error("the older one was not loaded")
		}
		w.check()
	})
}

func TestDetectHaltsWhenTheLogIsShorterThanTheSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(200)
		a := w.run("a", 0)
		pass(1500 * time.Millisecond)
		a.stop(t)
		w.keyed[0] = w.keyed[0][:5]
		b := w.run("b", 0)
		pass(5 * time.Second)
		b.stop(t)
		if s := w.states[0]; s.State != ingest.Halted || !strings.Contains(s.Reason, "the log ends at 5") {
			t.Errorf("state %+v", s)
		}
	})
}

func TestDetectSaysWhatRetentionTook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(100)
		w.keyed[0], w.start[0] = w.keyed[0][40:], 40
		r := w.run("a", 0)
		r.ended(t)
		r.stop(t)
		if h := w.hits[0]; h.Kind != detectors.KindLoss || h.Count != 40 {
			t.Errorf("first hit %+v, want a loss of 40 records", h)
		}
	})
}

func TestDetectWaitsForItsStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(100)
		version := w.routing[1]
		w.routing = map[int64]*rules.Routing{}
		w.storeDown = true
		r := w.run("a", 0)
		pass(30 * time.Second)
		w.mu.Lock()
		if w.taken != 0 || len(w.hits) != 0 {
			t.Error("a detector works without a claim")
		}
		w.storeDown = false
		w.mu.Unlock()
		pass(30 * time.Second) // it owns the partition, but does not know the routing version
		w.mu.Lock()
		if len(w.hits) != 0 {
			t.Error("a detector works without its rules")
		}
		w.routing[1] = version
		w.mu.Unlock()
		r.ended(t)
		r.stop(t)
		w.check()
	})
}

func TestDetectFoldsOnWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(300)
		r := w.run("a", 0)
		pass(200 * time.Millisecond)
		w.takeStore(true)
		r.ended(t)
		r.stop(t)
		w.check()
	})
}

func TestDetectLeavesANewerFormatAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(3)
		w.keyed[0][1].Value[0] = detectors.RecordFormat + 1
		r := w.run("a", 0)
		pass(5 * time.Second)
		errs := fmt.Sprint(r.group.returned())
		s := w.state(0)
		r.stop(t)
		if !strings.Contains(errs, "upgrade this process") {
			t.Errorf("sessions ended with %s", errs)
		}
		if s.State != ingest.Halted || s.GapOffset != ingest.NoOffset ||
			!strings.Contains(s.Reason, "upgrade this process") {
			t.Errorf("operators are told %+v", s)
		}
	})
}

// A routing version that a newer build stored is not waited for: whoever can read it folds its records. One that is only
// published is nobody's business yet.
func TestDetectLeavesAnUnreadableRoutingVersionAlone(t *testing.T) {
	newer := &rules.Routing{Stream: "live", RecordFormat: detectors.RecordFormat + 1}
	for _, test := range []struct {
		name   string
		number int64
		stored *rules.Routing
		want   string // what sessions end with
	}{
		{"a document that cannot be read", 1, nil, rules.ErrRouting.Error()},
		{"a record format that is not known", 1, newer, "upgrade this process"},
		{"published only, a document that cannot be read", 2, nil, "[]"},
		{"published only, a record format that is not known", 2, newer, "[]"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newDetectWorld(t, 1)
				w.fill(3)
				w.routing[test.number] = test.stored // is there
				r := w.run("a", 0)
				pass(5 * time.Second)
				errs := fmt.Sprint(r.group.returned())
				r.stop(t)
				if !strings.Contains(errs, test.want) {
					t.Errorf("sessions ended with %s", errs)
				}
			})
		})
	}
}
