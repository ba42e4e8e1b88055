package route

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// announce commits next, with the ends of the chunk that follows. It covers every source, also those without events:
// a commit that left one out would leave its announcement to an older commit.
func (s *session) announce(ctx context.Context, next []ingest.Announcement) error {
	s.linger(ctx)
	if ahead := s.prepared; ahead != nil && s.follows(ahead, next) {
		return s.announceAs(ctx, ahead.announced, &ahead.plan)
	}
	s.prepared = nil
	p := s.plan(next)
	return s.announceAs(ctx, next, &p)
}

// announceNews announces what has come while nothing was announced. What waits for something older that is not read yet
// is not announced: a commit that says nothing new would only be repeated.
func (s *session) announceNews(ctx context.Context) error {
	s.linger(ctx)
	next := s.present()
	p := s.plan(next)
	waits := p.held && !p.further
	patience := s.order.wait(waits)
	if waits {
		s.r.tally.bump(func(st *Stats) { st.OrderWaits++ })
		s.await(ctx, patience)
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
	s.order.announced(p.front)
	for i, src := range s.sources {
		if next[i].Progress == traffic.EndOfTime && src.at.Progress != traffic.EndOfTime {
			s.nextTick = traffic.BeforeTime // only ticks tell of an end mark: a replay waits for them
		}
		src.at, src.version = next[i], p.versions[i]
		if src.at.End > src.at.Offset {
			s.announced = s.r.opt.Clock()
		}
	}
	return nil
}

// linger lets a chunk fill up when chunks follow each other closely. The first event after a pause never waits.
func (s *session) linger(ctx context.Context) {
	left := s.announced.Add(s.r.opt.Linger).Sub(s.r.opt.Clock())
	if s.announced != traffic.BeforeTime && left > 0 && left <= s.r.opt.Linger {
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
// the version may change. How far the ends go, the order of append times says (routeOrder); what is announced already
// comes first.
func (s *session) plan(next []ingest.Announcement) chunkPlan {
	p := chunkPlan{versions: make([]*routingVersion, len(next))}
	room := chunkRoom{s.r.opt.MaxChunkEvents, s.r.opt.MaxChunkBytes}
	queued := make([]*queuedSource, 0, len(next))
	for i, src := range s.sources {
		a := &next[i]
		p.versions[i] = src.version
		v := s.versionFor(src)
		q := s.intake.queued(src.partition, a.Offset)
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
	err := s.assignment.Commits.Commit(ctx, commits)
	if s.r.deviate.commit != nil {
		err = s.r.deviate.commit(err)
	}
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

// versionFor is the version that a chunk of src would be announced under now: versions only go forward.
func (s *session) versionFor(src *source) *routingVersion {
	newest := s.r.versions.newest()
	if newest == nil || src.version != nil && src.version.number > newest.number {
		return src.version
	}
	return newest
}
