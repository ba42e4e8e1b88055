package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/rules"
)

// loadSummary is what weir loadgen says at its end.
type loadSummary struct {
	Seed     uint64  `json:"seed"`
	Events   int64   `json:"events"` // acknowledged
	Complete bool    `json:"complete"`
	Took     float64 `json:"seconds"`
	Behind   float64 `json:"seconds_behind"` // the most that an acknowledgement came after the event was due
	Truth    string  `json:"truth,omitempty"`
}

// loadLive sends a load into the live stream.
func (a *app) loadLive(parent context.Context, c *config.Config, f *loadgenFlags) (err error) {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	registry := service.NewRegistry(readBuildVersion().Version)
	in, err := service.Open(ctx, c, log, registry, false)
	if err != nil {
		return err
	}
	defer in.Close()
	routing, err := in.EnterLive(ctx, c)
	if err != nil {
		return err
	}
	if formats := loadgen.Formats(); !slices.Contains(formats, routing.Format.Name) {
		return fmt.Errorf("the live stream reads format %q (events.format); a load can be made in one of %v", routing.Format.Name, formats)
	}
	f.settings.Format = routing.Format.Name
	f.settings.Proxies = routing.Identity.IP.TrustedProxies.Hops // where it has prefixes, the clients of a load connect by themselves
	h := loadgen.Header{
		Started: service.Now(), Parameters: f.settings, Namespace: c.Namespace, Partitions: in.RequestsPartitions, Routing: routing.Number, Rules: rulesUsed(routing),
	}
	truth, done, err := openTruth(f.truth, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	quiet, err := service.ServeHealthIfAsked(ctx, c, registry, in)
	if err != nil {
		return err
	}
	defer quiet()
	sink := &kafkaSink{sender: archive.NewSender(in.Kafka.Appender(in.Names.Requests), in.DeadLetters, in.RequestsPartitions, nil)}
	o := loadgen.RunOptions{Settings: f.settings, Start: h.Started, Paced: true, Sink: sink, Truth: truth}
	out, err := a.runLoad(ctx, o, func(e *loadgen.End) error { return endOffsets(ctx, in, e) })
	return errors.Join(err, a.showLoad(f, out, service.Now().Sub(h.Started)))
}

func rulesUsed(routing *rules.Routing) []loadgen.RuleUsed {
	var used []loadgen.RuleUsed
	for i := range routing.Rules {
		r := &routing.Rules[i]
		used = append(used, loadgen.RuleUsed{ID: r.ID, Version: r.Number, Lineage: r.Lineage})
	}
	return used
}

// endOffsets finds where the live stream ends now: what is routed up to there has the whole load in it.
func endOffsets(ctx context.Context, in *service.Installation, e *loadgen.End) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.AnswerTimeout)
	defer cancel()
	partitions := make([]int, in.RequestsPartitions)
	for p := range partitions {
		partitions[p] = p
	}
	bounds, err := in.Kafka.Log(in.Names.Requests).Bounds(bounded, partitions)
	if err != nil {
		return fmt.Errorf("asking where %s ends after the load: %w", in.Names.Requests, err)
	}
	for p := range partitions {
		e.Offsets = append(e.Offsets, bounds[p].End)
	}
	return nil
}

// kafkaSink sends a load as weir ingest sends files: acks=all, the events of one address to one partition.
type kafkaSink struct{ sender *archive.Sender }

var _ loadgen.Sink = (*kafkaSink)(nil)

// Send sends all events and waits for Kafka's word on them.
func (s *kafkaSink) Send(ctx context.Context, events []loadgen.Outgoing) (int, error) {
	before := s.sender.Acked()
	err := s.sendAll(ctx, events)
	return int(s.sender.Acked() - before), err
}

func (s *kafkaSink) sendAll(ctx context.Context, events []loadgen.Outgoing) error {
	for _, e := range events {
		if err := s.sender.Send(ctx, archive.Event{IP: e.IP, Value: e.Value}); err != nil {
			return err
		}
	}
	return s.sender.Flush(ctx)
}

// loadToFile writes a load as JSON lines.
func (a *app) loadToFile(parent context.Context, f *loadgenFlags) (err error) {
	ctx, forget := service.UntilSignal(parent, service.NewLogger(config.Log{Level: "warn", Format: "text"}, a.Stderr))
	defer forget()
	h := loadgen.Header{Started: f.start(), Parameters: f.settings}
	out := a.Stdout
	if f.to != "-" {
		file, err := create("--to", f.to)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	truth, done, err := openTruth(f.truth, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	begun := service.Now()
	o := loadgen.RunOptions{Settings: f.settings, Start: h.Started, Sink: &lineSink{to: bufio.NewWriterSize(out, 1<<20)}, Truth: truth}
	outcome, err := a.runLoad(ctx, o, func(*loadgen.End) error { return nil })
	return errors.Join(err, a.showLoad(f, outcome, service.Now().Sub(begun)))
}

// lineSink writes events as lines.
type lineSink struct{ to *bufio.Writer }

var _ loadgen.Sink = (*lineSink)(nil)

// Send writes all events. Of a chunk that could not be written whole, none is certain.
func (s *lineSink) Send(_ context.Context, events []loadgen.Outgoing) (int, error) {
	for _, e := range events {
		_, _ = s.to.Write(e.Value) // Flush gives the first error
		_ = s.to.WriteByte('\n')
	}
	if err := s.to.Flush(); err != nil {
		return 0, fmt.Errorf("writing events: %w", err)
	}
	return len(events), nil
}

// create makes a file that is not there yet: what an earlier load has left may still be needed.
func create(flag, path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("%s: %s exists; allowed: a new file", flag, path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return file, nil
}

// openTruth begins a truth file; without a path the truth goes nowhere.
func openTruth(path string, h loadgen.Header) (*loadgen.TruthWriter, func() error, error) {
	if path == "" {
		w, err := loadgen.NewTruthWriter(io.Discard, h)
		return w, func() error { return nil }, err
	}
	file, err := create("--truth", path)
	if err != nil {
		return nil, nil, err
	}
	w, err := loadgen.NewTruthWriter(file, h)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return w, file.Close, nil
}

// showLoad says how the load went; beside the events, if they are on standard output.
func (a *app) showLoad(f *loadgenFlags, out loadgen.Outcome, took time.Duration) error {
	to := a.Stdout
	if f.to == "-" {
		to = a.Stderr
	}
	if a.Format == "json" && f.to != "-" {
		return a.WriteJSON(loadSummary{
			Seed: f.settings.Seed, Events: out.Events, Complete: out.Complete, Took: took.Seconds(), Behind: out.Behind.Seconds(), Truth: f.truth,
		})
	}
	verb, end := "sent", ""
	if f.to != "" {
		verb = "written"
	}
	if !out.Complete {
		end = ", and ended early"
	}
	fmt.Fprintf(to, "%s %s in %s%s\n", terminal.Plural(out.Events, "event"), verb, terminal.Seconds(took.Seconds()), end)
	if out.Behind > time.Second {
		fmt.Fprintf(to, "up to %s behind the schedule: fewer events a second would arrive in time\n", out.Behind.Round(10*time.Millisecond))
	}
	if f.truth == "" {
		fmt.Fprintf(to, "no truth was written (--truth FILE), so this load cannot be verified\n")
	}
	return nil
}
