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
	// Kept gives, by partition, the offset before which the store has everything. Partitions that it does not know
	// are left out.
	Kept(ctx context.Context) (map[int]int64, error)
	// Keep stores positions, each where the store has the one before still. It gives what the store has of the
	// others: -1 for nothing.
	Keep(ctx context.Context, all []ingest.Kept) (others map[int]int64, err error)
}

const (
	// keepTimeout bounds one attempt: nothing is committed to Kafka meanwhile.
	keepTimeout = 5 * time.Second
	// keepLookEvery is how often the store is asked about partitions of which nothing new was read.
	keepLookEvery = 5 * time.Second
)

// recall reads what the sink's store has.
func (s *consumption) recall(ctx context.Context) (map[int]int64, error) {
	if s.c.opts.Positions == nil {
		return nil, nil
	}
	return s.c.opts.Positions.Kept(ctx)
}

// resume is where a lane goes on that Kafka knows to have come to commit. A store that has less than that has lost
// what it had: it is given it again.
func (s *consumption) resume(l *lane, commit int64, kept map[int]int64) int64 {
	l.kept = -1
	at, ok := kept[l.partition]
	if !ok {
		return commit
	}
	if l.kept = at; at >= commit {
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
	others, err := s.c.opts.Positions.Keep(ctx, all)
	if err != nil {
		s.keeping.Failed(s.c.opts.Logger, "positions are not stored, and nothing is committed, trying again", err)
		return false
	}
	s.keeping.Over(s.c.opts.Logger, "positions are stored again")
	s.looked = time.Now()
	for _, k := range all {
		if other, differs := others[k.Partition]; differs {
			s.lanes[k.Partition].keeps(other, other < k.Before)
		} else {
			s.lanes[k.Partition].keeps(k.Now, false)
		}
	}
	return len(others) == 0
}

// keeps notes what the store has of a partition; back says that the lane is to go back to it.
func (l *lane) keeps(offset int64, back bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.kept, l.back = offset, back
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
		back, to, from := l.back, max(0, l.kept), l.applied
		l.mu.Unlock()
		if !back {
			continue
		}
		bounds, err := s.c.opts.Log.Bounds(ctx, []int{l.partition})
		if err != nil {
			return // the fetch of the other lanes tells about it; the next turn comes
		}
		s.tellOlder(l, from, to)
		s.put(l, to, bounds[l.partition]) // where the log does not have that, the fetch finds out
		l.mu.Lock()
		l.back = false
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
