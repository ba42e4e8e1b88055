package consume

import (
	"context"
	"errors"
	"time"

	"github.com/weirhq/weir/ingest"
)

// strandedCheck is how often a partition whose commit lies beyond the end of its log is looked at again.
const strandedCheck = 5 * time.Second

// open reads the group's commits and the logs' bounds and gives each partition a lane.
func (s *consumption) open(ctx context.Context) error {
	if len(s.a.Partitions) == 0 {
		return nil
	}
	commits, err := s.a.Commits.Fetch(ctx, s.a.Partitions)
	if err != nil {
		return err
	}
	bounds, err := s.c.opts.Log.Bounds(ctx, s.a.Partitions)
	if err != nil {
		return err
	}
	for _, p := range s.a.Partitions {
		l := &lane{s: s, partition: p, wake: make(chan struct{}, 1), stored: -1, stranded: -1}
		s.c.metrics.await(s.c.opts.Name, p, false)
		if commit, ok := commits[p]; ok {
			l.stored = commit.Offset
			l.place(commit.Offset, bounds[p])
		} else {
			l.start(bounds[p].Start, bounds[p].End)
		}
		s.lanes[p] = l
	}
	return nil
}

// start puts a lane with an empty queue at offset.
func (l *lane) start(offset, end int64) {
	l.next, l.applied, l.end, l.stranded = offset, offset, end, -1
	l.s.c.metrics.lag(l)
}

// place puts a lane at the offset that it is to go on from. Records below the log's start are lost, by retention: they
// are counted, and the lane goes on at the start. An offset beyond the end means that the log was made anew, or lost its
// tail: going on would skip what is written until the log has grown so far, so the lane waits.
func (l *lane) place(offset int64, bounds ingest.Bounds) {
	c := l.s.c
	switch {
	case offset > bounds.End:
		l.strand(offset, bounds)
	case offset < bounds.Start:
		lost := bounds.Start - offset
		c.metrics.lost(c.opts.Name, l.partition, lost)
		c.opts.Logger.Error("records were deleted before they were read: raise the topic's retention", "partition", l.partition,
			"lost", lost, "from", offset, "log_start", bounds.Start)
		l.start(bounds.Start, bounds.End)
	default:
		l.start(offset, bounds.End)
	}
}

func (l *lane) strand(offset int64, bounds ingest.Bounds) {
	c := l.s.c
	c.mu.Lock()
	before, known := c.stranded[l.partition]
	c.stranded[l.partition] = offset
	c.mu.Unlock()
	l.next, l.applied, l.end, l.stranded = offset, offset, bounds.End, offset
	l.lookAgain = time.Now().Add(strandedCheck)
	c.metrics.strand(c.opts.Name, l.partition, 1)
	if !known || before != offset {
		c.opts.Logger.Error("the commit lies beyond the end of the log, as if the topic was made anew: nothing is read until the "+
			"log has grown past it; stop weir and reset the group's offset to go on sooner",
			"partition", l.partition, "commit", offset, "log_end", bounds.End)
	}
}

// revive looks at stranded lanes again, every strandedCheck.
func (s *consumption) revive(ctx context.Context) {
	var partitions []int
	for _, l := range s.lanes {
		if l.dueCheck(time.Now()) {
			partitions = append(partitions, l.partition)
		}
	}
	if len(partitions) == 0 {
		return
	}
	bounds, err := s.c.opts.Log.Bounds(ctx, partitions)
	if err != nil {
		return // the fetch of the other lanes tells about it; the next check comes
	}
	for _, p := range partitions {
		l := s.lanes[p]
		l.mu.Lock()
		if offset := l.stranded; offset >= 0 && offset <= bounds[p].End {
			s.c.unstrand(p)
			s.c.opts.Logger.Warn("the log has reached the commit again, going on there; if the topic was made anew, what lies before "+
				"was not read", "partition", p, "commit", offset, "log_end", bounds[p].End)
			l.place(offset, bounds[p])
		}
		l.mu.Unlock()
	}
}

func (c *Consumer) unstrand(partition int) {
	c.mu.Lock()
	delete(c.stranded, partition)
	c.mu.Unlock()
	c.metrics.strand(c.opts.Name, partition, 0)
}

// outOfPlace handles a partition's own error during the session. The fetch log has logged and counted what a retry mends.
func (s *consumption) outOfPlace(ctx context.Context, l *lane, f ingest.Fetched) {
	if !errors.Is(f.Err, ingest.ErrOutOfRange) {
		l.apply.Failed(s.c.opts.Logger, "cannot read a partition, trying again", f.Err, "partition", l.partition)
		return
	}
	bounds, err := s.c.opts.Log.Bounds(ctx, []int{l.partition})
	if err != nil {
		return // asked again by the next fetch
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next >= bounds[l.partition].Start && l.next <= bounds[l.partition].End {
		return // it was a leader that lagged behind
	}
	if l.applied != l.next {
		return // first what was read; applied must not pass it by
	}
	l.place(l.next, bounds[l.partition])
}

// forget takes the partitions of this generation out of the metrics: they may be another process's now.
func (s *consumption) forget() {
	for _, l := range s.lanes {
		s.c.metrics.forget(s.c.opts.Name, l.partition)
	}
}
