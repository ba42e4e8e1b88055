package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest/archive"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic/format"
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
	decoder format.Decoder
}

func ingestCommand(a *app) *cobra.Command {
	var f ingestFlags
	c := &cobra.Command{
		Use:   "ingest FILE… --format F (--replay NAME | --live)",
		Short: "Send log files through the stream: as a replay, or into the live stream",
		Long: `Read log files, plain, gzip or zstd, - for standard input, and send their events through the stream.

--replay NAME runs route, detect and record in this process, on topics of its own, with all rules in shadow, and ends by
itself with a summary; weir history hits --replay NAME shows what was found. Of a rule that counted nothing the summary says
why: which requests the files have, or which field of the key all lack. A replay never blocks anybody and never mixes
with the live stream. --rules takes files and directories, and may be repeated; the allow lists that its rules name are those that stand
among them, the stored ones are not looked at. Times are taken as they stand; an event without a time, one later than now, and a single line more
than an hour ahead of both neighbours become dead letters.

--live sends the events into the live stream, where the live rules apply. What is older than the lateness of every rule, by a
minute or more, counts nowhere there; how much that was is said at the end.

Formats: ` + strings.Join(config.LineFormats(), ", ") + `.
weir is one JSON event a line; json is any JSON lines, with --map (event field=member); combined is Apache's and nginx's text
log; the others are the JSON logs of gateways and of the Elastic stack, where --map replaces single entries of their tables.
A line that is no event becomes a dead letter with file and line, and is counted. So does the place at which a file cannot be read on, because
it ends early or is damaged: what stands before it is sent, standard error names it, and the files after it are read. The exit code is 1 only when
no line could be read.`,
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
			return ingestFiles(cmd.Context(), a, conf, &f, args)
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
	flags.StringArrayVar(&f.rules, "rules", nil, "rules of the replay with their allow lists, file or directory (default: what is live); may be repeated")
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
	if f.within, err = duration.Parse(f.reorder); err != nil {
		return usage.Errorf("--reorder: %w", err)
	}
	if f.fields, err = format.ParseFieldMap(f.fieldMap); err != nil {
		return usage.Errorf("--%w", err)
	}
	if f.decoder, err = format.NewDecoder(f.format, f.fields, c.Events.MaxEventBytes); err != nil {
		return usage.Errorf("--format, --map: %w", err)
	}
	if f.speed > 0 {
		f.pace = archive.NewPace(f.speed)
	}
	return nil
}

func ingestFiles(parent context.Context, a *app, c *config.Config, f *ingestFlags, paths []string) error {
	log := a.quietLogger(c)
	ctx, forget := service.UntilSignal(parent, log)
	defer forget()
	r, err := stream.NewReading(stream.Files{
		Paths: paths, Format: f.format, Fields: f.fields, Decoder: f.decoder, Reorder: f.within, Pace: f.pace, MaxBytes: c.Events.MaxEventBytes,
		Stdin: a.stdin, Progress: a.Stderr,
	})
	if err != nil {
		return err
	}
	if f.live {
		return ingestLive(ctx, a, c, r)
	}
	return ingestReplay(ctx, a, c, f, r)
}

func ingestLive(ctx context.Context, a *app, c *config.Config, r *stream.Reading) error {
	registry := service.NewRegistry(readBuildVersion().Version, c.Namespace)
	in, err := service.Open(ctx, c, a.quietLogger(c), registry, false)
	if err != nil {
		return err
	}
	defer in.Close()
	routing, err := in.EnterLive(ctx, c)
	if err != nil {
		return err
	}
	if err := r.ToLive(in, routing); err != nil {
		return err
	}
	quiet, err := service.ServeHealthIfAsked(ctx, c, registry, in)
	if err != nil {
		return err
	}
	defer quiet()
	clock, err := service.WatchClocks(in, readBuildVersion().Version, service.DoesIngest)
	if err != nil {
		return err
	}
	defer service.Beside(ctx, in.Log, clock)()
	if err := r.All(ctx); err != nil {
		return err
	}
	return showLive(&a.Output, r.LiveSummary())
}

func ingestReplay(ctx context.Context, a *app, c *config.Config, f *ingestFlags, r *stream.Reading) error {
	if err := stream.CheckReplay(c.Namespace, f.replay); err != nil {
		return err
	}
	o := stream.ReplayOptions{Name: f.replay, Partitions: f.partitions, Replace: f.onExists == "replace", KeepTopics: f.keepTopics}
	var err error
	if len(f.rules) > 0 {
		if o.Rules, o.Allow, err = replayRules(a, f.rules, c, rules.Format{Name: f.format, Map: f.fields}, nil); err != nil {
			return err
		}
	}
	summary, err := stream.Replay(ctx, c, a.quietLogger(c), service.NewReplayRegistry(readBuildVersion().Version, c.Namespace), r, o)
	if err != nil {
		return err
	}
	return showReplay(&a.Output, summary)
}

// replayRules reads the rules of --rules, each its own first version, and the allow lists beside them. events is the format of what they are
// run over. stored are lists that rules may name, too; one of the files with the same id takes the place of such a list.
func replayRules(a *app, from []string, c *config.Config, events rules.Format, stored []rulestore.AllowList) ([]rules.Version, []rules.AllowList, error) {
	names, lists := make([]string, len(stored)), make([]rules.AllowList, len(stored))
	for i := range stored {
		names[i], lists[i] = stored[i].List.ID, stored[i].List
	}
	set, err := ruleFiles(a, from, c, events, names)
	if err != nil {
		return nil, nil, err
	}
	if len(set.Rules) == 0 {
		return nil, nil, fmt.Errorf("got no rules in %s, allowed at least one beside the allow lists", strings.Join(from, ", "))
	}
	out := make([]rules.Version, len(set.Rules))
	for i, d := range set.Rules {
		out[i], _ = rules.NextVersion(nil, d)
	}
	return out, set.Lists(lists), nil
}

func showLive(o *terminal.Output, s stream.LiveSummary) error {
	if o.Format == "json" {
		if err := o.WriteJSON(s); err != nil {
			return err
		}
		return warnBroken(o, s.Broken, s.Events, s.Lines)
	}
	fmt.Fprintf(o.Stdout, "%s sent of %s, in %s\n", plural.Of(s.Events, "event"), plural.Of(s.Lines, "line"), terminal.Seconds(s.Took))
	showDead(o, s.Dead)
	showTooLate(o, s.TooLate)
	if s.Late > 0 {
		fmt.Fprintf(o.Stdout, "%d of %s are too late for every rule and count nowhere, unless weir run is behind: they are old by %s\n"+
			"weir history late tells how many were late for which rule; weir ingest --replay NAME counts what is old\n", s.Late, plural.Of(s.Events, "event"), s.Lateness)
	}
	return warnBroken(o, s.Broken, s.Events, s.Lines)
}

// warnBroken names on standard error, whatever the output, the files that were not read to their end. It is an error where nothing at
// all could be read.
func warnBroken(o *terminal.Output, broken []archive.Break, events, lines int64) error {
	for _, b := range broken {
		fmt.Fprintf(o.Stderr, "weir: not read from there on: %s\n", terminal.Safe(b.String()))
	}
	if events == 0 && (lines > 0 || len(broken) > 0) {
		return errors.New("not one line could be read")
	}
	return nil
}

func showDead(o *terminal.Output, dead map[string]int64) {
	for _, reason := range slices.Sorted(maps.Keys(dead)) {
		fmt.Fprintf(o.Stdout, "dead letters, %s: %d\n", reason, dead[reason])
	}
}

func showTooLate(o *terminal.Output, n int64) {
	if n > 0 {
		fmt.Fprintf(o.Stdout, "came too late for --reorder: %s, sent all the same\n", plural.Of(n, "event"))
	}
}

func showReplay(o *terminal.Output, s stream.Summary) error {
	if o.Format == "json" {
		if err := o.WriteJSON(s); err != nil {
			return err
		}
	} else if err := replayTable(o, s); err != nil {
		return err
	}
	return warnBroken(o, s.Broken, s.Events, s.Lines)
}

func replayTable(o *terminal.Output, s stream.Summary) error {
	fmt.Fprintf(o.Stdout, "replay %s: %s of %s", s.Replay, plural.Of(s.Events, "event"), plural.Of(s.Lines, "line"))
	if s.Events > 0 && s.Last != 0 {
		fmt.Fprintf(o.Stdout, ", %s to %s", terminal.Time(s.First), terminal.Time(s.Last))
	}
	fmt.Fprintf(o.Stdout, ", in %s\n", terminal.Seconds(s.Seconds))
	showDead(o, s.Dead)
	for _, e := range s.Examples {
		fmt.Fprintf(o.Stdout, "  %s\n", terminal.Cell(e))
	}
	showTooLate(o, s.TooLate)
	if s.Forced > 0 {
		fmt.Fprintf(o.Stdout, "sent early because the --reorder buffer was full: %s\n", plural.Of(s.Forced, "event"))
	}
	fmt.Fprintln(o.Stdout)
	head := append([]string{"RULE", "SOURCES", "EPISODES", "EVENTS", "MATCHED"}, uncountedHead()...)
	if err := terminal.List(o, s.Rules, head, func(r stream.ReplayedRule) []string {
		out := []string{r.Rule}
		for _, n := range []int64{r.Sources, r.Episodes, r.Events, r.Matched} {
			out = append(out, strconv.FormatInt(n, 10))
		}
		return append(out, uncountedCells(&r.Uncounted)...)
	}); err != nil {
		return err
	}
	if len(s.Notes) > 0 {
		fmt.Fprintln(o.Stdout)
	}
	for _, note := range s.Notes {
		fmt.Fprintln(o.Stdout, note)
	}
	switch {
	case slices.ContainsFunc(s.Rules, func(r stream.ReplayedRule) bool { return r.Episodes > 0 }):
		fmt.Fprintf(o.Stdout, "\nweir history hits --replay %s shows who, and when\n", s.Replay)
	case s.Complete && s.Events > 0:
		fmt.Fprint(o.Stdout, "\nnobody was over a limit\n")
	}
	return nil
}
