package detect

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/rules"
)

// routingShelf holds the routing versions that DETECT folds by. It loads them beside the folding: the recent ones when they
// are published, so that they are there when the store is not, and others when a record names them. Versions are
// immutable, so one is loaded once.
type routingShelf struct {
	d      *Detector
	asked  chan struct{} // a version is wanted that is not here
	loaded chan struct{} // there is a new one

	mu     sync.Mutex
	known  map[int64]*detectors.Plan // made once for all partitions
	unfit  map[int64]error           // versions that this build cannot fold by
	wanted map[int64]error           // versions that partitions wait for, and why loading failed last
	ahead  int64                     // the recent ones up to here are, or were, known

	loading retry.Trouble
}

func newRoutingShelf(d *Detector) *routingShelf {
	return &routingShelf{
		d: d, asked: make(chan struct{}, 1), loaded: make(chan struct{}, 1), known: map[int64]*detectors.Plan{},
		unfit: map[int64]error{}, wanted: map[int64]error{},
	}
}

// get gives a version, or nil when it is not here: then it is loaded, and loaded is woken. The error says that this process
// cannot fold by it.
func (s *routingShelf) get(version int64) (*detectors.Plan, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.unfit[version]; err != nil {
		return nil, err
	}
	if r := s.known[version]; r != nil {
		delete(s.wanted, version)
		return r, nil
	}
	if _, waiting := s.wanted[version]; !waiting {
		s.wanted[version] = nil
		ingest.Wake(s.asked)
	}
	return nil, nil
}

// newest gives the newest version that is here, or nil.
func (s *routingShelf) newest() *rules.Routing {
	s.mu.Lock()
	defer s.mu.Unlock()
	number := int64(0)
	for version := range s.known {
		number = max(number, version)
	}
	if plan := s.known[number]; plan != nil {
		return plan.Routing()
	}
	return nil
}

// has reports whether get would answer at once, with the version or with the error that this process cannot fold by it.
func (s *routingShelf) has(version int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.known[version] != nil || s.unfit[version] != nil
}

// trouble is why a version that is waited for could not be loaded; nil while that was not tried.
func (s *routingShelf) trouble(version int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wanted[version]
}

// run loads until ctx is done.
func (s *routingShelf) run(ctx context.Context) {
	wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		err := errors.Join(s.loadWanted(ctx), s.loadAhead(ctx))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			s.loading.Failed(s.d.log, "routing versions cannot be loaded, keyed partitions that need one wait", err)
			_ = wait.Wait(ctx) // its error is ctx's, which ends the loop
			continue
		}
		s.loading.Over(s.d.log, "routing versions can be loaded again")
		wait.Reset()
		timer := time.NewTimer(lookEvery)
		select {
		case <-s.asked:
		case <-timer.C:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

func (s *routingShelf) loadWanted(ctx context.Context) error {
	s.mu.Lock()
	wanted := slices.Sorted(maps.Keys(s.wanted))
	s.mu.Unlock()
	var failed []error
	for _, version := range wanted {
		err := s.load(ctx, version)
		s.mu.Lock()
		if _, still := s.wanted[version]; still {
			s.wanted[version] = err
		}
		s.mu.Unlock()
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

// loadAhead loads the versions that were published since it last did, the newest first and as many as are kept.
func (s *routingShelf) loadAhead(ctx context.Context) error {
	newest, err := attempt(ctx, s.d, callRouting, func(ctx context.Context) (int64, error) {
		return s.d.opt.Routings.Newest(ctx, s.d.opt.Stream)
	})
	if err != nil {
		return err
	}
	var failed []error
	for version := newest; version > max(s.ahead, newest-detectors.KeptRoutings, 0); version-- {
		failed = append(failed, s.load(ctx, version))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	s.ahead = max(s.ahead, newest)
	return nil
}

func (s *routingShelf) load(ctx context.Context, version int64) error {
	if s.has(version) {
		return nil
	}
	r, err := attempt(ctx, s.d, callRouting, func(ctx context.Context) (*rules.Routing, error) {
		return s.d.opt.Routings.Routing(ctx, s.d.opt.Stream, version)
	})
	if err == nil && !detectors.KnowsRecordFormat(r.RecordFormat) {
		err = &detectors.UnknownFormatError{
			What: fmt.Sprintf("routing version %d", version), Got: fmt.Sprint(r.RecordFormat), Known: detectors.KnownRecordFormats(),
		}
	}
	var plan *detectors.Plan
	if err == nil {
		plan = detectors.NewPlan(r)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, rules.ErrRouting), errors.As(err, new(*detectors.UnknownFormatError)):
		s.unfit[version] = err // told to whoever meets a record of it, which is another process's to fold
	case err != nil:
		return fmt.Errorf("routing version %d of stream %s: %w", version, s.d.opt.Stream, err)
	default:
		s.known[version] = plan
		s.d.metrics.rules.follow(r)
		s.forget(version)
	}
	ingest.Wake(s.loaded)
	return nil
}

// forget drops the oldest versions beyond those that are kept, but for just and for those that partitions wait for.
func (s *routingShelf) forget(just int64) {
	for _, version := range slices.Sorted(maps.Keys(s.known)) {
		if len(s.known) <= detectors.KeptRoutings {
			return
		}
		if _, waiting := s.wanted[version]; !waiting && version != just {
			delete(s.known, version)
		}
	}
}

// lookEvery is how often new routing versions are looked for.
const lookEvery = time.Second

// attempt calls f once, for attemptTimeout at most, and counts a failure. An answer that this build cannot read is no
// failure.
func attempt[T any](ctx context.Context, d *Detector, what string, f func(ctx context.Context) (T, error)) (T, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	v, err := f(ctx)
	if err != nil && !errors.Is(err, rules.ErrRouting) && !errors.Is(ctx.Err(), context.Canceled) {
		d.metrics.errors.WithLabelValues(what).Inc()
	}
	return v, err
}
