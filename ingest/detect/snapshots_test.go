package detect

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// hangingStore does not answer writes until their context ends; the first one is told.
type hangingStore struct {
	ingest.Checkpoints
	taken chan<- struct{}
}

func (s hangingStore) Write(ctx context.Context, _ string, _ int, _ ingest.Checkpoint, _ ingest.Piece) error {
	close(s.taken)
	<-ctx.Done()
	return ctx.Err()
}

// newSnapshotting is a detector that owns partitions and has nothing to fold.
func newSnapshotting(t *testing.T, opt Options, owns ...*owned) *Detector {
	t.Helper()
	opt.Stream, opt.Checkpoint, opt.Registerer = "live", time.Second, prometheus.NewRegistry()
	metrics, err := newMetrics(&opt)
	if err != nil {
		t.Fatal(err)
	}
	d := &Detector{opt: opt, log: slog.New(slog.DiscardHandler), metrics: metrics, memory: map[int]*owned{}}
	for _, o := range owns {
		o.d, d.memory[o.partition] = d, o
	}
	return d
}

// While the store hangs, the stream must not pay for snapshots that nobody can take.
func TestNoSnapshotIsEncodedForABusyWriter(t *testing.T) {
	now, taken := time.Now(), make(chan struct{})
	o := &owned{state: partitionWithWindows(t, 1000)}
	d := newSnapshotting(t, Options{
		Checkpoints: hangingStore{taken: taken}, Clock: func() traffic.Time { return traffic.At(now) }, Piece: 1 << 20,
	}, o)
	ctx, cancel := context.WithCancel(t.Context())
	w := startWriter(ctx, d)
	defer w.stop()
	defer cancel()
	offer := func() {
		o.offset++
		now = now.Add(time.Minute)
		if err := w.offer(); err != nil {
			t.Fatal(err)
		}
		for w.slice() {
			continue
		}
	}
	offer() // sets when the first is due
	offer() // given to the writer, which hangs
	if o.saved != o.offset {
		t.Fatalf("saved up to %d of %d: the writer was given nothing", o.saved, o.offset)
	}
	<-taken
	if n := testing.AllocsPerRun(10, offer); n > 1 {
		t.Errorf("%.0f allocations for a snapshot that nobody takes", n)
	}
}

// A snapshot that is being written takes the memory of a few pieces, however large it is and however slow the store.
func TestSnapshotUnderWayHoldsAFewPieces(t *testing.T) {
	const piece = 64 << 10
	now, taken := time.Now(), make(chan struct{})
	o := &owned{state: partitionWithWindows(t, 60_000)}
	all := o.state.BeginSnapshot()
	for !all.Next(1 << 30) {
		continue
	}
	whole := all.Written()
	d := newSnapshotting(t, Options{
		Checkpoints: hangingStore{taken: taken}, Clock: func() traffic.Time { return traffic.At(now) }, Piece: piece,
	}, o)
	ctx, cancel := context.WithCancel(t.Context())
	w := startWriter(ctx, d)
	defer w.stop()
	defer cancel()
	o.offset++
	for range 3 {
		if err := w.offer(); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Minute)
	}
	for w.slice() {
		continue
	}
	<-taken // the first piece, by the writer
	for range 100 {
		for w.slice() {
			continue
		}
	}
	if n := w.now.encoder.Size(); n > 5*piece || whole < 20*piece {
		t.Errorf("of %d bytes, %d are encoded while the first %d wait for the store", whole, n, piece)
	}
}

// fencedStore is another owner's by now.
type fencedStore struct{ ingest.Checkpoints }

func (fencedStore) Write(context.Context, string, int, ingest.Checkpoint, ingest.Piece) error {
	return ingest.ErrFenced
}

// A snapshot that cannot be stored any more is not encoded to its end.
func TestFencedSnapshotIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &owned{state: partitionWithWindows(t, 20_000), offset: 1}
		d := newSnapshotting(t, Options{Checkpoints: fencedStore{}, Clock: func() traffic.Time { return traffic.At(time.Now()) }, Piece: 10_000}, o)
		w := startWriter(t.Context(), d)
		defer w.stop()
		for w.now == nil {
			if err := w.offer(); err != nil {
				t.Fatal(err)
			}
			<-time.After(time.Second)
		}
		for w.slice() {
			continue
		}
		synctest.Wait() // the writer has been told
		if w.slice(); w.now != nil {
			t.Error("a snapshot is encoded on that another owner's epoch refuses")
		}
		if err := w.offer(); !errors.Is(err, ingest.ErrFenced) || len(d.memory) > 0 {
			t.Errorf("offer says %v, %d partitions are remembered", err, len(d.memory))
		}
	})
}

// refusingStore refuses the first snapshots for ever.
type refusingStore struct {
	ingest.Checkpoints
	refuse int64
	tried  map[int64]int // attempt: its partition
}

func (s *refusingStore) Write(_ context.Context, _ string, p int, cp ingest.Checkpoint, _ ingest.Piece) error {
	s.tried[cp.Attempt] = p
	if cp.Attempt <= s.refuse {
		return errors.New("connection refused")
	}
	return nil
}

// A snapshot that the store refused is taken again although no record has come since, and no partition waits for ever
// behind those of lower numbers.
func TestRefusedSnapshotsAreTakenAgainInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusingStore{refuse: 3, tried: map[int64]int{}}
		var owns []*owned
		for p := range 3 {
			owns = append(owns, &owned{partition: p, state: partitionWithWindows(t, 10), offset: 10})
		}
		d := newSnapshotting(t, Options{Checkpoints: store, Clock: func() traffic.Time { return traffic.At(time.Now()) }, Piece: 20}, owns...)
		w := startWriter(t.Context(), d)
		defer w.stop()
		for range 1000 {
			if err := w.offer(); err != nil {
				t.Fatal(err)
			}
			for w.slice() {
				continue
			}
			<-time.After(time.Second)
		}
		var order []int
		for attempt := range int64(len(store.tried)) {
			order = append(order, store.tried[attempt+1])
		}
		if want := []int{0, 1, 2, 0, 1, 2}; !slices.Equal(order, want) {
			t.Errorf("snapshots of partitions %v, want %v: three that are refused, three more, and then nothing to say", order, want)
		}
	})
}

func partitionWithWindows(t *testing.T, n int) *detectors.Partition {
	t.Helper()
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1})
	p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "burst", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 2, Window: time.Minute,
	}}}}))
	prev := detectors.NoOffset
	for i := range n {
		k := detectors.Keyed{
			Kind: detectors.KeyedEvent, Generation: 1, Offset: int64(i), Prev: prev, Time: 1e15, Progress: 1e15, Version: 1, Rules: []int{0},
			Identity: traffic.Identity{IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})},
		}
		prev = int64(i)
		if _, err := p.Fold(1e15, &k, nil); err != nil {
			t.Fatal(err)
		}
	}
	return p
}
