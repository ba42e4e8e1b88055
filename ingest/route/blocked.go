package route

import (
	"context"
	"slices"
	"time"

	"github.com/weirhq/weir/ingest"
)

// watch takes over from the intake which sources cannot be read on. Such a source stays one, since it goes on by itself
// when it can be read again. But it must not hold back the stream: it falls silent, so that detectors stop waiting for it
// after a while, and says why.
func (s *session) watch() {
	changed := false
	for _, src := range s.sources {
		now := s.intake.blockage(src.partition)
		if now.Same(src.blocked) {
			continue
		}
		log := s.r.opt.Logger.With("partition", src.partition, "offset", src.at.Offset)
		if now == nil {
			log.Info("partition of requests can be read again")
		} else {
			log.Error("partition of requests cannot be read on", "reason", now.Reason, "gap_offset", now.Next)
		}
		src.blocked, changed = now, true
	}
	if changed {
		s.showSources()
	}
}

// speaking are the sources that tick. A tick of one that cannot be read would say that nothing is missing of it: the
// watermark would wait for it, and with it every expiry of every rule.
func (s *session) speaking() []*source {
	return slices.DeleteFunc(slices.Clone(s.sources), func(src *source) bool { return src.blocked != nil })
}

func (s *session) anyBlocked() bool {
	return slices.ContainsFunc(s.sources, func(src *source) bool { return src.blocked != nil })
}

// describeBlocked says in a report of a partition of requests why it cannot be read on.
func describeBlocked(b *ingest.Blockage, state ingest.PartitionStatus) ingest.PartitionStatus {
	if b != nil {
		state.State, state.Reason, state.GapSource, state.GapOffset = "halted", b.Reason, state.Partition, b.Next
	}
	return state
}

// unreachable notes that the log of a partition that is not routed yet could not be looked at. After a while that is said
// of it, as of one that is routed.
func (s *session) unreachable(f *finding, rest *resting) {
	before := rest.log.Blocked
	rest.commit = f.commit
	rest.log.Failed(time.Now(), f.commit.Offset, f.away)
	if !rest.log.Blocked.Same(before) {
		s.r.opt.Logger.Error("partition of requests cannot be read", "partition", f.partition, "offset", f.commit.Offset,
			"reason", rest.log.Blocked.Reason)
	}
}

// passBlocked goes on behind what cannot be read, where an operator has accepted exactly that. All before it must be
// acknowledged first.
func (s *session) passBlocked(ctx context.Context, granted []ingest.Acceptance) error {
	for _, src := range s.sources {
		b := src.blocked
		if b == nil || b.Next == ingest.NoOffset || src.at.Offset < b.Offset {
			continue
		}
		at := slices.IndexFunc(granted, func(g ingest.Acceptance) bool {
			return g.Side == ingest.SideRequests && g.Partition == src.partition && g.GapOffset == b.Next
		})
		if at < 0 {
			continue
		}
		behind := &source{partition: src.partition, at: announceBehind(src.at, b.Next), version: src.version}
		if err := s.resume(ctx, behind, granted[at]); err != nil {
			return err
		}
		s.showSources()
	}
	return nil
}

// announceBehind is where routing goes on when what lies before offset is given up. What is announced beyond it stays announced,
// since an earlier router may have read it, and appended parts of it under its version.
func announceBehind(a ingest.Announcement, offset int64) ingest.Announcement {
	a.Offset, a.End, a.Prev = offset, max(offset, a.End), sentBefore(offset, len(a.Prev))
	return a
}
