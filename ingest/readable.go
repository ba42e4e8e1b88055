package ingest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"
)

// UnansweredFor is how long a partition may be asked for in vain before it counts as one that cannot be read. A
// leader's election takes seconds.
const UnansweredFor = 30 * time.Second

// notAskedFor is how long a reader may leave a partition out, for want of room, without beginning to count anew. It is
// longer than the pauses of a prefetcher that has much to read: they must not hide a partition that is silent.
const notAskedFor = 10 * time.Second

const (
	boundsTogether = 2 * time.Second        // bounds a look at the logs of several partitions
	boundsAlone    = 500 * time.Millisecond // bounds a look at one of them, once that has failed
)

// BoundsOfEach asks for all partitions at once, and if that fails for each alone: a partition whose leader is away must not
// keep the others waiting. away says of those without an answer why they have none.
func BoundsOfEach(ctx context.Context, log Log, partitions []int) (known map[int]Bounds, away map[int]error) {
	ask := func(limit time.Duration, partitions ...int) (map[int]Bounds, error) {
		ctx, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		return log.Bounds(ctx, partitions)
	}
	known, err := ask(boundsTogether, partitions...)
	if err == nil {
		return known, nil
	}
	if len(partitions) == 1 {
		return nil, map[int]error{partitions[0]: err}
	}
	known, away = map[int]Bounds{}, map[int]error{}
	for _, p := range partitions {
		one, err := ask(boundsAlone, p)
		if err != nil {
			away[p] = err
			continue
		}
		maps.Copy(known, one)
	}
	return known, away
}

// ErrSilent stands for the answer of a partition that gave none.
var ErrSilent = errors.New("it has no leader, or its leader does not answer")

// Blockage says why a partition cannot be read on.
type Blockage struct {
	Offset int64 // where reading stands
	Next   int64 // the first offset behind what cannot be read: there an operator may let it go on; NoOffset: nothing helps but waiting
	Reason string
	Held   time.Time // since when, at the latest, an open transaction is what stands there; zero: none is
}

// Same reports whether b is what was said before: the words of an error may change while it lasts.
func (b *Blockage) Same(c *Blockage) bool {
	return b == c || b != nil && c != nil && b.Offset == c.Offset && b.Next == c.Next
}

// Readable watches whether a partition that is asked for can be read. A batch that does not decode blocks it at once: the
// broker has answered, and will answer the same again. Silence and passing errors block it when they last.
type Readable struct {
	since   time.Time // since when it is asked for in vain; zero: it is not
	last    error     // of the attempts since then
	asked   time.Time // when it was asked for last, of a reader that does not always ask for it
	held    time.Time // since when an open transaction ends it at heldAt; zero: none does
	heldAt  int64
	told    time.Time // up to when the wait before heldAt stands in waits
	waits   waits
	Blocked *Blockage
}

const (
	// leastWait is how long an open transaction stands before the time counts as waiting: who writes in transactions
	// all the time has one open nearly always, and nobody waits for it.
	leastWait = time.Second
	// WaitsWithin is the span of time of which Waited tells.
	WaitsWithin = waitSpans * waitSpan
	waitSpan    = 30 * time.Second
	waitSpans   = 10
)

// waits are times of waiting before open transactions, by spans of time.
type waits [waitSpans]struct {
	span   int64 // number of the span
	waited time.Duration
}

func (w *waits) add(now time.Time, waited time.Duration) {
	span := now.UnixNano() / int64(waitSpan)
	at := &w[span%waitSpans]
	if at.span != span {
		at.span, at.waited = span, 0
	}
	at.waited += waited
}

// Waited is how much of the last WaitsWithin reading stood before open transactions of a second and longer, however
// short each of them was.
func (r *Readable) Waited(now time.Time) (sum time.Duration) {
	newest := now.UnixNano() / int64(waitSpan)
	for _, at := range r.waits {
		if at.span > newest-waitSpans && at.span <= newest {
			sum += at.waited
		}
	}
	return sum
}

// Answered notes an answer that could be read.
func (r *Readable) Answered() { *r = Readable{waits: r.waits} }

// Held notes an answer that ended at offset, before the log's end, since an open transaction stands there. Who writes
// in transactions moves it on again and again, and Waited tells how long that takes together; one that stays for long
// blocks the partition: nothing behind it is read until it ends.
func (r *Readable) Held(now time.Time, offset int64) {
	if r.held.IsZero() || r.heldAt != offset {
		*r = Readable{held: now, told: now, heldAt: offset, waits: r.waits}
		return
	}
	*r = Readable{held: r.held, told: r.told, heldAt: offset, waits: r.waits}
	if now.Sub(r.held) >= leastWait {
		r.waits.add(now, now.Sub(r.told))
		r.told = now
	}
	if now.Sub(r.held) >= UnansweredFor {
		r.Blocked = &Blockage{Offset: offset, Next: NoOffset, Held: r.held,
			Reason: fmt.Sprintf("an open transaction stands at offset %d since %s or longer: what comes behind it "+
				"is not read until it ends, which Kafka sees to after its transaction.timeout.ms",
				offset, r.held.UTC().Format(time.DateTime+" UTC"))}
	}
}

// Name is the beginning of the transactional id, in ASCII alone: its producer has chosen every byte of it.
func (t Transaction) Name() string {
	return strings.Trim(strconv.QuoteToASCII(t.ID[:min(len(t.ID), 40)]), `"`)
}

// Brief names the transaction in a few words, as a line that may be cut begins with; empty where Kafka does not tell.
func (t Transaction) Brief() string {
	if t.ID == "" {
		return ""
	}
	return fmt.Sprintf("transactional id %q", t.Name())
}

// Transaction is an open transaction that ends what readers of a partition are shown.
type Transaction struct {
	Start    int64  // offset of its first record
	Producer int64  // the id that Kafka has given its producer
	ID       string // its transactional id; empty: Kafka does not tell
}

// shownID is how many bytes of a transactional id are shown.
const shownID = 200

// String says whose transaction it is, and how to end it.
func (t Transaction) String() string {
	id := fmt.Sprintf("its transactional id is %q", t.ID)
	switch {
	case t.ID == "":
		id = "Kafka does not tell its transactional id to weir's user"
	case len(t.ID) > shownID: // Kafka takes 32,767 bytes, which would be all of a line of doctor's
		id = fmt.Sprintf("its transactional id has %d bytes and begins %q", len(t.ID), t.ID[:shownID])
	}
	return fmt.Sprintf("%s (producer %d, start offset %d): its producer ends it, or kafka-transactions.sh abort does",
		id, t.Producer, t.Start)
}

// Ask notes that the partition is asked for now. After a time in which it was not, the silence before says nothing.
func (r *Readable) Ask(now time.Time) {
	if r.Blocked == nil && now.Sub(r.asked) > notAskedFor {
		r.since, r.last = time.Time{}, nil
	}
	r.asked = now
}

// Failed notes that reading at offset went wrong; err is nil where there was no answer at all.
func (r *Readable) Failed(now time.Time, offset int64, err error) {
	if r.since.IsZero() {
		r.since = now
	}
	if err != nil {
		r.last = err
	}
	var unreadable *UnreadableError
	switch {
	case errors.As(err, &unreadable):
		r.Blocked = &Blockage{Offset: offset, Next: unreadable.Next, Reason: whyUnreadable(offset, unreadable)}
	case r.Blocked != nil && r.Blocked.Next != NoOffset:
		// The batch is as it was: that nobody can be asked for it just now is not news.
	case now.Sub(r.since) >= UnansweredFor:
		r.Blocked = &Blockage{Offset: offset, Next: NoOffset, Reason: whySilent(offset, r.last)}
	}
}

func whyUnreadable(offset int64, e *UnreadableError) string {
	if e.Next == NoOffset {
		return fmt.Sprintf("cannot be read from offset %d on, nor where the log goes on behind that: %v", offset, e)
	}
	return fmt.Sprintf("cannot be read from offset %d on: %v; offsets %d to %d would be lost, resuming goes on at offset %d",
		offset, e, offset, e.Next-1, e.Next)
}

func whySilent(offset int64, last error) string {
	why := ErrSilent.Error()
	if last != nil {
		why = last.Error()
	}
	return fmt.Sprintf("cannot be read from offset %d on for %v or longer: %s; it goes on by itself when it can be read again",
		offset, UnansweredFor, why)
}
