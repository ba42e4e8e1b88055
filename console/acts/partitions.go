package acts

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/partitions"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

// PartitionStore has what stages report of partitions, and takes the word that a gap may be passed.
type PartitionStore interface {
	// PartitionStates returns the last report about each partition of a stream, requests before keyed, ascending.
	PartitionStates(ctx context.Context, stream string) ([]partitions.ReportedPartition, error)
	// Accept stores and audits that a gap may be passed; news is false where that was stored before.
	Accept(ctx context.Context, stream, via string, a ingest.Acceptance) (news bool, err error)
}

var _ PartitionStore = (*partitions.Store)(nil)

// Partition is what a stage has last reported about a partition of the live stream.
type Partition struct {
	Side      ingest.Side  `json:"side"` // requests or keyed
	Partition int          `json:"partition"`
	State     ingest.State `json:"state"` // running, refused or halted
	Owner     string       `json:"owner" mask:"-"`
	Offset    int64        `json:"offset"`
	End       int64        `json:"end"`
	Epoch     int64        `json:"epoch,omitempty"`
	Watermark traffic.Time `json:"watermark,omitzero"`
	Reported  time.Time    `json:"reported"`
	Reason    string       `json:"reason,omitempty" mask:"line"`
	// GapSource and GapOffset are what a resume would accept; only of a partition that stopped at a gap.
	GapSource *int   `json:"gap_source,omitempty"`
	GapOffset *int64 `json:"gap_offset,omitempty"`
}

// Running reports whether the partition goes on.
func (p *Partition) Running() bool { return p.State == ingest.Running }

// Name is the partition as messages name it: keyed/12.
func (p *Partition) Name() string { return partitionName(p.Side, p.Partition) }

func partitionName(side ingest.Side, n int) string { return fmt.Sprintf("%s/%d", side, n) }

// gap is where the partition's gap ends, in words.
func (p *Partition) gap() string {
	if p.GapSource == nil || p.GapOffset == nil { // of an answer that another build gave
		return "another offset"
	}
	return gapText(*p.GapSource, *p.GapOffset)
}

func gapText(source int, offset int64) string {
	switch source {
	case ingest.GapInKeyed:
		return fmt.Sprintf("offset %d of the keyed log", offset)
	case ingest.KeyedAnew:
		return fmt.Sprintf("the start of a keyed log that ends before offset %d", offset)
	}
	return fmt.Sprintf("offset %d of source partition %d", offset, source)
}

func partitionOf(r *partitions.ReportedPartition) Partition {
	p := Partition{
		Side: r.Side, Partition: r.Partition, State: r.State, Owner: r.Owner, Offset: r.Offset, End: r.End,
		Epoch: r.Epoch, Reported: r.Reported, Reason: r.Reason,
	}
	if r.Side == ingest.SideKeyed {
		p.Watermark = r.Watermark
	}
	if r.GapAcceptable() {
		p.GapSource, p.GapOffset = &r.GapSource, &r.GapOffset
	}
	return p
}

// gaps is what is done about partitions that stopped.
type gaps struct {
	partitions PartitionStore
	log        func(actor access.Actor, act access.Act, object string)
}

// Partitions are those of the live stream as the stages last reported them, requests before keyed, ascending.
func (g *gaps) Partitions(ctx context.Context, actor access.Actor) ([]Partition, error) {
	if err := access.May(actor, access.View, ""); err != nil {
		return nil, err
	}
	reported, err := g.partitions.PartitionStates(ctx, liveStream)
	if err != nil {
		return nil, err
	}
	all := make([]Partition, len(reported))
	for i := range reported {
		all[i] = partitionOf(&reported[i])
	}
	return all, nil
}

// ResumeRequest asks to accept that what is missing before a gap will not be counted, so that a partition goes on. The
// gap is the one that whoever asks was shown: another one is not accepted.
type ResumeRequest struct {
	Side      ingest.Side `json:"-"` // a path names the partition
	Partition int         `json:"-"`
	GapSource *int        `json:"gap_source"` // as Partition has them
	GapOffset *int64      `json:"gap_offset"`
	Reason    string      `json:"reason"`
}

// ResumeDone is the partition as it was when its gap was accepted. Its stage, where it runs, goes on within seconds.
type ResumeDone struct {
	Partition
	// Again says that the gap had been accepted before: nothing has changed.
	Again bool `json:"again,omitempty"`
}

// NotStoppedError says that a partition has not stopped at a gap that could be accepted; nothing was done.
type NotStoppedError struct {
	Partition Partition // as it was last reported
}

func (e *NotStoppedError) Error() string {
	p := &e.Partition
	if p.Running() {
		return fmt.Sprintf("partition %s is running: there is nothing to accept", p.Name())
	}
	return fmt.Sprintf("partition %s is %s, and not for a gap that could be accepted: %s", p.Name(), p.State, p.Reason)
}

// GapChangedError says that a partition stands before another gap than the one that was shown; nothing was done.
type GapChangedError struct {
	Seen string    // where the gap that was shown ends, in words
	Now  Partition // as it was last reported
}

func (e *GapChangedError) Error() string {
	return fmt.Sprintf("partition %s now stands at the gap before %s, and not at the one before %s, which was "+
		"looked at; nothing was done, look again",
		e.Now.Name(), e.Now.gap(), e.Seen)
}

// Resumable finds the partition that a resume would let go on: *Invalid for what is no partition, *UnknownName for one
// that no stage has reported, *NotStoppedError for one that has no gap.
func Resumable(all []Partition, side ingest.Side, n int) (*Partition, error) {
	sides := []ingest.Side{ingest.SideRequests, ingest.SideKeyed}
	switch {
	case !slices.Contains(sides, side):
		return nil, &Invalid{Field: "side", Got: string(side),
			Allowed: fmt.Sprintf("%s, %s", ingest.SideRequests, ingest.SideKeyed)}
	case n < 0 || n > math.MaxInt32:
		return nil, &Invalid{Field: "partition", Got: strconv.Itoa(n),
			Allowed: fmt.Sprintf("0 to %d", math.MaxInt32)}
	}
	names := make([]string, len(all))
	for i := range all {
		p := &all[i]
		names[i] = p.Name()
		switch {
		case p.Side != side || p.Partition != n:
		case p.GapSource == nil || p.GapOffset == nil:
			return nil, &NotStoppedError{*p}
		default:
			return p, nil
		}
	}
	return nil, &UnknownName{Thing: "partition", Name: partitionName(side, n), Known: names}
}

// ResumePartition accepts the gap before which a partition has stopped: what is missing will not be counted, and a loss
// record says so in history. The next gap stops it again.
func (g *gaps) ResumePartition(ctx context.Context, actor access.Actor, r ResumeRequest) (ResumeDone, error) {
	if err := CheckReason(r.Reason); err != nil {
		return ResumeDone{}, err
	}
	if err := access.May(actor, access.Resume, ""); err != nil {
		return ResumeDone{}, err
	}
	const shown = "that of the partition as it was shown"
	switch {
	case r.GapSource == nil:
		return ResumeDone{}, &Invalid{Field: "gap_source", Got: "none", Allowed: shown}
	case r.GapOffset == nil:
		return ResumeDone{}, &Invalid{Field: "gap_offset", Got: "none", Allowed: shown}
	}
	all, err := g.Partitions(ctx, actor)
	if err != nil {
		return ResumeDone{}, err
	}
	p, err := Resumable(all, r.Side, r.Partition)
	if err != nil {
		return ResumeDone{}, err
	}
	if *p.GapSource != *r.GapSource || *p.GapOffset != *r.GapOffset {
		return ResumeDone{}, &GapChangedError{Seen: gapText(*r.GapSource, *r.GapOffset), Now: *p}
	}
	// The stage passes the gap that is named here alone: one that it reports meanwhile stops it again.
	news, err := g.partitions.Accept(ctx, liveStream, actor.Via, ingest.Acceptance{
		Side: p.Side, Partition: p.Partition, GapSource: *p.GapSource, GapOffset: *p.GapOffset, By: actor.Name,
		Reason: r.Reason,
	})
	if err != nil {
		return ResumeDone{}, err
	}
	if news {
		g.log(actor, access.Resume, "partition "+p.Name())
	}
	return ResumeDone{*p, !news}, nil
}
