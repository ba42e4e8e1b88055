package consume

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

const (
	// strandedCheck is how long a partition whose offset lies beyond the end of its log waits for another look: a
	// leader that has just been elected may not know yet how far its log reaches.
	strandedCheck = 5 * time.Second
	// leadersApart is by how much the clocks of two leaders of a partition may differ: so much of what was read is
	// read again.
	leadersApart = 10 * time.Minute
)

// newestMark begins the metadata of a commit: the latest append time of all before it, in microseconds.
const newestMark = "newest="

func noteNewest(at traffic.Time) string {
	if at <= 0 {
		return ""
	}
	return newestMark + strconv.FormatInt(int64(at), 10)
}

// readNewest reads what noteNewest wrote. Commits of builds before, and of other tools, say nothing: 0.
func readNewest(metadata string) traffic.Time {
	text, _ := strings.CutPrefix(metadata, newestMark)
	at, err := strconv.ParseInt(text, 10, 64)
	if err != nil || at < 0 {
		return 0
	}
	return traffic.Time(at)
}

// place puts a lane at the offset that it is to go on from.
//
// Records below the log's start are lost, by retention. An offset beyond the end means that the log lost its tail, or
// was made anew, and so does a record before it that is newer than all that was applied: the log has grown again
// since. Then the lane goes on at what may not have been read, since its sink takes what comes twice. Whatever is
// lost is counted, and stored before anything is committed.
func (s *consumption) place(ctx context.Context, l *lane, offset int64, bounds ingest.Bounds) error {
	if offset > bounds.End {
		s.strand(l, offset, bounds)
		return nil
	}
	if offset < bounds.Start {
		s.outlived(l, offset, bounds)
		return nil
	}
	grown, err := s.regrown(ctx, l.partition, offset, l.applies())
	if err != nil {
		return err
	}
	if grown {
		return s.goBack(ctx, l, offset, bounds)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start(offset, bounds.End)
	return nil
}

// applies is the latest append time of all that was applied, 0 where that is not known.
func (l *lane) applies() traffic.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.newest
}

// outlived goes on at the log's start.
func (s *consumption) outlived(l *lane, offset int64, bounds ingest.Bounds) {
	lost := bounds.Start - offset
	s.c.metrics.lost(s.c.opts.Name, l.partition, lost)
	s.c.opts.Logger.Error("records were deleted before they were read: raise the topic's retention", "partition",
		l.partition,
		"lost", lost, "from", offset, "log_start", bounds.Start)
	s.move(l, bounds.Start, bounds, ingest.Loss{Offsets: lost, From: offset,
		Reason: fmt.Sprintf("offsets %d to %d were deleted before they were read: retention", offset, bounds.Start-1)})
}

// strand has a lane wait for another look.
func (s *consumption) strand(l *lane, offset int64, bounds ingest.Bounds) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.missing = max(0, l.end-offset)
	l.queue, l.next, l.applied, l.end, l.stranded = nil, offset, offset, bounds.End, offset
	l.moves++
	l.lookAgain = time.Now().Add(strandedCheck)
	s.c.metrics.strand(s.c.opts.Name, l.partition, 1)
	l.show()
}

// dueCheck reports whether a stranded lane is due for another look, and if so sets the time of the next one.
func (l *lane) dueCheck(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stranded < 0 || now.Before(l.lookAgain) {
		return false
	}
	l.lookAgain = now.Add(strandedCheck)
	return true
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
		l, b := s.lanes[p], bounds[p]
		// where it is not known what was read, nobody can say that the log has not grown again
		if l.stranded > b.End || l.applies() == 0 {
			err = s.goBack(ctx, l, l.stranded, b)
		} else {
			err = s.place(ctx, l, l.stranded, b)
		}
		if err == nil {
			s.c.metrics.strand(s.c.opts.Name, p, 0)
		}
	}
}

// goBack puts a lane at the first record that may not have been read, in a log that is not the one that was read up
// to offset.
func (s *consumption) goBack(ctx context.Context, l *lane, offset int64, bounds ingest.Bounds) error {
	from, newest := bounds.Start, l.applies()
	if log, ok := s.c.opts.Log.(ingest.TimedLog); ok && newest > 0 {
		at, err := log.OffsetsAt(ctx, []int{l.partition}, newest.Add(-leadersApart))
		if err != nil {
			return err
		}
		from = max(bounds.Start, at[l.partition])
		if at[l.partition] == detectors.NoOffset {
			from = bounds.End
		}
	}
	s.c.metrics.lost(s.c.opts.Name, l.partition, l.missing)
	s.c.metrics.replaced(s.c.opts.Name, l.partition, 1)
	s.c.opts.Logger.Error("the log has lost its end, or was made anew: what it held and was not read is lost; going "+
		"on at what it holds and may not "+
		"have been read", "partition", l.partition, "read_up_to", offset, "log_start", bounds.Start, "log_end", bounds.End,
		"going_on_at", from)
	s.move(l, from, bounds, ingest.Loss{Offsets: l.missing, From: offset,
		Reason: fmt.Sprintf("the log lost its end or was made anew: it was read up to offset %d, and what it had "+
			"beyond is not known; read again from offset %d", offset, from)})
	return nil
}

// move puts a lane elsewhere, and notes what that loses.
func (s *consumption) move(l *lane, to int64, bounds ingest.Bounds, lost ingest.Loss) {
	lost.Stage, lost.Partition, lost.Next, lost.Log = s.c.opts.Name, l.partition, to, bounds
	l.mu.Lock()
	defer l.mu.Unlock()
	if s.c.opts.Lost != nil {
		l.untold = append(l.untold, lost)
	}
	l.queue, l.missing = nil, 0
	l.moves++
	l.start(to, bounds.End)
	ingest.Wake(s.untold)
}

// regrown reports whether the log holds a record before offset that is newer than all that was applied before it:
// newest.
func (s *consumption) regrown(ctx context.Context, partition int, offset int64, newest traffic.Time) (bool, error) {
	log, ok := s.c.opts.Log.(ingest.TimedLog)
	if !ok || newest == 0 {
		return false, nil
	}
	at, err := log.OffsetsAt(ctx, []int{partition}, newest.Add(time.Millisecond))
	if err != nil {
		return false, err
	}
	first := at[partition]
	if first == detectors.NoOffset || first >= offset {
		return false, nil
	}
	// it may be no record, but a marker
	answers, err := log.Fetch(ctx, []ingest.Position{{Partition: partition, Offset: first}}, s.c.opts.Wait)
	for _, f := range answers {
		for i := range f.Messages {
			if m := &f.Messages[i]; m.Offset < offset && m.Appended > newest {
				return true, nil
			}
		}
	}
	return false, err
}

// sure reports whether the log that answers a lane is the one that it was read from. Only after the partition did not
// answer, or with an error, may it be another one: its leader has changed, and the new one's log may lack an end that
// it has grown past again.
func (s *consumption) sure(ctx context.Context, l *lane) bool {
	l.mu.Lock()
	doubt, next, newest := l.doubt, l.next, max(l.fetched, l.newest)
	l.mu.Unlock()
	if !doubt {
		return true
	}
	grown, err := s.regrown(ctx, l.partition, next, newest)
	if grown {
		var bounds map[int]ingest.Bounds
		if bounds, err = s.c.opts.Log.Bounds(ctx, []int{l.partition}); err == nil {
			err = s.goBack(ctx, l, next, bounds[l.partition])
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.doubt = err != nil // then the next answer asks again
	return err == nil && !grown
}

// outOfPlace handles a partition's own error during the session. Errors that go away with a retry are logged and
// counted by the fetch log already.
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
	next, applied := l.next, l.applied
	l.mu.Unlock()
	if b := bounds[l.partition]; next >= b.Start && next <= b.End {
		return // it was a leader that lagged behind
	}
	if applied != next {
		return // first what was read; applied must not pass it by
	}
	_ = s.place(ctx, l, next, bounds[l.partition]) // asked again by the next fetch
}
