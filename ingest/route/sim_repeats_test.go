//go:build !race

package route

import (
	"crypto/sha256"
	"fmt"
	"testing"
)

// TestRouteSimulationRepeats: a seed names one run, so that a failure can be looked at again. Once in a few hundred runs
// two things fall on one nanosecond of virtual time, and their order is the scheduler's: one seed of ten may differ. The race detector's
// build runs what is due at one time in random order, on purpose, so there no seed names a run.
func TestRouteSimulationRepeats(t *testing.T) {
	digest := func(w *world) string {
		h := sha256.New()
		for q := range w.keyed {
			for _, rec := range w.keyed[q] {
				fmt.Fprintf(h, "%d %d %x\n", q, rec.at, rec.value)
			}
		}
		return fmt.Sprintf("%x", h.Sum(nil))
	}
	differ := 0
	for seed := range uint64(10) {
		a, _ := runSim(t, seed, false, faithful)
		b, _ := runSim(t, seed, false, faithful)
		if digest(a) != digest(b) {
			differ++
		}
	}
	if differ > 1 {
		t.Errorf("%d seeds of 10 gave two different runs", differ)
	}
}
