package story

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

const (
	tickEvery = detectors.TickEvery // of a story that lasts no longer than mostTicks of them
	mostTicks = 10_000              // of each source partition
	sortsAway = 10 * time.Minute    // how long the ticks go on behind the last step
)

// Fold plays a story's events through ROUTE's own reading and the production windows, in one keyed partition and without any
// stage around it: the hits of an undisturbed stream, and the blocks that ENFORCE would write for them. Kills and freezes make
// no difference to those, so it reads over them.
func Fold(s *Story) (*Outcome, error) {
	blocks := newBlocking(s)
	var hits []detectors.Hit
	err := Play(s, Listener{Act: blocks.act, Hit: func(h *detectors.Hit, now traffic.Time) {
		hits = append(hits, *h)
		blocks.hit(h, now)
	}})
	if err != nil {
		return nil, err
	}
	o := Outcome{Enforced: true}
	o.Expect = Tell(hits)
	o.Blocks = blocks.lines()
	return &o, nil
}

// Listener is told what comes of a story, in its order.
type Listener struct {
	Act func(*Step)                              // an operator promotes, demotes or releases
	Hit func(h *detectors.Hit, now traffic.Time) // a record of the hits topic, and when what brought it came
}

// Play is Fold without its blocks.
func Play(s *Story, to Listener) error {
	routing := s.Routing()
	reader, err := route.NewReader(routing, []byte("story"), 1)
	if err != nil {
		return err
	}
	f := &folding{
		story: s, routing: routing, reader: reader, to: to,
		partition: detectors.NewPartition(detectors.Config{Sources: s.Partitions, Generation: 1, Secret: detectors.Secret{9}}),
		sources:   make([]progress, s.Partitions),
		every:     max(tickEvery, (s.End() / mostTicks).Truncate(time.Second)),
	}
	for i := range f.sources {
		f.sources[i] = progress{sent: detectors.NoOffset, newest: traffic.BeforeTime}
	}
	f.partition.Learn(detectors.NewPlan(routing))
	return f.play()
}

// progress is what is known of a source partition.
type progress struct {
	next, sent int64 // offset of the next event, and of the last one that a rule watches
	newest     traffic.Time
	silent     time.Duration // until then nothing is heard of it
}

type folding struct {
	story     *Story
	routing   *rules.Routing
	reader    *route.Reader
	partition *detectors.Partition
	sources   []progress
	hits      []detectors.Hit // of the record that was folded last
	to        Listener
	text      []byte
	every     time.Duration // of the ticks
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
		case ActPromote, ActDemote, ActRelease:
			f.to.Act(&s)
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

// ticks are the ticks of every source partition that is not silent, one a second, fewer in a long story, as a router writes
// them that has read everything.
func (f *folding) ticks(clock *time.Duration, until time.Duration) error {
	for ; *clock < until; *clock += f.every {
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

// event routes an event as ROUTE does, from the text that a gateway would write.
func (f *folding) event(s *Step) error {
	src := &f.sources[s.Partition]
	k := detectors.Keyed{Kind: detectors.KeyedEvent, Source: s.Partition, Offset: src.next, Prev: src.sent, Time: s.Request.Time, Version: f.routing.Number}
	src.next++
	src.newest = max(src.newest, s.Request.Time)
	k.Progress = src.newest
	f.text = format.AppendEvent(f.text[:0], &s.Request)
	got := f.reader.Read(f.text)
	if got.Fate == route.FateDead {
		return fmt.Errorf("the event of line %d cannot be read: %w", s.Line, got.Err)
	}
	if len(got.Targets) == 0 {
		return nil
	}
	target := &got.Targets[0] // the only keyed partition
	k.Identity, k.Rules, k.Units, k.Tiers, k.Extra = *got.Identity, target.Rules, target.Units, target.Tiers, target.Extra
	src.sent = k.Offset
	k.Sample = traffic.AppendPackedSample(nil, got.Request, &k.Identity)
	return f.fold(s.At, &k)
}

func (f *folding) fold(at time.Duration, k *detectors.Keyed) error {
	k.Generation = 1
	if k.Kind == detectors.KeyedTick && k.Time == traffic.EndOfTime {
		k.Offset, k.Prev = f.sources[k.Source].next, f.sources[k.Source].sent
	}
	var err error
	if f.hits, err = f.partition.Fold(Begin.Add(at), k, f.hits[:0]); err != nil {
		return fmt.Errorf("at %s: %w", duration.Format(at), err)
	}
	for i := range f.hits {
		f.to.Hit(&f.hits[i], Begin.Add(at))
	}
	return nil
}
