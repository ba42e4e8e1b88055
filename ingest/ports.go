// Package ingest holds the ports of the stream and their plain types: what ROUTE, DETECT and the stages behind them need of
// a log and of the stores, and the names and rules that they agree on. Nothing here talks to a server. The packages below
// it do: kafka speaks to the brokers, route and detect are the stages with those names, consume runs RECORD and ENFORCE,
// archive reads files. The same stages run over a simulated log.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
)

// Position is where a reader of one partition stands: the next offset it wants.
type Position struct {
	Partition int
	Offset    int64
	// Room is how many bytes of messages, unpacked, the answer may hold before its last batch: a batch is never cut. The
	// rooms of all positions of a fetch bound its answers together in the same way. 0: the log's own bounds are enough.
	Room int
}

// Fetched is what one partition answered.
type Fetched struct {
	Partition     int
	Messages      []traffic.Message // ascending, none below the asked offset; empty when there was nothing new
	Next          int64             // the offset to ask for next; it skips control records and compaction holes
	HighWatermark int64             // end of the log as the broker knew it; with Err: 0 where it told none
	Held          bool              // readers are shown nothing from Readable on: an open transaction begins there
	Readable      int64             // of Held
	Following     traffic.Time      // append time of what stands at Next, as far as the answer showed it; else 0
	LogStart      int64
	Asked         traffic.Time // the reader's clock from before the request was sent
	Err           error        // this partition's own error: ErrOutOfRange, an *UnreadableError, or one that a retry mends
}

// HeldBytes is what a message takes in memory: its value, and its place in a slice.
func HeldBytes(m *traffic.Message) int {
	const place = 48
	return len(m.Value) + place
}

// MessagesFrom cuts off what lies before offset. messages ascend.
func MessagesFrom(messages []traffic.Message, offset int64) []traffic.Message {
	n, _ := slices.BinarySearchFunc(messages, offset, func(m traffic.Message, offset int64) int {
		return cmp.Compare(m.Offset, offset)
	})
	return messages[n:]
}

// AllPartitions lists the partitions of a topic that has n: 0 to n-1.
func AllPartitions(n int) []int {
	all := make([]int, n)
	for p := range all {
		all[p] = p
	}
	return all
}

// DefaultFetchWait is how long a fetch waits for the first record where nothing else is asked of it.
const DefaultFetchWait = 400 * time.Millisecond

// ErrOutOfRange says that the asked offset lies before the log's start or beyond its end.
var ErrOutOfRange = errors.New("offset is outside the log")

// UnreadableError says that what the log holds at the asked offset cannot be read: a batch that does not decode. Asking
// again is right all the same, since another replica may have it whole.
type UnreadableError struct {
	Next int64 // where the log goes on behind it; NoOffset where that cannot be told
	Why  error
}

func (e *UnreadableError) Error() string { return e.Why.Error() }

func (e *UnreadableError) Unwrap() error { return e.Why }

// Bounds are the first offset of a partition's log and the one after its last.
type Bounds struct{ Start, End int64 }

// Log reads one topic.
type Log interface {
	// Fetch asks for all positions at once and waits up to wait for the first record past any of them. It returns an
	// element per position that answered, with or without records; one that did not (its leader is away) is simply absent
	// until it is back.
	Fetch(ctx context.Context, positions []Position, wait time.Duration) ([]Fetched, error)
	// Bounds asks for the log's bounds; every partition asked for is in the answer, or an error is returned.
	Bounds(ctx context.Context, partitions []int) (map[int]Bounds, error)
}

// TimedLog is a Log that also finds records by the time at which they were appended.
type TimedLog interface {
	Log
	// OffsetsAt asks for the first offset of each partition that was appended at the instant or later; NoOffset where there is
	// none. Every partition asked for is in the answer, or an error is returned.
	OffsetsAt(ctx context.Context, partitions []int, at traffic.Time) (map[int]int64, error)
}

// Batch is the records for one partition that must be appended together.
type Batch struct {
	Partition int
	Values    [][]byte
}

// Appender writes one topic.
type Appender interface {
	// Append writes each batch as ONE atomic record batch, acks=all, at most one batch per partition. On nil all are
	// acknowledged. On an error each of them may or may not have been written, now or later.
	Append(ctx context.Context, batches []Batch) error
}

// ErrBatchTooLarge is wrapped by Append's error when a batch is larger than the topic (max.message.bytes) or the protocol
// takes. Such a batch was not written; the same one will never be.
var ErrBatchTooLarge = errors.New("record batch is larger than the topic takes")

// UnwrittenError wraps the error of a batch that has certainly not been written, so that it may be given again without being
// there twice. It has the text of what it wraps.
type UnwrittenError struct{ Err error }

func (e *UnwrittenError) Error() string { return e.Err.Error() }

func (e *UnwrittenError) Unwrap() error { return e.Err }

// AppendError says which partitions did not acknowledge, and why. A batch whose error is no *UnwrittenError may have been
// written, or be written yet.
type AppendError struct {
	Topic  string
	Failed map[int]error // by partition
}

// Error names partitions with the same trouble together.
func (e *AppendError) Error() string {
	byText := make(map[string][]int)
	for partition, err := range e.Failed {
		byText[err.Error()] = append(byText[err.Error()], partition)
	}
	var parts []string
	for text, partitions := range byText {
		slices.Sort(partitions)
		parts = append(parts, fmt.Sprintf("partitions %v: %s", partitions, text))
	}
	slices.Sort(parts)
	return "appending to topic " + e.Topic + ": " + strings.Join(parts, "; ")
}

func (e *AppendError) Unwrap() []error {
	errs := make([]error, 0, len(e.Failed))
	for _, err := range e.Failed {
		errs = append(errs, err)
	}
	return errs
}

// Commit is a group's committed position of one partition.
type Commit struct {
	Offset   int64
	Metadata string
}

// Kept is a position in the store of a stage that is to take the place of another one: the store has everything of the
// partition before it.
type Kept struct {
	Partition   int
	Before, Now int64 // Before is -1 where the store had none
}

// Loss is what a stage will never read of a partition, since its log does not hold it any more.
type Loss struct {
	Stage     string
	Partition int
	From      int64  // up to which the stage had read
	Next      int64  // where it goes on
	Log       Bounds // of the log when that was found
	Offsets   int64  // how many records are known to be lost; a log that lost its end does not say
	Reason    string
}

// ErrGenerationOver says that the group refused a commit: this member's generation is not the group's any more.
var ErrGenerationOver = errors.New("group generation is over")

// Commits is a member's access to its group's commits, for the partitions of one generation.
type Commits interface {
	// Fetch returns the stored commits; a partition without one is absent.
	Fetch(ctx context.Context, partitions []int) (map[int]Commit, error)
	// Commit stores all or fails: ErrGenerationOver when refused; any other error leaves the outcome unknown.
	Commit(ctx context.Context, commits map[int]Commit) error
}

// Assignment is what one group generation gives a member.
type Assignment struct {
	Generation int
	Member     string
	Partitions []int // ascending
	Commits    Commits
}

// ErrRejoin is what a session returns when it cannot go on under this membership, above all after a commit without an
// answer: the member leaves the group, so that a delayed commit of its is refused, and joins as a new one.
var ErrRejoin = errors.New("leave the group and join anew")

// Group is membership in a consumer group of one topic.
type Group interface {
	// Run joins the group and calls session once per generation, until ctx is done. The session's ctx ends when the
	// generation does; it must then return soon. After nil the same member goes on to the next generation, after any
	// error it leaves and joins anew, with back-off.
	Run(ctx context.Context, session func(ctx context.Context, a Assignment) error) error
}

// Wake wakes whoever waits on c, now or when it next looks: c has room for one.
func Wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
