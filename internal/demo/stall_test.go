package demo

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirhq/weir/traffic"
)

// ms is an instant of these tests.
func ms(n int64) traffic.Time { return traffic.Time(n * 1000) }

func TestRanLeavesStallsOut(t *testing.T) {
	tests := []struct {
		name   string
		stalls []Stall
		want   int64 // when it has run for 100 ms since 1,000
	}{
		{"none", nil, 1100},
		{"before", []Stall{{ms(900), ms(1000)}}, 1100},
		{"after", []Stall{{ms(1100), ms(1200)}}, 1100},
		{"within", []Stall{{ms(1010), ms(1040)}}, 1130},
		{"over its beginning", []Stall{{ms(900), ms(1040)}}, 1140},
		{"over its end", []Stall{{ms(1090), ms(1290)}}, 1300},
		{"into another one", []Stall{{ms(1010), ms(1040)}, {ms(1120), ms(1170)}, {ms(1175), ms(1500)}}, 1505},
		{"up to another one", []Stall{{ms(1010), ms(1040)}, {ms(1130), ms(1170)}}, 1130},
	}
	for _, test := range tests {
		if got := ran(test.stalls, ms(1000), 100*time.Millisecond); got != ms(test.want) {
			t.Errorf("%s: %d µs, want %d", test.name, got, ms(test.want))
		}
	}
}

func TestPulseNotesWhenItDoesNotBeat(t *testing.T) {
	now := ms(1000)
	p := &pulse{clock: func() traffic.Time { return now }}
	// once the clock was set back
	for _, at := range []int64{1000, 1005, 1010, 1029, 1034, 1084, 1060, 1089, 1094} {
		now = ms(at)
		p.beat()
	}
	if want := []Stall{{ms(1039), ms(1084)}}; !slices.Equal(p.stalls, want) {
		t.Errorf("stalls %v, want %v", p.stalls, want)
	}
	now = ms(1144) // who asks ends the stall that nobody has noted
	if got := p.ran(ms(1090), 20*time.Millisecond); got != ms(1155) {
		t.Errorf("it has run for 20 ms at %d µs, want %d", got, ms(1155))
	}
}

// TestNoStallsWhereNothingStalls holds that what is judged is judged by the clock, where the machine lets it run.
func TestNoStallsWhereNothingStalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pulse{clock: func() traffic.Time { return traffic.At(time.Now()) }}
		stop := p.start(t.Context())
		<-time.After(time.Minute)
		if stalls := stop(); len(stalls) > 0 {
			t.Errorf("%d stalls", len(stalls))
		}
	})
}
