package backtest

import (
	"fmt"
	"sync/atomic"

	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/ingest/route"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Reasons of lines that a replay refuses too.
const (
	reasonNoTime = archive.ReasonNoTime
	reasonFuture = archive.ReasonFuture
	reasonAhead  = archive.ReasonAhead
)

// probeLines is how many lines of a file may fail, none having succeeded, before the rest of it is not read.
const probeLines = 10_000

// maxExamples is how many places of lines refused are told.
const maxExamples = 3

// batch is a stretch of the sequence, cut up by keyed partitions.
type batch struct {
	counted [keyedPartitions][]counting
	blocked [keyedPartitions][]blocking
	sources []sourceState // at its end
	pauses  []pause       // in it
	tick    bool          // partitions are to be told of them
	live    bool          // of a live topic
	clock   traffic.Time  // append time at its end
	ended   bool
	block   *block       // whose memory the events lie in; nil: they were detached
	pending atomic.Int32 // workers that have not counted it
}

// pause is event time that passed in a source partition without an event.
type pause struct {
	source   int
	from, to traffic.Time
}

// counting is an event that a partition counts.
type counting struct {
	event  *event
	target *target // one of its targets
}

// blocking is an event that a block may refuse.
type blocking struct {
	event   *event
	watched int // index into what watches it
}

// sourceState is where a source partition stands.
type sourceState struct {
	next     int64 // offset of its next event
	progress traffic.Time
	came     traffic.Time // of a live topic: when Kafka took its last one
}

// ruleCount is what became of the events that a rule watches before they reached a partition.
type ruleCount struct {
	matched int64
	held    int64 // that the rule's block could hold
	left    [detectors.NumUncounted]int64
	allowed map[string]int64 // by allow list
	// unjudged are events on which its conditions could not be judged, the watched and those that for this reason are not.
	unjudged route.Unjudged
}

// sequence brings what was decoded into the order of the log, refuses what a replay would refuse, and gives each event its
// place. One goroutine runs it.
type sequence struct {
	plan   *plan
	files  []File
	out    *Result
	rules  []ruleCount
	lines  []int64 // of each file so far
	failed failures

	spikes  spikes
	sorter  sorter
	sources []sourceState
	batch   *batch
	taken   int
	live    *Live // nil: files are read
	hints   hints
	clock   traffic.Time // append time: of a live topic, that of its newest event so far; else when the run began
	ticked  traffic.Time // clock of the last tick
}

// hints are the hints that were given, as routers remember them: in bounded memory, for what is forgotten is given again.
type hints map[uint64]bool

const maxHints = 1 << 20

// known reports whether a hint was given, and notes it.
func (h hints) known(number uint64) bool {
	if h[number] {
		return true
	}
	if len(h) >= maxHints {
		clear(h)
	}
	h[number] = true
	return false
}

// tickEvery is how many batches pass between two ticks. A partition that gets events knows the time from them.
const tickEvery = 16

// failures are of the file that is being read, until a line of it was read well.
type failures struct {
	probing bool
	given   bool // up
	lines   int
	first   *archive.FormatError // of the run: of the first line that its format has not
}

func newSequence(p *plan, files []File, live *Live) *sequence {
	s := &sequence{
		plan: p, files: files, live: live, rules: make([]ruleCount, len(p.Rules)), lines: make([]int64, len(files)), sorter: newSorter(p.Reorder),
		out:     &Result{Refused: map[string]int64{}, First: traffic.BeforeTime, Last: traffic.BeforeTime},
		sources: make([]sourceState, p.Partitions), batch: &batch{}, clock: p.began, hints: hints{},
	}
	for i := range s.sources {
		s.sources[i].progress = traffic.BeforeTime
	}
	if live != nil {
		s.clock = 0 // no event has come yet
	}
	return s
}

// block takes a block's lines in, and reports whether its file is to be given up.
func (s *sequence) block(b *block) (giveUp bool) {
	if len(b.messages) > 0 {
		s.messages(b)
		return false
	}
	if b.first {
		s.failed.probing, s.failed.given, s.failed.lines = true, false, 0
	}
	if s.failed.given {
		return true
	}
	before := s.lines[b.file]
	refused := b.refusals
	for i := range b.events {
		e := &b.events[i]
		for len(refused) > 0 && refused[0].line < e.line {
			s.refuse(b, before, &refused[0])
			refused = refused[1:]
		}
		s.failed.probing = false
		e.file, e.line = b.file, before+e.line
		s.spikes.push(e, s.sort, s.ahead)
	}
	for i := range refused {
		s.refuse(b, before, &refused[i])
	}
	s.spikes.detach()
	s.lines[b.file] = before + b.decoding.lines
	s.out.Lines += b.decoding.lines
	if why := b.text.Broken; why != nil {
		s.broken(b.file, why)
	}
	if s.failed.given = s.failed.probing && s.failed.lines >= probeLines; s.failed.given {
		s.out.GivenUp = append(s.out.GivenUp, s.files[b.file].Name)
	}
	return s.failed.given
}

func (s *sequence) refuse(b *block, before int64, r *refusal) {
	s.tell(b.file, before+r.line, r.reason, r.detail)
	if !s.failed.probing {
		return
	}
	s.failed.lines++
	if r.err != nil && s.failed.first == nil {
		s.failed.first = &archive.FormatError{File: s.files[b.file].Name, Line: before + r.line, Format: s.plan.Format, Formats: formats(), Err: r.err}
	}
	if s.failed.first != nil {
		s.failed.first.Lines++
	}
}

// broken tells of a file that cannot be read on.
func (s *sequence) broken(file int, why *archive.BreakOff) {
	lost := archive.Break{File: s.files[file].Name, Line: s.lines[file] + 1, Reason: why.Reason, Detail: why.Err.Error()}
	s.out.Broken = append(s.out.Broken, lost)
	s.tell(file, lost.Line, lost.Reason, lost.Detail)
}

// tell counts something that was refused.
func (s *sequence) tell(file int, line int64, reason, detail string) {
	s.out.Refused[reason]++
	s.example(fmt.Sprintf("%s:%d: %s: %s", s.files[file].Name, line, reason, detail))
}

func (s *sequence) example(text string) {
	if len(s.out.Examples) < maxExamples {
		s.out.Examples = append(s.out.Examples, text)
	}
}

func (s *sequence) ahead(e *event) {
	s.tell(e.file, e.line, reasonAhead, fmt.Sprintf("time %s is more than %s ahead of the lines before and after it", e.time, spikeAhead))
}

// sort leaves out what is not to be counted, and passes the rest on in the order of its sending.
func (s *sequence) sort(e *event) {
	if s.plan.Since != 0 && e.time < s.plan.Since || s.plan.Until != 0 && e.time >= s.plan.Until {
		s.out.LeftOut++
		return
	}
	s.sorter.push(e, s.number)
}

// number gives an event of a file its place in its source partition.
func (s *sequence) number(e *event) {
	e.offset = s.sources[e.source].next
	s.place(e)
}

// place hands an event that has its place to the keyed partitions that it concerns.
func (s *sequence) place(e *event) {
	src := &s.sources[e.source]
	src.next = e.offset + 1
	if src.progress != traffic.BeforeTime && e.time.Sub(src.progress) > detectors.TickEvery {
		s.batch.pauses = append(s.batch.pauses, pause{e.source, src.progress, e.time})
	}
	src.progress = max(src.progress, e.time)
	e.progress = src.progress
	out := s.out
	out.Events++
	if out.First == traffic.BeforeTime || e.time < out.First {
		out.First = e.time
	}
	out.Last = max(out.Last, e.time)
	if e.own {
		out.OwnRefusals++
	}
	for i := range e.watched {
		w := &e.watched[i]
		r := &s.rules[w.rule]
		switch {
		case !w.matched:
		case w.notice != nil && w.allowed != "":
			r.matched++
			if r.allowed == nil {
				r.allowed = map[string]int64{}
			}
			r.allowed[w.allowed]++
		case !w.counts:
			r.left[w.why]++
			fallthrough
		default:
			r.matched++
		}
		if w.held {
			r.held++
		}
		if s.plan.Rules[w.rule].Block != nil {
			s.batch.blocked[w.partition] = append(s.batch.blocked[w.partition], blocking{e, i})
		}
	}
	for i := range e.failed {
		s.rules[e.failed[i].Rule].unjudged.Add(&e.failed[i])
	}
	for i := range e.targets {
		t := &e.targets[i]
		if t.hint != 0 && s.hints.known(t.hint) {
			continue
		}
		s.batch.counted[t.partition] = append(s.batch.counted[t.partition], counting{e, t})
	}
}

// flush lets go of all that is held back.
func (s *sequence) flush() {
	s.spikes.flush(s.sort)
	s.sorter.flush(s.number)
}

// take gives what was placed since the last take, and b with it; spare is a batch whose memory may be used again, or nil.
func (s *sequence) take(b *block, ended bool, spare *batch) *batch {
	out := s.batch
	out.block, out.ended, out.live, out.clock = b, ended, s.live != nil, s.clock
	s.taken++
	out.tick = ended || s.tickDue()
	out.sources = append(out.sources[:0], s.sources...)
	s.batch = &batch{}
	if spare != nil {
		s.batch = spare
		spare.pauses = spare.pauses[:0]
		for q := range spare.counted {
			clear(spare.counted[q])
			clear(spare.blocked[q])
			spare.counted[q], spare.blocked[q] = spare.counted[q][:0], spare.blocked[q][:0]
		}
	}
	return out
}

// nothing is the error of a run that could read nothing at all.
func (s *sequence) nothing() error {
	switch {
	case s.out.Events+s.out.LeftOut+s.out.Refused[reasonAhead] > 0 || len(s.out.Refused) == 0:
		return nil
	case s.failed.first != nil:
		return s.failed.first
	}
	return fmt.Errorf("not one line could be read: %s", s.out.Examples[0])
}

func formats() string {
	var out string
	for _, name := range format.Names() {
		if name == format.Protobuf {
			continue // it has no lines
		}
		if out != "" {
			out += ", "
		}
		out += name
	}
	return out
}
