package archive

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/internal/retry"
	"github.com/weirhq/weir/traffic"
)

// Bounds of what a Sender gathers before it appends.
const (
	sendEvents = 2000
	sendBytes  = 256 << 10 // of one partition: far below what a broker takes as one batch
	sendDead   = 16        // dead letters: each may hold DeadLetterBytes
)

// sendTimeout is how long an append is repeated while the topic has no leader.
const sendTimeout = 30 * time.Second

// Sender appends an archive's events to a requests topic and its refused lines to the dead letters. All events
// of one address go to one partition, so their order stays. It is not safe for concurrent use.
type Sender struct {
	events  ingest.Appender
	dead    ingest.DeadLetters
	pace    *Pace // nil: as fast as possible
	batches []ingest.Batch
	sizes   []int
	waiting int
	letters []traffic.DeadLetter

	acked int64
	last  map[string]int64 // file → its greatest acknowledged line
	next  map[string]int64 // file → greatest line waiting
}

var _ Sink = (*Sender)(nil)

// NewSender makes a sender to a topic with the given number of partitions. Without a pace, nil, events go out as fast as
// they are read.
func NewSender(events ingest.Appender, dead ingest.DeadLetters, partitions int, pace *Pace) *Sender {
	s := &Sender{
		events: events, dead: dead, pace: pace, batches: make([]ingest.Batch, partitions), sizes: make([]int, partitions),
		last: map[string]int64{}, next: map[string]int64{},
	}
	for p := range s.batches {
		s.batches[p].Partition = p
	}
	return s
}

// Send gathers e; it is acknowledged when Flush has returned nil, which Send calls when enough has been gathered.
func (s *Sender) Send(ctx context.Context, e Event) error {
	if err := s.hold(ctx, e); err != nil {
		return err
	}
	p := s.partition(e.IP)
	s.batches[p].Values = append(s.batches[p].Values, e.Value)
	s.sizes[p] += len(e.Value)
	s.waiting++
	s.next[e.File] = max(s.next[e.File], e.Line)
	if s.waiting >= sendEvents || s.sizes[p] >= sendBytes {
		return s.Flush(ctx)
	}
	return nil
}

// hold waits until e is due, having sent what is due already.
func (s *Sender) hold(ctx context.Context, e Event) error {
	if s.pace == nil || !e.HasTime {
		return nil
	}
	if s.pace.due(e.Time) > 0 {
		if err := s.Flush(ctx); err != nil {
			return err
		}
	}
	return s.pace.Wait(ctx, e.Time)
}

func (s *Sender) partition(ip string) int {
	if len(s.batches) == 1 {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(ip)) // a hash takes everything
	return int(h.Sum32() % uint32(len(s.batches)))
}

// Refuse gathers a line's dead letter; it is acknowledged when Flush has returned nil.
func (s *Sender) Refuse(ctx context.Context, letter traffic.DeadLetter) error {
	s.letters = append(s.letters, letter)
	if len(s.letters) < sendDead {
		return nil
	}
	return s.flushDead(ctx)
}

func (s *Sender) flushDead(ctx context.Context) error {
	if len(s.letters) == 0 {
		return nil
	}
	if err := s.dead.Put(ctx, s.letters); err != nil {
		return fmt.Errorf("%d dead letters were given to Kafka without an answer: %w", len(s.letters), err)
	}
	s.letters = nil
	return nil
}

// Flush appends what was gathered. After an error some of it may have been written, now or later: sending it again
// would count it twice, so the caller ends and says how far it came (see Acked).
func (s *Sender) Flush(ctx context.Context) error {
	if err := s.flushDead(ctx); err != nil {
		return err
	}
	if s.waiting == 0 {
		return nil
	}
	full := make([]ingest.Batch, 0, len(s.batches))
	for _, b := range s.batches {
		if len(b.Values) > 0 {
			full = append(full, b)
		}
	}
	if err := s.append(ctx, full); err != nil {
		return fmt.Errorf("%d events were given to Kafka without an answer: %w", s.waiting, err)
	}
	s.acked += int64(s.waiting)
	for file, line := range s.next {
		s.last[file] = line
	}
	s.Forget()
	return nil
}

// Forget drops the events that were gathered and have no answer: whoever goes on behind them does so.
func (s *Sender) Forget() {
	s.waiting = 0
	for p := range s.batches {
		s.batches[p].Values, s.sizes[p] = nil, 0 // not reused: a late retry in the client may still read it
	}
	clear(s.next)
}

// append appends batches. Batches that Kafka has certainly not written are sent again, for sendTimeout; batches that may
// have been written are not, since their events would count twice.
func (s *Sender) append(ctx context.Context, batches []ingest.Batch) error {
	wait := retry.NewBackoff(50*time.Millisecond, time.Second)
	for begun := time.Now(); ; {
		err := s.events.Append(ctx, batches)
		if err == nil {
			return nil
		}
		left := unwritten(batches, err)
		if left == nil || time.Since(begun) > sendTimeout {
			return err
		}
		batches = left
		if wait.Wait(ctx) != nil {
			return err
		}
	}
}

// unwritten gives the batches that err is about if none of them can have been written, else nil.
func unwritten(batches []ingest.Batch, err error) []ingest.Batch {
	var failed *ingest.AppendError
	if !errors.As(err, &failed) {
		return batches // the topic's layout was not known: nothing was sent
	}
	var left []ingest.Batch
	for _, b := range batches {
		trouble, ok := failed.Failed[b.Partition]
		if !ok {
			continue
		}
		if !errors.As(trouble, new(*ingest.UnwrittenError)) {
			return nil // it may have been
		}
		left = append(left, b)
	}
	return left
}

// Acked is how many events Kafka has acknowledged.
func (s *Sender) Acked() int64 { return s.acked }

// AckedLine is the greatest line of file whose event was acknowledged, 0 for none. Without sorting, all before it were.
func (s *Sender) AckedLine(file string) int64 { return s.last[file] }

// Pace holds events back so that they go out as they once came in, speed times as fast. An event that is older than the
// first one, or than one that has just gone out, goes out at once.
type Pace struct {
	speed float64
	first traffic.Time // event time at begin
	begin time.Time
	begun bool
}

// NewPace makes a Pace; speed 1 is the pace of the archive, 10 ten times as fast. speed must be above 0.
func NewPace(speed float64) *Pace { return &Pace{speed: speed} }

// due is how long an event of time t has to wait from now on; 0 or less: not at all. The first call sets the beginning.
func (p *Pace) due(t traffic.Time) time.Duration {
	if !p.begun {
		p.first, p.begin, p.begun = t, time.Now(), true
	}
	return time.Duration(float64(t.Sub(p.first))/p.speed) - time.Since(p.begin)
}

// Wait waits until an event of time t is due, or ctx ends.
func (p *Pace) Wait(ctx context.Context, t traffic.Time) error {
	due := p.due(t)
	if due <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(due)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
