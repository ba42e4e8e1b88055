// Package retry has what every loop needs that tries again: how long to wait, and what to log meanwhile.
package retry

import (
	"context"
	"time"
)

// Backoff is an exponential backoff: each wait is twice the one before it, up to a most. It has no jitter: the loops that use
// it are one a process and server. It is not safe for concurrent use.
type Backoff struct {
	least, most, next time.Duration
}

// NewBackoff returns a backoff whose first wait is least and whose waits grow to most. A most below least counts as least.
func NewBackoff(least, most time.Duration) *Backoff {
	return &Backoff{least: least, most: max(least, most), next: least}
}

// Next is how long the next wait will be.
func (b *Backoff) Next() time.Duration { return b.next }

// Wait waits, and doubles the next wait. It returns the error of ctx when ctx ends first, nil otherwise.
func (b *Backoff) Wait(ctx context.Context) error {
	return Sleep(ctx, b.Step())
}

// Step returns how long to wait, and doubles the next wait: for a loop that waits for other events, too.
func (b *Backoff) Step() time.Duration {
	wait := b.next
	b.next = min(2*b.next, b.most)
	return wait
}

// Reset makes the next wait the first one again: the last try worked.
func (b *Backoff) Reset() { b.next = b.least }

// Sleep waits for d, or until ctx ends, whose error it then returns. At an ended ctx it does not wait.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
