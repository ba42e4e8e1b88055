package local

import (
	"context"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// RedisOptions configure a Redis. All have defaults.
type RedisOptions struct {
	// Port on loopback; 0 is any free one.
	Port int
	// Tick is how often keys are made to expire; default 1 s.
	Tick time.Duration
}

// Redis is a server inside this process that speaks Redis's protocol, good to about 100,000 keys. It keeps nothing when
// it stops.
type Redis struct {
	server        *miniredis.Miniredis
	address       string
	stop, stopped chan struct{}
}

// StartRedis starts an empty server.
func StartRedis(ctx context.Context, o RedisOptions) (*Redis, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if o.Tick == 0 {
		o.Tick = time.Second
	}
	r := &Redis{server: miniredis.NewMiniRedis(), stop: make(chan struct{}), stopped: make(chan struct{})}
	if err := r.server.StartAddr(address(o.Port)); err != nil {
		return nil, portError("Redis", o.Port, err)
	}
	r.address = r.server.Addr()
	go func() {
		defer close(r.stopped)
		r.age(o.Tick)
	}()
	return r, nil
}

// age makes the server's keys expire: in miniredis time stands still unless it is told. Telling it costs a walk over all
// keys, so that a server with many is told less often and never spends more than a tenth of its time on it.
func (r *Redis) age(pause time.Duration) {
	last := time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case <-r.stop:
			return
		case <-timer.C:
		}
		now := time.Now()
		r.server.FastForward(now.Sub(last))
		last = now
		timer.Reset(max(pause, 10*time.Since(now)))
	}
}

// Address is host:port.
func (r *Redis) Address() string { return r.address }

// URL is where clients find the server: redis://host:port/0.
func (r *Redis) URL() string { return "redis://" + r.address + "/0" }

// Server is the server itself, for tests that make it fail.
func (r *Redis) Server() *miniredis.Miniredis { return r.server }

// Close stops the server; what it held is gone. It is called once.
func (r *Redis) Close() error {
	close(r.stop)
	<-r.stopped
	r.server.Close()
	return nil
}
