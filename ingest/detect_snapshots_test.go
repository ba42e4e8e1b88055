package ingest

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/detectors"
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
