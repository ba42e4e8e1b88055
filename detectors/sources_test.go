package detectors_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// growing is a log in which a source partition appears that was not there when the generation began.
func growing(b *bench) {
	add := func() {
		b.prev, b.next, b.top = append(b.prev, detectors.NoOffset), append(b.next, 0), append(b.top, traffic.BeforeTime)
	}
	at := origin
	step := func(source int, ip string) {
		at += second
		b.must(b.event(source, at, ip, 1))
	}
	for range 4 {
		step(0, "192.0.2.1")
	}
	b.must(b.tick(0, at))
	add()
	b.must(b.tick(1, traffic.BeforeTime)) // nothing of it is read yet
	for range 4 {
		step(0, "192.0.2.1")
		step(1, "192.0.2.2")
	}
	b.must(b.tick(0, at))
	b.must(b.tick(1, at))
}

func learned(p *detectors.Partition) *detectors.Partition {
	p.Learn(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{rule(2, 10*time.Second, time.Minute)}})
	return p
}

// TestAddedSourcePartitionCounts: its events count, the watermark waits for it from its first record on and not before,
// and so it is for an owner that has begun with a snapshot from before that record.
func TestAddedSourcePartitionCounts(t *testing.T) {
	b := newBench(t, 1, rule(2, 10*time.Second, time.Minute))
	growing(b)
	over := map[int]bool{}
	for _, h := range b.hits {
		over[h.Source] = true
	}
	if !over[1] {
		t.Errorf("no hit of the source partition that was added: %q", phases(b.hits))
	}
	if w := b.p.Watermark(); w != origin+12*second {
		t.Errorf("the watermark is at %v, want that of both source partitions", w)
	}
	whole := b.p.Snapshot(nil)
	for cut := range b.log {
		first := learned(detectors.NewPartition(b.cfg))
		var hits []detectors.Hit
		var waits traffic.Time
		for i, r := range b.log {
			if i == cut {
				restored, err := detectors.Restore(b.cfg, first.Snapshot(nil))
				if err != nil {
					t.Fatal(err)
				}
				first = learned(restored)
			}
			var err error
			if hits, err = first.Fold(r.appended, &r.keyed, hits); err != nil {
				t.Fatal(err)
			}
			if r.keyed.Source == 0 && r.keyed.Offset <= 4 {
				waits = first.Watermark()
			}
		}
		if !bytes.Equal(first.Snapshot(nil), whole) || len(hits) != len(b.hits) {
			t.Errorf("restored before record %d: another state, or %d hits, want %d", cut, len(hits), len(b.hits))
		}
		if waits != origin+4*second {
			t.Errorf("before its first record the watermark was at %v: it waited for a partition that did not exist", waits)
		}
	}
}

// TestAddedSourcePartitionHasHoles: also of a partition that was added nothing may be missing in silence, and a generation
// that begins anew knows nothing of it.
func TestAddedSourcePartitionHasHoles(t *testing.T) {
	b := newBench(t, 1, rule(2, 10*time.Second, time.Minute))
	growing(b)
	k := b.event(1, origin, "192.0.2.2", 1)
	k.Offset, k.Prev = k.Offset+5, k.Offset+4
	var hole *detectors.HoleError
	if err := b.fold(k); !errors.As(err, &hole) || hole.Source != 1 {
		t.Errorf("got %v, want a hole of source partition 1", err)
	}
	fresh := newBench(t, 1, rule(2, 10*time.Second, time.Minute))
	late := detectors.Keyed{Kind: detectors.KeyedTick, Generation: 1, Source: 3, Offset: 9, Prev: 7, Time: origin}
	if err := fresh.fold(late); !errors.As(err, &hole) || hole.Source != 3 || hole.Fence != detectors.NoOffset {
		t.Errorf("got %v, want a hole of source partition 3", err)
	}
}
