package consume

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// lane is the work on one partition: the fetch loop puts records in, run takes them out in batches.
type lane struct {
	s         *consumption
	partition int
	wake      chan struct{}
	apply     retry.Trouble
	lag       *ingest.Lag

	mu        sync.Mutex
	queue     []traffic.Message
	next      int64             // to fetch; everything before is in the queue or was taken
	applied   int64             // everything before is applied
	stored    int64             // the commit, -1 for none
	kept      int64             // the position in the sink's store, -1 for none
	back      bool              // the lane is to go back to kept: the sink's store may not have what comes behind
	older     bool              // and has less than it had
	end       int64             // of the log when last seen
	since     traffic.Time      // nothing from next on was appended before this, as far as is known
	inHand    []traffic.Message // the batch that the sink has
	newer     bool              // it holds a record of a newer build
	newest    traffic.Time      // the latest append time of all that was applied, by whoever; 0: not known
	fetched   traffic.Time      // the same of all before next
	doubt     bool              // the partition did not answer since: see sure
	stranded  int64             // while what is next lies beyond the end of the log: that offset, else -1
	missing   int64             // while stranded: how many records from there on the log was seen to hold before
	lookAgain time.Time
	moves     int           // how often it was put elsewhere
	taken     int           // moves when inHand was taken
	untold    []ingest.Loss // not stored yet; nothing is committed before
}

// queueBatches bounds a lane's queue: the records of one fetch more than this many batches.
const queueBatches = 2

// position is what to fetch next; ready is false while the queue is full or the lane is stranded.
func (l *lane) position() (offset int64, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next, l.stranded < 0 && len(l.queue) < queueBatches*l.s.c.opts.BatchRecords
}

// offer takes in a fetch answer.
func (l *lane) offer(ctx context.Context, f ingest.Fetched) {
	if f.Err != nil {
		l.s.outOfPlace(ctx, l, f)
		return
	}
	if !l.s.sure(ctx, l) {
		return
	}
	l.mu.Lock()
	l.queue = append(l.queue, f.Messages...)
	for i := range f.Messages {
		l.fetched = max(l.fetched, f.Messages[i].Appended)
	}
	l.next = max(l.next, f.Next)
	l.end = f.HighWatermark
	if at := f.NotBefore(); at != traffic.BeforeTime {
		l.since = at
	}
	l.show()
	l.mu.Unlock()
	ingest.Wake(l.wake)
}

// show brings the metrics up to date. The caller holds the lock.
func (l *lane) show() {
	since := l.since
	for _, waiting := range [][]traffic.Message{l.inHand, l.queue} {
		if len(waiting) > 0 {
			since = waiting[0].Appended
			break
		}
	}
	l.lag.Behind(l.end-l.applied, since)
	l.lag.Halt(l.newer || l.stranded >= 0)
}

// behind is the number of records between what is applied and the end of the log.
func (l *lane) behind() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return max(0, l.end-l.applied)
}

// run applies batches until running is done. working outlives it by the drain time.
func (l *lane) run(running, working context.Context) {
	for {
		batch, after, ok := l.take(running)
		if !ok {
			return
		}
		if len(batch) > 0 && !l.applyBatch(running, working, batch) {
			return
		}
		l.advance(after)
	}
}

// advance notes that all before an offset is applied.
func (l *lane) advance(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.inHand {
		l.newest = max(l.newest, l.inHand[i].Appended)
	}
	l.inHand = nil
	if l.taken == l.moves { // else it has been put elsewhere meanwhile
		l.applied = offset
	}
	l.show()
}

// take waits for records and takes a batch of them; after is the offset up to which all is applied once the batch is. An
// empty batch only moves over what is no record: control batches and compaction holes.
func (l *lane) take(running context.Context) (batch []traffic.Message, after int64, ok bool) {
	full, linger := l.s.c.opts.BatchRecords, l.s.c.opts.Linger
	overdue := linger <= 0
	var due <-chan time.Time
	for running.Err() == nil {
		l.mu.Lock()
		waiting, moved := len(l.queue), l.next > l.applied
		l.mu.Unlock()
		if waiting >= full || waiting > 0 && overdue || waiting == 0 && moved {
			batch, after = l.cut(full)
			return batch, after, true
		}
		if waiting > 0 && due == nil {
			due = time.After(linger)
		}
		select {
		case <-running.Done():
		case <-l.wake:
		case <-due:
			overdue = true
		}
	}
	return nil, 0, false
}

// cut takes up to n records off the queue.
func (l *lane) cut(n int) (batch []traffic.Message, after int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n = min(n, len(l.queue))
	batch = l.queue[:n:n]
	l.queue = l.queue[n:]
	l.inHand, l.taken = batch, l.moves
	if len(l.queue) == 0 {
		l.queue = nil // lets the fetch answers go
		after = l.next
	} else {
		after = batch[n-1].Offset + 1
	}
	ingest.Wake(l.s.room)
	return batch, after
}

// applyBatch gives the batch to the sink until it takes it; false means that the session has ended before.
func (l *lane) applyBatch(running, working context.Context, batch []traffic.Message) bool {
	c := l.s.c
	wait := retry.NewBackoff(50*time.Millisecond, 5*time.Second)
	for {
		started := time.Now()
		err := c.opts.Sink.Apply(working, batch)
		c.metrics.applied(c.opts.Name, started, len(batch), err)
		newer := (*detectors.UnknownFormatError)(nil)
		l.await(errors.As(err, &newer))
		if err == nil {
			l.apply.Over(c.opts.Logger, "records are taken again", "partition", l.partition)
			return true
		}
		l.apply.Failed(c.opts.Logger, "records are not taken, giving them again", err, "partition", l.partition,
			"from", batch[0].Offset, "records", len(batch))
		if wait.Wait(running) != nil {
			return false
		}
	}
}

// await shows whether the lane waits at a record of a newer build.
func (l *lane) await(newer bool) {
	l.s.c.metrics.await(l.s.c.opts.Name, l.partition, newer)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.newer = newer
	l.show()
}

// progress is what to commit; dirty says that it is not the stored one, steady that it may be stored. What was lost is
// stored first: who comes next finds it no more.
func (l *lane) progress() (c ingest.Commit, steady, dirty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	steady = l.stranded < 0 && len(l.untold) == 0 && !l.back
	return ingest.Commit{Offset: l.applied, Metadata: noteNewest(l.newest)}, steady, steady && l.applied != l.stored
}

func (l *lane) committed(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = offset
}

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
	var kept map[int]int64
	whole := false
	if s.c.opts.Positions != nil {
		if kept, whole, err = s.c.opts.Positions.Kept(ctx); err != nil {
			return err
		}
	}
	for _, p := range s.a.Partitions {
		l := &lane{
			s: s, partition: p, wake: make(chan struct{}, 1), stored: -1, kept: -1, stranded: -1,
			lag: s.c.metrics.lags.Of(s.c.opts.Name, p), since: traffic.At(time.Now()),
		}
		s.c.metrics.begin(s.c.opts.Name, p)
		if commit, ok := commits[p]; ok {
			l.stored, l.newest = commit.Offset, readNewest(commit.Metadata)
			if err := s.place(ctx, l, s.resume(l, commit.Offset, kept, whole), bounds[p]); err != nil {
				return err
			}
		} else {
			if at, ok := kept[p]; ok {
				l.kept = at
			}
			l.start(bounds[p].Start, bounds[p].End)
		}
		s.lanes[p] = l
	}
	return nil
}

// start puts a lane with an empty queue at offset.
func (l *lane) start(offset, end int64) {
	l.next, l.applied, l.end, l.stranded = offset, offset, end, -1
	l.show()
}

// forget takes what is known of the partitions of this generation out of the metrics: they may be another process's now. How far behind
// they are stays for as long as ingest.Lags says; that one has stopped does not, as who reads it next finds that out.
func (s *consumption) forget() {
	for _, l := range s.lanes {
		l.lag.Halt(false)
		s.c.metrics.forget(s.c.opts.Name, l.partition)
	}
}
