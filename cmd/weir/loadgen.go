package main

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/loadgen"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// loadgenFlags are what weir loadgen is told.
type loadgenFlags struct {
	settings           loadgen.Settings
	seed               string
	duration, disorder string
	patterns, mix      []string
	abuse              string
	truth, to, begin   string

	changed  func(flag string) bool // set on the command line
	beginsAt traffic.Time           // what parse makes of begin
}

func loadgenCommand(a *app) *cobra.Command {
	var f loadgenFlags
	c := &cobra.Command{
		Use:   "loadgen",
		Short: "Send a seeded load with abusers in it, and verify what was found of them",
		Long: `Send made-up requests into the live stream: ordinary viewers, some more eager than others, and abusers among them. The
load is bounded in time and number; Ctrl-C ends it early. With --truth FILE it writes down what is true of it, and weir
loadgen verify computes from that who was over the limit of each rule, and compares it with history.

The clients have addresses of 198.18.0.0/15 and 2001:db8::/32, which belong to nobody, and devices, users and sessions
named load-SEED-…. A rule that blocks will block them. The same settings make the same events, but for the time at which
the load starts.

--to FILE writes the events as JSON lines for weir ingest --format weir --replay NAME instead; nothing is sent.

Patterns of abusers, in turn: burst (4 x --abuse-rate for 5 s of every 20 s), steady, rotate (steady, from ever new
addresses of one IPv6 /64), slow (a tenth of --abuse-rate), return (20 s of every 60 s).`,
		Example: `  weir loadgen --duration 2m --truth load.truth
  weir loadgen --rate 5000 --viewers 100000 --zipf 1.1 --abusers 50 --seed 7 --truth load.truth
  weir loadgen --mix "GET /v1/stream=9" --mix "POST /login" --abuse "POST /login" --truth load.truth
  weir loadgen --to load.jsonl --events 100000 --seed 7 --begin 2026-01-31T12:00:00Z --truth load.truth
  weir loadgen verify --truth load.truth`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			f.changed = cmd.Flags().Changed
			if err := f.parse(); err != nil {
				return err
			}
			if f.to != "" {
				return loadToFile(cmd.Context(), a, &f)
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return loadLive(cmd.Context(), a, conf, &f)
		}),
	}
	f.register(c)
	c.AddCommand(loadgenVerify(a))
	return c
}

func (f *loadgenFlags) register(c *cobra.Command) {
	s, flags := &f.settings, c.Flags()
	flags.StringVar(&f.seed, "seed", "", "number that decides everything random (default: another one each time)")
	flags.Float64Var(&s.Rate, "rate", 200, "requests of all ordinary viewers a second; abusers come on top")
	flags.StringVar(&f.duration, "duration", "1m", "how long, like 90s or 10m")
	flags.Int64Var(&s.Events, "events", 0, "at most so many events; without --duration that alone is the end (default: no such bound)")
	flags.IntVar(&s.Viewers, "viewers", 1000, "ordinary viewers")
	flags.Float64Var(&s.Zipf, "zipf", 0.5, "skew: viewer k asks in proportion to 1/k^zipf; 0: all alike")
	flags.IntVar(&s.Abusers, "abusers", 5, "abusers")
	flags.Float64Var(&s.AbuseRate, "abuse-rate", 5, "requests of one abuser a second, see patterns")
	flags.StringSliceVar(&f.patterns, "patterns", patternNames(), "patterns that abusers take in turn")
	flags.Float64Var(&s.IPv6, "ipv6", 0.3, "share of clients with an IPv6 address, 0 to 1")
	flags.Float64Var(&s.SignedOut, "signed-out", 0.2, "share of clients without a user, 0 to 1")
	flags.StringVar(&f.disorder, "disorder", "0s", "send each event up to so much after its time; keep it below the lateness of rules")
	flags.StringArrayVar(&f.mix, "mix", []string{"GET /v1/stream=6", "GET /v1/channels=3", "POST /v1/guest-tokens=1"},
		"what viewers ask for, METHOD PATH=WEIGHT; may be repeated")
	flags.StringVar(&f.abuse, "abuse", "POST /v1/guest-tokens", "what abusers ask for, METHOD PATH")
	flags.StringVar(&f.truth, "truth", "", "write the truth to this new file, for weir loadgen verify")
	flags.StringVar(&f.to, "to", "", "write the events to this new file, - for standard output, and send nothing")
	flags.StringVar(&f.begin, "begin", "", "with --to: time of the first event, RFC 3339 (default: so that the last is of now)")
	flags.IntVar(&s.Proxies, "proxies", 0, "with --to: trusted proxies that the replay will assume (identity.ip.trusted_proxies)")
}

func patternNames() []string {
	var names []string
	for _, p := range loadgen.Patterns() {
		names = append(names, string(p))
	}
	return names
}

// parse checks the flags before anything is touched.
func (f *loadgenFlags) parse() error {
	s := &f.settings
	if err := f.parseSeed(); err != nil {
		return err
	}
	var err error
	if s.Duration, err = duration.Parse(f.duration); err != nil {
		return usage.Errorf("--duration: %w", err)
	}
	if s.Disorder, err = duration.Parse(f.disorder); err != nil {
		return usage.Errorf("--disorder: %w", err)
	}
	if f.changed("events") && !f.changed("duration") && s.Rate > 0 && s.Events > 0 {
		// Viewers alone send that many in so long.
		whole := math.Ceil(float64(s.Events)/s.Rate) + 1
		s.Duration = time.Duration(min(whole, loadgen.MaxDuration.Seconds())) * time.Second
	}
	s.Patterns = nil
	for _, p := range f.patterns {
		s.Patterns = append(s.Patterns, loadgen.Pattern(p))
	}
	s.Mix = nil
	for _, text := range f.mix {
		call, err := loadgen.ParseCall(text)
		if err != nil {
			return usage.Errorf("--mix: %w", err)
		}
		s.Mix = append(s.Mix, call)
	}
	if s.Abuse, err = loadgen.ParseCall(f.abuse); err != nil {
		return usage.Errorf("--abuse: %w", err)
	}
	if err := s.Validate(); err != nil {
		return &usage.Error{Err: err}
	}
	return f.parseFile()
}

func (f *loadgenFlags) parseSeed() error {
	if f.seed == "" {
		var b [4]byte
		if _, err := rand.Read(b[:]); err != nil {
			return fmt.Errorf("drawing a seed: %w", err)
		}
		f.settings.Seed = uint64(binary.LittleEndian.Uint32(b[:]))
		return nil
	}
	if _, err := fmt.Sscanf(f.seed, "%d", &f.settings.Seed); err != nil || fmt.Sprint(f.settings.Seed) != f.seed {
		return usage.Errorf("--seed: got %q; allowed: a whole number from 0 to %d", f.seed, uint64(math.MaxUint64))
	}
	return nil
}

func (f *loadgenFlags) parseFile() error {
	if f.to == "" {
		if f.begin != "" || f.changed("proxies") {
			return usage.Errorf("--begin and --proxies are for --to: a live load begins now, and the installation knows its proxies")
		}
		return nil
	}
	if f.to == f.truth {
		return usage.Errorf("--to and --truth: got %q for both; allowed: two files", f.to)
	}
	if f.begin != "" {
		t, err := time.Parse(time.RFC3339Nano, f.begin)
		if err != nil {
			return usage.Errorf("--begin: got %q; allowed: a time like 2026-01-31T12:00:00Z", f.begin)
		}
		f.beginsAt = traffic.At(t)
	}
	return nil
}

// start is when a load that is written to a file begins.
func (f *loadgenFlags) start() traffic.Time {
	if f.begin != "" {
		return f.beginsAt
	}
	return service.Now().Add(-f.settings.Duration)
}

// describeLoad says what load it is, before it begins.
func describeLoad(a *app, s *loadgen.Settings) {
	bound := "for " + s.Duration.String()
	if s.Events > 0 {
		bound += fmt.Sprintf(" or %s", plural.Of(s.Events, "event"))
	}
	var patterns []string
	for n := range min(s.Abusers, len(s.Patterns)) {
		patterns = append(patterns, string(s.Patterns[n]))
	}
	fmt.Fprintf(a.Stderr, "seed %d: %s at %s requests/s, %s (%s), %s\n", s.Seed, plural.Of(s.Viewers, "viewer"), terminal.Amount(s.Rate),
		plural.Of(s.Abusers, "abuser"), strings.Join(patterns, ", "), bound)
}

// runLoad sends a load and closes its truth.
func runLoad(ctx context.Context, a *app, o loadgen.RunOptions, end func(*loadgen.End) error) (loadgen.Outcome, error) {
	describeLoad(a, &o.Settings)
	progress := terminal.StartProgress(a.Stderr, 0)
	o.Clock = service.Now
	o.Sent = func(events, bytes int) {
		progress.Events.Add(int64(events))
		progress.Bytes.Add(int64(bytes))
	}
	out, err := loadgen.Run(ctx, o)
	progress.Close()
	last := loadgen.End{At: service.Now(), Events: out.Events, Complete: out.Complete}
	if eerr := end(&last); err == nil {
		err = eerr
	}
	if terr := o.Truth.End(last); err == nil {
		err = terr
	}
	return out, err
}

// loadSummary is what weir loadgen says at its end.
type loadSummary struct {
	Seed     uint64  `json:"seed"`
	Events   int64   `json:"events"` // acknowledged
	Unsure   int64   `json:"unsure"` // given to Kafka without an answer
	Complete bool    `json:"complete"`
	Took     float64 `json:"seconds"`
	Behind   float64 `json:"seconds_behind"` // the most that an acknowledgement came after the event was due
	Truth    string  `json:"truth,omitempty"`
}

// loadLive sends a load into the live stream.
func loadLive(parent context.Context, a *app, c *config.Config, f *loadgenFlags) (err error) {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	registry := service.NewRegistry(readBuildVersion().Version, c.Namespace)
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
	truth, done, err := loadgen.CreateTruth(f.truth, h)
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
	o := loadgen.RunOptions{Settings: f.settings, Start: h.Started, Paced: true, Sink: sink, Truth: truth,
		Failed: func(err error) { log.Warn("events are without an answer; the load goes on", "error", err) }}
	out, err := runLoad(ctx, a, o, func(e *loadgen.End) error { return endOffsets(ctx, in, e) })
	return errors.Join(err, showLoad(a, f, out, service.Now().Sub(h.Started)))
}

func rulesUsed(routing *rules.Routing) []loadgen.RuleUsed {
	var used []loadgen.RuleUsed
	for i := range routing.Rules {
		r := &routing.Rules[i]
		if r.Pending {
			continue // the load is judged by what acts
		}
		used = append(used, loadgen.RuleUsed{ID: r.ID, Version: r.Number, Lineage: r.Lineage})
	}
	return used
}

// endOffsets finds where the live stream ends now: what is routed up to there has the whole load in it.
func endOffsets(ctx context.Context, in *service.Installation, e *loadgen.End) error {
	bounded, cancel := context.WithTimeout(context.WithoutCancel(ctx), service.AnswerTimeout)
	defer cancel()
	partitions := ingest.AllPartitions(in.RequestsPartitions)
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
	if err != nil {
		s.sender.Forget()
		err = fmt.Errorf("%w: %w", loadgen.ErrUnanswered, err)
	}
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
func loadToFile(parent context.Context, a *app, f *loadgenFlags) (err error) {
	ctx, forget := service.UntilSignal(parent, service.NewLogger(config.Log{Level: "warn", Format: "text"}, a.Stderr))
	defer forget()
	h := loadgen.Header{Started: f.start(), Parameters: f.settings}
	out := a.Stdout
	if f.to != "-" {
		file, cerr := loadgen.Create("--to", f.to) // not err, which the closing of file may set
		if cerr != nil {
			return cerr
		}
		defer func() { err = errors.Join(err, file.Close()) }()
		out = file
	}
	truth, done, err := loadgen.CreateTruth(f.truth, h)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, done()) }()
	begun := service.Now()
	o := loadgen.RunOptions{Settings: f.settings, Start: h.Started, Sink: loadgen.NewLineSink(out), Truth: truth}
	outcome, err := runLoad(ctx, a, o, func(*loadgen.End) error { return nil })
	return errors.Join(err, showLoad(a, f, outcome, service.Now().Sub(begun)))
}

// showLoad says how the load went; beside the events, if they are on standard output.
func showLoad(a *app, f *loadgenFlags, out loadgen.Outcome, took time.Duration) error {
	to := a.Stdout
	if f.to == "-" {
		to = a.Stderr
	}
	if a.Format == "json" && f.to != "-" {
		return a.WriteJSON(loadSummary{
			Seed: f.settings.Seed, Events: out.Events, Unsure: out.Unsure, Complete: out.Complete,
			Took: took.Seconds(), Behind: out.Behind.Seconds(), Truth: f.truth,
		})
	}
	verb, end := "sent", ""
	if f.to != "" {
		verb = "written"
	}
	if !out.Complete {
		end = ", and ended early"
	}
	fmt.Fprintf(to, "%s %s in %s%s\n", plural.Of(out.Events, "event"), verb, terminal.Seconds(took.Seconds()), end)
	if out.Unsure > 0 {
		fmt.Fprintf(to, "%s more were given to Kafka without an answer: they may be in the stream or not, and verify "+
			"takes them for that\n", plural.Of(out.Unsure, "event"))
	}
	if out.Behind > time.Second {
		fmt.Fprintf(to, "up to %s behind the schedule: fewer events a second would arrive in time\n", out.Behind.Round(10*time.Millisecond))
	}
	if f.truth == "" {
		fmt.Fprintf(to, "no truth was written (--truth FILE), so this load cannot be verified\n")
	}
	return nil
}
