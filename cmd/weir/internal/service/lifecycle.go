package service

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
	StageTimeout = 7 * time.Second // the stages
	StopTimeout  = 9 * time.Second // all of the process
)

// Part is a piece of a process that runs until its context ends.
type Part struct {
	Name string
	Run  func(ctx context.Context) error
}

// running is a part at work.
type running struct {
	Part
	stop context.CancelFunc
	done chan struct{}
	err  error // valid after done
}

// UntilSignal returns a context that ends with the first SIGINT or SIGTERM. From then on signals have their default effect, so
// that a second Ctrl-C ends the process at once.
func UntilSignal(parent context.Context, log *slog.Logger) (context.Context, context.CancelFunc) {
	ctx, forget := signal.NotifyContext(parent, syscall.SIGINT, syscall.SIGTERM)
	unhook := context.AfterFunc(ctx, func() {
		forget()
		if parent.Err() == nil {
			log.Info("stopping: what is under way is brought to its end (again: stop at once)")
		}
	})
	return ctx, func() { unhook(); forget() }
}

// Serve runs all parts until ctx ends or one of them fails, then ends them group by group in the order given: those that
// take work in come first, so that the later ones can finish what was taken. It waits for timeout at most for all of them.
// The error is that of the part that failed, or names the parts that did not end (StuckError, with that of the part that failed as its cause).
func Serve(ctx context.Context, log *slog.Logger, timeout time.Duration, groups ...[]Part) error {
	count := 0
	for _, group := range groups {
		count += len(group)
	}
	failed := make(chan *running, count)
	all := make([][]*running, len(groups))
	for i, group := range groups {
		for _, p := range group {
			all[i] = append(all[i], start(ctx, p, failed))
		}
	}
	var cause error
	select {
	case <-ctx.Done():
	case r := <-failed:
		cause = fmt.Errorf("%s: %w", r.Name, r.err)
	}
	stuck := stopAll(log, timeout, all)
	if stuck == nil {
		return cause
	}
	stuck.cause = cause
	return stuck
}

// start runs p in a context that ends only when the part is stopped: Serve decides the order, not ctx.
func start(ctx context.Context, p Part, failed chan<- *running) *running {
	own, stop := context.WithCancel(context.WithoutCancel(ctx))
	r := &running{Part: p, stop: stop, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		r.err = p.Run(own)
		if own.Err() == nil {
			if r.err == nil {
				r.err = errors.New("ended by itself")
			}
			failed <- r
		}
	}()
	return r
}

// StuckError says that parts did not end in time. What they had under way is done again at the next start.
type StuckError struct {
	parts   []string
	timeout time.Duration
	cause   error
}

func (e *StuckError) Error() string {
	text := fmt.Sprintf("%s did not end within %s; what was under way is done again at the next start", strings.Join(e.parts, ", "), e.timeout)
	if e.cause != nil {
		return e.cause.Error() + "\n" + text
	}
	return text
}

// Unwrap is why the parts had to end: the error of the part that failed; nil where they were told to.
func (e *StuckError) Unwrap() error { return e.cause }

// stopAll returns nil where all parts have ended in time.
func stopAll(log *slog.Logger, timeout time.Duration, groups [][]*running) *StuckError {
	deadline := time.NewTimer(timeout)
	defer deadline.Stop()
	stuck := &StuckError{timeout: timeout}
	for _, group := range groups {
		for _, r := range group {
			r.stop()
		}
		for _, r := range group {
			if len(stuck.parts) > 0 && !ended(r) {
				stuck.parts = append(stuck.parts, r.Name) // no time is left: told to stop, not waited for
				continue
			}
			select {
			case <-r.done:
				logEnd(log, r)
			case <-deadline.C:
				stuck.parts = append(stuck.parts, r.Name)
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
	var stuck *StuckError
	if r.err != nil && !errors.Is(r.err, context.Canceled) && !errors.As(r.err, &stuck) {
		log.Warn("did not end cleanly", "part", r.Name, "error", r.err)
	}
}

// CloseAll gives back what was opened, newest first. Closing may wait for calls under way; a process that is going away
// does not wait long for that.
func CloseAll(closers []func()) { CloseWithin(time.Second, closers) }

// CloseWithin is CloseAll that waits for limit at most.
func CloseWithin(limit time.Duration, closers []func()) {
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

// LogStopped logs that a process ended in order, and gives back the error if it did not.
func LogStopped(log *slog.Logger, err error) error {
	if err == nil {
		log.Info("stopped")
	}
	return err
}
