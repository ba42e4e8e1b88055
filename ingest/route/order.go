package route

import (
	"time"

	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/traffic"
)

const (
	// orderSpan is how far behind the newest that is routed a partition may be and still be waited for, by append time.
	orderSpan = 10 * time.Second
	// orderTimeout is how long events wait, in all, for events that were appended before them and are not read yet. Waiting
	// time is regained at a tenth of the time that passes, so that partitions which answer slowly, or not at all, cost the
	// others no more than that.
	orderTimeout = time.Second
	orderRegain  = 10
)

// order chooses the events of the next chunk over all sources: those that were appended first. So after an outage the
// sources' backlogs are caught up evenly, and events of one time are counted at about one time, however unevenly the backlog
// lies and the partitions are read.
//
// A source of which nothing is queued, though there is more to be read, holds the others back at the earliest append time
// that its next event may have, as long as any of the timeout is left. A source that is orderSpan behind what is routed
// already (its leader was away, or the router that had it was slow) is a straggler. To hold the others until it has caught
// up would not undo that they are ahead, and would delay the blocks that are due now. So stragglers have half of each chunk,
// the oldest first among them, and the others the other half; room that either half leaves free is the other's. Nobody waits
// for a straggler.
//
// An order belongs to one session; only that session's goroutine uses it.
type order struct {
	clock   func() traffic.Time
	front   traffic.Time // append time of the newest event that was announced, or what commits say about it
	chosen  traffic.Time // what front becomes if what was chosen last is announced
	timeout time.Duration
	looked  traffic.Time // when the timeout was brought up to date last
	held    bool         // events have been waiting since then
}

func newOrder(clock func() traffic.Time) *order {
	return &order{clock: clock, front: traffic.BeforeTime, timeout: orderTimeout, looked: clock()}
}

// startsAt notes how far a source was routed when the session took it.
func (o *order) startsAt(progress traffic.Time) {
	if progress != traffic.EndOfTime {
		o.front = max(o.front, min(progress, o.clock()))
	}
}

// queuedSource is what an order chooses from.
type queuedSource struct {
	at       *ingest.Announcement // whose end is to be set; nil: none can be
	messages []traffic.Message    // that the chunk may take; those that it takes are cut off
	read     int64                // up to where the log was read
	since    traffic.Time         // what comes behind the messages was not appended before this
	dry      bool                 // nothing comes behind them now
	behind   bool                 // a straggler
}

// stand takes what is announced up to end into the chunk. What comes behind can be announced only with the chunk after
// it, and is waited for.
func (q *queuedSource) stand(end int64, room *chunkRoom) {
	for len(q.messages) > 0 && q.messages[0].Offset < end {
		room.take(&q.messages[0])
		q.messages = q.messages[1:]
	}
	if len(q.messages) > 0 {
		q.messages, q.since, q.dry = nil, q.messages[0].Appended, false
	}
}

// reached is where the source stands when the chunk has taken its messages.
func (q *queuedSource) reached() int64 {
	if len(q.messages) > 0 {
		return q.messages[0].Offset
	}
	return max(q.at.Offset, q.read)
}

// next is when the source's next event was appended, or the earliest that it can have been. ok is false where there is
// none to take or to wait for.
func (q *queuedSource) next() (at traffic.Time, ok bool) {
	if len(q.messages) > 0 {
		return q.messages[0].Appended, true
	}
	return q.since, !q.dry
}

// chunkRoom is how much a chunk may still take.
type chunkRoom struct{ events, bytes int }

func (r *chunkRoom) full() bool { return r.events <= 0 || r.bytes <= 0 }

func (r *chunkRoom) take(m *traffic.Message) {
	r.events--
	r.bytes -= len(m.Value)
}

// choose cuts off what the chunk takes. held says that it takes less than there is room for and than is queued, since
// something older is not read yet.
func (o *order) choose(sources []*queuedSource, room *chunkRoom) (held bool) {
	now := o.clock()
	o.reckon(now)
	o.chosen = o.front
	for _, q := range sources {
		at, ok := q.next()
		q.behind = ok && at < o.front.Add(-orderSpan)
	}
	half := chunkRoom{room.events - room.events/2, room.bytes - room.bytes/2}
	before := half
	o.merge(sources, true, now, &half)
	room.events -= before.events - half.events
	room.bytes -= before.bytes - half.bytes
	held = o.merge(sources, false, now, room)
	o.merge(sources, true, now, room)
	return held
}

// merge takes the oldest events of the stragglers, or of the others, until the room is full, or until the next event is not
// read yet and timeout is left to wait for it.
func (o *order) merge(sources []*queuedSource, stragglers bool, now traffic.Time, room *chunkRoom) (held bool) {
	for !room.full() {
		first, until := o.oldest(sources, stragglers)
		if first == nil {
			return false
		}
		if len(first.messages) == 0 {
			return true
		}
		for len(first.messages) > 0 && first.messages[0].Appended <= until && !room.full() {
			// A time ahead of the clock, which only a producer can have written, would make stragglers of all others.
			o.chosen = max(o.chosen, min(first.messages[0].Appended, now))
			room.take(&first.messages[0])
			first.messages = first.messages[1:]
		}
	}
	return false
}

// oldest is the source to take from, up to the time at which another one's turn comes. Of two that are as old, the one that
// has something to give comes first.
func (o *order) oldest(sources []*queuedSource, stragglers bool) (first *queuedSource, until traffic.Time) {
	least, until := traffic.EndOfTime, traffic.EndOfTime
	for _, q := range sources {
		at, ok := q.next()
		if !ok || q.behind != stragglers || len(q.messages) == 0 && (stragglers || o.timeout <= 0) {
			continue
		}
		if first == nil || at < least || at == least && len(first.messages) == 0 {
			first, least, until = q, at, least
			continue
		}
		until = min(until, at)
	}
	return first, until
}

// reckon brings the timeout up to date: waiting uses it up, other time restores it.
func (o *order) reckon(now traffic.Time) {
	passed := max(now.Sub(o.looked), 0)
	o.looked = now
	if o.held {
		o.timeout = max(o.timeout-passed, 0)
	} else {
		o.timeout = min(o.timeout+passed/orderRegain, orderTimeout)
	}
}

// announced notes that the events up to the append time front are announced.
func (o *order) announced(front traffic.Time) { o.front = max(o.front, front) }

// wait notes whether events wait from now on, and how long they will at most.
func (o *order) wait(held bool) time.Duration {
	o.held = held
	return o.timeout
}
