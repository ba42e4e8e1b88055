package testbed

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// Stopwatch measures a time that weir promises by a clock that stands while this process does not run: on a machine that is stalled, nobody
// keeps a promise. On one that runs it shows what any clock shows.
type Stopwatch struct {
	end, ended chan struct{}

	mu     sync.Mutex
	beaten time.Time // the last beat
	stalls []stall   // oldest first
}

// stall is a time without a beat.
type stall struct{ from, until time.Time }

const (
	beat = 5 * time.Millisecond
	// leastStall is how far apart two beats are that tell of a stall: farther than goroutines of a process that runs keep each other waiting.
	leastStall = 30 * time.Millisecond
)

// StartStopwatch begins to measure; Stop ends that.
func StartStopwatch() *Stopwatch {
	w := &Stopwatch{end: make(chan struct{}), ended: make(chan struct{}), beaten: time.Now()}
	go w.run()
	return w
}

// Stop ends the beats. It is called once.
func (w *Stopwatch) Stop() {
	close(w.end)
	<-w.ended
}

func (w *Stopwatch) run() {
	defer close(w.ended)
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case <-w.end:
			return
		case <-ticker.C:
			w.beat(time.Now())
		}
	}
}

// beat notes that the process runs, and a stall that ends by that.
func (w *Stopwatch) beat(now time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now.Sub(w.beaten) >= leastStall {
		w.stalls = append(w.stalls, stall{w.beaten, now})
	}
	w.beaten = now
}

// Since is how long began was ago, without stalls.
func (w *Stopwatch) Since(began time.Time) time.Duration { return w.between(began, time.Now()) }

func (w *Stopwatch) between(began, now time.Time) time.Duration {
	w.beat(now) // a stall that nobody has noted yet ends now
	w.mu.Lock()
	defer w.mu.Unlock()
	took := now.Sub(began)
	for _, s := range w.stalls {
		from := s.from
		if from.Before(began) {
			from = began
		}
		if s.until.After(from) {
			took -= s.until.Sub(from)
		}
	}
	return took
}

// stopTimeout is how long a process of weir waits for its parts when it is told to end.
const stopTimeout = 9 * time.Second

// Excuses reports whether a process of weir that was told to end at some time may end with an error: it says that a part did not end in time, and
// without the stalls of this machine that time was not over.
func (w *Stopwatch) Excuses(told time.Time, said string) bool {
	return strings.Contains(said, "did not end within "+stopTimeout.String()) && w.Since(told) < stopTimeout
}

// promptly is ten times the second that the product promises, and a fraction of what it takes to wait for a server once for
// each of a thousand blocks: a machine that is busy with other tests is slow, and does not wait.
const promptly = 10 * time.Second

// Promptly runs do, and fails when it waits for what is away: it finds a wait, not a slow second.
func Promptly(t *testing.T, what string, do func()) {
	t.Helper()
	watch := StartStopwatch()
	defer watch.Stop()
	began := time.Now()
	do()
	if took := watch.Since(began); took > promptly {
		t.Errorf("%s took %s, %s with the stalls of this machine", what, took.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
}
