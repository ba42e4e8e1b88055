package route

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Pauses before a chunk that was not acknowledged is given again.
const (
	minChunkPause = 50 * time.Millisecond
	maxChunkPause = 2 * time.Second
)

// letterTimeout bounds one try to put dead letters, whose writer would try for ever: ticks must go on.
const letterTimeout = 2 * time.Second

// session is one generation's routing. One goroutine runs its state machine; beside it a prefetcher reads ahead and a
// watcher does the slow work. Nothing of a session outlives its generation: what was in flight is dropped, never
// retried or committed later, because the group may have given the partitions to others.
//
// Each assigned partition is in one of two states:
//
//	idle    not routed: its commit is not looked at yet, or was refused (see Router.judge), or its log moved away
//	source  routed: in the steps that follow, over all sources together; blocked while it cannot be read on (see watch)
//
//	idle ── adopt: commit fetched and judged, or its gap accepted ──▶ source
//	idle ◀── drop: the next offset lies outside the log ─────────── source
//
//	   ┌▶ announce         commit {offset, end, version, prev, progress} of all sources
//	   │     ▼
//	   │  build, deliver   one batch per keyed partition, given again whole until acknowledged; meanwhile the chunk
//	   │                   after it is built, if it will be full
//	   │     ▼
//	   └─ acknowledged     offsets move on; ends that were reached are set anew
//
// Between the steps, and between the tries of deliver, it ticks.
type session struct {
	r          *Router
	assignment ingest.Assignment
	sources    []*source // ascending by partition
	idle       map[int]*idlePartition
	drops      int
	prefetcher *prefetcher
	order      *order
	watcher    *watcher
	builders   [2]*chunkBuilder // one for the chunk in flight, one for the chunk after it
	turn       int              // whose turn it is: the other one's chunk is acknowledged, or being appended
	prepared   *preparedChunk
	// standing counts what changes where the sources stand: every announcement, and every source that comes or goes.
	standing int64
	wake     chan struct{}

	nextTick      traffic.Time
	lastAnnounced traffic.Time // when a chunk was last announced
	troubles      troubles
}

// source is a partition that is routed.
type source struct {
	partition int
	at        ingest.Announcement // what the group's commit says; ticks and the next chunk start from it
	version   *routingVersion     // at.Version; nil for 0
	blocked   *ingest.Blockage    // why it cannot be read on; nil while it can
	waits     bool                // it moves on, and stands before open transactions most of the time
}

// idlePartition is a partition that is not routed.
type idlePartition struct {
	// number tells observations that were made since the partition came to rest from older ones: a commit that was fetched
	// before must not start it again.
	number  int
	refusal *refusal // nil: not judged yet
	commit  ingest.Commit
	log     ingest.Readable // whether its log can be looked at
}

// errOver ends a session whose generation is over.
var errOver = errors.New("the generation is over")

func newSession(r *Router, a ingest.Assignment) *session {
	s := &session{
		r: r, assignment: a, idle: map[int]*idlePartition{}, wake: make(chan struct{}, 1),
		order:    newOrder(r.opt.Clock),
		nextTick: traffic.BeforeTime, lastAnnounced: traffic.BeforeTime, troubles: troubles{},
	}
	s.prefetcher = newPrefetcher(r.opt.Log, r.opt.FetchWait, 2*r.opt.MaxChunkBytes, s.wake, r.fetchFailed)
	s.watcher = newWatcher(r, a.Commits, s.wake)
	for i := range s.builders {
		s.builders[i] = newBuilder(&r.opt, &r.hints)
	}
	return s
}

func (r *Router) fetchFailed(err error) {
	r.tally.bump(func(st *Stats) { st.FetchFailures++ })
	r.opt.Logger.Debug("route: a fetch failed", "error", err)
}

// run routes until the generation is over. Nil: this member may go on with the next one.
func (s *session) run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var beside sync.WaitGroup
	defer beside.Wait()
	defer cancel()
	s.r.tally.bump(func(st *Stats) { clear(st.Sources) })
	for _, p := range s.assignment.Partitions {
		s.drop(p)
	}
	beside.Go(func() { s.prefetcher.run(ctx) })
	beside.Go(func() { s.watcher.run(ctx) })
	for {
		err := s.step(ctx)
		switch {
		case ctx.Err() != nil, errors.Is(err, errOver):
			return nil
		case err != nil:
			return err
		}
	}
}

// step does what is next: the loop of the state machine.
func (s *session) step(ctx context.Context) error {
	if err := s.apply(ctx); err != nil {
		return err
	}
	s.tickIfDue(ctx)
	switch {
	case s.announcedIsQueued():
		c := s.nextChunk()
		if err := s.deliver(ctx, c); err != nil {
			return err
		}
		for _, key := range c.hints {
			s.r.hints.add(key)
		}
		for i, src := range s.sources {
			s.prefetcher.discard(src.partition, c.next[i].Offset)
		}
		if err := s.announce(ctx, c); err != nil {
			return err
		}
		s.r.tally.bump(func(st *Stats) { st.EventStats.add(&c.stats); st.Chunks++ })
		s.r.minutes.add(c.stats.minutes)
		return nil
	case s.newsIsQueued():
		return s.announceNews(ctx)
	}
	s.await(ctx, s.r.opt.TickEvery)
	return nil
}

// await waits for news, or for the next tick, or for d.
func (s *session) await(ctx context.Context, d time.Duration) {
	d = min(d, s.r.opt.TickEvery)
	if left := s.nextTick.Sub(s.r.opt.Clock()); len(s.sources) > 0 && left > 0 {
		d = min(d, left)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-s.wake:
	case <-t.C:
	case <-ctx.Done():
	}
}

// announcedIsQueued reports whether events of an announced chunk can be routed.
func (s *session) announcedIsQueued() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool {
		_, read := s.prefetcher.peek(src.partition)
		return src.at.Offset < src.at.End && read > src.at.Offset
	})
}

// newsIsQueued reports whether there is something to announce.
func (s *session) newsIsQueued() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool {
		_, read := s.prefetcher.peek(src.partition)
		return src.at.Offset >= src.at.End && read > src.at.Offset && s.r.versions.after(src.version) != nil
	})
}

// standings is where the sources stand.
func standings(sources []*source) []ingest.Announcement {
	at := make([]ingest.Announcement, len(sources))
	for i, src := range sources {
		at[i] = src.at
	}
	return at
}

// deliver appends the chunk, and puts its dead letters, until both are acknowledged. A try that fails is repeated
// whole: nobody knows which of its batches were written, and the fence drops those that come twice.
func (s *session) deliver(ctx context.Context, c *chunk) error {
	appended, wait := len(c.batches) == 0, retry.NewBackoff(minChunkPause, maxChunkPause)
	for try := 1; ; try++ {
		var err error
		if !appended {
			err = s.append(ctx, c, try == 1)
			appended = err == nil
		}
		if appended && len(c.letters) > 0 {
			err = s.putLetters(ctx, c.letters)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		s.troubles.note(s.r.opt.Logger, "chunk", err)
		if err == nil {
			return nil
		}
		s.r.tally.bump(func(st *Stats) { st.ChunkRetries++ })
		s.tickIfDue(ctx)
		_ = wait.Wait(ctx) // its error is ctx's, which the next try meets
	}
}

// append gives the chunk to Kafka. On the first try the chunk after it is prepared meanwhile.
func (s *session) append(ctx context.Context, c *chunk, first bool) error {
	if !first {
		return s.r.opt.Keyed.Append(ctx, c.batches)
	}
	done := make(chan error, 1)
	go func() { done <- s.r.opt.Keyed.Append(ctx, c.batches) }()
	s.prepare(c)
	return <-done
}

func (s *session) putLetters(ctx context.Context, letters []traffic.DeadLetter) error {
	ctx, cancel := context.WithTimeout(ctx, letterTimeout)
	defer cancel()
	return s.r.opt.DeadLetters.Put(ctx, letters)
}
