package detectors

import (
	"fmt"
)

// MaxSources bounds the partitions of a requests topic.
const MaxSources = 1 << 16

// fence lets every event of the requests topic count once, and none after a hole. For each source partition it holds the
// offset of the newest event that was accepted: an event at or below that offset is a duplicate, since there is one record
// per (event, keyed partition), and a record that names a predecessor above it (Keyed.Prev) tells that records are missing.
type fence struct {
	keyed      int   // number of this keyed partition, for messages
	initial    int   // source partitions that a generation begins with (Config.Sources)
	known      int64 // newest generation of the requests topic that this process knows
	generation int64 // of the offsets
	sources    []offsetFence
	accepted   map[gap]bool // holes that an operator lets pass
}

// offsetFence is the fence of one source partition.
type offsetFence struct {
	offset int64 // greatest event offset accepted, or NoOffset
	rebase bool  // the log before is gone: the next record is believed without its Prev
}

// gap names a hole as operators accept it: the source partition and the offset of the record that found it.
type gap struct {
	source int
	offset int64
}

// offsetRange is the offsets from first up to, not including, end. The zero value is empty.
type offsetRange struct{ first, end int64 }

func (r offsetRange) empty() bool { return r.first >= r.end }

// HoleError says that records between Prev and Offset of a source partition never arrived. The partition must not go
// on until an operator accepts the gap: a blind detector must not look healthy.
type HoleError struct {
	Keyed, Source       int
	Fence, Prev, Offset int64
}

func (e *HoleError) Error() string {
	return fmt.Sprintf("keyed partition %d: source partition %d names offset %d as sent before %d, but only up to %d arrived",
		e.Keyed, e.Source, e.Prev, e.Offset, e.Fence)
}

// GenerationError says that the requests topic was recreated while this process ran.
type GenerationError struct{ Got, Known int64 }

func (e *GenerationError) Error() string {
	return fmt.Sprintf("keyed record of stream generation %d, this process was started for %d: restart it", e.Got, e.Known)
}

func newFence(cfg *Config) fence {
	f := fence{keyed: cfg.Keyed, initial: cfg.Sources, known: cfg.Generation, accepted: map[gap]bool{}}
	f.restart(0)
	return f
}

// check reports whether k is a duplicate: an event that was accepted before, or a record of a generation that is over. The
// error is a *GenerationError or a *HoleError, or wraps ErrRecord. Nothing changes.
//
// The offset is asked first, Prev only where it is new: a duplicate's Prev is older than the fence by nature.
func (f *fence) check(k *Keyed) (duplicate bool, err error) {
	switch {
	case k.Generation > f.known:
		return false, &GenerationError{Got: k.Generation, Known: f.known}
	case k.Generation < f.generation:
		return true, nil
	case k.Source >= MaxSources:
		return false, fmt.Errorf("%w: source partition %d, allowed: fewer than %d", ErrRecord, k.Source, MaxSources)
	case k.Hint():
		return false, nil
	}
	s := f.met(k)
	if k.Kind == KeyedEvent && k.Offset <= s.offset {
		return true, nil
	}
	// A router that names nothing before, where something was, has lost its memory: as bad as a hole.
	hole := k.Prev > s.offset || k.Kind == KeyedEvent && k.Prev == NoOffset && s.offset != NoOffset
	if k.Kind != KeyedLoss && hole && !s.rebase && !f.accepted[gap{k.Source, k.Offset}] {
		return false, &HoleError{Keyed: f.keyed, Source: k.Source, Fence: s.offset, Prev: k.Prev, Offset: k.Offset}
	}
	return false, nil
}

// met is the fence of k's source partition; where k begins a generation, the fence that restart will set.
func (f *fence) met(k *Keyed) offsetFence {
	s := offsetFence{offset: NoOffset}
	switch {
	case k.Source >= len(f.sources):
	case k.Generation == f.generation:
		return f.sources[k.Source]
	case k.Source < f.initial:
		s.rebase = f.sources[k.Source].rebase
	}
	return s
}

// restart begins a generation of the requests topic: its offsets start anew. A rebase that is due stays due.
func (f *fence) restart(generation int64) {
	before := f.sources
	f.generation = generation
	f.sources = make([]offsetFence, f.initial)
	for i := range f.sources {
		f.sources[i] = offsetFence{offset: NoOffset, rebase: i < len(before) && before[i].rebase}
	}
}

// grow takes in a source partition that was added to the requests topic after its generation had begun. It counts from
// the first record that names it, and not from when a process hears of it: the state must be the same for every owner of
// the log.
func (f *fence) grow(source int) {
	for len(f.sources) <= source {
		f.sources = append(f.sources, offsetFence{offset: NoOffset})
	}
}

// passHole moves the fence up to k.Prev where check has let k pass in spite of a hole, and returns the offsets that are
// given up: none after a rebase, which was reported when it began.
func (f *fence) passHole(k *Keyed) (lost offsetRange) {
	s := &f.sources[k.Source]
	switch {
	case s.rebase:
		// Only an event ends the rebase (accept): the first record may be an old tick of a zombie, whose Prev is low.
		s.offset = max(s.offset, k.Prev)
	case k.Prev > s.offset:
		lost = offsetRange{s.offset + 1, k.Prev + 1}
		s.offset = k.Prev
	}
	return lost
}

// accept moves the fence to the event k. Ticks never move it: a tick says that all before its offset is acknowledged, not
// that this keyed partition got some of it.
func (f *fence) accept(k *Keyed) {
	f.sources[k.Source] = offsetFence{offset: k.Offset}
}

// skip moves the fence to the end of the gap in requests that the loss record k accepts, and returns the offsets that will
// never come: none when k is told again.
func (f *fence) skip(k *Keyed) (lost offsetRange) {
	s := &f.sources[k.Source]
	if k.Offset-1 <= s.offset {
		return offsetRange{}
	}
	lost = offsetRange{s.offset + 1, k.Offset}
	*s = offsetFence{offset: k.Offset - 1}
	return lost
}

// rebase lets every source partition go on from its next event, whatever that names as sent before: the log before is gone.
func (f *fence) rebase() {
	for i := range f.sources {
		f.sources[i].rebase = true
	}
}
