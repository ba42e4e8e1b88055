package api

import (
	"sync"
	"time"

	"github.com/weirhq/weir/console/access"
)

// How often one actor may ask: so many at once, and so many a second from then on. Acts are held to less: each one is stored for good.
const (
	askBurst = 120
	askRate  = 40.0
	actBurst = 30
	actRate  = 3.0
)

// maxActors bounds the actors that are remembered. Beyond it, all are forgotten: nobody is refused for somebody else.
const maxActors = 10_000

// limits are token buckets, two for each actor.
type limits struct {
	now func() time.Time

	mu    sync.Mutex
	asks  map[string]*bucket
	doing map[string]*bucket
}

type bucket struct {
	tokens float64
	at     time.Time
}

func newLimits(now func() time.Time) *limits {
	return &limits{now: now, asks: map[string]*bucket{}, doing: map[string]*bucket{}}
}

// take takes a token, or says how long to wait for the next one.
func (l *limits) take(actor access.Actor, act bool) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	of, burst, rate := l.asks, float64(askBurst), askRate
	if act {
		of, burst, rate = l.doing, actBurst, actRate
	}
	if len(of) > maxActors {
		clear(of)
	}
	key := actor.Via + " " + actor.Name
	now := l.now()
	b := of[key]
	if b == nil {
		b = &bucket{tokens: burst, at: now}
		of[key] = b
	}
	b.tokens = min(burst, b.tokens+rate*max(0, now.Sub(b.at).Seconds()))
	b.at = now
	if b.tokens < 1 {
		return time.Duration((1 - b.tokens) / rate * float64(time.Second))
	}
	b.tokens--
	return 0
}
