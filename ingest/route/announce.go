package route

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// announce commits where c, which is acknowledged, ends, with the ends of the chunk that follows. It covers every source,
// also those without events: a commit that left one out would leave its announcement to an older commit.
func (s *session) announce(ctx context.Context, c *chunk) error {
	s.linger(ctx)
	if p := s.prepared; p != nil && p.behind == s.standing {
		if err := s.announceAs(ctx, p.announced, &p.plan); err != nil {
			return err
		}
		p.announcedAs = s.standing
		return nil
	}
	s.prepared = nil
	p := s.plan(c.next)
	return s.announceAs(ctx, c.next, &p)
}

// announceNews announces events that have come while nothing was announced. Events that wait for older ones which are not
// read yet are left out; a commit without any new event would only be repeated.
func (s *session) announceNews(ctx context.Context) error {
	s.linger(ctx)
	next := standings(s.sources)
	p := s.plan(next)
	waits := p.held && !p.further
	timeout := s.order.wait(waits)
	if waits {
		s.r.tally.bump(func(st *Stats) { st.OrderWaits++ })
		s.await(ctx, timeout)
	}
	if !p.further {
		return nil
	}
	s.prepared = nil
	return s.announceAs(ctx, next, &p)
}

func (s *session) announceAs(ctx context.Context, next []ingest.Announcement, p *chunkPlan) error {
	if err := s.commit(ctx, next); err != nil {
		return err
	}
	s.standing++
	s.order.announced(p.front)
	for i, src := range s.sources {
		if next[i].Progress == traffic.EndOfTime && src.at.Progress != traffic.EndOfTime {
			s.nextTick = traffic.BeforeTime // only ticks tell of an end mark: a replay waits for them
		}
		src.at, src.version = next[i], p.versions[i]
		if src.at.End > src.at.Offset {
			s.lastAnnounced = s.r.opt.Clock()
		}
	}
	return nil
}

// lingerTime is the least time between announcements, so that chunks fill up under load.
const lingerTime = 3 * time.Millisecond

// linger lets a chunk fill up when chunks follow each other closely. The first event after a pause never waits.
func (s *session) linger(ctx context.Context) {
	left := s.lastAnnounced.Add(lingerTime).Sub(s.r.opt.Clock())
	if s.lastAnnounced != traffic.BeforeTime && left > 0 && left <= lingerTime {
		_ = retry.Sleep(ctx, left)
	}
}

// chunkPlan is what the next chunk is to be.
type chunkPlan struct {
	versions []*routingVersion
	further  bool         // an end was set beyond what was announced before
	full     bool         // there is no room for more
	front    traffic.Time // append time of the newest event in it, or of any before
	held     bool         // more is queued, but waits for what is older
}

// plan sets the ends of the chunk that follows, for the sources that have reached the end that was announced last: an
// announced end stands until it is reached, because a part of what it announced may be written. There, and only there,
// the version may change. How far the ends go, the order of append times says (order); what is announced already
// comes first.
func (s *session) plan(next []ingest.Announcement) chunkPlan {
	p := chunkPlan{versions: make([]*routingVersion, len(next))}
	room := chunkRoom{s.r.opt.MaxChunkEvents, s.r.opt.MaxChunkBytes}
	queued := make([]*queuedSource, 0, len(next))
	for i, src := range s.sources {
		a := &next[i]
		p.versions[i] = src.version
		v := s.r.versions.after(src.version)
		q := s.prefetcher.queued(src.partition, a.Offset)
		switch {
		case a.Offset < a.End:
			q.stand(a.End, &room)
		case v == nil:
			continue
		default:
			q.at, p.versions[i], a.Version = a, v, v.number
		}
		queued = append(queued, q)
	}
	p.held = s.order.choose(queued, &room)
	for _, q := range queued {
		if q.at != nil {
			q.at.End = q.reached()
			p.further = p.further || q.at.End > q.at.Offset
		}
	}
	p.full, p.front = room.full(), s.order.chosen
	return p
}

// commit writes the announcements of all sources. An answer that does not come ends the membership: the commit may
// still arrive, and only a generation that is over refuses it.
func (s *session) commit(ctx context.Context, next []ingest.Announcement) error {
	commits := make(map[int]ingest.Commit, len(next))
	for i, src := range s.sources {
		commits[src.partition] = next[i].Commit()
	}
	ctx, cancel := outlasting(ctx)
	defer cancel()
	err := s.assignment.Commits.Commit(ctx, commits)
	switch {
	case err == nil:
		s.r.tally.bump(func(st *Stats) { st.Announcements++ })
		return nil
	case errors.Is(err, ingest.ErrGenerationOver):
		s.r.tally.bump(func(st *Stats) { st.RefusedCommits++ })
		return errOver
	}
	s.r.tally.bump(func(st *Stats) { st.UnansweredCommits++ })
	return fmt.Errorf("a commit without an answer: %w: %w", err, ingest.ErrRejoin)
}

// commitOutlasts is how long a stage that is told to stop waits for the answer to a commit: if it came to be, who committed it counts what it
// covers, and nobody else does.
const commitOutlasts = 2 * time.Second

// outlasting is a context that ends commitOutlasts after ctx does.
func outlasting(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(commitOutlasts, cancel)
		context.AfterFunc(longer, func() { timer.Stop() })
	})
	return longer, func() {
		stop()
		cancel()
	}
}

// preparedChunk is the chunk after the one that is being appended, built while that one is on its way. It changes nothing
// of the protocol: what announced says is committed after the chunk before is acknowledged, and before anything of this
// one is appended. If it does not come to that, it is dropped.
type preparedChunk struct {
	behind      int64 // session.standing when it was prepared; if that has changed, the chunk follows something else
	announcedAs int64 // session.standing after announced was committed; 0 before
	announced   []ingest.Announcement
	plan        chunkPlan
	chunk       *chunk
}

// prepare plans and builds the chunk after c if what is queued fills it: then nothing is gained by waiting for more. A
// chunk that is not full is built as late as can be, so that it takes along what came meanwhile.
func (s *session) prepare(c *chunk) {
	s.prepared = nil
	p := &preparedChunk{behind: s.standing, announced: slices.Clone(c.next)}
	p.plan = s.plan(p.announced)
	if !p.plan.full {
		return
	}
	sources := make([]*source, len(s.sources))
	for i, src := range s.sources {
		sources[i] = &source{partition: src.partition, at: p.announced[i], version: p.plan.versions[i]}
	}
	s.turn = 1 - s.turn // the bytes of c live in the other builder
	p.chunk = s.builders[s.turn].build(sources, s.prefetcher)
	s.prepared = p
}

// nextChunk is the chunk that is announced: the one that was prepared, if it was announced as it was planned and the
// sources are still those, or one that is built now.
func (s *session) nextChunk() *chunk {
	p := s.prepared
	s.prepared = nil
	if p != nil && p.announcedAs == s.standing {
		return p.chunk
	}
	return s.builders[s.turn].build(s.sources, s.prefetcher)
}
