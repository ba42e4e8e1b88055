package testbed

import (
	"testing"
	"time"
)

// A stopwatch shows what a clock shows, but for the time in which it did not beat.
func TestStopwatchStandsInAStall(t *testing.T) {
	at := time.Date(2027, 1, 15, 8, 0, 0, 0, time.UTC)
	w := &Stopwatch{beaten: at}
	after := at.Add
	for d := beat; d <= time.Second; d += beat {
		w.beat(after(d))
	}
	w.beat(after(4 * time.Second)) // three seconds without a beat
	for d := 4*time.Second + beat; d <= 5*time.Second; d += beat {
		w.beat(after(d))
	}
	for _, tt := range []struct {
		began, now, want time.Duration
	}{
		{0, 5 * time.Second, 2 * time.Second},
		{500 * time.Millisecond, 5 * time.Second, 1500 * time.Millisecond},
		{3 * time.Second, 5 * time.Second, time.Second},
		{4 * time.Second, 5 * time.Second, time.Second},
		{4500 * time.Millisecond, 5020 * time.Millisecond, 520 * time.Millisecond}, // too short for a stall
		{4500 * time.Millisecond, 9 * time.Second, 520 * time.Millisecond},         // one that lasts
	} {
		if got := w.between(after(tt.began), after(tt.now)); got != tt.want {
			t.Errorf("from %s to %s: %s, want %s", tt.began, tt.now, got, tt.want)
		}
	}
}
