package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// ingestFlags are what weir ingest is told.
type ingestFlags struct {
	format, fieldMap string
	replay           string
	live             bool
	reorder          string
	speed            float64
	asap             bool
	partitions       int
	rules            []string
	onExists         string
	keepTopics       bool

	// What parse makes of them.
	fields  map[string]string
	within  time.Duration
	pace    *archive.Pace
	decoder traffic.Decoder
}

func (a *app) ingestCommand() *cobra.Command {
	var f ingestFlags
	c := &cobra.Command{
		Use:   "ingest FILE… --format F (--replay NAME | --live)",
		Short: "Send log files through the stream: as a replay, or into the live stream",
		Long: `Read log files, plain or gzip, - for standard input, and send their events through the stream.

--replay NAME runs route, detect and record in this process, on topics of its own, with all rules in shadow, and ends by
itself with a summary; weir history hits --replay NAME shows what was found. Of a rule that counted nothing the summary says
why: which requests the files have, or which field of the key all lack. A replay never blocks anybody and never mixes
with the live stream. Times are taken as they stand; an event without a time, one later than now, and a single line more
than an hour ahead of both neighbours become dead letters.

--live sends the events into the live stream, where the live rules apply. What is older than the lateness of every rule, by a
minute or more, counts nowhere there; how much that was is said at the end.

Formats: ` + strings.Join(config.LineFormats(), ", ") + `.
weir is one JSON event a line; json is any JSON lines, with --map (event field=member); combined is Apache's and nginx's text
log; the others are the JSON logs of gateways and of the Elastic stack, where --map replaces single entries of their tables.
A line that is no event becomes a dead letter with file and line, and is counted.`,
		Example: `  weir ingest access.log.gz --format combined --replay monday --rules rules/
  weir ingest events.jsonl --format json --map time=ts,user_agent=ua --replay monday --reorder 15m
  tail -F access.log | weir ingest - --format combined --live`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			if err := f.parse(conf); err != nil {
				return err
			}
			return a.ingest(cmd.Context(), conf, &f, args)
		}),
	}
	f.register(c)
	return c
}

func (f *ingestFlags) register(c *cobra.Command) {
	flags := c.Flags()
	flags.StringVar(&f.format, "format", "", strings.Join(config.LineFormats(), ", ")+" (required)")
	flags.StringVar(&f.fieldMap, "map", "", "event field=member, joined by commas; not for weir and combined")
	flags.StringVar(&f.replay, "replay", "", "name of the replay to make")
	flags.BoolVar(&f.live, "live", false, "send into the live stream")
	flags.StringVar(&f.reorder, "reorder", "0s", "sort by time what is out of order by at most so much, like 15m")
	flags.Float64Var(&f.speed, "speed", 0, "pace by event time: 1 as it once was, 10 ten times as fast")
	flags.BoolVar(&f.asap, "asap", true, "as fast as possible")
	flags.IntVar(&f.partitions, "partitions", 1, "partitions of the replay's requests; events of one address share one")
	flags.StringArrayVar(&f.rules, "rules", nil, "rules of the replay, file or directory (default: the live rules); may be repeated")
	flags.StringVar(&f.onExists, "on-exists", "error", "what to do about a replay of that name: error or replace")
	flags.BoolVar(&f.keepTopics, "keep-topics", false, "keep the replay's topics when it is over")
	c.MarkFlagsMutuallyExclusive("replay", "live")
	c.MarkFlagsMutuallyExclusive("speed", "asap")
}

// parse checks the flags before anything is touched.
func (f *ingestFlags) parse(c *config.Config) error {
	var err error
	switch {
	case f.format == "":
		return usage.Errorf("--format is required; allowed: %s", strings.Join(config.LineFormats(), ", "))
	case !slices.Contains(config.LineFormats(), f.format):
		return usage.Errorf("--format: got %q; allowed: %s", f.format, strings.Join(config.LineFormats(), ", "))
	case !f.live && f.replay == "":
		return usage.Errorf("allowed: one of --replay NAME, which blocks nobody, and --live")
	case f.speed < 0 || math.IsNaN(f.speed) || math.IsInf(f.speed, 0):
		return usage.Errorf("--speed: got %v; allowed: a number above 0", f.speed)
	case f.partitions < 1 || f.partitions > 64:
		return usage.Errorf("--partitions: got %d; allowed: 1 to 64", f.partitions)
	case f.onExists != "error" && f.onExists != "replace":
		return usage.Errorf("--on-exists: got %q; allowed: error, replace", f.onExists)
	}
	if f.live && (f.partitions != 1 || len(f.rules) > 0 || f.keepTopics || f.onExists != "error") {
		return usage.Errorf("--partitions, --rules, --on-exists and --keep-topics are for --replay")
	}
	if f.within, err = config.ParseDuration(f.reorder); err != nil {
		return usage.Errorf("--reorder: %w", err)
	}
	if f.fields, err = traffic.ParseFieldMap(f.fieldMap); err != nil {
		return usage.Errorf("--%w", err)
	}
	if f.decoder, err = traffic.NewDecoder(f.format, f.fields, c.Events.MaxEventBytes); err != nil {
		return usage.Errorf("--format, --map: %w", err)
	}
	if f.speed > 0 {
		f.pace = archive.NewPace(f.speed)
	}
	return nil
}

func (a *app) ingest(parent context.Context, c *config.Config, f *ingestFlags, paths []string) error {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	r := &reading{flags: f, limit: c.Events.MaxEventBytes, stderr: a.Stderr}
	var err error
	if r.inputs, err = a.inputs(paths, func() error { return r.sender.Flush(ctx) }); err != nil {
		return err
	}
	if f.live {
		return a.ingestLive(ctx, c, r)
	}
	return a.ingestReplay(ctx, c, r)
}

// raw gives lines to Kafka as they are.
func raw(d traffic.Decoder) archive.Decode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		if err := d.Decode(line, r); err != nil {
			return nil, err
		}
		return bytes.Clone(line), nil
	}
}

// converted gives them as weir events, which is what the stream reads. limit bounds what comes out.
func converted(d traffic.Decoder, limit int) archive.Decode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		if err := d.Decode(line, r); err != nil {
			return nil, err
		}
		value := traffic.AppendEvent(make([]byte, 0, len(line)+256), r)
		if len(value) > limit {
			return nil, &traffic.DecodeError{
				Reason: traffic.ReasonOversized, Detail: fmt.Sprintf("got %d bytes as a weir event, allowed: at most %d", len(value), limit),
			}
		}
		return value, nil
	}
}

// liveSummary is what weir ingest --live says at its end.
type liveSummary struct {
	Lines   int64            `json:"lines"`
	Events  int64            `json:"events"` // acknowledged by Kafka
	Dead    map[string]int64 `json:"dead_letters"`
	TooLate int64            `json:"too_late_for_reorder,omitempty"`
	Took    float64          `json:"seconds"`
	// Late are events that are too old for every rule of the live stream: they count nowhere, unless it is read behind time.
	Late     int64 `json:"too_late_to_count"`
	lateness lateness
}

func (a *app) ingestLive(ctx context.Context, c *config.Config, r *reading) error {
	registry := service.NewRegistry(readBuildVersion().Version)
	in, err := service.Open(ctx, c, a.quietLogger(c), registry, false)
	if err != nil {
		return err
	}
	defer in.Close()
	routing, err := in.EnterLive(ctx, c)
	if err != nil {
		return err
	}
	decode, err := r.flags.liveDecode(routing.Format)
	if err != nil {
		return err
	}
	quiet, err := service.ServeHealthIfAsked(ctx, c, registry, in)
	if err != nil {
		return err
	}
	defer quiet()
	allow := latenessOf(routing.Rules)
	r.allow = &allow
	r.into(in.Kafka.Appender(in.Names.Requests), in.DeadLetters, in.RequestsPartitions, decode)
	if err := r.all(ctx); err != nil {
		return err
	}
	counts := r.archive.Counts()
	return a.showLive(liveSummary{
		Lines: counts.Lines, Events: r.sender.Acked(), Dead: counts.Refused, TooLate: counts.TooLate, Took: r.took.Seconds(),
		Late: r.late, lateness: allow,
	})
}

// liveDecode makes of the files' lines what the live stream reads: the lines themselves if both have one format, weir
// events if it reads those.
func (f *ingestFlags) liveDecode(stream rules.Format) (archive.Decode, error) {
	switch {
	case stream.Name == f.format && maps.Equal(stream.Map, f.fields):
		return raw(f.decoder), nil
	case stream.Name == "weir":
		return converted(f.decoder, stream.MaxEventBytes), nil
	}
	return nil, fmt.Errorf("the live stream reads format %q (map %q), the files are in %q (map %q); allowed: the stream's own format, "+
		"or any where the stream reads weir (events.format)", stream.Name, config.JoinMap(stream.Map), f.format, config.JoinMap(f.fields))
}

func (a *app) showLive(s liveSummary) error {
	if a.Format == "json" {
		return a.WriteJSON(s)
	}
	fmt.Fprintf(a.Stdout, "%s sent of %s, in %s\n", terminal.Plural(s.Events, "event"), terminal.Plural(s.Lines, "line"), terminal.Seconds(s.Took))
	a.showDead(s.Dead)
	a.showTooLate(s.TooLate)
	if s.Late > 0 {
		fmt.Fprintf(a.Stdout, "%d of %s are too late for every rule and count nowhere, unless weir run is behind: they are old by %s\n"+
			"weir history late tells how many were late for which rule; weir ingest --replay NAME counts what is old\n", s.Late, terminal.Plural(s.Events, "event"), s.lateness)
	}
	if s.Events == 0 && s.Lines > 0 {
		return errors.New("not one line could be read")
	}
	return nil
}

func (a *app) showDead(dead map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(dead)) {
		fmt.Fprintf(a.Stdout, "dead letters, %s: %d\n", reason, dead[reason])
	}
}

func (a *app) showTooLate(n int64) {
	if n > 0 {
		fmt.Fprintf(a.Stdout, "came too late for --reorder: %s, sent all the same\n", terminal.Plural(n, "event"))
	}
}

// lateness is how old an event may be when it comes into a live stream that is read as it comes: older ones are late for every
// rule of it. Where another event of its source partition is newer than the clock allows for, it may be late sooner.
type lateness struct {
	rules    int
	greatest time.Duration // of the rules
}

func latenessOf(all []rules.Version) lateness {
	l := lateness{rules: len(all)}
	for i := range all {
		l.greatest = max(l.greatest, all[i].Lateness)
	}
	return l
}

func (l lateness) late(event, came traffic.Time) bool { return came.Sub(event) > l.allowed() }

func (l lateness) allowed() time.Duration { return l.greatest + detectors.IdleMargin }

// String says where the allowance comes from.
func (l lateness) String() string {
	return fmt.Sprintf("more than %s: the greatest lateness of %s, %s, and a margin of %s", duration.Format(l.allowed()),
		terminal.Plural(l.rules, "rule"), duration.Format(l.greatest), duration.Format(detectors.IdleMargin))
}
