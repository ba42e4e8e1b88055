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

// A process is excused where it says that a part did not end in time, and that time was over only with the stalls of the machine.
func TestWhoIsExcused(t *testing.T) {
	began := time.Now()
	const late = "weir: metrics, stages did not end within 9s; what was under way is done again at the next start"
	stood := &Stopwatch{beaten: began.Add(20 * time.Second), stalls: []stall{{began.Add(-14 * time.Second), began}}}
	ran := &Stopwatch{beaten: began.Add(20 * time.Second)}
	told := began.Add(-15 * time.Second)
	for _, tt := range []struct {
		what  string
		watch *Stopwatch
		said  string
		want  bool
	}{
		{"it stood still", stood, late, true},
		{"it ran", ran, late, false},
		{"it failed otherwise", stood, "weir: no space left on device", false},
	} {
		if got := tt.watch.Excuses(told, tt.said); got != tt.want {
			t.Errorf("%s: excused is %t", tt.what, got)
		}
	}
}
