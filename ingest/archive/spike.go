package archive

import (
	"time"

	"github.com/weirhq/weir/traffic"
)

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
