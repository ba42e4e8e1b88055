package route

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/ingest"
)

// simulate runs a world until everything is routed, and closes it. It returns what went wrong on the way.
func simulate(seed uint64, lossy bool, deviate func() deviation) (*world, []string) {
	w := newWorld(seed)
	w.lossy = lossy
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		deal := w.chance(2)
		for ctx.Err() == nil {
			w.group.step(simNow(), func(p []int) { deal.Shuffle(len(p), func(i, j int) { p[i], p[j] = p[j], p[i] }) })
			rest(ctx, 17*time.Millisecond+jitter(deal, time.Millisecond))
		}
	})
	var mu sync.Mutex
	var wrong []string
	routers := 2 + int(seed%2)
	for i := range routers {
		running.Go(func() {
			err := w.process(ctx, uint64(i), deviate)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				wrong = append(wrong, err.Error())
			}
		})
	}
	rest(ctx, simTraffic)
	w.setCalm()
	for end := simNow().Add(simQuiet); !w.routed(); rest(ctx, 50*time.Millisecond) {
		if simNow() > end {
			wrong = append(wrong, fmt.Sprintf("stuck: commits %v", w.commits))
			break
		}
	}
	rest(ctx, time.Second) // some closing ticks
	cancel()
	running.Wait()
	w.late.Wait()
	if w.refusals > 0 {
		wrong = append(wrong, fmt.Sprintf("partitions were refused without cause: %v", w.states))
	}
	return w, wrong
}

// process is one router's life, and after each violent death the next one's. It is frozen and killed at random.
func (w *world) process(ctx context.Context, number uint64, deviate func() deviation) error {
	r := w.chance(10 + number)
	for life := uint64(0); ctx.Err() == nil; life++ {
		host := newSimHost(w, fmt.Sprintf("r%d-%d", number, life), 1+number+10*life)
		router, err := host.router(deviate())
		if err != nil {
			return err
		}
		lifetime, die := context.WithCancel(ctx)
		var chaos sync.WaitGroup
		chaos.Go(func() {
			defer die()
			for lifetime.Err() == nil {
				rest(lifetime, jitter(r, 3*time.Second))
				switch x := r.Float64(); {
				case !w.faulty(r, 1):
				case x < .4:
					host.freeze(time.Duration(r.ExpFloat64() * float64(700*time.Millisecond)))
				case x < .7:
					w.group.shake()
				case x < .85:
					host.kill()
					return
				}
			}
		})
		err = router.Run(lifetime)
		die()
		chaos.Wait()
		if err == nil {
			err = host.oddity
		}
		if err != nil {
			return fmt.Errorf("router %s: %w", host.name, err)
		}
		rest(ctx, jitter(r, time.Second))
	}
	return nil
}

// runSim is one whole run within a bubble of virtual time.
func runSim(t *testing.T, seed uint64, lossy bool, deviate func() deviation) (w *world, wrong []string) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w, wrong = simulate(seed, lossy, deviate)
		wrong = append(wrong, w.check()...)
	})
	return w, wrong
}

func faithful() deviation { return deviation{} }

// TestRouteSimulation: whatever is lost, late, frozen, killed or rebalanced, the keyed log after the fence is an
// independent routing of the requests log.
func TestRouteSimulation(t *testing.T) {
	seeds := uint64(200)
	if testing.Short() {
		seeds = 40
	}
	generations, duplicates := 0, 0
	for seed := range seeds {
		w, wrong := runSim(t, seed, false, faithful)
		if len(wrong) > 0 {
			t.Fatalf("seed %d:\n%s", seed, strings.Join(wrong[:min(len(wrong), 10)], "\n"))
		}
		generations += w.group.generation
		for q := range w.keyed {
			duplicates += len(w.keyed[q])
		}
	}
	t.Logf("%d runs, %d generations, %d keyed records", seeds, generations, duplicates)
	if generations < 5*int(seeds) {
		t.Errorf("only %d generations in %d runs: the simulation is too kind", generations, seeds)
	}
}

// TestRouteSimulationNotices breaks one sentence of the protocol at a time. If the checker did not notice, its silence
// in TestRouteSimulation would mean nothing.
func TestRouteSimulationNotices(t *testing.T) {
	tests := []struct {
		name    string
		lossy   bool
		deviate func() deviation
	}{
		{"a router keeps its own position over a generation", false, func() deviation {
			memory := map[int]*source{}
			return deviation{start: func(src *source) {
				if was := memory[src.partition]; was != nil {
					src.at, src.version = was.at, was.version
				}
				memory[src.partition] = src
			}}
		}},
		{"a chunk crosses the announced end", false, func() deviation {
			return deviation{stop: func(a ingest.Announcement) int64 { return a.End + a.End%3 }}
		}},
		{"a commit without an answer is taken for done", false, func() deviation {
			return deviation{commit: func(error) error { return nil }}
		}},
		{"the log loses acknowledged batches", true, faithful},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for seed := range uint64(60) {
				if _, wrong := runSim(t, seed, tt.lossy, tt.deviate); len(wrong) > 0 {
					t.Logf("seed %d: %s", seed, wrong[0])
					return
				}
			}
			t.Error("60 runs, and nothing was noticed")
		})
	}
}
