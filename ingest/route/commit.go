package route

import (
	"fmt"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// noGap is the gap of a refusal that no acceptance can mend.
const noGap int64 = -1

// refusal says why a partition is not routed, and what an operator would accept by resuming it.
type refusal struct {
	reason string
	// resume is where routing goes on once the gap before it is accepted, with what can be known there. Its Offset is
	// the first one after the gap. Nil: no acceptance helps.
	resume *ingest.Announcement
	// short is set while the log ends before what was announced: nobody knows which of the offsets up to there stand in
	// the keyed log, whose fences drop the ones that are used again. Routing can go on only beyond it.
	short int64
}

// gap is what an operator names to accept the gap.
func (r *refusal) gap() int64 {
	if r.resume == nil {
		return noGap
	}
	return r.resume.Offset
}

// from is r in a log that starts at start: a gap whose end retention has removed by now has grown.
func (r *refusal) from(start int64) *refusal {
	if r.resume == nil || r.resume.Offset >= start {
		return r
	}
	resume := *r.resume
	resume.Offset, resume.End, resume.Prev = start, max(start, resume.End), sentBefore(start, len(resume.Prev))
	return &refusal{reason: fmt.Sprintf("%s; by now the log starts at %d", r.reason, start), resume: &resume}
}

// sentBefore is an announcement's Prev where every fence stands right before offset, as a loss record leaves it.
func sentBefore(offset int64, keyedPartitions int) []int64 {
	prev := make([]int64, keyedPartitions)
	for q := range prev {
		prev[q] = offset - 1 // detectors.NoOffset at 0
	}
	return prev
}

// refusedCommit remembers what was said about a commit.
type refusedCommit struct {
	commit  ingest.Commit
	found   bool
	refusal *refusal
}

// judge decides whether routing may start from a fetched commit. log are the partition's bounds.
//
// A refusal stands as long as the commit does: a log that was shorter than its commit may grow past it, and would look
// healthy without what it lost; and what an operator reads must still be true when he accepts it.
//
// A partition that was added to the topic since its generation began has no commit until it is routed for the first time.
// It is read from its log's start, as one that was there from the beginning is, of which nothing is lost. Should it have
// been routed before, and lost its commit, then the fences drop what comes twice, and what comes after is a hole: see
// fence.check in package detectors.
func (r *Router) judge(partition int, c ingest.Commit, found bool, log ingest.Bounds) (ingest.Announcement, *refusal) {
	if !found && r.opt.Sources > 0 && partition >= r.opt.Sources && log.Start == 0 {
		r.opt.Logger.Info("partition was added to requests, routing it from its start", "partition", partition)
		return ingest.Announcement{
			Generation: r.opt.Generation, Prev: sentBefore(0, r.opt.KeyedPartitions), Progress: traffic.BeforeTime,
		}, nil
	}
	if was, ok := r.refused[partition]; ok && was.commit == c && was.found == found {
		was.refusal = r.regrown(was.refusal, c, log).from(log.Start)
		r.refused[partition] = was
		return ingest.Announcement{}, was.refusal
	}
	delete(r.refused, partition)
	a, no := r.judgeCommit(c, found, log)
	if no == nil {
		return *a, nil
	}
	r.refused[partition] = refusedCommit{commit: c, found: found, refusal: no}
	r.opt.Logger.Error("partition of requests is not routed", "partition", partition, "reason", no.reason, "gap_offset", no.gap())
	return ingest.Announcement{}, no
}

func (r *Router) judgeCommit(c ingest.Commit, found bool, log ingest.Bounds) (*ingest.Announcement, *refusal) {
	a, no := r.judgeText(c, found, log)
	switch {
	case no != nil:
		return nil, no
	case a.Offset != c.Offset:
		return nil, r.refuse(max(a.Offset, c.Offset), a, log,
			"the commit was moved by hand: its offset is %d, its metadata says %d", c.Offset, a.Offset)
	case max(a.Offset, a.End) > log.End:
		return nil, &refusal{short: max(a.Offset, a.End), reason: fmt.Sprintf("the log ends at %d, but events up to %d were "+
			"announced: the log has lost records, or the topic was made anew (then stop all of weir run, run weir "+
			"migrate --recreated, start it again); if it was not, resuming is possible once the log has grown to %d", log.End, a.End, a.End)}
	case a.Offset < log.Start:
		return nil, r.refuse(log.Start, a, log,
			"the log starts at %d, but only events before %d are routed: retention was faster than routing", log.Start, a.Offset)
	}
	return a, nil
}

// regrown is what becomes of the refusal of a log that was too short once the log has reached what was announced: a gap up
// to there. Which offsets before it were used twice, and counted or not, nobody can say any more.
func (r *Router) regrown(no *refusal, c ingest.Commit, log ingest.Bounds) *refusal {
	if no.short == 0 || log.End < no.short {
		return no
	}
	a, err := ingest.DecodeAnnouncement(c.Metadata)
	if err != nil {
		return no
	}
	return r.refuse(no.short, a, log, "the log had ended before offset %d, which was announced, and has grown again", no.short)
}

// judgeText judges what can be said without comparing numbers within the commit.
func (r *Router) judgeText(c ingest.Commit, found bool, log ingest.Bounds) (*ingest.Announcement, *refusal) {
	if !found {
		return nil, r.refuse(log.Start, nil, log,
			"the group has no commit for it: it was never migrated, the commit has expired, or the topic was made "+
				"anew (then do not resume it: stop all of weir run, run weir migrate --recreated, start it again)")
	}
	if c.Metadata == "" {
		return nil, r.refuse(c.Offset, nil, log, "the commit of offset %d has no metadata: another tool wrote it", c.Offset)
	}
	a, err := ingest.DecodeAnnouncement(c.Metadata)
	if err != nil {
		return nil, r.refuse(c.Offset, nil, log, "the commit of offset %d cannot be read: %v", c.Offset, err)
	}
	switch own := r.opt.Generation; {
	case a.Generation > own:
		return nil, &refusal{reason: fmt.Sprintf(
			"the commit is of generation %d of the requests topic, this process was started for %d: restart it", a.Generation, own)}
	case a.Generation < own:
		return nil, r.refuse(log.Start, nil, log,
			"the commit is of generation %d of the requests topic, which is now at %d: stop all of weir run, run "+
				"weir migrate, start it again; or resume at the log's start",
			a.Generation, own)
	case len(a.Prev) != r.opt.KeyedPartitions:
		return nil, &refusal{reason: fmt.Sprintf(
			"the commit names %d keyed partitions, this process was started for %d: the number is fixed at weir migrate",
			len(a.Prev), r.opt.KeyedPartitions)}
	}
	return a, nil
}

// refuse makes a refusal whose gap ends before offset. known is what the commit said, nil when it said nothing. What is
// known to be announced stays announced, since parts of it may have been appended under its version.
func (r *Router) refuse(offset int64, known *ingest.Announcement, log ingest.Bounds, format string, args ...any) *refusal {
	offset = min(max(offset, log.Start), log.End)
	resume := &ingest.Announcement{
		Generation: r.opt.Generation, Offset: offset, End: offset,
		Prev: sentBefore(offset, r.opt.KeyedPartitions), Progress: traffic.BeforeTime,
	}
	reason := fmt.Sprintf(format, args...)
	if known == nil {
		return &refusal{reason: fmt.Sprintf("%s; resuming goes on at offset %d", reason, offset), resume: resume}
	}
	resume.Progress, resume.Version = known.Progress, known.Version
	resume.End = min(max(offset, known.End), log.End)
	if known.Offset < offset {
		reason = fmt.Sprintf("%s; offsets %d to %d would be lost", reason, known.Offset, offset-1)
	}
	return &refusal{reason: fmt.Sprintf("%s; resuming goes on at offset %d", reason, offset), resume: resume}
}
