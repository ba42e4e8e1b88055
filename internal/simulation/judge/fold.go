package judge

import (
	"fmt"

	"github.com/weirhq/weir/internal/oracle"
)

// counted is an event record that passed the fence.
type counted struct {
	oracle.Keyed
	late map[int]bool // by the rule's index: too late for it
	at   int64        // greatest append time of the keyed partition so far
}

// Reading is one keyed partition, read from its beginning to its end or to a hole.
type Reading struct {
	partition  int
	accepted   []counted
	duplicates int
	stalled    bool   // at some time a source partition was not waited for
	Hole       string // "" when there is none
	wrong      []string
}

// fold reads the log of one keyed partition as docs/DESIGN.md §2 says that its owner must: the fence first, prev of what passes it;
// progress by source partition, the watermark, what is late.
type fold struct {
	s   *Stream
	out Reading

	sources  []sourceState
	clock    int64 // the stall clock
	appended int64
	newest   int64
	water    int64
}

type sourceState struct {
	fence, progress, ticked int64
	told                    int64 // greatest offset that a tick has called acknowledged
}

func (s *Stream) fold(q int) Reading {
	f := fold{s: s, sources: make([]sourceState, len(s.Requests)), appended: before, newest: before, water: before}
	f.out.partition = q
	for i := range f.sources {
		f.sources[i] = sourceState{fence: none, progress: before}
	}
	for i, r := range s.Keyed[q] {
		k, err := oracle.ReadKeyed(r.Value)
		if err != nil {
			f.say("record %d: %v", i, err)
			return f.out
		}
		if k.Generation != s.Generation {
			f.say("record %d: generation %d of the requests log, want %d", i, k.Generation, s.Generation)
		}
		if k.Source >= len(f.sources) || k.Kind == 3 {
			f.say("record %d: kind %d of source partition %d", i, k.Kind, k.Source)
			return f.out
		}
		if k.Kind == 1 && k.Offset <= f.sources[k.Source].fence {
			f.pass(r.Appended)
			f.out.duplicates++
			continue
		}
		fence := f.sources[k.Source].fence
		if k.Prev > fence || k.Kind == 1 && k.Prev != fence {
			f.out.Hole = fmt.Sprintf("kind %d of %d/%d names %d, the fence is %d", k.Kind, k.Source, k.Offset, k.Prev, fence)
			return f.out
		}
		f.pass(r.Appended)
		if k.Kind == 1 {
			f.event(k)
		} else {
			f.tick(k)
		}
	}
	return f.out
}

func (f *fold) say(format string, args ...any) {
	f.out.wrong = append(f.out.wrong, fmt.Sprintf("keyed %d: ", f.out.partition)+fmt.Sprintf(format, args...))
}

// pass moves the stall clock: gaps of append time between neighbouring records, each bounded.
func (f *fold) pass(appended int64) {
	if f.appended != before {
		f.clock += min(max(appended-f.appended, 0), maxSilence)
	}
	f.appended = appended
	f.newest = max(f.newest, appended)
}

func (f *fold) event(k oracle.Keyed) {
	s := &f.sources[k.Source]
	if k.Offset < s.told {
		f.say("event %d/%d counts after a tick that called %d acknowledged", k.Source, k.Offset, s.told)
	}
	s.fence = k.Offset
	s.progress = max(s.progress, k.Progress)
	f.advance()
	c := counted{Keyed: k, late: map[int]bool{}, at: f.newest}
	rules := f.s.Versions[k.Version]
	for _, i := range k.Rules {
		if i >= len(rules) {
			f.say("event %d/%d names rule %d of version %d, which has %d", k.Source, k.Offset, i, k.Version, len(rules))
			continue
		}
		behind := k.Time < s.progress-rules[i].Lateness
		c.late[i] = behind || f.water != before && k.Time < f.water-rules[i].Lateness
	}
	f.out.accepted = append(f.out.accepted, c)
}

func (f *fold) tick(k oracle.Keyed) {
	s := &f.sources[k.Source]
	s.told = max(s.told, k.Offset)
	progress := k.Time
	if k.Idle {
		progress = max(progress, min(f.appended, k.Clock)-idleMargin)
	}
	s.progress = max(s.progress, progress)
	s.ticked = f.clock
	f.checkTick(k)
	f.advance()
}

// checkTick asks whether a tick tells the truth about its source partition.
func (f *fold) checkTick(k oracle.Keyed) {
	if k.Time == eternity {
		return // the end of the run, which the simulation says itself
	}
	events, progress := f.s.Requests[k.Source], before
	for i := range min(k.Offset, int64(len(events))) {
		_, progress = events[i].decided(progress)
	}
	if k.Time != progress {
		f.say("a tick of %d/%d has time %d, want %d", k.Source, k.Offset, k.Time, progress)
	}
	for i := k.Offset; k.Idle && i < int64(len(events)); i++ {
		if events[i].Appended < k.Clock && !events[i].Control {
			f.say("a tick of %d/%d is idle at %d, but %d came at %d", k.Source, k.Offset, k.Clock, i, events[i].Appended)
			return
		}
	}
}

// advance moves the watermark: the least progress of the source partitions that are not stalled, never back.
func (f *fold) advance() {
	least, live := eternity, false
	for i := range f.sources {
		if s := &f.sources[i]; f.clock-s.ticked <= f.s.Stall {
			least, live = min(least, s.progress), true
		} else {
			f.out.stalled = true
		}
	}
	if live {
		f.water = max(f.water, least)
	}
}
