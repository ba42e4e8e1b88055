package backtest

import (
	"time"

	"github.com/weirhq/weir/traffic"
)

// spikeAhead is how far one single line may be ahead of both its neighbours, as in ingest/archive.
const spikeAhead = time.Hour

// spikes holds each event back until its successor is known, and refuses the one that is more than spikeAhead ahead of both
// neighbours, by the rule of ingest/archive.
type spikes struct {
	held     *event
	detached bool
	prev     traffic.Time
	seen     bool // prev is set
}

// push takes the next event and gives the one before it.
func (s *spikes) push(e *event, emit, refuse func(*event)) {
	held := s.held
	s.held, s.detached = e, false
	if held == nil {
		return
	}
	if s.seen && held.time > s.prev.Add(spikeAhead) && held.time > e.time.Add(spikeAhead) {
		refuse(held) // prev stays: a refused line vouches for nobody
		return
	}
	s.prev, s.seen = held.time, true
	emit(held)
}

// detach keeps the event that is held back from the memory of its block, which goes.
func (s *spikes) detach() {
	if s.held != nil && !s.detached {
		s.held, s.detached = s.held.detached(), true
	}
}

// flush gives the last event.
func (s *spikes) flush(emit func(*event)) {
	if s.held != nil {
		emit(s.held)
		s.held = nil
	}
}

// sorterBytes bounds what a sorter holds, in bytes as event.bytes tells them. Beyond it the oldest events leave early.
const sorterBytes = 256 << 20

// sorter sorts events by time as far as a bounded buffer can, by the rule of ingest/archive: an event leaves when one more
// than within newer has been seen; events of one time keep their order.
type sorter struct {
	within  time.Duration
	held    []heldEvent // a heap
	bytes   int
	seq     uint64
	newest  traffic.Time
	emitted traffic.Time // greatest time that has left

	tooLate, forced int64
}

type heldEvent struct {
	*event
	seq uint64
}

func newSorter(within time.Duration) sorter {
	return sorter{within: within, newest: traffic.BeforeTime, emitted: traffic.BeforeTime}
}

func (s *sorter) push(e *event, emit func(*event)) {
	if s.within <= 0 {
		emit(e)
		return
	}
	if e.time < s.emitted {
		s.tooLate++
		emit(e) // dropping it would hide it from the late sums
		return
	}
	s.newest = max(s.newest, e.time)
	s.seq++
	e = e.detached()
	s.held = append(s.held, heldEvent{e, s.seq})
	s.up(len(s.held) - 1)
	s.bytes += e.bytes()
	for len(s.held) > 0 {
		ripe := s.held[0].time < s.newest.Add(-s.within)
		if !ripe && s.bytes <= sorterBytes {
			return
		}
		if !ripe {
			s.forced++
		}
		s.pop(emit)
	}
}

func (s *sorter) flush(emit func(*event)) {
	for len(s.held) > 0 {
		s.pop(emit)
	}
}

func (s *sorter) pop(emit func(*event)) {
	e := s.held[0].event
	last := len(s.held) - 1
	s.held[0], s.held[last] = s.held[last], heldEvent{}
	s.held = s.held[:last]
	s.down(0)
	s.bytes -= e.bytes()
	s.emitted = max(s.emitted, e.time)
	emit(e)
}

func (s *sorter) less(i, j int) bool {
	if s.held[i].time != s.held[j].time {
		return s.held[i].time < s.held[j].time
	}
	return s.held[i].seq < s.held[j].seq
}

func (s *sorter) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !s.less(i, parent) {
			return
		}
		s.held[i], s.held[parent] = s.held[parent], s.held[i]
		i = parent
	}
}

func (s *sorter) down(i int) {
	for {
		child := 2*i + 1
		if child >= len(s.held) {
			return
		}
		if child+1 < len(s.held) && s.less(child+1, child) {
			child++
		}
		if !s.less(child, i) {
			return
		}
		s.held[i], s.held[child] = s.held[child], s.held[i]
		i = child
	}
}
