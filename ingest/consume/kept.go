package consume

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest"
)

// Positions are how far the store of a sink has what the stage has read, kept in that same store. A store that comes
// back older than it was, restored or failed over, has older positions as well, whatever Kafka's commits say.
type Positions interface {
	// Kept gives, by partition, the offset before which the store has everything. Partitions that it does not know are
	// left out; whole says that it has kept positions from its beginning, so that it has nothing of those.
	Kept(ctx context.Context) (kept map[int]int64, whole bool, err error)
	// Keep stores positions, each where the store has the one before still. It gives what the store has of the
	// others: -1 for nothing. Where the store may have lost what was written since it was asked last, since it was
	// started anew, failed over or put back, Keep stores none and says anew: what is behind the positions is to be
	// written again.
	Keep(ctx context.Context, all []ingest.Kept) (others map[int]int64, anew bool, err error)
}

const (
	// keepTimeout bounds one attempt: nothing is committed to Kafka meanwhile.
	keepTimeout = 5 * time.Second
	// keepLookEvery is how often the store is asked about partitions of which nothing new was read.
	keepLookEvery = 5 * time.Second
)

// resume is where a lane goes on that Kafka knows to have come to commit. A store that has less than that has lost
// what it had: it is given it again. Of a partition that a store does not know it may have everything that was written
// before it kept positions, unless it has from its beginning.
func (s *consumption) resume(l *lane, commit int64, kept map[int]int64, whole bool) int64 {
	l.kept = -1
	at, ok := kept[l.partition]
	switch {
	case ok:
		l.kept = at
	case !whole:
		return commit
	}
	if at >= commit {
		return commit
	}
	s.tellOlder(l, commit, at)
	return at
}

func (s *consumption) tellOlder(l *lane, readTo, has int64) {
	s.c.metrics.older(s.c.opts.Name, l.partition, 1)
	s.c.opts.Logger.Warn("the store has come back older than it was: it is given again what it has lost", "partition",
		l.partition, "read_up_to", readTo, "going_on_at", has)
}

// keep has the sink's store keep how far it has come, before Kafka is told. A lane of which the store has less than
// it was told goes back to there. It reports whether Kafka may be told.
func (s *consumption) keep(ctx context.Context, all []ingest.Kept) bool {
	moved := slices.ContainsFunc(all, func(k ingest.Kept) bool { return k.Now != k.Before })
	if s.c.opts.Positions == nil || !moved && time.Since(s.looked) < keepLookEvery {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	others, anew, err := s.c.opts.Positions.Keep(ctx, all)
	if err != nil {
		s.keeping.Failed(s.c.opts.Logger, "positions are not stored, and nothing is committed, trying again", err)
		return false
	}
	s.keeping.Over(s.c.opts.Logger, "positions are stored again")
	s.looked = time.Now()
	for _, k := range all {
		if other, differs := others[k.Partition]; differs {
			s.lanes[k.Partition].keeps(other, other < k.Before)
		} else if !anew {
			s.lanes[k.Partition].keeps(k.Now, false)
		}
	}
	if anew {
		s.c.opts.Logger.Info("the store was started anew, failed over or put back: what was written since its " +
			"positions were kept is written again")
		for _, l := range s.lanes {
			l.doubts()
		}
	}
	return len(others) == 0 && !anew
}

// keeps notes what the store has of a partition; older says that this is less than it had, and the lane is to go back
// to it.
func (l *lane) keeps(offset int64, older bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.back, l.older = offset, older, older
}

// doubts has the lane go back to what the store is known to have. One that waits for its log to grow stores nothing
// meanwhile.
func (l *lane) doubts() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = l.back || l.stranded < 0
}

func (l *lane) keptUpTo() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.kept
}

// rewind puts the lanes whose store has come back older where that one is. Only what fetches may do so: an answer
// that is under way would be taken for what comes next.
func (s *consumption) rewind(ctx context.Context) {
	for _, l := range s.lanes {
		l.mu.Lock()
		back, older, to, from := l.back, l.older, l.kept, l.applied
		l.mu.Unlock()
		if !back {
			continue
		}
		bounds, err := s.c.opts.Log.Bounds(ctx, []int{l.partition})
		if err != nil {
			return // the fetch of the other lanes tells about it; the next turn comes
		}
		if to < 0 { // it has nothing: all that the log has is written, and of the rest nobody knows
			to = bounds[l.partition].Start
		}
		if older {
			s.tellOlder(l, from, to)
		}
		s.put(l, to, bounds[l.partition]) // where the log does not have that, the fetch finds out
		l.mu.Lock()
		l.back, l.older = false, false
		l.mu.Unlock()
	}
}

// put has a lane go on elsewhere.
func (s *consumption) put(l *lane, to int64, bounds ingest.Bounds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.queue, l.missing = nil, 0
	l.moves++
	l.start(to, bounds.End)
}
