// Package turns bounds how many questions of one actor, and of all, are worked on at a time, so that nobody who asks
// keeps others from it. Who has as many under way as he may waits for them, for a little while, and is then told so.
package turns

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/console/access"
)

// Defaults of Options.
const (
	DefaultEach    = 2
	DefaultAll     = 6
	DefaultWaiting = 8
	DefaultPatient = 3 * time.Second
)

// mostWaiting bounds who waits, of all actors.
const mostWaiting = 512

// Options bound what is asked at a time. A number that is 0 has its default.
type Options struct {
	Each    int           // questions of one actor that are worked on at a time
	All     int           // those of all actors
	Waiting int           // questions of one actor that wait for their turn
	Patient time.Duration // how long one waits at most
	// Registerer gets the metrics. It is required.
	Registerer prometheus.Registerer
}

// Turns hands out turns. It is safe for concurrent use.
type Turns struct {
	o       Options
	metrics *metrics

	mu      sync.Mutex
	running int
	asks    uint64            // counts turns, so that it can be told whose last one is longest ago
	actors  map[string]*asker // those with a question that runs or waits
	waiting []*question       // in the order in which they came
}

// asker is an actor with questions under way.
type asker struct {
	running, waiting int
	last             uint64 // the newest turn that it got
}

// question is one that waits.
type question struct {
	of    *asker
	ready chan struct{} // closed when it has its turn
}

// BusyError says that a question was not asked, since too many are.
type BusyError struct {
	// Own says that it was the actor's own questions that it waited for.
	Own    bool
	Most   int           // questions at a time: of the actor where Own, else of all
	Waited time.Duration // before it was given up; 0: there was no place to wait, either
}

func (e *BusyError) Error() string {
	whose := "of all who ask"
	if e.Own {
		whose = "of yours"
	}
	return fmt.Sprintf("%d questions %s are being answered, which is the most at a time: wait for them, then ask again",
		e.Most, whose)
}

// New makes Turns.
func New(o Options) (*Turns, error) {
	if o.Registerer == nil {
		return nil, errors.New("turns: Registerer is missing")
	}
	for _, n := range []struct {
		at      *int
		initial int
	}{{&o.Each, DefaultEach}, {&o.All, DefaultAll}, {&o.Waiting, DefaultWaiting}} {
		if *n.at == 0 {
			*n.at = n.initial
		}
		if *n.at < 1 {
			return nil, fmt.Errorf("turns: got %d, allowed: 1 and more", *n.at)
		}
	}
	if o.Patient == 0 {
		o.Patient = DefaultPatient
	}
	t := &Turns{o: o, actors: map[string]*asker{}}
	var err error
	if t.metrics, err = newMetrics(o.Registerer, t); err != nil {
		return nil, fmt.Errorf("turns: %w", err)
	}
	return t, nil
}

// Take waits for the actor's turn; done gives it back and must be called. Its error is a *BusyError, or the context's.
func (t *Turns) Take(ctx context.Context, actor access.Actor) (done func(), err error) {
	q, err := t.enter(actor.Via + " " + actor.Name)
	if err != nil {
		t.metrics.refused(err)
		return nil, err
	}
	done = sync.OnceFunc(func() { t.leave(actor.Via+" "+actor.Name, q.of) })
	select {
	case <-q.ready:
		t.metrics.turns.WithLabelValues(outcomeAtOnce).Inc()
		return done, nil
	default:
	}
	begun := time.Now()
	patience := time.NewTimer(t.o.Patient)
	defer patience.Stop()
	select {
	case <-q.ready:
		t.metrics.turns.WithLabelValues(outcomeWaited).Inc()
		return done, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-patience.C:
	}
	busy, had := t.giveUp(actor.Via+" "+actor.Name, q)
	if had { // the turn came in this very moment
		t.metrics.turns.WithLabelValues(outcomeWaited).Inc()
		return done, nil
	}
	if err != nil {
		t.metrics.turns.WithLabelValues(outcomeLeft).Inc()
		return nil, err
	}
	busy.Waited = time.Since(begun)
	t.metrics.refused(busy)
	return nil, busy
}

// enter takes a turn that is free, or a place in the queue.
func (t *Turns) enter(name string) (*question, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.actors[name]
	if of == nil {
		of = &asker{}
	}
	if of.waiting >= t.o.Waiting {
		return nil, t.busy(of)
	}
	if len(t.waiting) >= mostWaiting {
		return nil, &BusyError{Most: t.o.All}
	}
	q := &question{of: of, ready: make(chan struct{})}
	t.actors[name] = of
	of.waiting++
	t.waiting = append(t.waiting, q)
	t.next()
	return q, nil
}

// busy says what keeps a question of an actor from being asked.
func (t *Turns) busy(of *asker) *BusyError {
	if of.running >= t.o.Each {
		return &BusyError{Own: true, Most: t.o.Each}
	}
	return &BusyError{Most: t.o.All}
}

// next gives the turns that are free to those who wait: first to who has the fewest, of these to whose last turn is
// longest ago, and of one actor to the question that came first.
func (t *Turns) next() {
	for t.running < t.o.All {
		best := -1
		for i, q := range t.waiting {
			if q.of.running >= t.o.Each {
				continue
			}
			if best < 0 || q.of.before(t.waiting[best].of) {
				best = i
			}
		}
		if best < 0 {
			return
		}
		q := t.waiting[best]
		t.waiting = slices.Delete(t.waiting, best, best+1)
		t.asks++
		t.running++
		q.of.running++
		q.of.waiting--
		q.of.last = t.asks
		close(q.ready)
	}
}

// before reports whether a's question goes before one of b.
func (a *asker) before(b *asker) bool {
	if a.running != b.running {
		return a.running < b.running
	}
	return a.last < b.last
}

// leave gives a turn back.
func (t *Turns) leave(name string, of *asker) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running--
	of.running--
	t.next()
	t.forget(name, of)
}

// giveUp takes a question out of the queue, and says what it has waited for; had: it has got its turn meanwhile.
func (t *Turns) giveUp(name string, q *question) (busy *BusyError, had bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.waiting, q)
	if at < 0 {
		return nil, true
	}
	t.waiting = slices.Delete(t.waiting, at, at+1)
	q.of.waiting--
	busy = t.busy(q.of)
	t.forget(name, q.of)
	return busy, false
}

// forget drops an actor who asks nothing.
func (t *Turns) forget(name string, of *asker) {
	if of.running == 0 && of.waiting == 0 {
		delete(t.actors, name)
	}
}

// under counts what is worked on, and what waits.
func (t *Turns) under() (running, waiting int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.running, len(t.waiting)
}
