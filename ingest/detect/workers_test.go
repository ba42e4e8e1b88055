package detect_test

import (
	"slices"
	"testing"
	"testing/synctest"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/detect"
)

// TestDetectHasTheSameHitsWithAnyWorkers reads one keyed log of eight partitions with one worker, two and eight. To each
// hits partition each keyed partition writes the same hits, byte for byte and in the same order.
func TestDetectHasTheSameHitsWithAnyWorkers(t *testing.T) {
	var want map[[2]int][]string
	for _, workers := range []int{1, 2, 8} {
		synctest.Test(t, func(t *testing.T) {
			w := newDetectWorld(t, 8)
			w.fill(700)
			r := w.runWith(workers)
			r.ended(t)
			r.stop(t)
			got := w.inOrder()
			if want == nil {
				want = got
			}
			if len(w.hits) < 200 || len(got) < 16 || len(got) != len(want) {
				t.Fatalf("%d hits of %d pairs of a keyed and a hits partition: the story proves nothing", len(w.hits), len(got))
			}
			for pair, hits := range got {
				if !slices.Equal(hits, want[pair]) {
					t.Errorf("keyed partition %d to hits partition %d with %d workers: %d hits, not the %d of one worker",
						pair[0], pair[1], workers, len(hits), len(want[pair]))
				}
			}
			if !w.check() {
				t.Errorf("with %d workers", workers)
			}
		})
	}
}

// runWith is run with so many workers, for all keyed partitions.
func (w *detectWorld) runWith(workers int) *running {
	all := make([]int, len(w.keyed))
	for q := range all {
		all[q] = q
	}
	return w.begin("a", all, func(opt *detect.Options) { opt.Workers = workers })
}

// inOrder is what each keyed partition wrote to each hits partition, as bytes.
func (w *detectWorld) inOrder() map[[2]int][]string {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := map[[2]int][]string{}
	for i := range w.hits {
		h := &w.hits[i]
		raw, err := detectors.EncodeHit(h)
		if err != nil {
			w.t.Fatal(err)
		}
		pair := [2]int{h.Keyed, h.Partition(3)}
		out[pair] = append(out[pair], string(raw))
	}
	return out
}
