package simulation

import (
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/traffic"
)

// shown is what a keyed partition has shown of a source partition; for bugs only.
type shown struct {
	fence, tick, count int64
}

// reshow is where a bug gives detectors another record than the one that was appended: so that sentences which detectors
// keep inside can be broken from outside. It is a function of the log, so that all detectors see the same.
func (w *world) reshow(partition int, value []byte) []byte {
	bugs := &w.bugs
	if !bugs.noFence && !bugs.tickTakesOffset && !bugs.tickTakesBefore && !bugs.idleByAppend && !bugs.tickWithoutPrev {
		return value
	}
	var k detectors.Keyed
	if err := detectors.DecodeKeyed(value, &k); err != nil {
		return value
	}
	s := w.shown[[2]int{partition, k.Source}]
	if s == nil {
		s = &shown{fence: detectors.NoOffset, tick: detectors.NoOffset}
		w.shown[[2]int{partition, k.Source}] = s
	}
	if k.Kind == detectors.KeyedEvent {
		switch {
		case bugs.noFence: // each record is a new one
			k.Prev, k.Offset = s.count-1, s.count
			s.count++
		case bugs.tickTakesOffset, bugs.tickTakesBefore:
			s.event(&k)
		}
		return detectors.AppendKeyed(nil, &k)
	}
	switch {
	case bugs.noFence, bugs.tickWithoutPrev:
		k.Prev = detectors.NoOffset
	case bugs.tickTakesOffset:
		s.tick = max(s.tick, k.Offset)
	case bugs.tickTakesBefore:
		s.tick = max(s.tick, k.Offset-1)
	case k.Idle:
		k.Clock = traffic.EndOfTime // the append time alone decides
	}
	return detectors.AppendKeyed(nil, &k)
}

// event shows an event as to a detector whose fence ticks have moved.
func (s *shown) event(k *detectors.Keyed) {
	fence := max(s.fence, s.tick)
	switch {
	case k.Offset <= s.fence:
		return
	case k.Offset <= fence: // it is dropped: it counts nowhere
		k.Rules, k.Prev = nil, s.fence
	case k.Prev > fence || k.Prev == detectors.NoOffset && fence != detectors.NoOffset: // it looks like a hole
		k.Prev = k.Offset - 1
	default:
		k.Prev = s.fence
	}
	s.fence = k.Offset
}
