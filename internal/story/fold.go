package story

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const (
	tickEvery = time.Second
	sortsAway = 10 * time.Minute // how long the ticks go on behind the last step
)

// Fold plays a story's events through the production windows, in one keyed partition and without any stage around it: the
// hits of an undisturbed stream. Kills and freezes make no difference to those, so it reads over them; of blocks it knows
// nothing.
func Fold(s *Story) (*Outcome, error) {
	routing := s.Routing()
	identifier, err := routing.Identity.Compile()
	if err != nil {
		return nil, err
	}
	f := &folding{
		story: s, routing: routing, index: routing.Index(), identifier: identifier,
		partition: detectors.NewPartition(detectors.Config{Sources: s.Partitions, Generation: 1, Secret: detectors.Secret{9}}),
		sources:   make([]progress, s.Partitions),
	}
	for i := range f.sources {
		f.sources[i] = progress{sent: detectors.NoOffset, newest: traffic.BeforeTime}
	}
	f.partition.Learn(routing)
	if err := f.play(); err != nil {
		return nil, err
	}
	var o Outcome
	o.Hits, o.Uncounted = Tell(f.hits)
	return &o, nil
}

// progress is what is known of a source partition.
type progress struct {
	next, sent int64 // offset of the next event, and of the last one that a rule watches
	newest     traffic.Time
	silent     time.Duration // until then nothing is heard of it
}

type folding struct {
	story      *Story
	routing    *rules.Routing
	index      *rules.Index
	identifier *traffic.Identifier
	partition  *detectors.Partition
	sources    []progress
	hits       []detectors.Hit
	matched    []int
}

func (f *folding) play() error {
	clock := time.Duration(0)
	for _, s := range f.heard() {
		if err := f.ticks(&clock, s.At); err != nil {
			return err
		}
		switch s.Do {
		case ActSilent:
			f.sources[s.Partition].silent = s.At + s.For
		case ActEvent:
			if err := f.event(&s); err != nil {
				return err
			}
		}
	}
	if err := f.ticks(&clock, f.story.End()+sortsAway); err != nil {
		return err
	}
	for p := range f.sources {
		if err := f.fold(clock, &detectors.Keyed{Kind: detectors.KeyedTick, Source: p, Time: traffic.EndOfTime}); err != nil {
			return err
		}
	}
	return nil
}

// heard are the steps in the order in which they are heard of: events of a silent partition when it speaks again.
func (f *folding) heard() []Step {
	steps := slices.Clone(f.story.Steps)
	until := make([]time.Duration, len(f.sources))
	for i := range steps {
		switch s := &steps[i]; s.Do {
		case ActSilent:
			until[s.Partition] = max(until[s.Partition], s.At+s.For)
		case ActEvent:
			s.At = max(s.At, until[s.Partition])
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int { return cmp.Compare(a.At, b.At) })
	return steps
}

// ticks are the ticks of every source partition that is not silent, one a second, as a router writes them that has read
// everything.
func (f *folding) ticks(clock *time.Duration, until time.Duration) error {
	for ; *clock < until; *clock += tickEvery {
		for p := range f.sources {
			src := &f.sources[p]
			if *clock < src.silent {
				continue
			}
			err := f.fold(*clock, &detectors.Keyed{
				Kind: detectors.KeyedTick, Source: p, Offset: src.next, Prev: src.sent, Time: src.newest, Idle: true, Clock: Begin.Add(*clock),
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// event routes an event as ROUTE does: it derives the identity and finds the rules that watch the event and have their key
// in it.
func (f *folding) event(s *Step) error {
	src := &f.sources[s.Partition]
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Source: s.Partition, Offset: src.next, Prev: src.sent, Time: s.Request.Time, Version: f.routing.Number}
	src.next++
	src.newest = max(src.newest, s.Request.Time)
	k.Progress = src.newest
	var missing traffic.Missing
	k.Identity, missing = f.identifier.FromEvent(&s.Request)
	f.matched = f.index.Match(f.matched[:0], s.Request.Method, s.Request.Path)
	for _, i := range f.matched {
		if units, feeds := feeds(&f.routing.Rules[i], &s.Request, &missing); feeds {
			k.Rules, k.Units = append(k.Rules, i), append(k.Units, units)
		}
	}
	if len(k.Rules) == 0 {
		return nil
	}
	src.sent = k.Offset
	k.Sample = traffic.AppendPackedSample(nil, &s.Request, &k.Identity)
	return f.fold(s.At, &k)
}

// feeds reports whether an event that a rule watches goes to its windows, and with how many units.
func feeds(v *rules.Version, q *traffic.Request, missing *traffic.Missing) (units int64, ok bool) {
	lacks := func(k traffic.KeyField) bool { return missing[k.Field] != traffic.Present }
	if v.Missing == rules.MissingSkip && slices.ContainsFunc(v.Key, lacks) || v.Count.Distinct != nil && lacks(*v.Count.Distinct) {
		return 0, false
	}
	if v.Count.Sum == "" {
		return 1, true
	}
	path, err := format.ParseAttrPath(v.Count.Sum)
	if err != nil {
		return 0, false // no rule that was parsed has another
	}
	units, fault := path.Units(q.Attrs)
	return units, fault == format.UnitsFine
}

func (f *folding) fold(at time.Duration, k *detectors.Keyed) error {
	k.Generation = 1
	if k.Kind == detectors.KeyedTick && k.Time == traffic.EndOfTime {
		k.Offset, k.Prev = f.sources[k.Source].next, f.sources[k.Source].sent
	}
	var err error
	if f.hits, err = f.partition.Fold(Begin.Add(at), k, f.hits); err != nil {
		return fmt.Errorf("at %s: %w", duration.Format(at), err)
	}
	return nil
}
