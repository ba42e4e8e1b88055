package blocklist

import (
	"context"
	"fmt"
	"time"
)

// renewal is what a load beside the follower has brought.
type renewal struct {
	t   *table
	at  cursor
	err error
}

// renew loads everything anew when it is time, beside the follower: at a million blocks that takes seconds, and a demotion
// must not wait for them. Gates ask the old table, which goes on following, until the new one has come as far.
func (f *follower) renew(ctx context.Context, now time.Time) error {
	if f.renewal == nil {
		if now.Before(f.due) {
			return nil
		}
		f.r.metrics.reloads.WithLabelValues(reloadDue).Inc()
		done := make(chan renewal, 1)
		f.renewal = done
		f.renewing.Go(func() {
			t, at, err := f.r.load(ctx)
			done <- renewal{t, at, err}
		})
		return nil
	}
	select {
	case got := <-f.renewal:
		f.renewal = nil
		if got.err != nil {
			return fmt.Errorf("load the blocklist anew: %w", got.err) // it is still due
		}
		return f.adopt(ctx, got)
	default:
		return nil
	}
}

// adopt lets the loaded table catch up and puts it in the old one's place. The deltas since its cursor were applied to the
// old one only.
func (f *follower) adopt(ctx context.Context, got renewal) error {
	ahead := newFollower(f.r, got.t, got.at)
	for !ahead.reached(f.at) {
		some, err := ahead.read(ctx, time.Millisecond)
		if err != nil {
			return err
		}
		if !some {
			return &reloadError{reason: reloadMissing, detail: "the deltas of a load are gone"}
		}
	}
	// A release or demotion that only the old table still knew holds on, as after every load.
	got.t.inherit(f.t, f.r.o.Clock())
	f.r.table.Store(got.t)
	f.t, f.at, f.behind, f.due = ahead.t, ahead.at, cursor{}, ahead.due
	return nil
}

// reached reports whether every stream has been read as far as in at.
func (f *follower) reached(at cursor) bool {
	for name, id := range at {
		if number(f.at[name]) < number(id) {
			return false
		}
	}
	return true
}
