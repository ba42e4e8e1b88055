package archive

import (
	"context"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Pace holds events back so that they go out as they once came in, speed times as fast. An event that is older than the
// first one, or than one that has just gone out, goes out at once.
type Pace struct {
	speed float64
	first traffic.Time // event time at begin
	begin time.Time
	begun bool
}

// NewPace makes a Pace; speed 1 is the pace of the archive, 10 ten times as fast. speed must be above 0.
func NewPace(speed float64) *Pace { return &Pace{speed: speed} }

// Due is how long an event of time t has to wait from now on; 0 or less: not at all. The first call sets the beginning.
func (p *Pace) Due(t traffic.Time) time.Duration {
	if !p.begun {
		p.first, p.begin, p.begun = t, time.Now(), true
	}
	return time.Duration(float64(t.Sub(p.first))/p.speed) - time.Since(p.begin)
}

// Wait waits until an event of time t is due, or ctx ends.
func (p *Pace) Wait(ctx context.Context, t traffic.Time) error {
	due := p.Due(t)
	if due <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
