package detect_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/traffic"
)

// succeed lets another owner fold the first n records of partition 0, send what they cause, and store a snapshot.
func (w *detectWorld) succeed(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1, Secret: detectors.Secret{9}})
	p.Learn(detectors.NewPlan(w.routing[1]))
	for _, m := range w.keyed[0][:n] {
		var k detectors.Keyed
		err := detectors.DecodeKeyed(m.Value, &k)
		if err == nil {
			_, w.hits, err = p.FoldAll([]detectors.Record{{Appended: m.Appended, Place: m.Offset + 1, Keyed: k}}, w.hits)
		}
		if err != nil {
			w.t.Error(err)
		}
	}
	e := p.BeginSnapshot()
	for !e.Next(1 << 30) {
		continue
	}
	w.epochs[0]++
	w.owners[0] = "successor"
	w.generations[0] = []storedSnapshot{{ingest.Checkpoint{Epoch: w.epochs[0], Offset: int64(n)}, [][]byte{e.Take(nil)}}}
}

// replay runs a detector until the stream has ended, and compares its hits.
func (w *detectWorld) replay(want []string, edit func(*detect.Options)) {
	w.t.Helper()
	r := w.begin("a", []int{0}, edit)
	r.ended(w.t)
	r.stop(w.t)
	w.compare(want)
}

// sleepersLog is a keyed log whose reader falls asleep before its second fetch. When it wakes, another owner has gone on,
// and retention has taken what both snapshots have behind them.
type sleepersLog struct {
	keyedLog
	fetches *int
}

func (l sleepersLog) Fetch(ctx context.Context, positions []ingest.Position, wait time.Duration) ([]ingest.Fetched, error) {
	if *l.fetches++; *l.fetches == 2 {
		l.w.succeed(30)
		l.w.mu.Lock()
		l.w.keyed[0], l.w.start[0] = l.w.keyed[0][20:], 20
		l.w.mu.Unlock()
	}
	return l.keyedLog.Fetch(ctx, positions, wait)
}

// An owner that slept for longer than the log is kept, and was replaced meanwhile, must not tell of a loss that never was:
// its successor has counted everything.
func TestDetectSleeperTellsOfNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(40)
		w.replay(w.expect(), func(o *detect.Options) { o.Log = sleepersLog{keyedLog{w}, new(int)} })
	})
}

// lastMinuteStore lets the owner before store one more snapshot, of records that were appended just now, right before the
// partition is taken from it.
type lastMinuteStore struct {
	checkpointStore
	once *sync.Once
	tail []traffic.Message
}

func (s lastMinuteStore) Take(ctx context.Context, stream string, p int, owner string, held int64) (ingest.Claim, error) {
	s.once.Do(func() {
		s.w.mu.Lock()
		s.w.keyed[0] = append(s.w.keyed[0], s.tail...)
		s.w.mu.Unlock()
		s.w.succeed(len(s.w.keyed[0]) - 1)
	})
	return s.checkpointStore.Take(ctx, stream, p, owner, held)
}

// A snapshot may stand beyond the end of the log as it was seen before the partition was claimed: the owner before went on
// until then. That is no log that was cut.
func TestDetectSnapshotNewerThanBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(40)
		want := w.expect()
		tail := slices.Clone(w.keyed[0][20:])
		w.keyed[0] = w.keyed[0][:20]
		w.replay(want, func(o *detect.Options) {
			o.Checkpoints = lastMinuteStore{checkpointStore{w}, new(sync.Once), tail}
		})
		if st := w.states[0]; st.State == ingest.Halted {
			t.Errorf("halted: %s", st.Reason)
		}
	})
}

// While hits are not sent, no snapshot may say that their records are done with, also where retention has passed the
// partition: should the owner die, its successor must tell of all the records that nobody can count any more.
func TestDetectStoresNoUnsentPastWhenRetentionPasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(100)
		w.failures = 1 << 20 // no hit is taken
		r := w.watch("a", func(*detect.Options) {}, 0)
		pass(3 * time.Second)
		w.mu.Lock()
		stored := len(w.generations[0])
		w.keyed[0], w.start[0] = w.keyed[0][60:], 60
		w.mu.Unlock()
		if stored != 0 {
			t.Fatalf("%d snapshots are stored: the story proves nothing", stored)
		}
		r.group.end <- struct{}{} // memory stays, with hits that are pending
		pass(20 * time.Second)
		r.stop(t)
		w.mu.Lock()
		w.failures = 0
		w.mu.Unlock()
		b := w.watch("b", func(*detect.Options) {}, 0)
		b.ended(t)
		b.stop(t)
		if h := w.hits[0]; h.Kind != detectors.KindLoss || h.Count != 60 {
			t.Errorf("the successor begins with %s of %d records, want a loss of 60", h.Kind, h.Count)
		}
	})
}
