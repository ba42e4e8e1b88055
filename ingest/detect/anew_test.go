package detect_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// relog makes records the log of keyed partition 0, from offset 0 on, as appended in this order.
func (w *detectWorld) relog(records ...traffic.Message) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keyed[0], w.start[0] = nil, 0
	for i, m := range records {
		m.Offset = int64(i)
		w.keyed[0] = append(w.keyed[0], m)
	}
}

// anew asks that keyed partition 0 stands at an offset behind its log's end, and could go on at its start.
func (w *detectWorld) anew(t *testing.T, stood int64) {
	t.Helper()
	s := w.state(0)
	if s.State != ingest.Halted || s.Offset != stood || s.GapSource != ingest.KeyedAnew || s.GapOffset != stood {
		t.Errorf("reported %+v, want a halt at %d behind the log's end", s, stood)
	}
}

// A keyed topic that was made anew, or lost its end, stops its partitions. One goes on at the start of the log that
// there is as soon as an operator accepts that, whether it runs or not, also where the log has grown beyond where it
// stood; what it had counted is not counted again, and one loss record says so.
func TestDetectGoesOnInALogThatWasMadeAnew(t *testing.T) {
	const read, gone = 120, 130 // records
	for _, test := range []struct {
		name   string
		down   bool // it is not running meanwhile
		cut    bool // the log has lost its end, and routers go on behind that
		beyond bool // the new log grows beyond where the partition stood before somebody accepts
	}{
		{name: "made anew"},
		{name: "made anew while it was down", down: true},
		{name: "made anew while it was down, and grown", down: true, beyond: true},
		{name: "made anew and grown", beyond: true},
		{name: "its end lost", cut: true},
		{name: "its end lost while it was down", cut: true, down: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newDetectWorld(t, 1)
				w.fill(400)
				whole := w.keyed[0]
				w.relog(whole[:read]...)
				r := w.run("a", 0)
				pass(5 * time.Second)
				before, after := whole[gone:gone+20], whole[gone:]
				if test.cut {
					before, after = whole[:60], whole
				}
				if test.down {
					r.stop(t)
				}
				w.relog(before...)
				if test.down {
					r = w.run("a", 0)
				}
				pass(10 * time.Second)
				w.anew(t, read)
				for _, other := range []ingest.Acceptance{
					{GapSource: ingest.KeyedAnew, GapOffset: read - 1}, {GapSource: ingest.GapInKeyed, GapOffset: read},
					{GapSource: 0, GapOffset: read},
				} {
					w.accept(other)
				}
				pass(10 * time.Second)
				w.anew(t, read)
				if test.down {
					r.stop(t)
				}
				if test.beyond {
					w.relog(after[:read+50]...)
				}
				w.accept(ingest.Acceptance{GapSource: ingest.KeyedAnew, GapOffset: read})
				if test.down {
					r = w.run("b", 0)
				}
				pass(10 * time.Second)
				w.relog(after...)
				pass(10 * time.Second)
				r.stop(t)
				if s := w.state(0); s.State != ingest.Running || s.Offset != int64(len(after)) {
					t.Errorf("reported %+v, want it at %d, the end of its log", s, len(after))
				}
				w.toldAnew(t, read)
				if test.cut {
					w.wholeBeside(t, whole)
				}
			})
		})
	}
}

// A log that is made anew a second time, when its partition stands at the same offset again, is another loss.
func TestEachLogThatWasMadeAnewIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(400)
		whole := w.keyed[0]
		const read = 120
		w.relog(whole[:read]...)
		r := w.run("a", 0)
		pass(5 * time.Second)
		for n, from := range []int{130, 260} {
			w.mu.Lock()
			w.accepted = nil // as the store has it: an acceptance is of one stop
			w.mu.Unlock()
			pass(10 * time.Second) // reports are sent meanwhile
			w.relog(whole[from : from+20]...)
			pass(10 * time.Second)
			w.anew(t, read)
			w.accept(ingest.Acceptance{GapSource: ingest.KeyedAnew, GapOffset: read})
			pass(10 * time.Second)
			w.relog(whole[from : from+read]...)
			pass(10 * time.Second)
			ids := map[string]bool{} // history keeps one of an id
			for i := range w.hits {
				if w.hits[i].Kind == detectors.KindLoss {
					ids[w.hits[i].ID] = true
				}
			}
			if len(ids) != n+1 {
				t.Errorf("%d losses, want %d", len(ids), n+1)
			}
		}
		r.stop(t)
	})
}

// The loss of a log that was made anew names where its partition stood, and so who accepted it, also where the new log
// begins behind that.
func TestALogThatBeginsFartherIsAnewAllTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 2)
		w.fill(400)
		whole := w.keyed[0]
		const read = 120
		w.relog(whole[:read]...)
		r := w.run("a", 0)
		pass(5 * time.Second)
		w.relog(whole[130:150]...)
		pass(10 * time.Second)
		w.anew(t, read)
		w.mu.Lock()
		w.keyed[0], w.start[0] = nil, read+30 // retention has taken what the new log had
		w.mu.Unlock()
		w.accept(ingest.Acceptance{GapSource: ingest.KeyedAnew, GapOffset: read})
		pass(5 * time.Second)
		r.stop(t)
		w.toldAnew(t, read)
		if at := w.generations[0][0].Offset; at != read+30 {
			t.Errorf("the newest snapshot stands at %d, want %d", at, read+30)
		}
	})
}

// toldAnew holds that exactly one loss says where the partition stood.
func (w *detectWorld) toldAnew(t *testing.T, stood int64) {
	t.Helper()
	if n := w.losses(t); n != 1 {
		t.Errorf("%d losses, want 1", n)
	}
	for i := range w.hits {
		if h := &w.hits[i]; h.Kind == detectors.KindLoss && (h.Source != ingest.KeyedAnew || h.Offset != stood ||
			!strings.Contains(h.Reason, "offsets from 120 on")) {
			t.Errorf("lost %+v, want what was behind %d", h, stood)
		}
	}
}

// wholeBeside holds that beside the loss the hits are those of the whole log: none is lost, and none counts twice.
func (w *detectWorld) wholeBeside(t *testing.T, whole []traffic.Message) {
	t.Helper()
	w.relog(whole...)
	want := w.expect()
	for _, hit := range w.got() {
		if strings.Contains(hit, `"loss"`) {
			want = append(want, hit)
		}
	}
	w.compare(want)
}
