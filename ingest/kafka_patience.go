package ingest

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// pause is an exponential back-off.
type pause struct {
	least, most, next time.Duration
}

func newPause(least, most time.Duration) *pause { return &pause{least: least, most: most, next: least} }

// length is how long the next sleep will be.
func (p *pause) length() time.Duration { return p.next }

// sleep waits, and doubles the next wait; it returns ctx's error when ctx ends first.
func (p *pause) sleep(ctx context.Context) error {
	timer := time.NewTimer(p.next)
	defer timer.Stop()
	p.next = min(2*p.next, p.most)
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func (p *pause) reset() { p.next = p.least }

// complaint logs a trouble that repeats: at once, again when it changes or at doubling intervals while it lasts, and one
// line when it is over. The zero value is ready.
type complaint struct {
	mu    sync.Mutex
	text  string
	gap   time.Duration
	after time.Time // not again before
}

// Between two lines about one trouble.
const (
	complaintLeast = time.Second // also when the text changes: addresses in an error's text must not make a flood
	complaintMost  = 5 * time.Minute
)

func (c *complaint) trouble(log *slog.Logger, message string, err error, args ...any) {
	c.mu.Lock()
	now, text := time.Now(), err.Error()
	fresh := c.text == ""
	changed := text != c.text && now.After(c.after.Add(complaintLeast-c.gap))
	if !fresh && !changed && now.Before(c.after) {
		c.mu.Unlock()
		return
	}
	if fresh || changed {
		c.gap = complaintLeast
	} else {
		c.gap = min(2*c.gap, complaintMost)
	}
	c.text, c.after = text, now.Add(c.gap)
	c.mu.Unlock()
	log.Warn(message, append(args, "error", err)...)
}

// over ends the trouble; it logs only if there was one.
func (c *complaint) over(log *slog.Logger, message string, args ...any) {
	c.mu.Lock()
	was := c.text
	c.text, c.gap, c.after = "", 0, time.Time{}
	c.mu.Unlock()
	if was != "" {
		log.Info(message, args...)
	}
}
