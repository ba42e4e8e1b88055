package ingest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/testbed"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// hangingStore does not answer writes until their context ends; the first one is told.
type hangingStore struct {
	Checkpoints
	taken chan<- struct{}
}

func (s hangingStore) Write(ctx context.Context, _ string, _ int, _ Checkpoint) error {
	close(s.taken)
	<-ctx.Done()
	return ctx.Err()
}

// While the store hangs, the stream must not pay for snapshots that nobody can take.
func TestNoSnapshotIsEncodedForABusyWriter(t *testing.T) {
	metrics, err := newDetectMetrics(prometheus.NewRegistry(), "live")
	if err != nil {
		t.Fatal(err)
	}
	now, taken := time.Now(), make(chan struct{})
	d := &Detector{
		opt: DetectorOptions{
			Stream: "live", Checkpoints: hangingStore{taken: taken}, Checkpoint: time.Second, Clock: func() traffic.Time { return traffic.At(now) },
		},
		log: slog.New(slog.DiscardHandler), metrics: metrics,
		memory: map[int]*owned{0: {state: partitionWithWindows(t, 1000)}},
	}
	o := d.memory[0]
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

// refusingStore refuses the first writes.
type refusingStore struct {
	Checkpoints
	refuse int
	tried  chan int // partitions, as they are tried
}

func (s *refusingStore) Write(_ context.Context, _ string, p int, _ Checkpoint) error {
	s.tried <- p
	if s.refuse--; s.refuse >= 0 {
		return errors.New("connection refused")
	}
	return nil
}

// A snapshot that the store refused is taken again although no record has come since, and no partition waits for ever
// behind those of lower numbers.
func TestRefusedSnapshotsAreTakenAgainInTurn(t *testing.T) {
	metrics, err := newDetectMetrics(prometheus.NewRegistry(), "live")
	if err != nil {
		t.Fatal(err)
	}
	now, store := time.Now(), &refusingStore{refuse: 3, tried: make(chan int, 1)}
	d := &Detector{
		opt: DetectorOptions{Stream: "live", Checkpoints: store, Checkpoint: time.Second, Clock: func() traffic.Time { return traffic.At(now) }},
		log: slog.New(slog.DiscardHandler), metrics: metrics, memory: map[int]*owned{},
	}
	for p := range 3 {
		d.memory[p] = &owned{partition: p, state: partitionWithWindows(t, 10), offset: 10}
	}
	w := startWriter(t.Context(), d)
	defer w.stop()
	// step offers until a snapshot is tried; -1 when nothing is due.
	step := func() int {
		now = now.Add(time.Minute)
		for range 2 { // the first time each partition is given its place in the interval
			if err := w.offer(); err != nil {
				t.Fatal(err)
			}
		}
		if w.now == nil {
			return -1
		}
		for w.slice() {
			continue
		}
		p := <-store.tried
		testbed.Eventually(t, 10*time.Second, func() error {
			if w.busy.Load() {
				return errors.New("the writer is busy")
			}
			return nil
		})
		return p
	}
	var order []int
	for range 7 {
		order = append(order, step())
	}
	if want := []int{0, 1, 2, 0, 1, 2, -1}; !slices.Equal(order, want) {
		t.Errorf("snapshots of partitions %v, want %v: three that are refused, three more, and then nothing to say", order, want)
	}
}

func partitionWithWindows(t *testing.T, n int) *detectors.Partition {
	t.Helper()
	p := detectors.NewPartition(detectors.Config{Sources: 1, Generation: 1})
	p.Learn(&rules.Routing{Number: 1, Rules: []rules.Version{{Number: 1, Lineage: 1, Document: rules.Document{
		ID: "burst", Key: []traffic.KeyField{{Field: traffic.FieldIP, V4: 32, V6: 64}}, Limit: 2, Window: time.Minute,
	}}}})
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
