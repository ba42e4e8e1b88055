package ingest

import (
	"context"
	"slices"
	"time"
)

// watch takes over from the intake which sources cannot be read on. Such a source stays one, since it goes on by itself
// when it can be read again. But it must not hold back the stream: it falls silent, so that detectors stop waiting for it
// after a while, and says why.
func (s *routeSession) watch() {
	changed := false
	for _, src := range s.sources {
		now := s.intake.blockage(src.partition)
		if now.same(src.blocked) {
			continue
		}
		log := s.r.opt.Logger.With("partition", src.partition, "offset", src.at.Offset)
		if now == nil {
			log.Info("partition of requests can be read again")
		} else {
			log.Error("partition of requests cannot be read on", "reason", now.reason, "gap_offset", now.next)
		}
		src.blocked, changed = now, true
	}
	if changed {
		s.showSources()
	}
}

// speaking are the sources that tick. A tick of one that cannot be read would say that nothing is missing of it: the
// watermark would wait for it, and with it every expiry of every rule.
func (s *routeSession) speaking() []*routedSource {
	return slices.DeleteFunc(slices.Clone(s.sources), func(src *routedSource) bool { return src.blocked != nil })
}

func (s *routeSession) anyBlocked() bool {
	return slices.ContainsFunc(s.sources, func(src *routedSource) bool { return src.blocked != nil })
}

// describeBlocked says in a report of a partition of requests why it cannot be read on.
func describeBlocked(b *blockage, state PartitionState) PartitionState {
	if b != nil {
		state.State, state.Reason, state.GapSource, state.GapOffset = "halted", b.reason, state.Partition, b.next
	}
	return state
}

// unreachable notes that the log of a partition that is not routed yet could not be looked at. After a while that is said
// of it, as of one that is routed.
func (s *routeSession) unreachable(f *finding, rest *resting) {
	before := rest.log.blocked
	rest.commit = f.commit
	rest.log.failed(time.Now(), f.commit.Offset, f.away)
	if !rest.log.blocked.same(before) {
		s.r.opt.Logger.Error("partition of requests cannot be read", "partition", f.partition, "offset", f.commit.Offset,
			"reason", rest.log.blocked.reason)
	}
}

// passBlocked goes on behind what cannot be read, where an operator has accepted exactly that. All before it must be
// acknowledged first.
func (s *routeSession) passBlocked(ctx context.Context, granted []Acceptance) error {
	for _, src := range s.sources {
		b := src.blocked
		if b == nil || b.next == NoOffset || src.at.Offset < b.offset {
			continue
		}
		at := slices.IndexFunc(granted, func(g Acceptance) bool {
			return g.Side == SideRequests && g.Partition == src.partition && g.GapOffset == b.next
		})
		if at < 0 {
			continue
		}
		behind := &routedSource{partition: src.partition, at: announceBehind(src.at, b.next), version: src.version}
		if err := s.resume(ctx, behind, granted[at]); err != nil {
			return err
		}
		s.showSources()
	}
	return nil
}

// announceBehind is where routing goes on when what lies before offset is given up. What is announced beyond it stays announced,
// since an earlier router may have read it, and appended parts of it under its version.
func announceBehind(a Announcement, offset int64) Announcement {
	a.Offset, a.End, a.Prev = offset, max(offset, a.End), sentBefore(offset, len(a.Prev))
	return a
}
