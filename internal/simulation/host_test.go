package simulation

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

var errFault = errors.New("simulated fault")

// passing reports whether an error is the world's own: a call that failed, or took too long.
func passing(err error) bool {
	text := err.Error()
	return strings.HasSuffix(text, errFault.Error()) || strings.HasSuffix(text, context.DeadlineExceeded.Error())
}

// call is a kind of port call. Each has dice of its own in each process.
type call int

const (
	fetching call = iota
	bounding
	appending
	reading // commits
	committing
	versions
	reporting
	accepting
	burying // dead letters
	taking
	writing // snapshots
	loading // snapshots
	joining
	recording  // and what follows, by partition of hits
	publishing = recording + 2
	following  = publishing + 1 // a gate's reading of deltas
	scanning   = publishing + 2 // and of everything
	calls      = publishing + 3
)

// host is one process with its ports. While it is frozen, nothing that it does has an effect; once it is killed, nothing
// ever again.
type host struct {
	w    *world
	name string

	mu     sync.Mutex
	dice   [calls]*dice
	frozen traffic.Time // until
	shaken traffic.Time // when a call of its publisher's failed last
	since  traffic.Time // since when it is frozen or dead
	killed bool
	died   chan struct{}         // closed when it is killed
	memory map[int]ingest.Commit // what it committed last; for a bug
	unsent *unfinished           // for a bug
	oddity error
}

func newHost(w *world, name string, number uint64) *host {
	h := &host{w: w, name: name, memory: map[int]ingest.Commit{}, died: make(chan struct{})}
	for c := range h.dice {
		h.dice[c] = roll(w.seed, number, uint64(c))
	}
	return h
}

func now() traffic.Time { return traffic.At(time.Now()) }

// rest waits for d, or until ctx is done.
func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (h *host) below(c call, n int) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dice[c].below(n)
}

func (h *host) span(c call, least, spread time.Duration) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dice[c].span(least, spread)
}

func (h *host) shuffle(c call, list []int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.dice[c].shuffle(list)
}

// fails draws whether something goes wrong. Nothing does once the world is calm.
func (h *host) fails(c call, chance float64) bool {
	h.mu.Lock()
	x := h.dice[c].unit()
	h.mu.Unlock()
	return x < chance && !h.w.calm.Load()
}

func (h *host) freeze(d time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.frozen <= now() {
		h.since = now()
	}
	h.frozen = max(h.frozen, now().Add(d))
}

func (h *host) kill() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.killed {
		close(h.died)
	}
	h.killed, h.since = true, now()
}

// disturb notes that the publisher was kept from its work.
func (h *host) disturb() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.shaken = now()
}

// steady is for how long the process has been at work with nothing in its publisher's way; 0 for one that is not.
func (h *host) steady() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed || h.frozen > now() {
		return 0
	}
	return now().Sub(max(h.shaken, h.frozen))
}

func (h *host) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed
}

// silent is for how long the process has not been heard of.
func (h *host) silent() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.killed || h.frozen > now() {
		return now().Sub(h.since)
	}
	return 0
}

// thaw waits until the process may act. A frozen one does not notice that its context is done.
func (h *host) thaw(ctx context.Context, c call) error {
	for {
		h.mu.Lock()
		left, killed := h.frozen.Sub(now()), h.killed
		h.mu.Unlock()
		switch {
		case killed:
			return errFault
		case left <= 0:
			return ctx.Err()
		}
		rest(context.Background(), left+h.span(c, 0, time.Millisecond))
	}
}

// pass takes the time of a call, and any freeze on the way.
func (h *host) pass(ctx context.Context, c call, least, spread time.Duration) error {
	if err := h.thaw(ctx, c); err != nil {
		return err
	}
	rest(ctx, h.span(c, least, spread))
	if h.fails(c, .002) {
		h.freeze(h.span(c, 0, 16*time.Second)) // in the middle of a call, which has its effect once the process goes on
	}
	return h.thaw(ctx, c)
}

// odd keeps an error that a session must not end with.
func (h *host) odd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oddity = err
}
