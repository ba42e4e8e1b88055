package detectors_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

func TestFence(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	first := b.event(0, origin, "192.0.2.1", 1)
	second1 := b.event(0, origin+second, "192.0.2.1", 1)
	b.must(first)
	b.must(second1)
	b.must(first) // a late duplicate; its prev is older than the fence, which is no hole
	b.must(second1)
	if c := b.p.Counts(); c.Events != 2 || c.Duplicates != 2 {
		t.Errorf("counts %+v", c)
	}
}

func TestHoleStopsUntilAccepted(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	_ = b.event(0, origin, "192.0.2.1", 1) // lost
	after := b.event(0, origin+second, "192.0.2.1", 1)
	before := b.p.Snapshot(nil)
	var hole *detectors.HoleError
	if err := b.fold(after); !errors.As(err, &hole) {
		t.Fatalf("got %v, want a hole", err)
	}
	if hole.Source != 0 || hole.Fence != 0 || hole.Prev != 1 || hole.Offset != 2 || hole.Keyed != 3 {
		t.Errorf("hole %+v", hole)
	}
	if !slices.Equal(before, b.p.Snapshot(nil)) {
		t.Error("a refused record changed the state")
	}
	if err := b.fold(b.tick(0, origin+second)); !errors.As(err, &hole) {
		t.Errorf("a tick over the hole: %v", err)
	}
	b.p.AcceptGap(0, after.Offset)
	b.must(after)
	if got := phases(b.hits); !slices.Contains(got, "loss 1") {
		t.Errorf("no loss record in %q", got)
	}
	b.must(b.tick(0, origin+second))
}

func TestRouterWithoutMemoryIsAHole(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	k := b.event(0, origin, "192.0.2.1", 1)
	k.Prev = detectors.NoOffset
	var hole *detectors.HoleError
	if err := b.fold(k); !errors.As(err, &hole) {
		t.Fatalf("got %v, want a hole", err)
	}
}

func TestLossRecordRebasesTheFence(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	b.must(detectors.Keyed{Kind: detectors.KeyedLoss, Generation: 1, Source: 0, Offset: 100, Prev: detectors.NoOffset})
	k := b.event(0, origin+second, "192.0.2.1", 1)
	k.Offset, k.Prev = 105, 99
	b.must(k)
	if got := phases(b.hits); !slices.Contains(got, "loss 99") {
		t.Errorf("hits %q", got)
	}
}

func TestRebaseAfterRetention(t *testing.T) {
	b := newBench(t, 2, rule(0, 10*time.Second, time.Minute))
	b.must(b.event(0, origin, "192.0.2.1", 1))
	h := b.p.Rebase(detectors.Unfolded{From: 10, To: 20, Why: "were deleted"})
	if h.Kind != detectors.KindLoss || h.Count != 10 || h.ID == "" {
		t.Errorf("loss record %+v", h)
	}
	for s := range 2 {
		zombie := b.tick(s, origin)
		zombie.Offset, zombie.Prev = 21, 20
		b.must(zombie)
		k := b.event(s, origin+second, "192.0.2.1", 1)
		k.Offset, k.Prev = 50, 49
		b.must(k)
		k.Offset, k.Prev = 60, 55
		var hole *detectors.HoleError
		if err := b.fold(k); !errors.As(err, &hole) {
			t.Errorf("source %d: the next hole passes: %v", s, err)
		}
	}
}

func TestUnknownVersionChangesNothing(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	k := b.event(0, origin, "192.0.2.1", 7)
	var unknown *detectors.UnknownVersionError
	before := b.p.Snapshot(nil)
	if err := b.fold(k); !errors.As(err, &unknown) || unknown.Version != 7 {
		t.Fatalf("got %v", err)
	}
	if !slices.Equal(before, b.p.Snapshot(nil)) {
		t.Error("state changed")
	}
	b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 7, Rules: []rules.Version{rule(0, 10*time.Second, time.Minute)}}))
	b.must(k)
}

func TestRecordsThatLie(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Minute))
	k := b.event(0, origin, "192.0.2.1", 1)
	k.Rules = []int{1}
	if err := b.fold(k); !errors.Is(err, detectors.ErrRecord) {
		t.Errorf("a rule that the version does not have: %v", err)
	}
	k.Rules, k.Source = []int{0}, detectors.MaxSources
	if err := b.fold(k); !errors.Is(err, detectors.ErrRecord) {
		t.Errorf("a source partition that does not exist: %v", err)
	}
	k.Source, k.Generation = 0, 2
	var generation *detectors.GenerationError
	if err := b.fold(k); !errors.As(err, &generation) {
		t.Errorf("a newer generation: %v", err)
	}
}

func TestNewGenerationStartsFencesAnew(t *testing.T) {
	b := newBench(t, 1, rule(1, 10*time.Second, time.Minute))
	b.cfg.Generation = 2
	b.p = detectors.NewPartition(b.cfg)
	b.p.Learn(detectors.NewPlan(&rules.Routing{Number: 1, Rules: []rules.Version{rule(1, 10*time.Second, time.Minute)}}))
	old := b.event(0, origin, "192.0.2.1", 1)
	old.Offset = 500
	b.must(old)
	k := b.event(0, origin+second, "192.0.2.1", 1)
	k.Generation, k.Offset, k.Prev = 2, 0, detectors.NoOffset
	b.must(k)
	old.Offset, old.Prev = 501, 500
	b.must(old) // a router of the old generation
	if c := b.p.Counts(); c.Events != 2 || c.Duplicates != 1 || len(b.hits) != 1 {
		t.Errorf("counts %+v, hits %q", c, phases(b.hits))
	}
}

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
	p.Learn(detectors.NewPlan(&rules.Routing{Stream: "live", Number: 1, Rules: []rules.Version{rule(2, 10*time.Second, time.Minute)}}))
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
