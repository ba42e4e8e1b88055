package detect_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/rules"
)

// Events of a routing version that the rule store has lost are counted by no rule, told as one loss of each keyed
// partition and version, and do not keep those that come after them: not at first, and not after a crash that has taken
// the snapshots.
func TestDetectGoesOnBehindALostVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 2)
		w.routing[2] = &rules.Routing{Stream: "live", Number: 2, RecordFormat: 1, Lost: true}
		w.publish(3)
		for q := range w.keyed {
			s := steps{w: w, q: q}
			s.put(2, 1) // at the limit
			s.put(30, 2)
			s.put(1, 3) // its window has begun anew since
			w.put(q, detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: s.next, Prev: s.next - 1,
				Time: detectOrigin + s.at + 600_000_000})
		}
		for _, owner := range []string{"a", "b"} {
			r := w.watch(owner, func(*detect.Options) {}, 0, 1)
			pass(10 * time.Second)
			for q := range w.keyed {
				if s := w.state(q); s.State != ingest.Running || s.Offset != int64(len(w.keyed[q])) {
					t.Errorf("%s reported %+v", owner, s)
				}
			}
			if n := r.sum(t, "weir_detect_lost_version_events_total", "", ""); n != 60 {
				t.Errorf("%s has %v events of the lost version in its metrics, want 60", owner, n)
			}
			r.stop(t)
			w.mu.Lock()
			clear(w.generations)
			clear(w.commits)
			w.mu.Unlock()
		}
		if n, all := w.losses(t), len(w.got()); n != 2 || all != 2 {
			t.Errorf("%d different losses of %d different hits, want 2 of 2", n, all)
		}
	})
}
