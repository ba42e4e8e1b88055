package route

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// drop takes a partition out of routing until the watcher has found out how it stands.
func (s *session) drop(partition int) {
	s.sources = slices.DeleteFunc(s.sources, func(src *source) bool { return src.partition == partition })
	s.r.lag(partition).Unknown()
	s.drops++
	s.idle[partition] = &idlePartition{number: s.drops}
	s.standing++
	s.watcher.lookAt(s.idle)
	ingest.Wake(s.watcher.asked)
}

// apply acts on what the prefetcher and the watcher have found since the last step.
func (s *session) apply(ctx context.Context) error {
	for _, p := range s.prefetcher.closeLost() {
		s.r.opt.Logger.Warn("partition of requests: the next offset lies outside its log", "partition", p)
		s.drop(p)
	}
	news := s.watcher.news()
	if news.unfit != nil {
		s.r.reportUnfit(ctx, s.assignment, news.unfit)
		return fmt.Errorf("leaving the group of requests: %w", news.unfit)
	}
	for i := range news.found {
		f := &news.found[i]
		waiting, ok := s.idle[f.partition]
		switch {
		case !ok || waiting.number != f.number:
		case f.away != nil:
			s.unreachable(f, waiting)
		default:
			if err := s.adopt(ctx, f, news.granted); err != nil {
				return err
			}
		}
	}
	if len(news.found) > 0 {
		s.showSources()
		ingest.Wake(s.prefetcher.room)
	}
	s.watch()
	if news.fresh {
		return s.passBlocked(ctx, news.granted)
	}
	return nil
}

// adopt makes a partition a source from the commit that was fetched in this generation, also one that this router had
// before: in between, others may have routed it. A refused partition is adopted once its gap is accepted.
func (s *session) adopt(ctx context.Context, f *observation, granted []ingest.Acceptance) error {
	s.idle[f.partition].log.Answered()
	at, no := s.r.judge(f.partition, f.commit, f.has, f.log)
	if f.lost != 0 {
		at, no = s.announceAnew(f, at, no)
	}
	if no == nil {
		src := &source{partition: f.partition, at: at, version: f.version}
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

// announceAnew takes back what a partition's commit has announced under a version that the rule store has lost: nobody
// can route it so again. It is announced once more, under a version that is there. Of what had been appended under the
// lost one no rule counts anything, and keyed partitions that have it drop what comes again.
func (s *session) announceAnew(
	f *observation, at ingest.Announcement, no *refusal,
) (ingest.Announcement, *refusal) {
	anew := func(a ingest.Announcement) ingest.Announcement {
		a.End, a.Version = a.Offset, 0
		return a
	}
	if no == nil {
		s.r.opt.Logger.Warn("routing version of a commit is lost: what it announced is routed by the newest",
			"partition", f.partition, "version", f.lost, "offset", at.Offset, "end", at.End)
		return anew(at), nil
	}
	if no.resume != nil {
		resume := anew(*no.resume)
		no = &refusal{reason: no.reason, resume: &resume, short: no.short}
	}
	return at, no
}

// resume passes an accepted gap, behind which src stands: a loss record in every keyed partition first, which moves each
// fence to the gap's end, and after their acknowledgement a commit from which routing can start.
func (s *session) resume(ctx context.Context, src *source, g ingest.Acceptance) error {
	at := &src.at
	batches := make([]ingest.Batch, s.r.opt.KeyedPartitions)
	for q := range batches {
		loss := detectors.Keyed{
			Format: s.r.versions.format(src.version), Kind: detectors.KeyedLoss, Generation: at.Generation, Source: src.partition, Offset: at.Offset,
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
	if err := s.commit(ctx, standings(s.sources)); err != nil {
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
	s.standing++
	s.watcher.lookAt(s.idle)
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
	s.prefetcher.open(src.partition, src.at.Offset, since, s.r.lag(src.partition))
	ingest.Wake(s.prefetcher.room)
}

// showSources publishes where the partitions stand, to the watcher's reports and to the statistics.
func (s *session) showSources() {
	states := make([]ingest.PartitionStatus, 0, len(s.sources)+len(s.idle))
	seen := make(map[int]SourceStats, cap(states))
	held, moving := map[int]int64{}, map[int]int64{}
	for _, src := range s.sources {
		state := ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: src.partition, Owner: s.assignment.Member, State: ingest.Running,
			Offset: src.at.Offset, End: src.at.End,
		}
		states = append(states, describeBlocked(src.blocked, state))
		s.r.lag(src.partition).Halt(src.blocked != nil)
		now := SourceStats{
			Halted: src.blocked != nil,
			Offset: src.at.Offset, End: src.at.End, Version: src.at.Version, Progress: src.at.Progress,
			HighWatermark: s.prefetcher.tail(src.partition).high,
		}
		waited, next := s.prefetcher.waited(src.partition)
		now.Waited = waited
		if src.waits && src.blocked == nil {
			states[len(states)-1].Reason, moving[src.partition] = whyWaits(waited), next
		}
		if src.blocked != nil && !src.blocked.Held.IsZero() {
			now.Held, held[src.partition] = traffic.At(src.blocked.Held), src.blocked.Offset
		}
		seen[src.partition] = now
	}
	stopped := slices.ContainsFunc(s.sources, func(src *source) bool { return src.blocked != nil })
	for p, waiting := range s.idle {
		if b := waiting.log.Blocked; b != nil {
			states = append(states, describeBlocked(b, ingest.PartitionStatus{
				Side: ingest.SideRequests, Partition: p, Owner: s.assignment.Member, Offset: waiting.commit.Offset, End: waiting.commit.Offset,
			}))
			s.r.lag(p).Halt(true)
			seen[p] = SourceStats{Halted: true, Offset: waiting.commit.Offset, HighWatermark: waiting.commit.Offset}
			continue
		}
		if waiting.refusal == nil {
			continue
		}
		s.r.lag(p).Unknown() // it was perhaps blocked before it was judged
		stopped = true
		states = append(states, ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: p, Owner: s.assignment.Member, State: ingest.Refused, Reason: waiting.refusal.reason,
			Offset: waiting.commit.Offset, End: waiting.commit.Offset, GapSource: p, GapOffset: waiting.refusal.gap(),
		})
		seen[p] = SourceStats{Refused: true}
	}
	slices.SortFunc(states, func(a, b ingest.PartitionStatus) int { return a.Partition - b.Partition })
	s.watcher.show(states, stopped, held, moving)
	size := s.prefetcher.size()
	s.r.tally.bump(func(st *Stats) { st.Sources, st.PrefetchedBytes = seen, size })
}

// reportUnfit tells operators, as far as the store can be reached, that this process gives its partitions up. The error
// itself is the session's outcome.
func (r *Router) reportUnfit(ctx context.Context, a ingest.Assignment, unfit error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var states []ingest.PartitionStatus
	for _, p := range a.Partitions {
		states = append(states, ingest.PartitionStatus{
			Side: ingest.SideRequests, Partition: p, Owner: a.Member, State: ingest.Refused, Reason: unfit.Error(),
			GapSource: p, GapOffset: noGap,
		})
	}
	if err := r.opt.Partitions.Report(ctx, r.opt.Stream, states); err != nil {
		r.tally.bump(func(st *Stats) { st.ReportFailures++ })
	}
}

// watch takes over from the prefetcher which sources cannot be read on. Such a source stays one, since it goes on by itself
// when it can be read again. But it must not hold back the stream: it falls silent, so that detectors stop waiting for it
// after a while, and says why.
func (s *session) watch() {
	changed := false
	for _, src := range s.sources {
		changed = s.watchWaits(src) || changed
		now := s.prefetcher.blockage(src.partition)
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

// Shares of the last minutes that reading stands before open transactions: from the one on it is told, below the other
// no more.
const (
	waitsFrom  = ingest.WaitsWithin / 2
	waitsUntil = ingest.WaitsWithin / 4
)

// watchWaits finds out whether a source stands before open transactions most of the time, none of which lasts long
// enough to block it, and reports whether that is news.
func (s *session) watchWaits(src *source) (news bool) {
	waited, _ := s.prefetcher.waited(src.partition)
	waits := waited >= waitsFrom || src.waits && waited >= waitsUntil
	if waits == src.waits {
		return false
	}
	src.waits = waits
	if log := s.r.opt.Logger.With("partition", src.partition); waits {
		log.Warn("partition of requests waits for transactions most of the time", "waited", waited, "within",
			ingest.WaitsWithin)
	} else {
		log.Info("partition of requests waits for transactions no more")
	}
	return true
}

// whyWaits says of a partition that is read how much of the time nothing is.
func whyWaits(waited time.Duration) string {
	return fmt.Sprintf("waits for transactions: for %d%% of the last %v open ones, each of less than %v, kept it from "+
		"being read, so that events come late", 100*min(waited, ingest.WaitsWithin)/ingest.WaitsWithin,
		ingest.WaitsWithin, ingest.UnansweredFor)
}

// describeBlocked says in a report of a partition of requests why it cannot be read on.
func describeBlocked(b *ingest.Blockage, state ingest.PartitionStatus) ingest.PartitionStatus {
	if b != nil {
		state.State, state.Reason, state.GapSource, state.GapOffset = ingest.Halted, b.Reason, state.Partition, b.Next
	}
	return state
}

// unreachable notes that the log of a partition that is not routed yet could not be looked at. After a while the partition
// is reported as blocked, as one that is routed would be.
func (s *session) unreachable(f *observation, waiting *idlePartition) {
	before := waiting.log.Blocked
	waiting.commit = f.commit
	waiting.log.Failed(time.Now(), f.commit.Offset, f.away)
	if !waiting.log.Blocked.Same(before) {
		s.r.opt.Logger.Error("partition of requests cannot be read", "partition", f.partition, "offset", f.commit.Offset,
			"reason", waiting.log.Blocked.Reason)
	}
}

// passBlocked goes on behind a stretch that cannot be read, where an operator has accepted exactly this gap. Everything
// before it must be acknowledged first.
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
