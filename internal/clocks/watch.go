package clocks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/traffic"
)

const (
	// Every is how often a Watch compares.
	Every = 15 * time.Second
	// askTimeout bounds each question.
	askTimeout = 5 * time.Second
	// leaveTimeout bounds the last word of a process that stops.
	leaveTimeout = 500 * time.Millisecond
)

// Source is a store with a clock. Read gives false where it was not heard since the last time.
type Source struct {
	Store string
	Read  func(ctx context.Context, clock func() traffic.Time) (Reading, bool, error)
}

// Options configure a Watch. All but Announce and Leave are required.
type Options struct {
	Sources    []Source
	Clock      func() traffic.Time // this machine's
	Logger     *slog.Logger
	Registerer prometheus.Registerer
	// Announce tells others of each comparison, of those stores only that answered; Leave takes it back at the end.
	Announce func(ctx context.Context, offsets []Offset) error
	Leave    func(ctx context.Context) error
}

// Watch compares this process's clock with those of its stores, again and again.
type Watch struct {
	o       Options
	offset  *prometheus.GaugeVec
	levels  map[string]level
	failing bool // the last announcement failed

	mu    sync.Mutex
	known []Offset
}

// level is how bad a difference is.
type level int

const (
	agrees level = iota
	differs
	wrong
)

func levelOf(apart time.Duration) level {
	switch size := Size(apart); {
	case size >= Fails:
		return wrong
	case size >= Warns:
		return differs
	}
	return agrees
}

// NewWatch makes a Watch; Run does its work.
func NewWatch(o Options) (*Watch, error) {
	if len(o.Sources) == 0 || o.Clock == nil || o.Logger == nil || o.Registerer == nil {
		return nil, errors.New("clocks: Sources, Clock, Logger and Registerer are required")
	}
	w := &Watch{
		o: o, levels: map[string]level{},
		offset: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_clock_offset_seconds",
			Help: "By how much the clock of a store is ahead of this process's, at the least; negative: behind. " +
				"Compared every 15 s; absent where the store was not heard.",
		}, []string{"store"}),
	}
	if err := o.Registerer.Register(w.offset); err != nil {
		return nil, fmt.Errorf("clocks: %w", err)
	}
	return w, nil
}

// Offsets is what was last found, ascending by store.
func (w *Watch) Offsets() []Offset {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.known)
}

// Worst is the greatest difference that was last found; 0 where none shows.
func (w *Watch) Worst() time.Duration {
	worst := time.Duration(0)
	for _, o := range w.Offsets() {
		if Size(o.Apart) > Size(worst) {
			worst = o.Apart
		}
	}
	return worst
}

// Run compares until ctx is done, takes leave, and returns nil.
func (w *Watch) Run(ctx context.Context) error {
	ticker := time.NewTicker(Every)
	defer ticker.Stop()
	for {
		w.compare(ctx)
		select {
		case <-ctx.Done():
			if w.o.Leave != nil {
				bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
				defer cancel()
				_ = w.o.Leave(bounded) // what is not taken back is forgotten a little later
			}
			return nil
		case <-ticker.C:
		}
	}
}

// compare asks every store once. One that does not answer is told of by who needs it.
func (w *Watch) compare(ctx context.Context) {
	answers := make([]*Offset, len(w.o.Sources))
	var wg sync.WaitGroup
	for i, s := range w.o.Sources {
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			if r, heard, err := s.Read(bounded, w.o.Clock); heard && err == nil {
				answers[i] = &Offset{s.Store, r.Apart()}
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return
	}
	var offsets []Offset
	for i, s := range w.o.Sources {
		if answers[i] == nil {
			w.offset.DeleteLabelValues(s.Store)
			continue
		}
		w.offset.WithLabelValues(s.Store).Set(answers[i].Apart.Seconds())
		offsets = append(offsets, *answers[i])
		w.say(ctx, *answers[i])
	}
	slices.SortFunc(offsets, func(a, b Offset) int { return strings.Compare(a.Store, b.Store) })
	w.mu.Lock()
	w.known = offsets
	w.mu.Unlock()
	w.announce(ctx, offsets)
}

// say logs where a difference begins to matter, matters more, or is over: once each.
func (w *Watch) say(ctx context.Context, o Offset) {
	now, before := levelOf(o.Apart), w.levels[o.Store]
	w.levels[o.Store] = now
	const text = "this process's clock differs from that of a store: set both machines' clocks by NTP"
	switch {
	case now == before:
	case now == wrong:
		w.o.Logger.ErrorContext(ctx, text+"; blocks begin and end at wrong moments, or none is made",
			"store", o.Store, "clock", o.String())
	case now == differs && before == agrees:
		w.o.Logger.WarnContext(ctx, text, "store", o.Store, "clock", o.String())
	case now == agrees:
		w.o.Logger.InfoContext(ctx, "this process's clock agrees with that of a store again", "store", o.Store)
	}
}

func (w *Watch) announce(ctx context.Context, offsets []Offset) {
	if w.o.Announce == nil {
		return
	}
	bounded, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	err := w.o.Announce(bounded, offsets)
	if err != nil && !w.failing && ctx.Err() == nil {
		w.o.Logger.WarnContext(ctx,
			"this process cannot tell of its clock; it goes on, and weir doctor does not know of it",
			"error", err)
	}
	w.failing = err != nil && ctx.Err() == nil
}
