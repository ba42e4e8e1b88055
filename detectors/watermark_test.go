package detectors_test

import (
	"slices"
	"testing"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

func TestWatermarkIsTheLeastProgress(t *testing.T) {
	b := newBench(t, 2, rule(0, 10*time.Second, 0))
	b.must(b.event(0, origin+100*second, "192.0.2.1", 1))
	if w := b.p.Watermark(); w != traffic.BeforeTime {
		t.Errorf("watermark %v before source 1 spoke", w)
	}
	b.must(b.tick(1, origin+40*second))
	if w := b.p.Watermark(); w != origin+40*second {
		t.Errorf("watermark %v, want the lesser progress", w)
	}
	b.must(b.tick(1, origin+30*second))
	if w := b.p.Watermark(); w != origin+40*second {
		t.Errorf("watermark %v went back", w)
	}
}

func TestSkewIsOfThoseThatSpeak(t *testing.T) {
	b := newBench(t, 4, rule(0, 10*time.Second, 0))
	if got := b.p.Skew(); got != 0 {
		t.Errorf("skew %v before anybody spoke", got)
	}
	b.must(b.tick(0, origin))
	b.must(b.tick(1, origin+90*second))
	b.must(b.tick(2, traffic.EndOfTime)) // has ended; 3 has shown nothing yet
	if got := b.p.Skew(); got != 90*time.Second {
		t.Errorf("skew %v, want 90 s", got)
	}
	for range 70 { // source 0 stalls
		b.now += 5*second - 1000
		b.must(b.tick(1, origin+90*second))
		b.must(b.tick(3, origin+100*second))
	}
	if got := b.p.Skew(); got != 10*time.Second {
		t.Errorf("skew %v, want 10 s: source 0 is stalled", got)
	}
}

func TestIdleTickTrustsTheSlowerClock(t *testing.T) {
	for _, tc := range []struct {
		name            string
		clock, appended traffic.Time
		want            traffic.Time
	}{
		{"both agree", origin + 1000*second, origin + 1000*second, origin + 940*second},
		{"the router's clock is ahead", origin + 9000*second, origin + 1000*second, origin + 940*second},
		{"the record was carried late", origin + 1000*second, origin + 9000*second, origin + 940*second},
		{"never behind what was shown", origin, origin + 1000*second, origin + 500*second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := newBench(t, 1, rule(0, 10*time.Second, 0))
			k := b.tick(0, origin+500*second)
			k.Idle, k.Clock = true, tc.clock
			b.now = tc.appended - 1000
			b.must(k)
			if w := b.p.Watermark(); w != tc.want {
				t.Errorf("watermark %v, want %v", w, tc.want)
			}
		})
	}
}

// The margin is a setting of the deployment: with a short one, an episode of a stream that falls silent closes soon.
func TestIdleMarginIsASetting(t *testing.T) {
	for _, tc := range []struct{ margin, want time.Duration }{
		{0, detectors.DefaultIdleMargin}, {-time.Second, detectors.DefaultIdleMargin}, {2 * time.Second, 2 * time.Second},
	} {
		b := newBench(t, 1, rule(0, 10*time.Second, 0))
		b.cfg.IdleMargin = tc.margin
		b.p = detectors.NewPartition(b.cfg)
		k := b.tick(0, origin)
		k.Idle, k.Clock = true, origin+1000*second
		b.now = k.Clock
		b.must(k)
		if got := k.Clock.Sub(b.p.Watermark()); got != tc.want {
			t.Errorf("margin %v: the watermark is %v behind the clock", tc.margin, got)
		}
	}
}

func TestStall(t *testing.T) {
	b := newBench(t, 2, rule(0, 10*time.Second, 0))
	b.must(b.tick(0, origin))
	b.must(b.tick(1, origin))
	at := origin
	speak := func(seconds int) {
		for range seconds / 5 {
			at += 5 * second
			b.now += 5*second - 1000
			b.must(b.tick(0, at))
		}
	}
	speak(300)
	if got := b.p.Stalled(); len(got) != 0 {
		t.Fatalf("stalled %v within the stall time", got)
	}
	speak(10)
	if got := b.p.Stalled(); !slices.Equal(got, []int{1}) {
		t.Fatalf("stalled %v, want source 1", got)
	}
	if w := b.p.Watermark(); w != at {
		t.Errorf("watermark %v waits for a stalled partition", w)
	}
	b.must(b.event(1, origin+second, "192.0.2.1", 1))
	if c := b.p.Counts(); c.Late != 1 {
		t.Errorf("an event behind the watermark is not late: %+v", c)
	}
	b.must(b.tick(1, origin+second))
	b.must(b.tick(0, at))
	if got := b.p.Stalled(); len(got) != 0 {
		t.Errorf("stalled %v after it spoke", got)
	}
}

func TestOutageOfEverythingStallsNobody(t *testing.T) {
	b := newBench(t, 2, rule(0, 10*time.Second, 0))
	b.must(b.tick(0, origin))
	b.must(b.tick(1, origin))
	b.now += 3600 * second
	b.must(b.tick(0, origin+second))
	if got := b.p.Stalled(); len(got) != 0 {
		t.Errorf("stalled %v: the whole log was silent, not one partition", got)
	}
}

func TestLateEventsAreSummedPerMinute(t *testing.T) {
	b := newBench(t, 1, rule(0, 10*time.Second, time.Second))
	b.now = origin - origin%(60*second)
	b.must(b.event(0, origin+100*second, "192.0.2.1", 1))
	for range 3 {
		b.must(b.event(0, origin, "192.0.2.2", 1))
	}
	b.now += 60 * second
	b.must(b.event(0, origin, "192.0.2.2", 1))
	b.end()
	want := []string{"open ip=192.0.2.1%2F32 1", "late 3", "late 1", "closed ip=192.0.2.1%2F32 1"}
	if got := phases(b.hits); !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	if b.hits[1].ID == b.hits[2].ID || b.hits[1].First >= b.hits[2].First {
		t.Error("two minutes share a sum")
	}
}
