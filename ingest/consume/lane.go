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

	mu        sync.Mutex
	queue     []traffic.Message
	next      int64 // to fetch; everything before is in the queue or was taken
	applied   int64 // everything before is applied
	stored    int64 // the commit, -1 for none
	end       int64 // of the log when last seen
	stranded  int64 // while the commit lies beyond the end of the log: that commit, else -1
	lookAgain time.Time
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
	l.mu.Lock()
	l.queue = append(l.queue, f.Messages...)
	l.next = max(l.next, f.Next)
	l.end = f.HighWatermark
	l.s.c.metrics.lag(l)
	l.mu.Unlock()
	l.signal()
}

func (l *lane) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
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
		l.mu.Lock()
		l.applied = after
		l.s.c.metrics.lag(l)
		l.mu.Unlock()
	}
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
	if len(l.queue) == 0 {
		l.queue = nil // lets the fetch answers go
		after = l.next
	} else {
		after = batch[n-1].Offset + 1
	}
	select {
	case l.s.room <- struct{}{}:
	default:
	}
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
		c.metrics.await(c.opts.Name, l.partition, errors.As(err, &newer))
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

// progress is the offset to commit; dirty says that it is not the stored one.
func (l *lane) progress() (offset int64, dirty bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.applied, l.stranded < 0 && l.applied != l.stored
}

func (l *lane) committed(offset int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stored = offset
}

// dueCheck says whether a stranded lane is to be looked at again, and if so, notes that it is.
func (l *lane) dueCheck(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stranded < 0 || now.Before(l.lookAgain) {
		return false
	}
	l.lookAgain = now.Add(strandedCheck)
	return true
}
