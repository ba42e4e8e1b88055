package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/ingest"
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
	pace    *ingest.Pace
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
		return config.Usagef("--format is required; allowed: %s", strings.Join(config.LineFormats(), ", "))
	case !slices.Contains(config.LineFormats(), f.format):
		return config.Usagef("--format: got %q; allowed: %s", f.format, strings.Join(config.LineFormats(), ", "))
	case !f.live && f.replay == "":
		return config.Usagef("allowed: one of --replay NAME, which blocks nobody, and --live")
	case f.speed < 0 || math.IsNaN(f.speed) || math.IsInf(f.speed, 0):
		return config.Usagef("--speed: got %v; allowed: a number above 0", f.speed)
	case f.partitions < 1 || f.partitions > 64:
		return config.Usagef("--partitions: got %d; allowed: 1 to 64", f.partitions)
	case f.onExists != "error" && f.onExists != "replace":
		return config.Usagef("--on-exists: got %q; allowed: error, replace", f.onExists)
	}
	if f.live && (f.partitions != 1 || len(f.rules) > 0 || f.keepTopics || f.onExists != "error") {
		return config.Usagef("--partitions, --rules, --on-exists and --keep-topics are for --replay")
	}
	if f.within, err = config.ParseDuration(f.reorder); err != nil {
		return config.Usagef("--reorder: %w", err)
	}
	if f.fields, err = traffic.ParseFieldMap(f.fieldMap); err != nil {
		return config.Usagef("--%w", err)
	}
	if f.decoder, err = traffic.NewDecoder(f.format, f.fields, c.Events.MaxEventBytes); err != nil {
		return config.Usagef("--format, --map: %w", err)
	}
	if f.speed > 0 {
		f.pace = ingest.NewPace(f.speed)
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
func raw(d traffic.Decoder) ingest.ArchiveDecode {
	return func(line []byte, r *traffic.Request) ([]byte, error) {
		if err := d.Decode(line, r); err != nil {
			return nil, err
		}
		return bytes.Clone(line), nil
	}
}

// converted gives them as weir events, which is what the stream reads. limit bounds what comes out.
func converted(d traffic.Decoder, limit int) ingest.ArchiveDecode {
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
