package stream

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
	"github.com/weirhq/weir/traffic/format"
)

// Files are log files to read, and how.
type Files struct {
	Paths    []string          // - is standard input
	Format   string            // of their lines
	Fields   map[string]string // of the format, where it takes some
	Decoder  format.Decoder    // of lines in this format with these fields
	Reorder  time.Duration     // sort by time what is out of order by at most so much
	Pace     *archive.Pace     // nil: as fast as possible
	MaxBytes int               // of a line
	Stdin    io.Reader
	Progress io.Writer // takes lines, or a bar, about how far reading has come
}

// Reading is one run over log files: it hands their events to a sender and shows how far it has come.
type Reading struct {
	files  Files
	inputs []Input
	allow  *Lateness // of the live stream; nil for a replay, in which what is old counts

	sender   *archive.Sender
	archive  *archive.Reader
	progress *terminal.Progress
	took     time.Duration
	late     int64 // events sent that are too late for every rule
}

var _ archive.Sink = (*Reading)(nil)

// into sets the destination of the events. It is called once, before all reads. A replay refuses lines without a time, to which
// a live stream gives the time of arrival.
func (r *Reading) into(events ingest.Appender, dead ingest.DeadLetters, partitions int, decode archive.Decode, replay bool) {
	r.sender = archive.NewSender(events, dead, partitions, r.files.Pace)
	r.archive = archive.NewReader(archive.Options{
		Format: r.files.Format, Formats: strings.Join(config.LineFormats(), ", "), Decode: decode, MaxBytes: r.files.MaxBytes,
		Reorder: r.files.Reorder, Replay: replay, Now: service.Now,
	}, r)
}

// Send passes an event on and counts it.
func (r *Reading) Send(ctx context.Context, e archive.Event) error {
	r.progress.Events.Add(1)
	if r.allow != nil && e.HasTime && r.allow.Late(e.Time, service.Now()) {
		r.late++
	}
	return r.sender.Send(ctx, e)
}

// Refuse passes a dead letter on.
func (r *Reading) Refuse(ctx context.Context, letter traffic.DeadLetter) error {
	return r.sender.Refuse(ctx, letter)
}

// All reads every input to its end. After an error, the events read before it are still sent, and the error says how far Kafka
// has acknowledged.
func (r *Reading) All(ctx context.Context) error {
	begun := time.Now()
	r.progress = terminal.StartProgress(r.files.Progress, SizeOf(r.inputs))
	err := r.each(ctx)
	r.progress.Close()
	r.took = time.Since(begun)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("stopped: %w", ctx.Err())
		// What was read is sent all the same: it costs moments, and what is said below is then true of all of it.
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
		defer cancel()
		if ferr := r.sender.Flush(last); ferr != nil {
			err = ferr
		}
	}
	return fmt.Errorf("%w; %s", err, r.howFar())
}

func (r *Reading) each(ctx context.Context) error {
	for i := range r.inputs {
		if err := r.one(ctx, &r.inputs[i]); err != nil {
			return err
		}
	}
	if err := r.archive.Flush(ctx); err != nil {
		return err
	}
	return r.sender.Flush(ctx)
}

func (r *Reading) one(parent context.Context, in *Input) error {
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	from, err := in.Open()
	if err != nil {
		return err
	}
	if in.Size < 0 { // a pipe, perhaps, that goes on for ever
		from = newInterruptibleReader(ctx, from, func() error {
			err := r.sender.Flush(ctx)
			if err != nil {
				stop(err) // the file is not to blame
			}
			return err
		})
	}
	return r.archive.Read(ctx, in.Name, &countingReader{from, r.progress})
}

// howFar says what Kafka has acknowledged.
func (r *Reading) howFar() string {
	for i := len(r.inputs) - 1; i >= 0; i-- {
		if line := r.sender.AckedLine(r.inputs[i].Name); line > 0 {
			return fmt.Sprintf("%s acknowledged by Kafka, the last of %s:%d", plural.Of(r.sender.Acked(), "event"), r.inputs[i].Name, line)
		}
	}
	return "no event was sent"
}

// NewReading looks for all files before anything is sent, so that a mistyped name is found at once. What was read of an input that
// is no regular file is sent soon, whether more comes or not.
func NewReading(files Files) (*Reading, error) {
	inputs, err := Inputs(files.Paths, files.Stdin)
	if err != nil {
		return nil, err
	}
	return &Reading{files: files, inputs: inputs}, nil
}

// sendAfter is how long what was read of a pipe may wait for more before it is sent.
const sendAfter = 200 * time.Millisecond

// interruptibleReader reads from something that may block for ever, a terminal or a pipe: it ends with its context, and
// calls send when the first of what has come since the last time is so old, whether more comes or not: a gateway that is asked
// five times a second and more never falls silent.
type interruptibleReader struct {
	ctx    context.Context // Read has no other way to be told
	from   io.ReadCloser
	pieces chan piece
	rest   []byte
	err    error
	send   func() error
	due    time.Time // when send is to be called; zero: nothing has come since
	done   chan struct{}
}

type piece struct {
	data []byte
	err  error
}

func newInterruptibleReader(ctx context.Context, from io.ReadCloser, send func() error) *interruptibleReader {
	r := &interruptibleReader{ctx: ctx, from: from, pieces: make(chan piece), send: send, done: make(chan struct{})}
	go r.pump()
	return r
}

// pump reads ahead by one piece. It ends with the input, or at the first piece after Close; a Read that never returns
// keeps it until the process ends, which nothing in Go can change.
func (r *interruptibleReader) pump() {
	for {
		buf := make([]byte, 64<<10)
		n, err := r.from.Read(buf)
		select {
		case r.pieces <- piece{buf[:n], err}:
		case <-r.done:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read gives what has come, waiting for the first of it.
func (r *interruptibleReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		if err := r.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next waits for a piece, or until it is time to send those before it.
func (r *interruptibleReader) next() error {
	var due <-chan time.Time
	if !r.due.IsZero() {
		left := time.Until(r.due)
		if left <= 0 {
			r.due = time.Time{}
			return r.send()
		}
		timer := time.NewTimer(left)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case got := <-r.pieces:
		r.rest, r.err = got.data, got.err
		if r.due.IsZero() {
			r.due = time.Now().Add(sendAfter)
		}
	case <-r.ctx.Done():
		return r.ctx.Err()
	case <-due:
		r.due = time.Time{}
		return r.send()
	}
	return nil
}

// Close lets the reading goroutine go, and closes what it reads.
func (r *interruptibleReader) Close() error {
	close(r.done)
	return r.from.Close()
}

// countingReader adds what is read to a progress.
type countingReader struct {
	io.ReadCloser
	progress *terminal.Progress
}

// Read counts the bytes before they are decompressed: they are what the size of the file says.
func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.progress.Bytes.Add(int64(n))
	return n, err
}
