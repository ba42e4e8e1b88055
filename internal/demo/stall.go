package demo

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Stall is a time in which the machine did not let this process run: nothing in it could be in time.
type Stall struct{ From, Until traffic.Time }

const (
	// beating is how often a process looks whether it runs.
	beating = 5 * time.Millisecond
	// leastStall is how far apart two looks are that tell of a stall: farther than goroutines of a process that runs
	// keep each other waiting.
	leastStall = 20 * time.Millisecond
)

// pulse notes when this process does not run.
type pulse struct {
	clock func() traffic.Time

	mu     sync.Mutex
	last   traffic.Time
	stalls []Stall // one after the other
}

// start looks whether the process runs until the call of what it returns, which gives the stalls.
func (p *pulse) start(ctx context.Context) (stop func() []Stall) {
	ctx, cancel := context.WithCancel(ctx)
	p.beat()
	done := make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(beating)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
				p.beat()
			}
		}
	}()
	return func() []Stall {
		cancel()
		<-done
		p.mu.Lock()
		defer p.mu.Unlock()
		return slices.Clone(p.stalls)
	}
}

// beat notes that the process runs, and the stall that ends by that.
func (p *pulse) beat() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock()
	if p.last != 0 && now.Sub(p.last) >= leastStall {
		p.stalls = append(p.stalls, Stall{p.last.Add(beating), now})
	}
	p.last = max(p.last, now)
}

// ran is when the process will have run for d since an instant, if nothing stalls it from now on.
func (p *pulse) ran(since traffic.Time, d time.Duration) traffic.Time {
	p.beat() // a stall that nobody has noted yet ends now
	p.mu.Lock()
	defer p.mu.Unlock()
	return ran(p.stalls, since, d)
}

// ran is when a process with these stalls has run for d since an instant.
func ran(stalls []Stall, since traffic.Time, d time.Duration) traffic.Time {
	end := since.Add(d)
	for _, s := range stalls {
		if from := max(s.From, since); from < end && from < s.Until {
			end = end.Add(s.Until.Sub(from))
		}
	}
	return end
}
