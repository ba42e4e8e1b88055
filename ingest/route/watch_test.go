package route

import (
	"context"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// A router that is told of a new routing version loads it long before it would have looked by itself; one that is not told
// finds it when it looks.
func TestANewRoutingVersionIsHeard(t *testing.T) {
	for _, told := range []bool{true, false} {
		calmWorld(t, func(w *world) {
			for v := range w.released {
				w.released[v] = traffic.EndOfTime
			}
			w.released[1] = w.begin
			w.edit = func(o *Options) { o.LookEvery = time.Minute }
		}, func(ctx context.Context, w *world, r *Router, _ *simHost) {
			rest(ctx, 5*time.Second)
			if got := r.Stats().NewestVersion; got != 1 {
				t.Fatalf("told %t: begins with version %d", told, got)
			}
			w.mu.Lock()
			w.released[2] = simNow()
			w.mu.Unlock()
			if told {
				r.RoutingsChanged()
			}
			rest(ctx, time.Second)
			if got, want := r.Stats().NewestVersion == 2, told; got != want {
				t.Errorf("told %t: loaded within a second: %t", told, got)
			}
			rest(ctx, 2*time.Minute)
			if got := r.Stats().NewestVersion; got != 2 {
				t.Errorf("told %t: version %d after two minutes", told, got)
			}
		})
	}
}

// A rule store that has lost a version which this process routes by is told of; every other one is not.
func TestAStoreThatHasLostAVersionIsToldOf(t *testing.T) {
	for stored, lost := range map[int64]bool{2: true, 3: false, 4: false} {
		if err := behind(stored, &routingVersion{number: 3}); (err != nil) != lost {
			t.Errorf("stored %d, routed by 3: %v", stored, err)
		}
	}
	if err := behind(0, nil); err != nil {
		t.Errorf("nothing is loaded yet: %v", err)
	}
}
