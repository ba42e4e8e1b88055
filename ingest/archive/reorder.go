package archive

import (
	"container/heap"
	"time"

	"github.com/weirhq/weir/traffic"
)

// reorderBytes bounds what a reorder buffer holds, in bytes of event values. Beyond it the oldest events leave early.
const reorderBytes = 256 << 20

// reorder sorts a stream of events by time, as far as a bounded buffer can: an event leaves when one more than within
// newer has been seen. Input whose disorder is at most within comes out sorted; events of one time keep their order.
type reorder struct {
	within  time.Duration
	limit   int // bytes
	held    eventHeap
	bytes   int
	seq     uint64
	newest  traffic.Time
	emitted traffic.Time // greatest time that has left

	tooLate int64 // events older than one that had left before they came
	forced  int64 // events that left early because the buffer was full
}

func newReorder(within time.Duration, limit int) *reorder {
	return &reorder{within: within, limit: limit, newest: traffic.BeforeTime, emitted: traffic.BeforeTime}
}

// push takes e and gives what may leave, oldest first. An event without a time passes at once.
func (r *reorder) push(e Event, emit func(Event) error) error {
	if r.within <= 0 || !e.HasTime {
		return emit(e)
	}
	if e.Time < r.emitted {
		r.tooLate++
		return emit(e) // still sent: dropping it would hide it from the late sums
	}
	r.newest = max(r.newest, e.Time)
	r.seq++
	heap.Push(&r.held, heldEvent{Event: e, seq: r.seq})
	r.bytes += len(e.Value)
	for len(r.held) > 0 {
		ripe := r.held[0].Time < r.newest.Add(-r.within)
		if !ripe && r.bytes <= r.limit {
			return nil
		}
		if !ripe {
			r.forced++
		}
		if err := r.pop(emit); err != nil {
			return err
		}
	}
	return nil
}

// flush gives all that is held, oldest first.
func (r *reorder) flush(emit func(Event) error) error {
	for len(r.held) > 0 {
		if err := r.pop(emit); err != nil {
			return err
		}
	}
	return nil
}

func (r *reorder) pop(emit func(Event) error) error {
	e := heap.Pop(&r.held).(heldEvent) // the heap holds nothing else
	r.bytes -= len(e.Value)
	r.emitted = max(r.emitted, e.Time)
	return emit(e.Event)
}

type heldEvent struct {
	Event
	seq uint64
}

// eventHeap is a min-heap by time, then by arrival.
type eventHeap []heldEvent

var _ heap.Interface = (*eventHeap)(nil)

func (h eventHeap) Len() int { return len(h) }

func (h eventHeap) Less(i, j int) bool {
	if h[i].Time != h[j].Time {
		return h[i].Time < h[j].Time
	}
	return h[i].seq < h[j].seq
}

func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *eventHeap) Push(x any) {
	*h = append(*h, x.(heldEvent)) // the heap holds nothing else
}

func (h *eventHeap) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = heldEvent{}
	*h = (*h)[:last]
	return e
}

// spikeAhead is how far one single line may be ahead of both its neighbours.
const spikeAhead = time.Hour

// spikes holds each event back until its successor is known, and refuses the one that is more than spikeAhead ahead of
// both neighbours in the archive: believed, it would make everything after it late. Two such lines in a row are a jump
// of the clock that the archive really shows, and pass. The first and the last line have one neighbour only, and pass.
type spikes struct {
	held Event
	has  bool
	prev traffic.Time
	seen bool // prev is set
}

// push takes the next event and gives the one before it.
func (s *spikes) push(e Event, emit func(Event) error, refuse func(Event) error) error {
	if !s.has {
		s.held, s.has = e, true
		return nil
	}
	held := s.held
	s.held = e
	if s.seen && held.Time > s.prev.Add(spikeAhead) && held.Time > e.Time.Add(spikeAhead) {
		return refuse(held) // prev stays: a refused line vouches for nobody
	}
	s.prev, s.seen = held.Time, true
	return emit(held)
}

// flush gives the last event.
func (s *spikes) flush(emit func(Event) error) error {
	if !s.has {
		return nil
	}
	s.has = false
	return emit(s.held)
}
