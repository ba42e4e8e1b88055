package detectors

import (
	"errors"
	"testing"
	"time"

	"github.com/weirhq/weir/traffic"
)

// The fence alone, without windows: a story of one source partition.
func TestFenceStory(t *testing.T) {
	f := newFence(&Config{Sources: 1, Generation: 2})
	f.restart(1)
	event := func(offset, prev int64) *Keyed {
		return &Keyed{Kind: KeyedEvent, Generation: 1, Offset: offset, Prev: prev}
	}
	step := func(k *Keyed, wantDuplicate bool, lost offsetRange) {
		t.Helper()
		duplicate, err := f.check(k)
		if err != nil || duplicate != wantDuplicate {
			t.Fatalf("offset %d after %d: duplicate %v, %v", k.Offset, k.Prev, duplicate, err)
		}
		if duplicate {
			return
		}
		if got := f.passHole(k); got != lost {
			t.Errorf("offset %d after %d: lost %v, want %v", k.Offset, k.Prev, got, lost)
		}
		f.accept(k)
	}
	step(event(4, NoOffset), false, offsetRange{})
	step(event(9, 4), false, offsetRange{})
	step(event(4, NoOffset), true, offsetRange{})
	var hole *HoleError
	if _, err := f.check(event(20, 15)); !errors.As(err, &hole) || hole.Fence != 9 || hole.Prev != 15 {
		t.Fatalf("a hole was found as %v", err)
	}
	f.accepted[gap{0, 20}] = true
	step(event(20, 15), false, offsetRange{10, 16})
	f.rebase()
	step(event(40, 39), false, offsetRange{}) // the rebase was reported when it began
	if lost := f.skip(&Keyed{Kind: KeyedLoss, Generation: 1, Offset: 51}); lost != (offsetRange{41, 51}) {
		t.Errorf("a gap that was accepted lost %v", lost)
	}
	if lost := f.skip(&Keyed{Kind: KeyedLoss, Generation: 1, Offset: 51}); !lost.empty() {
		t.Errorf("a gap that is told again lost %v", lost)
	}
	var newer *GenerationError
	if _, err := f.check(&Keyed{Kind: KeyedEvent, Generation: 3}); !errors.As(err, &newer) {
		t.Errorf("a generation that is not known: %v", err)
	}
	f.restart(2)
	step(event(60, 50), true, offsetRange{}) // its generation is over
}

// The watermark alone, without windows: two source partitions, of which one falls silent.
func TestWatermarkStory(t *testing.T) {
	w := newWatermark(&Config{Sources: 2, Stall: 10 * time.Second, IdleMargin: 2 * time.Second})
	const second = traffic.Time(1_000_000)
	tick := func(source int, at, appended traffic.Time, idle bool) bool {
		w.pass(appended)
		return w.tick(&Keyed{Kind: KeyedTick, Source: source, Time: at, Idle: idle, Clock: appended})
	}
	if w.pass(begin); w.event(&Keyed{Kind: KeyedEvent, Progress: begin}) || w.at != traffic.BeforeTime {
		t.Fatalf("watermark %v before source partition 1 spoke", w.at)
	}
	if !tick(1, begin+5*second, begin, false) || w.at != begin {
		t.Fatalf("watermark %v, want the lesser of both", w.at)
	}
	if tick(1, begin, begin+6*second, true) || w.sources[1].time != begin+5*second {
		t.Errorf("progress %v of an idle source partition went back", w.sources[1].time)
	}
	if late := (&Keyed{Time: begin + second}); !w.tooLate(&Keyed{Source: 1, Time: late.Time}, second) || w.tooLate(late, second) {
		t.Error("an event is late by the progress of its own source partition, or by the watermark")
	}
	if !tick(1, begin, begin+12*second, true) || w.at != begin+10*second {
		t.Errorf("watermark %v: 0 has stalled, and 1 is idle", w.at)
	}
	if got := w.stalled(); len(got) != 1 || got[0] != 0 {
		t.Errorf("stalled %v", got)
	}
	if tick(0, begin+second, begin+12*second, false); w.at != begin+10*second || len(w.stalled()) != 0 {
		t.Errorf("watermark %v, stalled %v after 0 spoke again", w.at, w.stalled())
	}
}
