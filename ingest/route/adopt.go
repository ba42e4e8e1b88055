package route

import (
	"context"
	"fmt"
	"slices"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// retire takes a partition out of routing until the lookout has found out how it stands.
func (s *session) retire(partition int) {
	s.sources = slices.DeleteFunc(s.sources, func(src *source) bool { return src.partition == partition })
	s.tickets++
	s.idle[partition] = &resting{ticket: s.tickets}
	s.lookout.lookAt(s.idle)
	ingest.Wake(s.lookout.asked)
}

// lookAt tells the lookout which partitions are not routed.
func (l *lookout) lookAt(idle map[int]*resting) {
	l.mu.Lock()
	clear(l.idle)
	for p, rest := range idle {
		l.idle[p] = rest.ticket
	}
	l.mu.Unlock()
}

// heed acts on what the intake and the lookout have found since the last step.
func (s *session) heed(ctx context.Context) error {
	for _, p := range s.intake.closeLost() {
		s.r.opt.Logger.Warn("partition of requests: the next offset lies outside its log", "partition", p)
		s.retire(p)
	}
	l := s.lookout
	l.mu.Lock()
	found, granted, fresh, unfit := l.found, l.granted, l.fresh, l.unfit
	l.found, l.fresh = nil, false
	l.mu.Unlock()
	if unfit != nil {
		s.reportUnfit(ctx, unfit)
		return fmt.Errorf("leaving the group of requests: %w", unfit)
	}
	for i := range found {
		f := &found[i]
		rest, ok := s.idle[f.partition]
		switch {
		case !ok || rest.ticket != f.ticket:
		case f.away != nil:
			s.unreachable(f, rest)
		default:
			if err := s.adopt(ctx, f, granted); err != nil {
				return err
			}
		}
	}
	if len(found) > 0 {
		s.showSources()
		ingest.Wake(s.intake.room)
	}
	s.watch()
	if fresh {
		return s.passBlocked(ctx, granted)
	}
	return nil
}

// adopt makes a partition a source from the commit that was fetched in this generation, also one that this router had
// before: in between, others may have routed it. A refused partition is adopted once its gap is accepted.
func (s *session) adopt(ctx context.Context, f *finding, granted []ingest.Acceptance) error {
	s.idle[f.partition].log.Answered()
	at, no := s.r.judge(f.partition, f.commit, f.has, f.log)
	if no == nil {
		src := &source{partition: f.partition, at: at, version: f.version}
		if s.r.deviate.start != nil {
			s.r.deviate.start(src)
		}
		s.add(src)
		return nil
	}
	s.idle[f.partition].refusal, s.idle[f.partition].commit = no, f.commit
	if no.resume == nil {
		return nil
	}
	for _, g := range granted {
		if g.Side == ingest.SideRequests && g.Partition == f.partition && g.GapOffset == no.gap() {
			version := f.version
			if no.resume.Version == 0 {
				version = nil
			}
			return s.resume(ctx, &source{partition: f.partition, at: *no.resume, version: version}, g)
		}
	}
	return nil
}

// resume passes an accepted gap, behind which src stands: a loss record in every keyed partition first, which moves each
// fence to the gap's end, and after their acknowledgement a commit from which routing can start.
func (s *session) resume(ctx context.Context, src *source, g ingest.Acceptance) error {
	at := &src.at
	batches := make([]ingest.Batch, s.r.opt.KeyedPartitions)
	for q := range batches {
		loss := detectors.Keyed{
			Format: s.formatFor(src.version), Kind: detectors.KeyedLoss, Generation: at.Generation, Source: src.partition, Offset: at.Offset,
			Prev: detectors.NoOffset, Time: at.Progress,
		}
		batches[q] = ingest.Batch{Partition: q, Values: [][]byte{detectors.AppendKeyed(nil, &loss)}}
	}
	err := s.r.opt.Keyed.Append(ctx, batches)
	s.troubles.note(s.r.opt.Logger, "loss records", err)
	if err != nil {
		return ctx.Err() // the next look tries again
	}
	s.add(src)
	if err := s.commit(ctx, s.present()); err != nil {
		return err
	}
	s.r.tally.bump(func(st *Stats) { st.AcceptedGaps++ })
	s.r.opt.Logger.Warn("partition of requests goes on after an accepted gap",
		"partition", src.partition, "offset", at.Offset, "by", g.By, "reason", g.Reason)
	return nil
}

// add begins to route a partition, or to route it from another place.
func (s *session) add(src *source) {
	delete(s.idle, src.partition)
	s.lookout.lookAt(s.idle)
	at, there := slices.BinarySearchFunc(s.sources, src.partition, func(x *source, p int) int { return x.partition - p })
	if there {
		s.sources[at] = src
	} else {
		s.sources = slices.Insert(s.sources, at, src)
	}
	s.order.startsAt(src.at.Progress)
	since := src.at.Progress
	if since == traffic.BeforeTime {
		since = s.order.front // nothing is known of it yet: it is taken for one of the others
	}
	s.intake.open(src.partition, src.at.Offset, since)
	ingest.Wake(s.intake.room)
}

// showSources publishes where the partitions stand, to the lookout's reports and to the statistics.
func (s *session) showSources() {
	states := make([]ingest.PartitionStatus, 0, len(s.sources)+len(s.idle))
	seen := make(map[int]SourceStats, cap(states))
	for _, src := range s.sources {
		state := ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: src.partition, Owner: s.assignment.Member, State: "running",
			Offset: src.at.Offset, End: src.at.End,
		}
		states = append(states, describeBlocked(src.blocked, state))
		seen[src.partition] = SourceStats{
			Halted: src.blocked != nil,
			Offset: src.at.Offset, End: src.at.End, Version: src.at.Version, Progress: src.at.Progress,
			HighWatermark: s.intake.tail(src.partition).high,
		}
	}
	stopped := s.anyBlocked()
	for p, rest := range s.idle {
		if b := rest.log.Blocked; b != nil {
			states = append(states, describeBlocked(b, ingest.PartitionStatus{
				Side: ingest.SideRequests, Partition: p, Owner: s.assignment.Member, Offset: rest.commit.Offset, End: rest.commit.Offset,
			}))
			seen[p] = SourceStats{Halted: true, Offset: rest.commit.Offset, HighWatermark: rest.commit.Offset}
			continue
		}
		if rest.refusal == nil {
			continue
		}
		stopped = true
		states = append(states, ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: p, Owner: s.assignment.Member, State: "refused", Reason: rest.refusal.reason,
			Offset: rest.commit.Offset, End: rest.commit.Offset, GapSource: p, GapOffset: rest.refusal.gap(),
		})
		seen[p] = SourceStats{Refused: true}
	}
	slices.SortFunc(states, func(a, b ingest.PartitionStatus) int { return a.Partition - b.Partition })
	s.lookout.mu.Lock()
	s.lookout.states, s.lookout.stopped = states, stopped
	s.lookout.mu.Unlock()
	held := s.intake.size()
	s.r.tally.bump(func(st *Stats) { st.Sources, st.IntakeBytes = seen, held })
}

// reportUnfit tells operators, as far as the store can be reached, that this process gives its partitions up. The error
// itself is the session's outcome.
func (s *session) reportUnfit(ctx context.Context, unfit error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var states []ingest.PartitionStatus
	for _, p := range s.assignment.Partitions {
		states = append(states, ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: p, Owner: s.assignment.Member, State: "refused", Reason: unfit.Error(),
			GapSource: p, GapOffset: noGap,
		})
	}
	if err := s.r.opt.Partitions.Report(ctx, s.r.opt.Stream, states); err != nil {
		s.r.tally.bump(func(st *Stats) { st.ReportFailures++ })
	}
}
