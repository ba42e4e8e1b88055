package ingest

import (
	"errors"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// ErrFenced is what a store answers to a checkpoint when another owner has taken the partition since.
var ErrFenced = errors.New("partition was taken over: epoch is no longer mine")

// Checkpoint is one generation of a keyed partition's snapshot, which is stored in pieces.
type Checkpoint struct {
	Epoch   int64
	Offset  int64 // the first keyed offset that is not in the snapshot
	Attempt int64 // above 0; tells apart the snapshots that an owner has begun under the epoch
	// What a store knows of it, and nothing that its writer sets.
	Pieces  int
	Size    int64        // bytes
	Written traffic.Time // when it was whole, by the store's clock
}

// Piece is a part of a snapshot.
type Piece struct {
	Number int  // from 0, in order
	Last   bool // with it the snapshot is whole
	Data   []byte
}

// Claim is the outcome of taking a keyed partition.
type Claim struct {
	Epoch int64
	// Kept says that the store still held the caller's epoch: memory is as good as the store. Otherwise Generations
	// tells what is stored, newest first, at most two, and memory must be rebuilt from it.
	Kept        bool
	Generations []Checkpoint
}

// Side names which log a partition belongs to.
type Side string

const (
	SideRequests Side = "requests" // the log that gateways write
	SideKeyed    Side = "keyed"    // the log that DETECT owns partitions of
)

// State says whether a partition goes on.
type State string

// The states of a partition.
const (
	Running State = "running"
	Refused State = "refused" // of requests: its commit is no good, and it is not routed
	Halted  State = "halted"  // it stands at its offset
)

// PartitionStatus is what a stage reports about one partition, for `weir partitions list` and alarms.
type PartitionStatus struct {
	Side      Side
	Partition int
	Owner     string
	Address   string // keyed: where the owner answers what it counts, http://host:port; empty: it does not say
	State     State
	Reason    string       // of a partition that does not run: why, in words an operator can act on
	Offset    int64        // requests: acknowledged up to; keyed: folded up to
	End       int64        // requests: announced end; keyed: log end when last seen
	Epoch     int64        // keyed
	Watermark traffic.Time // keyed
	// Gap identifies what an operator would accept: the source partition and the first offset after the gap; of a gap
	// in the keyed log itself, GapInKeyed and the first keyed offset after it; of a keyed log that was made anew,
	// KeyedAnew and the offset at which the partition stands. GapOffset is NoOffset where nothing helps.
	GapSource int
	GapOffset int64
}

// NoOffset is where there is none.
const NoOffset = detectors.NoOffset

// GapInKeyed stands for the source partition of a gap in the keyed log: records of any may have been in it.
const GapInKeyed = detectors.GapInKeyed

// KeyedAnew stands for the source partition where the keyed log ends before what was read of it: the topic was made
// anew, or lost its end. Who accepts that lets the partition go on at the start of the log that there is.
const KeyedAnew = detectors.KeyedAnew

// Acceptance is an operator's word that a gap may be passed (weir partitions resume --accept-gap).
type Acceptance struct {
	Side      Side
	Partition int
	GapSource int
	GapOffset int64
	By        string
	Reason    string
}
