package detect_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
)

// damage makes records of keyed partition 0 say nothing: those from one offset up to another do not decode, and one
// names a rule that its routing version does not have.
func (w *detectWorld) damage(from, to, unknownRule int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for o := from; o < to; o++ {
		w.keyed[0][o].Value = w.keyed[0][o].Value[:3]
	}
	var k detectors.Keyed
	if err := detectors.DecodeKeyed(w.keyed[0][unknownRule].Value, &k); err != nil {
		w.t.Fatal(err)
	}
	k.Rules = []int{5}
	w.keyed[0][unknownRule].Value = detectors.AppendKeyed(nil, &k)
}

// halted asks that keyed partition 0 stands at an offset before a gap in its log, and says why.
func (w *detectWorld) halted(t *testing.T, offset, gap int64, reasons ...string) {
	t.Helper()
	s := w.state(0)
	if s.State != ingest.Halted || s.Offset != offset || s.GapSource != ingest.GapInKeyed || s.GapOffset != gap {
		t.Errorf("reported %+v, want a halt at %d before %d", s, offset, gap)
	}
	for _, reason := range reasons {
		if !strings.Contains(s.Reason, reason) {
			t.Errorf("halted for %q, which does not say %q", s.Reason, reason)
		}
	}
}

// Records that came whole and say nothing stop their partition as one gap, of which it is told how far its log has
// grown meanwhile. It goes on behind exactly what an operator gives up, with a loss record, also after a crash that
// has taken its snapshots.
func TestDetectGoesOnBehindRecordsThatSayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(200)
		length := len(w.keyed[0])
		tail := w.keyed[0][length-50:]
		w.keyed[0] = w.keyed[0][:length-50]
		w.damage(20, 24, 60)
		r := w.watch("a", func(*detect.Options) {}, 0)
		pass(10 * time.Second)
		w.halted(t, 20, 21, "keyed offset 20 cannot be read") // of a fetch that ended with it
		w.mu.Lock()
		w.keyed[0] = append(w.keyed[0], tail...)
		w.mu.Unlock()
		for _, other := range []int64{20, 22, 24, 25} {
			w.accept(ingest.Acceptance{GapSource: ingest.GapInKeyed, GapOffset: other})
		}
		w.accept(ingest.Acceptance{GapSource: 0, GapOffset: 21})
		pass(10 * time.Second)
		w.halted(t, 20, 21)
		if n := w.losses(t); n != 0 {
			t.Errorf("%d losses by acceptances of other gaps", n)
		}
		if s := w.state(0); s.End != int64(length) {
			t.Errorf("the log of a partition that stands ends at %d, reported %d", length, s.End)
		}
		w.accept(ingest.Acceptance{GapSource: ingest.GapInKeyed, GapOffset: 21})
		pass(10 * time.Second)
		w.halted(t, 60, 61, "rule 5 of routing version 1") // what was accepted of the rest, it was not asked for again
		w.accept(ingest.Acceptance{GapSource: ingest.GapInKeyed, GapOffset: 61})
		pass(3 * time.Second)
		r.stop(t)
		lost := w.losses(t)
		if said := r.errors(); lost != 3 || len(said) != 2 {
			t.Errorf("%d different losses, want 3; said %q, want two lines", lost, said)
		}
		w.mu.Lock()
		w.generations[0] = nil
		w.mu.Unlock()
		b := w.watch("b", func(*detect.Options) {}, 0)
		b.ended(t)
		pass(3 * time.Second)
		b.stop(t)
		if n := w.losses(t); n != lost {
			t.Errorf("%d different losses after a crash, and %d before", n, lost)
		}
	})
}

// What no build of weir has written stops its partition alone: text is no record of a newer build.
func TestDetectTakesTextForNoNewerRecord(t *testing.T) {
	for _, text := range []string{"says nothing", `{"v":1}`, "\x08junk", "\x00\x00\x00", "\xff\xff\xff"} {
		synctest.Test(t, func(t *testing.T) {
			w := newDetectWorld(t, 2)
			w.fill(30)
			w.keyed[0][5].Value = []byte(text)
			r := w.watch("a", func(*detect.Options) {}, 0, 1)
			pass(10 * time.Second)
			w.halted(t, 5, 6, "keyed offset 5 cannot be read")
			if s := w.state(1); s.State != ingest.Running {
				t.Errorf("%q: the other partition reported %+v", text, s)
			}
			r.stop(t)
		})
	}
}
