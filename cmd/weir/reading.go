package main

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
	"github.com/weirhq/weir/traffic"
)

// reading is one run over archives: it hands their events to a sender and shows how far it has come.
type reading struct {
	flags  *ingestFlags
	limit  int // bytes of an event
	inputs []input
	stderr io.Writer
	allow  *lateness // of the live stream; nil for a replay, in which what is old counts

	sender   *archive.Sender
	archive  *archive.Reader
	progress *terminal.Progress
	took     time.Duration
	late     int64 // events sent that are too late for every rule
}

var _ archive.Sink = (*reading)(nil)

// into says where the events go. It is called once, before all.
func (r *reading) into(events ingest.Appender, dead ingest.DeadLetters, partitions int, decode archive.Decode) {
	r.sender = archive.NewSender(events, dead, partitions, r.flags.pace)
	r.archive = archive.NewReader(archive.Options{
		Format: r.flags.format, Formats: strings.Join(config.LineFormats(), ", "), Decode: decode, MaxBytes: r.limit,
		Reorder: r.flags.within, Replay: !r.flags.live, Now: service.Now,
	}, r)
}

// Send passes an event on and counts it.
func (r *reading) Send(ctx context.Context, e archive.Event) error {
	r.progress.Events.Add(1)
	if r.allow != nil && e.HasTime && r.allow.late(e.Time, service.Now()) {
		r.late++
	}
	return r.sender.Send(ctx, e)
}

// Refuse passes a dead letter on.
func (r *reading) Refuse(ctx context.Context, letter traffic.DeadLetter) error {
	return r.sender.Refuse(ctx, letter)
}

// all reads every input to its end. After an error, what was read up to it is still sent, and the error says how far
// Kafka has acknowledged.
func (r *reading) all(ctx context.Context) error {
	begun := time.Now()
	r.progress = terminal.StartProgress(r.stderr, Total(r.inputs))
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

func (r *reading) each(ctx context.Context) error {
	for _, in := range r.inputs {
		if err := r.one(ctx, in); err != nil {
			return err
		}
	}
	if err := r.archive.Flush(ctx); err != nil {
		return err
	}
	return r.sender.Flush(ctx)
}

func (r *reading) one(ctx context.Context, in input) error {
	from, err := in.open(ctx)
	if err != nil {
		return err
	}
	err = r.archive.Read(ctx, in.name, &countingReader{from, r.progress})
	if cerr := from.Close(); err == nil {
		err = cerr
	}
	return err
}

// howFar says what Kafka has acknowledged.
func (r *reading) howFar() string {
	for i := len(r.inputs) - 1; i >= 0; i-- {
		if line := r.sender.AckedLine(r.inputs[i].name); line > 0 {
			return fmt.Sprintf("%s acknowledged by Kafka, the last of %s:%d", terminal.Plural(r.sender.Acked(), "event"), r.inputs[i].name, line)
		}
	}
	return "no event was sent"
}
