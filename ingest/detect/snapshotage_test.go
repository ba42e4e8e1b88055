package detect_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// readOnly is a store that takes no snapshot.
type readOnly struct{ checkpointStore }

func (readOnly) Write(context.Context, string, int, ingest.Checkpoint, ingest.Piece) error {
	return errAway
}

// TestTheAgeOfASnapshotOutlivesItsOwner: what the log must still hold is what followed the newest snapshot, however often the partition
// was taken since.
func TestTheAgeOfASnapshotOutlivesItsOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		tick := func() {
			w.put(0, detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Prev: detectors.NoOffset, Time: detectOrigin, Progress: detectOrigin})
			w.keyed[0][len(w.keyed[0])-1].Appended = traffic.At(time.Now())
		}
		age := func(r *watched, when string, least, most float64) {
			t.Helper()
			pass(5 * time.Second)
			if got := r.sum(t, "weir_detect_snapshot_age_seconds", "", ""); got < least || got > most {
				t.Errorf("%s: an age of %v s, want %v to %v", when, got, least, most)
			}
		}
		keep := func(o *detect.Options) { o.Checkpoints = readOnly{checkpointStore{w}} }
		tick()
		fresh := w.watch("fresh", keep, 0)
		age(fresh, "a partition that has none", 4, 6)
		fresh.stop(t)
		pass(time.Hour)
		again := w.watch("another that cannot store one", keep, 0)
		age(again, "none as yet", 3609, 3616)
		again.stop(t)
		if n := again.sum(t, "weir_detect_snapshot_age_seconds", "", ""); n != 0 {
			t.Errorf("a stage that has ended shows an age of %v s", n)
		}

		a := w.watch("a", func(*detect.Options) {}, 0)
		pass(10 * time.Second)
		a.stop(t)
		pass(10 * time.Minute)
		tick()
		b := w.watch("b", keep, 0)
		age(b, "another owner", 600, 616)
		for range 3 {
			b.group.end <- struct{}{}
			pass(time.Minute)
		}
		age(b, "three generations later", 780, 801)
		b.stop(t)

		w.generations[0] = append([]storedSnapshot{{ingest.Checkpoint{Epoch: 9, Attempt: 9, Written: w.generations[0][0].Written.Add(5 * time.Minute)}, [][]byte{{1}}}}, w.generations[0]...)
		c := w.watch("c", keep, 0)
		age(c, "the newest is torn", 780, 810)
		c.stop(t)
		d := w.watch("d", func(*detect.Options) {}, 0)
		age(d, "a new one is stored", 0, 0)
		d.stop(t)
	})
}

// TestTheRetentionIsShown: how old a snapshot may get is a matter of what the topic keeps.
func TestTheRetentionIsShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for keeps, want := range map[time.Duration]float64{0: 0, 90 * time.Minute: 5400} {
			w := newDetectWorld(t, 1)
			r := w.watch("a", func(o *detect.Options) { o.Retention.Time = keeps }, 0)
			if got := r.sum(t, "weir_detect_keyed_retention_seconds", "", ""); got != want {
				t.Errorf("a retention of %s is shown as %v s", keeps, got)
			}
			r.stop(t)
		}
	})
}
