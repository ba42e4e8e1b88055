package acts

import (
	"context"
	"sync"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/erasure"
)

// ErasureState is how an erasure stands.
type ErasureState struct {
	// Running says that it goes on, and nothing is erased yet. The same request again waits for it, and begins no other one.
	Running bool   `json:"running,omitempty"`
	Step    string `json:"step,omitempty" mask:"-"` // what it looks through, while it runs
	// Done is what was erased; nil while it runs.
	Done *erasure.Done `json:"done,omitempty"`
}

// Bounds of erasures that go on when whoever asked is gone.
const (
	erasureTimeout = 30 * time.Minute
	erasureKept    = 10 * time.Minute // how long the outcome waits to be asked for
)

// erasures are those that run without whoever asked: a connection may end before a large history is looked through.
type erasures struct {
	mu     sync.Mutex
	of     map[erasureKey]*erasing
	closed bool
	all    sync.WaitGroup
}

// erasureKey is who asks what: the same again is no other erasure.
type erasureKey struct {
	actor, subject, reason string
	dryRun                 bool
}

// erasing is one erasure.
type erasing struct {
	cancel context.CancelFunc
	ended  chan struct{}

	mu   sync.Mutex
	step string
	at   time.Time // when it ended

	done erasure.Done // once ended is closed
	err  error
}

// wait begins an erasure, or finds the one that was begun, and waits for it at most so long.
func (e *erasures) wait(ctx context.Context, key erasureKey, long time.Duration, now func() time.Time, work func(context.Context, func(string)) (erasure.Done, error)) (ErasureState, error) {
	of := e.begin(ctx, key, now, work)
	if of == nil {
		return ErasureState{}, context.Canceled
	}
	timer := time.NewTimer(long)
	defer timer.Stop()
	select {
	case <-of.ended:
		e.mu.Lock()
		if e.of[key] == of {
			delete(e.of, key)
		}
		e.mu.Unlock()
		if of.err != nil {
			return ErasureState{}, of.err
		}
		return ErasureState{Done: &of.done}, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	of.mu.Lock()
	defer of.mu.Unlock()
	return ErasureState{Running: true, Step: of.step}, nil
}

// begin returns the erasure of a key; nil: no more are begun.
func (e *erasures) begin(ctx context.Context, key erasureKey, now func() time.Time, work func(context.Context, func(string)) (erasure.Done, error)) *erasing {
	e.mu.Lock()
	defer e.mu.Unlock()
	for k, of := range e.of {
		of.mu.Lock()
		old := !of.at.IsZero() && now().Sub(of.at) > erasureKept
		of.mu.Unlock()
		if old {
			delete(e.of, k)
		}
	}
	if of := e.of[key]; of != nil || e.closed {
		return of
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), erasureTimeout)
	of := &erasing{cancel: cancel, ended: make(chan struct{})}
	if e.of == nil {
		e.of = map[erasureKey]*erasing{}
	}
	e.of[key] = of
	e.all.Go(func() {
		defer cancel()
		of.done, of.err = work(ctx, func(step string) {
			of.mu.Lock()
			defer of.mu.Unlock()
			of.step = step
		})
		of.mu.Lock()
		of.at = now()
		of.mu.Unlock()
		close(of.ended)
	})
	return of
}

// close ends those that run, of which nothing is erased then.
func (e *erasures) close() {
	e.mu.Lock()
	e.closed = true
	for _, of := range e.of {
		of.cancel()
	}
	e.mu.Unlock()
	e.all.Wait()
}

// Close ends the erasures that run: nothing of them is done. The service takes no more of them.
func (s *Service) Close() { s.erasures.close() }

// Erase takes a person out of history, audited under a pseudonym, all at once or not at all. It releases nobody. With r.Wait it goes on when ctx ends, and
// the state says that it runs: whoever asks the same again gets the outcome. Once more after that finds nothing but its own entry of the audit trail.
func (s *Service) Erase(ctx context.Context, actor access.Actor, r EraseRequest) (ErasureState, error) {
	person, err := s.mayErase(actor, &r)
	if err != nil {
		return ErasureState{}, err
	}
	work := func(ctx context.Context, progress func(string)) (erasure.Done, error) {
		done, err := s.o.Erasing.Erase(ctx, erasure.Request{Person: person, By: actor.Name, Via: actor.Via,
			Reason: r.Reason, DryRun: r.DryRun,
			Shown: shownAs(s.o.Masking.Masker, &person), Progress: progress})
		if err == nil && !r.DryRun {
			s.log(actor, access.Erase, "subject "+done.Pseudonym)
		}
		return done, unerased(err)
	}
	if r.Wait <= 0 {
		done, err := work(ctx, r.Progress)
		if err != nil {
			return ErasureState{}, err
		}
		return ErasureState{Done: &done}, nil
	}
	key := erasureKey{actor.Name, person.Field.String() + "=" + person.Value, r.Reason, r.DryRun}
	return s.erasures.wait(ctx, key, r.Wait, func() time.Time { return s.o.Clock().Std() }, work)
}
