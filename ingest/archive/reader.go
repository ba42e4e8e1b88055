// Package archive reads files of events, sorts and paces them, and sends them to a requests topic.
package archive

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Event is one event of an archive, ready to be sent.
type Event struct {
	File    string
	Line    int64 // from 1
	Time    traffic.Time
	HasTime bool
	IP      string // as the event carries it; events of one address stay in one partition
	Value   []byte // what the requests topic gets
}

// Sink takes what an Archive reads. An error from it ends the reading.
type Sink interface {
	// Send takes an event, in the order in which it is to be appended.
	Send(ctx context.Context, e Event) error
	// Refuse takes a line that is no event: Topic is the file, Offset the line.
	Refuse(ctx context.Context, letter traffic.DeadLetter) error
}

// Decode reads one line into r and gives the value that the requests topic gets for it: the line itself, or
// another form of the same event. The value must not alias line.
type Decode func(line []byte, r *traffic.Request) (value []byte, err error)

// Options say how an archive is read.
type Options struct {
	Format   string // its name, for messages
	Formats  string // all names, for messages
	Decode   Decode
	MaxBytes int           // longer lines are refused
	Reorder  time.Duration // 0: as it stands
	// Replay says that times are trusted as they stand: an event without one, one later than Now, and a line that
	// stands out (see spikes) are refused. Otherwise ROUTE corrects times as it does for any live event.
	Replay bool
	Now    func() traffic.Time
}

// Counts say what became of an archive's lines.
type Counts struct {
	Lines   int64
	Events  int64            // given to the sink
	Refused map[string]int64 // by reason
	TooLate int64            // sent, but behind an event that --reorder had already let go
	Forced  int64            // let go early because the reorder buffer was full
	First   traffic.Time     // least event time, BeforeTime when there is none
	Last    traffic.Time     // greatest event time
	Broken  []Break          // files that were not read to their end; each has a letter, too, by its reason in Refused
}

// Break is where a file could not be read on. Its lines before that were read.
type Break struct {
	File   string `json:"file"`
	Line   int64  `json:"line"`   // the first one that is lost, from 1
	Reason string `json:"reason"` // ReasonTruncated or ReasonUnreadable
	Detail string `json:"detail"`
}

// String has all of it: "file:line: reason: detail".
func (b Break) String() string {
	return fmt.Sprintf("%s:%d: %s: %s", b.File, b.Line, b.Reason, b.Detail)
}

// Reasons for which an archive's line becomes a dead letter, beside those of format.DecodeError.
const (
	ReasonNoTime = "no_time" // a replay's event carries no time
	ReasonFuture = "future"  // its time is later than the moment of ingest
	ReasonAhead  = "ahead"   // one single line far ahead of both neighbours, see spikes
)

// Stage is DeadLetter.Stage of a refused line.
const Stage = "ingest"

// DeadReasons are all reasons of dead letters of ingest.
func DeadReasons() []string {
	return append(format.Reasons(), ReasonNoTime, ReasonFuture, ReasonAhead, ReasonTruncated, ReasonUnreadable)
}

// probeLines is how many lines of a file may fail, none having succeeded, before the format is held to be wrong.
const probeLines = 20

// Reader reads archives, one after the other, as one stream of events. It is not safe for concurrent use.
type Reader struct {
	opts   Options
	sink   Sink
	spikes spikes
	sorter *reorder
	counts Counts
}

// NewReader makes an archive reader. Call Read for each file, then Flush.
func NewReader(opts Options, sink Sink) *Reader {
	return &Reader{
		opts: opts, sink: sink, sorter: newReorder(opts.Reorder, reorderBytes),
		counts: Counts{Refused: map[string]int64{}, First: traffic.BeforeTime, Last: traffic.BeforeTime},
	}
}

// Counts say what was read so far.
func (a *Reader) Counts() Counts {
	c := a.counts
	c.TooLate, c.Forced = a.sorter.tooLate, a.sorter.forced
	return c
}

// FormatError says that an archive is most likely not in the format that was given for it.
type FormatError struct {
	File    string
	Line    int64
	Lines   int
	Format  string
	Formats string
	Err     error // of the first line
}

func (e *FormatError) Error() string {
	return fmt.Sprintf("%s:%d: not in format %q: %v (none of the first %d lines could be read; allowed formats: %s)",
		e.File, e.Line, e.Format, e.Err, e.Lines, e.Formats)
}

func (e *FormatError) Unwrap() error { return e.Err }

// Read reads one file to its end, and closes it. A file whose first lines all fail ends it with a FormatError, before any of them is
// given to the sink. One that breaks off is read up to there, and that is told as a letter and among Counts.Broken: it is no error.
func (a *Reader) Read(ctx context.Context, name string, file io.ReadCloser) error {
	f := openFile{Reader: a, name: name, probing: true}
	err := f.all(ctx, file)
	if err != nil && !errors.As(err, new(*FormatError)) { // which names the file
		return fmt.Errorf("%s: %w", name, err)
	}
	return err
}

// Flush sends what is held back for sorting and checking.
func (a *Reader) Flush(ctx context.Context) error {
	emit := func(e Event) error { return a.send(ctx, e) }
	sort := func(e Event) error { return a.sorter.push(e, emit) }
	if err := a.spikes.flush(sort); err != nil {
		return err
	}
	return a.sorter.flush(emit)
}

// openFile is the state of the file being read.
type openFile struct {
	*Reader
	name    string
	probing bool // no line has been read well yet
	failed  []traffic.DeadLetter
	first   error // of the first line that failed
	at      int64
	lines   int64 // so far
}

// textLine is one line of a file. Text is valid until the next one is read.
type textLine struct {
	Number int64  // from 1
	Text   []byte // without the line ending; of a line that is longer than allowed perhaps the start alone
	Size   int    // bytes of the whole line
}

// all reads the file to its end, or to where it breaks off.
func (f *openFile) all(ctx context.Context, file io.ReadCloser) error {
	in := NewLineReader(ctx, file, f.opts.MaxBytes, false)
	defer func() { _ = in.Close() }() // it was only read
	for l := new(Lines); !l.Last; {
		if err := in.Next(ctx, l); err != nil {
			return err
		}
		if err := f.take(ctx, l); err != nil {
			return err
		}
		if l.Broken != nil {
			return f.breakOff(ctx, l.Broken)
		}
	}
	return f.settle(ctx)
}

func (f *openFile) take(ctx context.Context, l *Lines) error {
	if l.Oversized > 0 {
		f.lines++
		return f.line(ctx, textLine{f.lines, l.Text, l.Oversized})
	}
	for text := l.Text; len(text) > 0; {
		var line []byte
		line, text = CutLine(text)
		f.lines++
		if err := f.line(ctx, textLine{f.lines, line, len(line)}); err != nil {
			return err
		}
	}
	return nil
}

// breakOff tells of a file that cannot be read on. The letter has what there was of the line at which it breaks off.
func (f *openFile) breakOff(ctx context.Context, b *BreakOff) error {
	if err := f.settle(ctx); err != nil {
		return err
	}
	lost := Break{File: f.name, Line: f.lines + 1, Reason: b.Reason, Detail: b.Err.Error()}
	f.counts.Broken = append(f.counts.Broken, lost)
	return f.refuse(ctx, textLine{lost.Line, b.Rest, len(b.Rest)}, lost.Reason, lost.Detail)
}

func (f *openFile) line(ctx context.Context, l textLine) error {
	f.counts.Lines++
	if l.Size == 0 {
		return f.refuse(ctx, l, format.ReasonEmpty, "the line is empty")
	}
	if l.Size > f.opts.MaxBytes {
		return f.refuse(ctx, l, format.ReasonOversized, fmt.Sprintf("got %d bytes; allowed: %d", l.Size, f.opts.MaxBytes))
	}
	var req traffic.Request
	value, err := f.opts.Decode(l.Text, &req)
	if err != nil {
		return f.malformed(ctx, l, err)
	}
	if err := f.settle(ctx); err != nil {
		return err
	}
	e := Event{
		File: f.name, Line: l.Number, Time: req.Time, HasTime: req.HasTime, IP: strings.Clone(req.IP), Value: value,
	}
	if !f.opts.Replay {
		return f.sorter.push(e, func(e Event) error { return f.send(ctx, e) })
	}
	return f.trusted(ctx, l, e)
}

// trusted lets an event of a replay pass if its time can be believed.
func (f *openFile) trusted(ctx context.Context, l textLine, e Event) error {
	if !e.HasTime {
		return f.refuse(ctx, l, ReasonNoTime, "the event has no time, and a replay takes times from nowhere else")
	}
	if now := f.opts.Now(); e.Time > now {
		return f.refuse(ctx, l, ReasonFuture, fmt.Sprintf("time %s is later than now, %s", e.Time, now))
	}
	emit := func(e Event) error { return f.send(ctx, e) }
	sort := func(e Event) error { return f.sorter.push(e, emit) }
	return f.spikes.push(e, sort, func(e Event) error {
		held := textLine{Number: e.Line, Text: e.Value, Size: len(e.Value)}
		of := openFile{Reader: f.Reader, name: e.File} // the line before may be of the file before
		return of.refuse(ctx, held, ReasonAhead, fmt.Sprintf("time %s is more than %s ahead of the lines before and after it",
			e.Time, spikeAhead))
	})
}

// malformed refuses a line that the decoder does not take. Until one has been read well the letters are kept here: a
// wrong --format must not fill the dead letters with a whole archive.
func (f *openFile) malformed(ctx context.Context, l textLine, err error) error {
	reason, detail := format.ReasonMalformed, err.Error()
	var de *format.DecodeError
	if errors.As(err, &de) {
		reason, detail = de.Reason, de.Detail
	}
	if !f.probing {
		return f.refuse(ctx, l, reason, detail)
	}
	if f.first == nil {
		f.first, f.at = err, l.Number
	}
	f.failed = append(f.failed, f.letter(l, reason, detail))
	if len(f.failed) < probeLines {
		return nil
	}
	return &FormatError{
		File: f.name, Line: f.at, Lines: len(f.failed), Format: f.opts.Format, Formats: f.opts.Formats, Err: f.first,
	}
}

// settle ends the probing: the format is right, or the file too short to tell.
func (f *openFile) settle(ctx context.Context) error {
	f.probing = false
	failed := f.failed
	f.failed = nil
	for _, letter := range failed {
		if err := f.put(ctx, letter); err != nil {
			return err
		}
	}
	return nil
}

func (f *openFile) refuse(ctx context.Context, l textLine, reason, detail string) error {
	return f.put(ctx, f.letter(l, reason, detail))
}

func (f *openFile) letter(l textLine, reason, detail string) traffic.DeadLetter {
	text := append([]byte(nil), l.Text[:min(len(l.Text), traffic.DeadLetterBytes)]...)
	letter := traffic.NewDeadLetter(Stage, reason, fmt.Sprintf("%s:%d: %s", f.name, l.Number, detail), f.name,
		traffic.Message{Offset: l.Number, Value: text})
	letter.Size = l.Size
	return letter
}

func (f *openFile) put(ctx context.Context, letter traffic.DeadLetter) error {
	f.counts.Refused[letter.Reason]++
	return f.sink.Refuse(ctx, letter)
}

func (a *Reader) send(ctx context.Context, e Event) error {
	a.counts.Events++
	if e.HasTime {
		if a.counts.First == traffic.BeforeTime || e.Time < a.counts.First {
			a.counts.First = e.Time
		}
		a.counts.Last = max(a.counts.Last, e.Time)
	}
	return a.sink.Send(ctx, e)
}
