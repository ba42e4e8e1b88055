package route

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// simHost is one router process with its ports.
type simHost struct {
	world *world

	mu          sync.Mutex
	generations int   // of its group
	oddity      error // a session's error that is not ErrRejoin
}

func newSimHost(w *world) *simHost { return &simHost{world: w} }

func (h *simHost) options() Options {
	opt := Options{
		Stream: "live", Topic: "weir.requests", Generation: 7, Live: !h.world.replay, KeyedPartitions: simKeyed, Secret: simSecret, SecretID: "s",
		Log: &simLog{h}, Keyed: &simAppender{h}, Group: &simGroup{h}, Routings: &simRoutings{h},
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

// joined is how many generations of the group there were, and why a session ended, if not by ErrRejoin.
func (h *simHost) joined() (generations int, oddity error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.generations, h.oddity
}

// pass takes the time of a call.
func (h *simHost) pass(ctx context.Context, took time.Duration) error {
	rest(ctx, took)
	return ctx.Err()
}
