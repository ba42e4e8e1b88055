package backtest

import (
	"fmt"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// foldTogether is how many records are folded at once, at most.
const foldTogether = 256

// shard is one keyed partition: the windows that shadow would have, and what blocks would do to its events. One goroutine
// owns it.
type shard struct {
	plan    *plan
	windows folder
	records []detectors.Record
	found   []*finding // by counted rule
	peaks   *peaks
	blocks  *blockade // nil: no rule has a block
}

func newShard(p *plan, q int) *shard {
	s := &shard{plan: p, windows: newFolder(p, q, &p.counted, p.ladders), records: make([]detectors.Record, 0, foldTogether), peaks: newPeaks(p)}
	for range p.counted.Rules {
		found := newFinding(p.Top)
		found.noHits = p.NoHits
		s.found = append(s.found, found)
	}
	for i := range p.Rules {
		if p.Rules[i].Block != nil {
			s.blocks = newBlockade(p, q)
			break
		}
	}
	return s
}

// take counts a batch's events.
func (s *shard) take(q int, b *batch) error {
	for _, c := range b.counted[q] {
		t := c.target
		s.records = s.records[:len(s.records)+1] // of records of events only: what fill does not write stays as it is
		s.records[len(s.records)-1].Appended = c.event.appended
		k := &s.records[len(s.records)-1].Keyed
		if t.hint == 0 {
			s.windows.fill(k, c.event)
		} else {
			s.windows.fillHint(k, c.event)
		}
		told := t.told()
		k.Rules, k.Units, k.Tiers, k.Extra, k.Sample = t.rules, told.units, told.tiers, told.extra, c.event.sample
		k.Reached, k.Beyond = told.reached, told.beyond
		if len(s.records) == foldTogether {
			if err := s.fold(); err != nil {
				return err
			}
		}
		s.peaks.add(c.event, t)
	}
	if err := s.fold(); err != nil {
		return err
	}
	if b.tick {
		if err := s.windows.tick(b); err != nil {
			return err
		}
	}
	s.collect()
	if s.blocks == nil {
		return nil
	}
	return s.blocks.take(q, b)
}

func (s *shard) fold() error {
	var err error
	_, s.windows.hits, err = s.windows.partition.FoldAll(s.records, s.windows.hits)
	s.records = s.records[:0]
	if err != nil {
		return fmt.Errorf("keyed partition %d: %w", s.windows.keyed, err)
	}
	return nil
}

// collect keeps what is final of the hits: an episode is when it closes.
func (s *shard) collect() {
	for i := range s.windows.hits {
		if h := &s.windows.hits[i]; h.Kind.Episode() && h.Phase == detectors.PhaseClosed {
			rule := s.plan.index[h.Rule]
			h.Rule = s.plan.Rules[rule/s.plan.values].ID
			s.found[rule].take(h)
		}
	}
	clear(s.windows.hits)
	s.windows.hits = s.windows.hits[:0]
}

// folder gives records to a partition as routers would have written them.
type folder struct {
	keyed      int
	generation int64
	partition  *detectors.Partition
	prev       []int64 // of each source partition, the offset that was sent last
	hits       []detectors.Hit
}

func newFolder(p *plan, q int, counted *rules.Routing, ladders [][]int) folder {
	f := folder{keyed: q, generation: p.Generation, prev: make([]int64, p.Partitions)}
	for i := range f.prev {
		f.prev[i] = detectors.NoOffset
	}
	f.partition = detectors.NewPartition(detectors.Config{
		Keyed: q, Sources: p.Partitions, Generation: p.Generation, Secret: p.Secret, Budget: p.budget(), IdleMargin: p.idleMargin,
	})
	f.partition.LearnLadders(counted, ladders)
	return f
}

// fill writes down an event, but for rules, units, tiers, extra values and sample.
func (f *folder) fill(k *detectors.Keyed, e *event) {
	f.fillHint(k, e)
	k.Prev = f.prev[e.source]
	f.prev[e.source] = e.offset
}

// fillHint is fill for a record that only tells of a good source.
func (f *folder) fillHint(k *detectors.Keyed, e *event) {
	k.Kind, k.Generation, k.Source, k.Offset, k.Prev = detectors.KeyedEvent, f.generation, e.source, e.offset, detectors.NoOffset
	k.Time, k.Progress, k.Version, k.Identity, k.Good = e.time, e.progress, 1, e.identity, e.good
}

// tick tells the partition how far all sources have come.
func (f *folder) tick(b *batch) error {
	for i := range b.sources {
		src := &b.sources[i]
		k := f.progress(i, src.next, src.progress)
		switch {
		case b.ended:
			k.Time = traffic.EndOfTime
		case b.live && b.clock.Sub(src.came) >= idleFor:
			k.Idle, k.Clock = true, b.clock
		}
		if err := f.fold(b.clock, &k); err != nil {
			return err
		}
	}
	return nil
}

// progress is a tick that says how far one source has come.
func (f *folder) progress(source int, next int64, at traffic.Time) detectors.Keyed {
	return detectors.Keyed{Kind: detectors.KeyedTick, Generation: f.generation, Source: source, Offset: next, Prev: f.prev[source], Time: at}
}

func (f *folder) fold(appended traffic.Time, k *detectors.Keyed) error {
	var err error
	if f.hits, err = f.partition.Fold(appended, k, f.hits); err != nil {
		return fmt.Errorf("keyed partition %d: %w", f.keyed, err)
	}
	return nil
}
