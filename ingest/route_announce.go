package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/weirhq/weir/traffic"
)

// announce commits next, with the ends of the chunk that follows. It covers every source, also those without events:
// a commit that left one out would leave its announcement to an older commit.
func (s *routeSession) announce(ctx context.Context, next []Announcement) error {
	s.linger(ctx)
	versions, ahead := []*routingVersion(nil), s.prepared
	if ahead != nil && s.follows(ahead, next) {
		next, versions = ahead.announced, ahead.versions
	} else {
		versions, s.prepared = s.plan(next), nil
	}
	if err := s.commit(ctx, next); err != nil {
		return err
	}
	for i, src := range s.sources {
		if next[i].Progress == traffic.EndOfTime && src.at.Progress != traffic.EndOfTime {
			s.nextTick = traffic.BeforeTime // only ticks tell of an end mark: a replay waits for them
		}
		src.at, src.version = next[i], versions[i]
		if src.at.End > src.at.Offset {
			s.announced = s.r.opt.Clock()
		}
	}
	return nil
}

// linger lets a chunk fill up when chunks follow each other closely. The first event after a pause never waits.
func (s *routeSession) linger(ctx context.Context) {
	left := s.announced.Add(s.r.opt.Linger).Sub(s.r.opt.Clock())
	if s.announced != traffic.BeforeTime && left > 0 && left <= s.r.opt.Linger {
		rest(ctx, left)
	}
}

// plan sets the ends of the chunk that follows, for the sources that have reached the end that was announced last: an
// announced end stands until it is reached, because a part of what it announced may be written. There, and only there,
// the version may change.
func (s *routeSession) plan(next []Announcement) []*routingVersion {
	share := max(s.r.opt.MaxChunkEvents/max(len(next), 1), 1)
	shareBytes := max(s.r.opt.MaxChunkBytes/max(len(next), 1), 1)
	versions := make([]*routingVersion, len(next))
	for i, src := range s.sources {
		a := &next[i]
		versions[i] = src.version
		v := s.versionFor(src)
		if a.Offset < a.End || v == nil {
			continue
		}
		versions[i], a.Version = v, v.number
		messages, read := s.intake.peek(src.partition)
		a.End = max(a.Offset, reach(messagesFrom(messages, a.Offset), read, share, shareBytes))
	}
	return versions
}

// reach is the end of a chunk of at most so many events and bytes, and of at least one event.
func reach(messages []traffic.Message, read int64, events, bytes int) int64 {
	for i := range messages {
		if i > 0 && (i >= events || bytes <= 0) {
			return messages[i].Offset
		}
		bytes -= len(messages[i].Value)
	}
	return read
}

// commit writes the announcements of all sources. An answer that does not come ends the membership: the commit may
// still arrive, and only a generation that is over refuses it.
func (s *routeSession) commit(ctx context.Context, next []Announcement) error {
	commits := make(map[int]Commit, len(next))
	for i, src := range s.sources {
		commits[src.partition] = next[i].Commit()
	}
	err := s.assignment.Commits.Commit(ctx, commits)
	if s.r.deviate.commit != nil {
		err = s.r.deviate.commit(err)
	}
	switch {
	case err == nil:
		s.r.tally.bump(func(st *RouteStats) { st.Announcements++ })
		return nil
	case errors.Is(err, ErrGenerationOver):
		s.r.tally.bump(func(st *RouteStats) { st.RefusedCommits++ })
		return errOver
	}
	s.r.tally.bump(func(st *RouteStats) { st.UnansweredCommits++ })
	return fmt.Errorf("a commit without an answer: %w: %w", err, ErrRejoin)
}

// versionFor is the version that a chunk of src would be announced under now: versions only go forward.
func (s *routeSession) versionFor(src *routedSource) *routingVersion {
	newest := s.r.versions.newest()
	if newest == nil || src.version != nil && src.version.number > newest.number {
		return src.version
	}
	return newest
}
