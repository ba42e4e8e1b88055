package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"
)

// How long parts of a process may take to end. Together they stay below the 10 s after which supervisors kill.
const (
	stageBudget = 7 * time.Second // the stages
	stopBudget  = 9 * time.Second // all of the process
)

// part is a piece of a process that runs until its context ends.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// running is a part at work.
type running struct {
	part
	stop context.CancelFunc
	done chan struct{}
	err  error // valid after done
}

// untilSignal gives a context that ends with the first SIGINT or SIGTERM. From then on signals act as if nobody listened,
// so a second Ctrl-C ends the process at once.
func untilSignal(parent context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, forget := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	unhook := context.AfterFunc(ctx, func() {
		forget()
		if parent.Err() == nil {
			log.Info("stopping: what is under way is brought to its end (again: stop at once)")
		}
	})
	return ctx, func() { unhook(); forget() }
}

// serve runs all parts until ctx ends or one of them fails, then ends them wave by wave in the order given: those that
// take work in come first, so that the later ones can finish what was taken. It waits budget at most for all of them.
// The error is that of the part that failed, or names the parts that did not end (see stuckError).
func serve(ctx context.Context, log *slog.Logger, budget time.Duration, waves ...[]part) error {
	count := 0
	for _, wave := range waves {
		count += len(wave)
	}
	failed := make(chan *running, count)
	all := make([][]*running, len(waves))
	for i, wave := range waves {
		for _, p := range wave {
			all[i] = append(all[i], start(ctx, p, failed))
		}
	}
	var cause error
	select {
	case <-ctx.Done():
	case r := <-failed:
		cause = fmt.Errorf("%s: %w", r.name, r.err)
	}
	return errors.Join(cause, stopAll(log, budget, all))
}

// start runs p in a context that ends only when the part is stopped: serve decides the order, not ctx.
func start(ctx context.Context, p part, failed chan<- *running) *running {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{part: p, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = p.run(own)
		if own.Err() == nil {
			if r.err == nil {
				r.err = errors.New("ended by itself")
			}
			failed <- r
		}
	}()
	return r
}

// stuckError says that parts did not end in time. What they had under way is done again at the next start.
type stuckError struct {
	parts  []string
	budget time.Duration
}

// Error names the parts.
func (e *stuckError) Error() string {
	return fmt.Sprintf("%s did not end within %s; what was under way is done again at the next start", strings.Join(e.parts, ", "), e.budget)
}

func stopAll(log *slog.Logger, budget time.Duration, waves [][]*running) error {
	deadline := time.NewTimer(budget)
	defer deadline.Stop()
	stuck := &stuckError{budget: budget}
	for _, wave := range waves {
		for _, r := range wave {
			r.stop()
		}
		for _, r := range wave {
			if len(stuck.parts) > 0 && !ended(r) {
				stuck.parts = append(stuck.parts, r.name) // no time is left: told to stop, not waited for
				continue
			}
			select {
			case <-r.done:
				logEnd(log, r)
			case <-deadline.C:
				stuck.parts = append(stuck.parts, r.name)
			}
		}
	}
	if len(stuck.parts) > 0 {
		slices.Sort(stuck.parts)
		return stuck
	}
	return nil
}

func ended(r *running) bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func logEnd(log *slog.Logger, r *running) {
	var stuck *stuckError
	if r.err != nil && !errors.Is(r.err, context.Canceled) && !errors.As(r.err, &stuck) {
		log.Warn("did not end cleanly", "part", r.name, "error", r.err)
	}
}

// closeAll gives back what was opened, newest first. Closing may wait for calls under way; a process that is going away
// does not wait long for that.
func closeAll(closers []func()) { closeWithin(time.Second, closers) }

// closeWithin is closeAll with another limit.
func closeWithin(limit time.Duration, closers []func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, c := range slices.Backward(closers) {
			c()
		}
	}()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
