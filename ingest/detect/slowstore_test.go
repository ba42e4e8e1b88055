package detect_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/detect"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// thinStore is a store behind a line on which a piece takes so long.
type thinStore struct {
	checkpointStore
	write, load time.Duration
	harm        func(call int) (lost bool) // of loads and writes, from 0
	calls       *int
}

func (s thinStore) passes(ctx context.Context, d time.Duration) error {
	if err := retry.Sleep(ctx, d); err != nil {
		return err
	}
	*s.calls++
	if s.harm != nil && s.harm(*s.calls-1) {
		return errAway
	}
	return nil
}

func (s thinStore) Write(ctx context.Context, stream string, p int, cp ingest.Checkpoint, piece ingest.Piece) error {
	if err := s.passes(ctx, s.write); err != nil {
		return err
	}
	return s.checkpointStore.Write(ctx, stream, p, cp, piece)
}

func (s thinStore) Load(ctx context.Context, stream string, p int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	if err := s.passes(ctx, s.load); err != nil {
		return nil, err
	}
	return s.checkpointStore.Load(ctx, stream, p, epoch, cp, number)
}

// fillKeys writes an event each of so many sources.
func (w *detectWorld) fillKeys(n int) {
	for o := range int64(n) {
		w.put(0, detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: o, Prev: o - 1, Time: detectOrigin, Progress: detectOrigin, Version: 1, Rules: []int{0},
			Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{10, 0, byte(o >> 8), byte(o)})},
		})
	}
}

// A snapshot that takes minutes to write, and minutes to load, is written and loaded as long as its pieces come, also over a
// line that breaks every other time; nothing that has come is asked for again.
func TestSlowStoreKeepsSnapshots(t *testing.T) {
	for name, harm := range map[string]func(int) bool{"slow": nil, "slow, and breaks": func(call int) bool { return call%2 == 0 }} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const aPiece = 20 * time.Second
				w := newDetectWorld(t, 1)
				w.fillKeys(6000)
				slow := func(o *detect.Options) {
					o.Piece = 1000
					o.Checkpoints = thinStore{checkpointStore{w}, aPiece, aPiece, harm, new(int)}
				}
				a := w.begin("a", []int{0}, slow)
				pass(30 * time.Minute)
				a.stop(t)
				if len(w.generations[0]) == 0 || len(w.generations[0][0].pieces) < 4 {
					t.Fatalf("after half an hour %d generations are stored", len(w.generations[0]))
				}
				newest, pieces := w.generations[0][0].Offset, len(w.generations[0][0].pieces)
				b := w.begin("b", []int{0}, slow)
				pass(30 * time.Minute)
				b.stop(t)
				if state := w.states[0]; state.Owner != "b" || state.Offset != int64(len(w.keyed[0])) {
					t.Errorf("the successor stands at %d of %d: %+v", state.Offset, len(w.keyed[0]), state)
				}
				for _, offset := range w.loaded {
					if offset != newest {
						t.Errorf("of the snapshot of offset %d a piece was loaded, the newest is of %d", offset, newest)
					}
				}
				if len(w.loaded) != pieces {
					t.Errorf("%d pieces were loaded of %d", len(w.loaded), pieces)
				}
			})
		})
	}
}

// A store that makes no progress is given up after a while, and asked again: once it answers, a snapshot is stored.
func TestStoreWithoutProgressIsAskedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(2000)
		began, calls := time.Now(), 0
		r := w.begin("a", []int{0}, func(o *detect.Options) {
			o.Checkpoints = muteStore{checkpointStore{w}, began.Add(20 * time.Minute), &calls}
		})
		pass(20 * time.Minute)
		w.mu.Lock()
		if calls < 20 || calls > 100 || len(w.generations[0]) > 0 {
			t.Errorf("%d calls while the store was frozen for 20 minutes, %d generations", calls, len(w.generations[0]))
		}
		w.mu.Unlock()
		pass(3 * time.Minute)
		w.mu.Lock()
		if len(w.generations[0]) == 0 || w.generations[0][0].Offset != int64(len(w.keyed[0])) {
			t.Error("no snapshot of all was stored when the store answered again")
		}
		w.mu.Unlock()
		r.stop(t)
	})
}

// muteStore takes questions and gives no answer until it thaws.
type muteStore struct {
	checkpointStore
	thaws time.Time
	calls *int
}

func (s muteStore) Write(ctx context.Context, stream string, p int, cp ingest.Checkpoint, piece ingest.Piece) error {
	if time.Now().Before(s.thaws) {
		s.w.mu.Lock()
		*s.calls++
		s.w.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	return s.checkpointStore.Write(ctx, stream, p, cp, piece)
}

// overtakenStore gives the partition to another owner when the first piece is asked for.
type overtakenStore struct {
	checkpointStore
	overtaken *bool
}

func (s overtakenStore) Load(ctx context.Context, stream string, p int, epoch int64, cp ingest.Checkpoint, number int) ([]byte, error) {
	if !*s.overtaken {
		*s.overtaken = true
		if _, err := s.Take(ctx, stream, p, "another", 0); err != nil {
			return nil, err
		}
	}
	return s.checkpointStore.Load(ctx, stream, p, epoch, cp, number)
}

// Who is overtaken while it loads a snapshot has lost the partition, and does not take the snapshot for a damaged one: the older
// one would be folded from, or the whole log, for nobody.
func TestOvertakenWhileLoading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDetectWorld(t, 1)
		w.fill(200)
		a := w.run("a", 0)
		pass(2500 * time.Millisecond)
		a.stop(t)
		overtaken := false
		b := w.begin("b", []int{0}, func(o *detect.Options) {
			o.Checkpoints = overtakenStore{checkpointStore{w}, &overtaken}
		})
		pass(100 * time.Millisecond)
		if errs := b.group.returned(); len(errs) != 1 || !errors.Is(errs[0], ingest.ErrFenced) {
			t.Errorf("sessions ended with %v", errs)
		}
		b.ended(t)
		b.stop(t)
		w.check()
	})
}
