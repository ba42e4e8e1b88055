package loadgen

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

const (
	// maxChunk is the most events that are on their way at a time.
	maxChunk = 5000
	// chunkEvery is how long a paced load gathers what is due; a chunk that is full goes at once.
	chunkEvery = 20 * time.Millisecond
	// lastChunk is how long the chunk on its way has when the load is stopped.
	lastChunk = 3 * time.Second
	// unansweredFor is how long a load goes on while nothing of it is acknowledged.
	unansweredFor = 5 * time.Minute
)

// ErrUnanswered is wrapped by the error of a Sink that may be given further events: those without an answer may be in
// the stream, now or later, or not.
var ErrUnanswered = errors.New("given without an answer")

// Outgoing is one event on its way.
type Outgoing struct {
	IP    string // the client's address
	Value []byte // a weir event v1
}

// Sink takes events into a stream, in order. acked is how many of them, the first ones, certainly are in it; with an
// error the others may be or not.
type Sink interface {
	Send(ctx context.Context, events []Outgoing) (acked int, err error)
}

// RunOptions are what Run needs.
type RunOptions struct {
	Settings Settings
	Start    traffic.Time
	Paced    bool // events are sent when they are due; otherwise as fast as they are taken
	Sink     Sink
	Truth    *TruthWriter
	Clock    func() traffic.Time
	Sent     func(events, bytes int) // progress; called after each chunk
	// called for each chunk that has no answer and does not end the load; nil: nobody is told
	Failed func(err error)
}

// Outcome is how a load went.
type Outcome struct {
	Events   int64         // acknowledged
	Unsure   int64         // given without an answer, by the load that went on
	Complete bool          // false: stopped, or failed
	Behind   time.Duration // the longest from when an event was due until it was acknowledged; only of a paced load
}

// Run sends a load. When ctx ends, it lets the chunk on its way come to its end and returns without an error: being
// stopped is no failure. The truth says all but its End, which is the caller's to write.
func Run(ctx context.Context, o RunOptions) (Outcome, error) {
	r := &runner{RunOptions: o, stream: NewStream(o.Settings), heard: o.Start}
	r.more = r.stream.Next(&r.pending)
	for r.more && ctx.Err() == nil {
		begun := r.elapsed()
		if r.gather() {
			if err := r.send(ctx); err != nil {
				return r.out, err
			}
		}
		if o.Paced && r.more && len(r.chunk) < maxChunk && retry.Sleep(ctx, max(begun+chunkEvery, r.pending.Sent)-r.elapsed()) != nil {
			break
		}
	}
	r.out.Complete = !r.more
	return r.out, nil
}

type runner struct {
	RunOptions
	stream  *Stream
	pending Event // the next one, if more
	more    bool

	chunk  []Outgoing
	oldest time.Duration // Sent of the chunk's first event
	heard  traffic.Time  // when something was acknowledged last, or the load began
	out    Outcome
}

// elapsed is how far into the load it is.
func (r *runner) elapsed() time.Duration { return r.Clock().Sub(r.Start) }

// gather makes the events that are due; false when there is none.
func (r *runner) gather() bool {
	due := r.elapsed()
	r.chunk, r.oldest = r.chunk[:0], r.pending.Sent
	var buf []byte // not reused: a late retry in the client may still read it
	var ends []int
	for r.more && len(ends) < maxChunk && (!r.Paced || r.pending.Sent <= due) {
		buf = r.stream.Append(buf, &r.pending, r.Start)
		ends = append(ends, len(buf))
		r.chunk = append(r.chunk, Outgoing{IP: r.pending.IP.String()})
		r.more = r.stream.Next(&r.pending)
	}
	from := 0
	for k, end := range ends {
		r.chunk[k].Value = buf[from:end:end]
		from = end
	}
	return len(r.chunk) > 0
}

// send announces the chunk, sends it and writes down what became of it.
func (r *runner) send(ctx context.Context) error {
	sum, bytes := fnv.New64a(), 0
	for _, e := range r.chunk {
		_, _ = sum.Write(e.Value) // a hash takes everything
		bytes += len(e.Value)
	}
	if err := r.Truth.Sending(Sending{Events: len(r.chunk), Sum: fmt.Sprintf("%016x", sum.Sum64())}); err != nil {
		return err
	}
	outlive, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	stop := context.AfterFunc(ctx, func() {
		timer := time.AfterFunc(lastChunk, end)
		context.AfterFunc(outlive, func() { timer.Stop() })
	})
	defer stop()
	acked, err := r.Sink.Send(outlive, r.chunk)
	at := r.Clock()
	r.out.Events += int64(acked)
	if r.Paced {
		r.out.Behind = max(r.out.Behind, at.Sub(r.Start)-r.oldest)
	}
	r.Sent(acked, bytes)
	if acked > 0 {
		r.heard = at
	}
	if terr := r.Truth.Acked(Acked{Events: acked, At: at}); terr != nil {
		return errors.Join(err, terr)
	}
	if errors.Is(err, ErrUnanswered) && ctx.Err() == nil && at.Sub(r.heard) < unansweredFor {
		r.out.Unsure += int64(len(r.chunk) - acked)
		if r.Failed != nil {
			r.Failed(err)
		}
		return nil
	}
	return err
}
