// Package consume runs a Sink over a topic, as the stages RECORD and ENFORCE do, and writes dead letters.
package consume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
)

// Options say what a Consumer reads and what it does with it.
type Options struct {
	Name  string       // of the stage, in metrics and logs; required
	Log   ingest.Log   // required
	Group ingest.Group // required
	// Sink is required. Apply is called for one batch of a partition at a time, in order, and for several partitions at
	// the same time.
	Sink ingest.Sink
	// Assigned is told of the partitions of each generation before the first batch of it. Nil: nobody is.
	Assigned func(partitions []int)
	// Lost keeps what the stage will never read; it is called again until it returns nil, and may be told the same
	// twice. Nil: nobody keeps it.
	Lost func(ctx context.Context, l ingest.Loss) error
	// Positions are those in the store of the sink. Nil: the sink has no store that may come back older than it was.
	Positions Positions

	// The program leaves the numbers below to their defaults; tests and simulations set them.

	BatchRecords int           // greatest batch given to Apply; default 1,000
	Linger       time.Duration // how long a batch that is not full waits for more; default 0
	Wait         time.Duration // how long a fetch waits for records; default 500 ms
	CommitEvery  time.Duration // default 200 ms
	// Drain is how long a batch in hand may take to be applied when the generation or the process ends; default 4 s. It must
	// be less than the 10 s that a group's members have in a rebalance; a last commit (2 s) and leaving the group (3 s) may
	// follow.
	Drain time.Duration

	Logger     *slog.Logger          // nil: silent
	Registerer prometheus.Registerer // nil: metrics are kept but not published
}

func (o Options) withDefaults() (Options, error) {
	if o.Name == "" || o.Log == nil || o.Group == nil || o.Sink == nil {
		return o, errors.New("consumer: name, log, group and sink are required")
	}
	if o.BatchRecords <= 0 {
		o.BatchRecords = 1000
	}
	if o.Wait <= 0 {
		o.Wait = 500 * time.Millisecond
	}
	if o.CommitEvery <= 0 {
		o.CommitEvery = 200 * time.Millisecond
	}
	if o.Drain <= 0 {
		o.Drain = 4 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Logger = o.Logger.With("stage", o.Name)
	return o, nil
}

// Consumer runs a Sink over a topic as a member of a group: each record is applied at least once, in the order of its
// partition. A batch that the sink refuses is given to it again, with back-off, until it takes it; the other partitions go
// on meanwhile. Offsets are committed after Apply has returned nil.
type Consumer struct {
	opts    Options
	metrics *metrics

	present atomic.Pointer[consumption] // the present generation's, nil between two
}

// New checks the options; Run starts it.
func New(opts Options) (*Consumer, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	metrics, err := newMetrics(opts.Registerer, opts.Name)
	if err != nil {
		return nil, err
	}
	return &Consumer{opts: opts, metrics: metrics}, nil
}

// Run consumes until ctx is done; then it lets the batches in hand finish, commits, and leaves the group.
func (c *Consumer) Run(ctx context.Context) error {
	return c.metrics.lags.Run(ctx, c.opts.Name, c.opts.Group, c.session)
}

// Stats is how the partitions are that a consumer reads.
type Stats struct {
	Owned int   // partitions
	Lag   int64 // records between what is applied and the ends of these partitions, as far as it has seen them
}

// Stats answers at once, and may be called at any time.
func (c *Consumer) Stats() Stats {
	var stats Stats
	if s := c.present.Load(); s != nil {
		stats.Owned = len(s.lanes)
		for _, l := range s.lanes {
			stats.Lag += l.behind()
		}
	}
	return stats
}

// consumption is a Consumer's work during one generation.
type consumption struct {
	c     *Consumer
	a     ingest.Assignment
	lanes map[int]*lane
	room  chan struct{} // a full lane has taken something out
	fetch retry.Trouble

	untold chan struct{} // a lane has lost something

	keeping retry.Trouble
	looked  time.Time // when the sink's store was asked about all partitions last
}

func (c *Consumer) session(ctx context.Context, a ingest.Assignment) error {
	s := &consumption{
		c: c, a: a, lanes: make(map[int]*lane), room: make(chan struct{}, 1), untold: make(chan struct{}, 1),
	}
	if err := s.open(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer s.forget()
	if c.opts.Assigned != nil {
		c.opts.Assigned(a.Partitions)
	}
	c.present.Store(s)
	defer c.present.Store(nil)
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	// Apply goes on a little after the session's end, so that a batch that is nearly done need not be done again elsewhere.
	working, abandon := context.WithCancel(context.WithoutCancel(ctx))
	defer abandon()
	defer context.AfterFunc(running, func() {
		timer := time.AfterFunc(c.opts.Drain, abandon)
		context.AfterFunc(working, func() { timer.Stop() })
	})()
	var lanes, committer sync.WaitGroup
	for _, l := range s.lanes {
		lanes.Go(func() { l.run(running, working) })
	}
	committer.Go(func() { s.commitLoop(running, stop) })
	committer.Go(func() { s.tellLoop(running) })
	s.fetchLoop(running)
	stop(nil) // the generation may have ended, or the committer stopped the session; now the lanes too
	lanes.Wait()
	committer.Wait()
	return s.finish(ctx, context.Cause(running))
}

// finish makes the session's last commit and decides how the membership goes on. cause is the reason why the work ended.
func (s *consumption) finish(ctx context.Context, cause error) error {
	switch {
	case errors.Is(cause, ingest.ErrGenerationOver):
		return nil
	case errors.Is(cause, ingest.ErrRejoin):
		return cause
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), finalCommit)
	defer cancel()
	err := s.commit(last)
	if err == nil || errors.Is(err, ingest.ErrGenerationOver) {
		return nil
	}
	return fmt.Errorf("%w: last commit: %w", ingest.ErrRejoin, err)
}

const (
	// finalCommit bounds the commit at the end of a session.
	finalCommit = 2 * time.Second
	// fullLaneWait is the fetch wait while a lane's queue is full: the loop must notice soon that there is room again.
	fullLaneWait = 20 * time.Millisecond
)

// fetchLoop reads all partitions at once and hands the records to the lanes.
func (s *consumption) fetchLoop(ctx context.Context) {
	wait := retry.NewBackoff(100*time.Millisecond, 5*time.Second)
	for ctx.Err() == nil {
		s.revive(ctx)
		s.rewind(ctx)
		positions, full := s.positions()
		if len(positions) == 0 {
			s.awaitRoom(ctx)
			continue
		}
		timeout := s.c.opts.Wait
		if full {
			timeout = min(timeout, fullLaneWait)
		}
		answers, err := s.c.opts.Log.Fetch(ctx, positions, timeout)
		s.doubt(positions, answers)
		if err != nil {
			if ctx.Err() == nil {
				s.fetch.Failed(s.c.opts.Logger, "cannot read, trying again", err)
				_ = wait.Wait(ctx)
			}
			continue
		}
		wait.Reset()
		s.fetch.Over(s.c.opts.Logger, "reading again")
		for _, f := range answers {
			if l := s.lanes[f.Partition]; l != nil {
				l.offer(ctx, f)
			}
		}
	}
}

// doubt marks the lanes that were asked for and did not answer, or with an error.
func (s *consumption) doubt(asked []ingest.Position, answers []ingest.Fetched) {
	for _, position := range asked {
		if slices.ContainsFunc(answers, func(f ingest.Fetched) bool {
			return f.Partition == position.Partition &&
				f.Err == nil
		}) {
			continue
		}
		l := s.lanes[position.Partition]
		l.mu.Lock()
		l.doubt = true
		l.mu.Unlock()
	}
}

// positions are those of the lanes that have room.
func (s *consumption) positions() (positions []ingest.Position, full bool) {
	for _, l := range s.lanes {
		offset, ready := l.position()
		if ready {
			positions = append(positions, ingest.Position{Partition: l.partition, Offset: offset})
		} else {
			full = true
		}
	}
	return positions, full
}

// awaitRoom waits until a lane has taken something out of its queue, or it is time to look at stranded lanes again.
func (s *consumption) awaitRoom(ctx context.Context) {
	timer := time.NewTimer(strandedCheck)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-s.room:
	case <-timer.C:
	}
}

// commitLoop commits what is new every CommitEvery. A refused commit ends the session, and so does one without an answer:
// the member then leaves, so that the lost commit cannot arrive after later ones and move the group back.
func (s *consumption) commitLoop(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(s.c.opts.CommitEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := s.commit(ctx)
		switch {
		case err == nil:
			continue
		case ctx.Err() != nil:
			return // the last commit of the session follows
		case errors.Is(err, ingest.ErrGenerationOver):
			stop(err)
		default:
			stop(fmt.Errorf("%w: %w", ingest.ErrRejoin, err))
		}
		return
	}
}

// commit stores the progress of the lanes that have any, in the sink's own store first.
func (s *consumption) commit(ctx context.Context) error {
	commits := make(map[int]ingest.Commit)
	var positions []ingest.Kept
	for _, l := range s.lanes {
		c, steady, dirty := l.progress()
		if dirty {
			commits[l.partition] = c
		}
		if steady {
			positions = append(positions, ingest.Kept{Partition: l.partition, Before: l.keptUpTo(), Now: c.Offset})
		}
	}
	if !s.keep(ctx, positions) {
		return nil
	}
	if len(commits) == 0 {
		return nil
	}
	if err := s.a.Commits.Commit(ctx, commits); err != nil {
		return err
	}
	for partition, commit := range commits {
		s.lanes[partition].committed(commit.Offset)
	}
	return nil
}
