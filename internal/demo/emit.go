package demo

import (
	"context"
	"fmt"
	"log/slog"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

const emitBatch = 500 // events of one call at most

// emitter stands between the gateway's answers and Kafka: a bounded queue, and one goroutine that empties it.
type emitter struct {
	emit   EmitFunc
	log    *slog.Logger
	queue  chan queued
	cancel context.CancelFunc // of the call under way
	ended  chan struct{}

	mu              sync.RWMutex // held for reading while somebody puts
	closed          bool
	count           sync.Mutex
	dropped, failed int

	events *prometheus.CounterVec // outcome
}

// queued is an event, or a mark that somebody waits for.
type queued struct {
	event Event
	mark  chan<- struct{}
}

// What becomes of an event.
const (
	eventSent    = "sent"
	eventFailed  = "failed"
	eventDropped = "dropped"
)

func startEmitter(o GatewayOptions) (*emitter, error) {
	e := &emitter{
		emit: o.Emit, log: o.Logger, queue: make(chan queued, o.Queue), ended: make(chan struct{}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_demo_events_total",
			Help: "Events of the demo's gateway: sent, failed (Kafka did not take them), dropped (the queue was full).",
		}, []string{"outcome"}),
	}
	for _, outcome := range []string{eventSent, eventFailed, eventDropped} {
		e.events.WithLabelValues(outcome)
	}
	if err := o.Registerer.Register(e.events); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cancel = cancel
	go e.run(ctx)
	return e, nil
}

// put never waits: a queue that is full costs the event, not the client's time.
func (e *emitter) put(event Event) {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if !e.closed {
		select {
		case e.queue <- queued{event: event}:
			return
		default:
		}
	}
	e.events.WithLabelValues(eventDropped).Inc()
	e.count.Lock()
	e.dropped++
	e.count.Unlock()
}

func (e *emitter) run(ctx context.Context) {
	defer close(e.ended)
	for first := range e.queue {
		var batch []Event // a new one each time: Emit may keep it
		mark := first.mark
		if mark == nil {
			batch, mark = e.gather([]Event{first.event})
		}
		e.send(ctx, batch)
		if mark != nil {
			close(mark)
		}
	}
}

// gather takes what waits, up to a mark.
func (e *emitter) gather(batch []Event) ([]Event, chan<- struct{}) {
	for len(batch) < emitBatch {
		select {
		case q, open := <-e.queue:
			if !open || q.mark != nil {
				return batch, q.mark
			}
			batch = append(batch, q.event)
		default:
			return batch, nil
		}
	}
	return batch, nil
}

func (e *emitter) send(ctx context.Context, batch []Event) {
	if len(batch) == 0 {
		return
	}
	if err := e.emit(ctx, batch); err != nil {
		e.log.Warn("events of the demo's gateway are lost", "events", len(batch), "error", err)
		e.events.WithLabelValues(eventFailed).Add(float64(len(batch)))
		e.count.Lock()
		e.failed += len(batch)
		e.count.Unlock()
		return
	}
	e.events.WithLabelValues(eventSent).Add(float64(len(batch)))
}

func (e *emitter) losses() (dropped, failed int) {
	e.count.Lock()
	defer e.count.Unlock()
	return e.dropped, e.failed
}

func (e *emitter) flush(ctx context.Context) error {
	mark := make(chan struct{})
	if err := e.mark(ctx, mark); err != nil {
		return err
	}
	select {
	case <-mark:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("events wait for Kafka: %w", ctx.Err())
	}
}

func (e *emitter) mark(ctx context.Context, mark chan<- struct{}) error {
	e.mu.RLock()
	defer e.mu.RUnlock()
	if e.closed {
		return errClosed
	}
	select {
	case e.queue <- queued{mark: mark}:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("events wait for Kafka: %w", ctx.Err())
	}
}

func (e *emitter) close(ctx context.Context) error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return errClosed
	}
	e.closed = true
	close(e.queue) // nobody puts any more: closed is set
	e.mu.Unlock()
	defer e.cancel()
	select {
	case <-e.ended:
		return nil
	case <-ctx.Done():
	}
	e.cancel() // what is left fails at once
	<-e.ended
	return fmt.Errorf("events wait for Kafka: %w", ctx.Err())
}
