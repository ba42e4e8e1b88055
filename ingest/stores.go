package ingest

import (
	"context"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Routings gives the routing versions of a stream. Versions are immutable; a stage may keep what it has read.
type Routings interface {
	// Newest is the number of the newest version of stream; 0 when there is none yet.
	Newest(ctx context.Context, stream string) (int64, error)
	// Routing loads one version. An unknown one is an error.
	Routing(ctx context.Context, stream string, number int64) (*rules.Routing, error)
}

// Checkpoints keeps the snapshots of keyed partitions, in pieces, and decides who owns one.
type Checkpoints interface {
	// Take claims partition for owner. held is the epoch under which the caller's memory is warm, 0 for none. If the
	// store's epoch is held and its owner is owner, the claim is kept; otherwise the epoch is raised by one, compare
	// and set, and the stored generations are told.
	Take(ctx context.Context, stream string, partition int, owner string, held int64) (Claim, error)
	// Load gives a piece of a generation that Take has told of under epoch; ErrFenced when the epoch has moved, and
	// detectors.ErrSnapshot when the piece is damaged or gone.
	Load(ctx context.Context, stream string, partition int, epoch int64, cp Checkpoint, number int) ([]byte, error)
	// Write stores a piece of a generation WHERE epoch = cp.Epoch; ErrFenced when the epoch has moved. The generation is
	// seen once its last piece is stored, whole, and the one before is kept. A piece may be written again.
	Write(ctx context.Context, stream string, partition int, cp Checkpoint, piece Piece) error
}

// Partitions is where stages report their partitions and find what operators accepted.
type Partitions interface {
	Report(ctx context.Context, stream string, states []PartitionStatus) error
	// Accepted returns all acceptances of the stream, oldest first.
	Accepted(ctx context.Context, stream string) ([]Acceptance, error)
}

// Figures keeps what routers have seen, and what they left out, for whoever asks what a rule did not count.
type Figures interface {
	// StoreUncounted stores sums of one router. A sum that is known, by its router, rule, reason and minute, only grows.
	StoreUncounted(ctx context.Context, stream string, sums []detectors.RoutedUncounted) error
	// StoreMinutes stores sums of one router. One that is known, by its router, part and minute, only grows.
	StoreMinutes(ctx context.Context, stream string, minutes []detectors.RoutedMinute) error
}

// Sink is a stage's work on a batch of one partition's records: RECORD's and ENFORCE's side of the hits log. Apply
// returns nil only after its store has acknowledged everything; the batch's offsets are committed after that. An error
// means that the whole batch will be given again, so Apply must be idempotent. A record that the store refuses is the
// sink's own business (dead letter), never a reason to fail the batch.
type Sink interface {
	Apply(ctx context.Context, batch []traffic.Message) error
}

// DeadLetters takes what a stage could not use. Put returns after Kafka has acknowledged.
type DeadLetters interface {
	Put(ctx context.Context, letters []traffic.DeadLetter) error
}
