package detect_test

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// failAppends lets this many appends fail.
func (w *detectWorld) failAppends(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = n
}

// counted are the hits of all kinds, those of them that open an episode, and the losses, as the metrics say.
func (r *watched) counted(t *testing.T) (hits, opened, losses float64) {
	t.Helper()
	for _, kind := range []detectors.Kind{detectors.KindHit, detectors.KindLate, detectors.KindUncounted} {
		hits += r.sum(t, "weir_detect_hits_total", "kind", string(kind))
	}
	return hits, r.sum(t, "weir_detect_hits_total", "phase", string(detectors.PhaseOpen)), r.sum(t, "weir_detect_losses_total", "", "")
}

// TestHitsAreCountedWhenTheTopicHasThem: what was never acknowledged is not counted, and what is sent again, by the same generation or
// by the next, is counted once.
func TestHitsAreCountedWhenTheTopicHasThem(t *testing.T) {
	for name, deleted := range map[string]int64{"of hits": 0, "of a loss and hits": 50} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, func(t *testing.T) { countsWhatIsSent(t, deleted) }) })
	}
}

// countsWhatIsSent is the test over a log whose first records were deleted before they were read.
func countsWhatIsSent(t *testing.T, deleted int64) {
	w := newDetectWorld(t, 1)
	w.fill(400)
	w.start[0], w.keyed[0] = deleted, w.keyed[0][deleted:]
	w.failAppends(1 << 40)
	r := w.watch("a", func(*detect.Options) {}, 0)
	for range 3 {
		pass(time.Minute)
		r.group.end <- struct{}{}
	}
	pass(time.Minute)
	if hits, _, losses := r.counted(t); hits != 0 || losses != 0 || r.Stats().Opened != 0 {
		t.Errorf("%v hits, %v losses and %d episodes are counted, and the topic has none", hits, losses, r.Stats().Opened)
	}
	w.failAppends(9) // some of them after the hits were written
	r.ended(t)
	pass(3 * time.Second)
	var want, opened, lost float64
	for _, raw := range w.got() {
		h, err := detectors.DecodeHit([]byte(raw))
		switch {
		case err != nil:
			t.Fatal(err)
		case h.Kind == detectors.KindLoss:
			lost++
			continue
		case h.Phase == detectors.PhaseOpen:
			opened++
		}
		want++
	}
	if lost != float64(min(deleted, 1)) || opened < 2 || want < 10 {
		t.Fatalf("the log gives %v losses and %v hits, of which %v open an episode", lost, want, opened)
	}
	if hits, open, losses := r.counted(t); hits != want || open != opened || losses != lost || float64(r.Stats().Opened) != opened {
		t.Errorf("%v hits, %v of them opening, %v losses and %d episodes are counted; the topic has %v, %v, %v", hits, open, losses, r.Stats().Opened, want, opened, lost)
	}
	r.stop(t)
}

// TestWhatIsFoldedAgainIsCountedOnce: a detector that ends before its hits are acknowledged leaves the counting to its successor, which
// folds the same records.
func TestWhatIsFoldedAgainIsCountedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		w.failAppends(1 << 40)
		a := w.watch("a", func(*detect.Options) {}, 0)
		pass(time.Minute)
		a.stop(t)
		w.failAppends(0)
		b := w.watch("b", func(*detect.Options) {}, 0)
		b.ended(t)
		pass(3 * time.Second)
		b.stop(t)
		for name, sum := range map[string]func(r *watched) float64{
			"events of the fence": func(r *watched) float64 { return r.sum(t, "weir_detect_events_total", "", "") },
			"events of the rule": func(r *watched) float64 {
				return r.sum(t, "weir_detect_rule_events_total", "outcome", "counted") + r.sum(t, "weir_rule_uncounted_events_total", "stage", "detect")
			},
		} {
			if first, second := sum(a), sum(b); first != 0 || second != 400 {
				t.Errorf("%s: %v and then %v, of 400", name, first, second)
			}
		}
	})
}

// TestAnAcceptedGapIsOneLoss: routers tell every keyed partition of it, and history keeps it once. What one partition alone lost is counted
// by that partition.
func TestAnAcceptedGapIsOneLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 4)
		gap := detectors.Keyed{Kind: detectors.KeyedLoss, Generation: 1, Offset: 50, Prev: detectors.NoOffset, Time: detectOrigin}
		ip := traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, 1})}
		event := func(offset, prev int64) detectors.Keyed {
			return detectors.Keyed{
				Kind: detectors.KeyedEvent, Generation: 1, Offset: offset, Prev: prev, Time: detectOrigin, Progress: detectOrigin,
				Version: 1, Rules: []int{0}, Identity: ip,
			}
		}
		for q := range w.keyed {
			for range 2 { // a router that died sends it again
				w.put(q, gap)
			}
		}
		w.put(3, event(60, 55)) // 55 never came
		w.accepted = []ingest.Acceptance{{Side: ingest.SideKeyed, Partition: 3, GapSource: 0, GapOffset: 60, By: "op", Reason: "gone"}}
		w.start[2] = 7 // what was below was deleted
		for owner, tc := range map[string]struct {
			partitions []int
			want       float64
		}{"zero": {[]int{0}, 1}, "one": {[]int{1}, 0}, "others": {[]int{2, 3}, 2}} {
			r := w.watch(owner, func(o *detect.Options) { o.Keyed = 4 }, tc.partitions...)
			pass(10 * time.Second)
			if _, _, losses := r.counted(t); losses != tc.want {
				t.Errorf("the owner of partitions %v counts %v losses, want %v", tc.partitions, losses, tc.want)
			}
			r.stop(t)
		}
		ids := map[string]bool{}
		for i := range w.hits {
			ids[w.hits[i].ID] = true
		}
		if len(ids) != 3 {
			t.Errorf("the topic has losses of %d ids, want 3: %+v", len(ids), w.hits)
		}
	})
}
