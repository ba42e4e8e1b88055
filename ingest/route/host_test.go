package route

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

// simHost is one router process with its ports. While it is frozen, nothing that it does has an effect; once it is
// killed, nothing ever again.
type simHost struct {
	world *world
	name  string

	mu     sync.Mutex
	frozen traffic.Time
	killed bool
	oddity error // a session's error that is not ErrRejoin

	fetching, bounding, appending, reading, committing, storing, dying, beating, joining *rand.Rand // one per kind of call
}

func newSimHost(w *world, name string, number uint64) *simHost {
	purpose := func(i uint64) *rand.Rand { return w.chance(100*number + i) }
	return &simHost{
		world: w, name: name, fetching: purpose(1), bounding: purpose(2), appending: purpose(3), reading: purpose(4),
		committing: purpose(5), storing: purpose(6), dying: purpose(7), beating: purpose(8), joining: purpose(9),
	}
}

// router makes the process's router, which knows nothing of one before.
func (h *simHost) router() (*Router, error) {
	r, err := New(h.options())
	if err != nil {
		return nil, err
	}
	return r, nil
}

func (h *simHost) options() Options {
	opt := Options{
		Stream: "live", Topic: "weir.requests", Generation: 7, Live: !h.world.replay, KeyedPartitions: simKeyed, Secret: simSecret, SecretID: "s",
		Log: &simLog{h}, Keyed: &simAppender{h}, Group: &simGroup{host: h}, Routings: &simRoutings{h},
		Partitions: &simPartitions{h}, DeadLetters: &simLetters{h},
		Clock: simNow, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
		MaxChunkEvents: 25, TickEvery: 200 * time.Millisecond, LookEvery: 100 * time.Millisecond, FetchWait: 150 * time.Millisecond,
		Sources: simSources,
	}
	if h.world.edit != nil {
		h.world.edit(&opt)
	}
	return opt
}

func (h *simHost) dead() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.killed
}

func (h *simHost) odd(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.oddity = err
}

// thaw waits until the host may act. A frozen host does not notice that its context is done. Calls that thaw together
// go on at different instants: two things at one instant would happen in an order that the seed does not say.
func (h *simHost) thaw(ctx context.Context, r *rand.Rand) error {
	for {
		h.mu.Lock()
		left, killed := h.frozen.Sub(simNow()), h.killed
		h.mu.Unlock()
		switch {
		case killed:
			return errSim
		case left <= 0:
			return ctx.Err()
		}
		rest(context.Background(), left+jitter(r, time.Millisecond))
	}
}

// jitter draws a duration below d.
func jitter(r *rand.Rand, d time.Duration) time.Duration { return time.Duration(r.Int64N(int64(d))) }

// pass takes the time of a call, between least and least+spread, and any freeze on the way.
func (h *simHost) pass(ctx context.Context, r *rand.Rand, least, spread time.Duration) error {
	if err := h.thaw(ctx, r); err != nil {
		return err
	}
	rest(ctx, least+jitter(r, spread))
	return h.thaw(ctx, r)
}
