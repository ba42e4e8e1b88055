package detect_test

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

const lookSubject = traffic.Subject("ip=192.0.2.1%2F32")

// The count is asked of the partition that has it, while it folds; of any other there is a clear answer.
func TestDetectAnswersWhatItCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 2)
		s := steps{w: w, q: 1}
		s.put(2, 1)
		r := w.begin("a", []int{1})
		time.Sleep(5 * time.Second)
		ask := func(partition int, rule string) (detectors.Look, error) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			return r.Look(ctx, partition, rule, lookSubject)
		}
		got, err := ask(1, "burst")
		if err != nil || len(got.Windows) != 1 || !got.Windows[0].Held || got.Windows[0].Count == 0 {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := ask(0, "burst"); !errors.Is(err, detect.ErrNotOwned) {
			t.Errorf("of another's partition: %v", err)
		}
		if _, err := ask(1, "other"); !errors.Is(err, detectors.ErrLook) {
			t.Errorf("of a rule that is none: %v", err)
		}
		if r.Owner() != "a" || r.Routing().Number != 1 {
			t.Errorf("%s, %+v", r.Owner(), r.Routing())
		}
		r.stop(t)
	})
}

// A detector that has no partitions yet, or hangs in a store, answers nobody: who asks is told so in time, few wait, and those who have
// gone are not answered once it works.
func TestDetectThatHangsKeepsNobodyWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		s := steps{w: w}
		s.put(2, 1)
		w.takeStore(true)
		r := w.begin("a", []int{0})
		answers := make(chan error)
		for range 6 {
			go func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				_, err := r.Look(ctx, 0, "burst", lookSubject)
				answers <- err
			}()
		}
		busy, late := 0, 0
		began := time.Now()
		for range 6 {
			switch err := <-answers; {
			case errors.Is(err, detect.ErrLooksBusy):
				busy++
			case errors.Is(err, context.DeadlineExceeded):
				late++
			default:
				t.Errorf("answered %v", err)
			}
		}
		if busy != 2 || late != 4 || time.Since(began) > 2*time.Second {
			t.Errorf("%d were sent away, %d waited, for %s", busy, late, time.Since(began))
		}
		w.takeStore(false)
		time.Sleep(30 * time.Second)
		if _, err := r.Look(t.Context(), 0, "burst", lookSubject); err != nil {
			t.Errorf("once it works: %v", err)
		}
		r.stop(t)
	})
}

// Owners that are killed at any moment give the hits of one that is not: a reset is applied once, at its place in the log.
func TestDetectResetsOnceAcrossCrashes(t *testing.T) {
	for seed := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newDetectWorld(t, 1)
			first := w.routing[1]
			key := first.Rules[0].Key
			for version, resets := range map[int64][]rules.Reset{
				2: {{Rule: "burst", Key: key, Subject: lookSubject, Since: 2}},
				3: {{Rule: "burst", Key: key, Subject: "ip=192.0.2.2%2F32", Since: 3}, {Rule: "burst", Key: key, Subject: lookSubject, Since: 3}},
			} {
				w.routing[version] = &rules.Routing{Stream: "live", Number: version, RecordFormat: detectors.RecordFormat, Rules: first.Rules, Resets: resets}
			}
			prev := detectors.NoOffset
			for o := range int64(200) {
				at := detectOrigin + traffic.Time(o)*300_000
				w.put(0, detectors.Keyed{
					Kind: detectors.KeyedEvent, Generation: 1, Offset: o, Prev: prev, Time: at, Progress: at, Version: min(3, max(1, o/60-o%2+1)), Rules: []int{0},
					Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{192, 0, 2, byte(1 + o%3)})},
				})
				prev = o
			}
			w.put(0, detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Offset: 200, Prev: prev, Time: traffic.EndOfTime})
			p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{9}})
			for version := int64(1); version <= 3; version++ {
				p.Learn(detectors.NewPlan(w.routing[version]))
			}
			var want []detectors.Hit
			for _, m := range w.keyed[0] {
				var k detectors.Keyed
				if err := detectors.DecodeKeyed(m.Value, &k); err != nil {
					t.Fatal(err)
				}
				var err error
				if _, want, err = p.FoldAll([]detectors.Record{{Appended: m.Appended, Place: m.Offset + 1, Keyed: k}}, want); err != nil {
					t.Fatal(err)
				}
			}
			if closed := slices.DeleteFunc(slices.Clone(want), func(h detectors.Hit) bool { return h.Reason != detectors.ReasonReset }); len(closed) != 3 {
				t.Fatalf("%d hits were closed by resets, the story wants 3", len(closed))
			}
			for crash := range 3 {
				r := w.begin("owner-"+string(rune('a'+crash)), []int{0})
				time.Sleep(time.Duration(seed*37%400+50) * time.Millisecond * time.Duration(crash+1))
				r.cancel()
				<-r.done
			}
			r := w.begin("last", []int{0})
			r.ended(t)
			r.stop(t)
			w.compare(distinctHits(t, want))
		})
	}
}
