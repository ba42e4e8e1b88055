package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/report"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/stream"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/ingest/backtest"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic/format"
)

// backtestFlags are what weir backtest is told.
type backtestFlags struct {
	rules            []string
	format, fieldMap string
	reorder          string
	partitions       int
	since, until     string
	sweep            string
	top              int
	html             string
	fromLive         bool
	maxRate          string
}

// backtestFormats are the forms in which a backtest is shown.
func backtestFormats() []string { return []string{"table", "json", "csv"} }

func backtestCommand(a *app) *cobra.Command {
	var f backtestFlags
	c := &cobra.Command{
		Use:   "backtest {FILE… --format F | --from-live} -f RULES",
		Short: "Try rules on log files, with nothing running; blocks nobody",
		Long: `Read log files, plain, gzip or zstd, - for standard input, and run rules over them in this process: no server, no configuration, all
cores. What is shown is what shadow would have recorded, rule by rule, and what a block would have done: the requests that it would have refused,
and who would have been held. The hits are those of weir ingest --replay of the same files.

--sweep tries several limits, or several windows, in one reading, and shows a row for each: which limit is right is a look at one table.
--html writes a page for those who decide, with a chart of how high the sources came; it needs nothing beside it.

Formats: ` + strings.Join(config.LineFormats(), ", ") + `.
They are those of weir ingest, and so are --map, --reorder and --partitions. Where a configuration is found, its identity map says whose a request
was, and its events section has the format and its map where --format is not given.

--from-live reads no file but the requests that Kafka holds, beside the running stages, in their format and with their identity map:
no consumer group is joined and nothing is committed. --since and --until are then append time, when Kafka took an event, however old it was;
reading ends where the log ended when it began. Rules may name the stored allow lists; a list in the files takes the place of the stored one.
It asks Kafka and PostgreSQL, so it needs the configuration.

A line that is no event is counted by its reason, with the first places, and so is each place at which a file cannot be read on, because it ends early or is
damaged. The exit code is 1 only when nothing could be read.`,
		Example: `  weir backtest access.log.gz --format combined -f rule.yaml
  weir backtest access.log.gz --format combined -f rule.yaml --sweep limit=5,10,20,50
  weir backtest events.jsonl --format json --map time=ts,user_agent=ua -f rules/ --reorder 15m --html report.html
  weir backtest --from-live --since 24h -f rule.yaml --sweep limit=5,10,20,50
  zcat /var/log/nginx/access.log.*.gz | weir backtest - --format combined -f rules/ --since 7d --output csv > over.csv`,
		Args: cobra.ArbitraryArgs,
		RunE: a.doesIn(backtestFormats(), func(cmd *cobra.Command, args []string) error {
			if err := f.source(cmd.Flags(), args); err != nil {
				return err
			}
			conf, err := a.config(cmd)
			if err != nil {
				return err
			}
			return f.run(cmd.Context(), a, conf, args)
		}),
	}
	f.register(a, c)
	return c
}

func (f *backtestFlags) register(a *app, c *cobra.Command) {
	flags := c.Flags()
	flags.StringArrayVarP(&f.rules, "rules", "f", nil, "file or directory of rules and their allow lists, - for standard input; may be repeated")
	flags.StringVar(&f.format, "format", "", strings.Join(config.LineFormats(), ", ")+" (default: events.format, where it is set)")
	flags.StringVar(&f.fieldMap, "map", "", "event field=member, joined by commas; not for weir and combined")
	flags.StringVar(&f.reorder, "reorder", "0s", "sort by time what is out of order by at most so much, like 15m")
	flags.IntVar(&f.partitions, "partitions", 1, "as if the requests had come by so many partitions; events of one address share one")
	flags.StringVar(&f.since, "since", "", "not before: a duration back from now (24h, 7d) or an RFC 3339 time; by event time, with --from-live by append time")
	flags.StringVar(&f.until, "until", "", "before: a duration back from now or an RFC 3339 time, as --since")
	flags.StringVar(&f.sweep, "sweep", "", "values to try instead of the rules' own: limit=5,10,20 or window=1m,5m,1h")
	flags.IntVar(&f.top, "top", 10, "sources shown for each rule, the worst first; 1 and more")
	flags.StringVar(&f.html, "html", "", "write the report as one page to this file, too")
	flags.BoolVar(&f.fromLive, "from-live", false, "read what the live requests topic holds, in place of files")
	flags.StringVar(&f.maxRate, "max-rate", config.Size(backtest.DefaultLiveRate).String(), "with --from-live, bytes a second at most; 0B: no bound")
	flags.StringVar(&a.Format, "output", "table", "table, json (with every episode) or csv (the episodes; with --sweep the values)")
}

// run does the work: everything that can be wrong with the command line is found before a log is opened.
func (f *backtestFlags) run(ctx context.Context, a *app, c *config.Config, paths []string) error {
	options, err := f.parse(c, time.Now())
	if err != nil {
		return err
	}
	files, err := stream.Inputs(paths, a.stdin)
	if err != nil {
		return err
	}
	if slices.Contains(paths, "-") && slices.Contains(f.rules, "-") {
		return usage.Errorf("- is given for the log and for -f; standard input can be read once")
	}
	options.NoHits = options.Sweep.Field != "" || a.Format != "json" && a.Format != "csv"
	if err := f.writable(a, c, paths); err != nil {
		return err
	}
	if !f.fromLive {
		if options.Rules, options.Allow, err = replayRules(a, f.rules, c, rules.Format{Name: options.Format, Map: options.Fields}, nil); err != nil {
			return err
		}
	}
	r := &report.Report{
		Reorder: options.Reorder, Since: options.Since, Until: options.Until, Sweep: options.Sweep.Field, Live: f.fromLive,
	}
	if f.fromLive {
		err = f.live(ctx, a, c, options, r)
	} else {
		progress := terminal.StartProgress(a.Stderr, stream.SizeOf(files))
		all := backtestFiles(files)
		r.Files, r.Format = namesOf(all), options.Format
		r.Result, err = backtest.Run(ctx, options, all, follow(progress))
		progress.Close()
	}
	if r.Result == nil {
		return err
	}
	if err == nil && f.html != "" {
		err = r.WritePage(f.html) // before the table: whoever reads only its head ends this process
	}
	return errors.Join(show(a, r), r.Warn(a.Stderr), err) // where nothing could be read, the reasons are in the report
}

// live runs the live stream's events through the rules.
func (f *backtestFlags) live(ctx context.Context, a *app, c *config.Config, o backtest.Options, r *report.Report) error {
	in, err := service.Open(ctx, c, a.quietLogger(c), nil, false)
	if err != nil {
		return err
	}
	defer in.Close()
	routing, err := in.EnterLive(ctx, c)
	if err != nil {
		return err
	}
	stored, err := in.History.Rules.AllowLists(ctx)
	if err != nil {
		return err
	}
	if o.Rules, o.Allow, err = replayRules(a, f.rules, c, routing.Format, stored); err != nil {
		return err
	}
	from, err := stream.Beside(ctx, in, routing, &o)
	if err != nil {
		return err
	}
	if from.Rate, err = f.rate(); err != nil {
		return err
	}
	r.Files, r.Format = []string{from.Topic}, o.Format
	progress := terminal.StartProgress(a.Stderr, 0)
	defer progress.Close()
	r.Result, err = backtest.RunLive(ctx, o, from, follow(progress))
	return err
}

// rate is how many bytes a second may be read; less than 0: any number.
func (f *backtestFlags) rate() (int64, error) {
	var size config.Size
	if err := size.UnmarshalText([]byte(f.maxRate)); err != nil {
		return 0, usage.Errorf("--max-rate: %w", err)
	}
	if size == 0 {
		return -1, nil
	}
	return int64(size), nil
}

// source checks what is read, and that no flag is given that would have no effect.
func (f *backtestFlags) source(flags *pflag.FlagSet, paths []string) error {
	if !f.fromLive {
		if flags.Changed("max-rate") {
			return usage.Errorf("--max-rate: it is for --from-live")
		}
		if len(paths) == 0 {
			return usage.Errorf("a log file is required, - for standard input, or --from-live")
		}
		return nil
	}
	if len(paths) > 0 {
		return usage.Errorf("%s: --from-live reads the live requests and no file", paths[0])
	}
	for _, name := range []string{"format", "map", "reorder", "partitions"} {
		if flags.Changed(name) {
			return usage.Errorf("--%s: it is for files; --from-live reads as the live stream does", name)
		}
	}
	_, err := f.rate()
	return err
}

// follow shows how far a run has come.
func follow(shown *terminal.Progress) func(backtest.Progress) {
	return func(p backtest.Progress) {
		shown.Bytes.Store(p.Bytes)
		shown.Events.Store(p.Events)
	}
}

// show writes the report in the form asked for.
func show(a *app, r *report.Report) error {
	switch a.Format {
	case "json":
		return r.JSON(&a.Output)
	case "csv":
		return r.CSV(&a.Output)
	}
	return r.Table(&a.Output)
}

// parse checks the flags, all but the rules.
func (f *backtestFlags) parse(c *config.Config, now time.Time) (backtest.Options, error) {
	never := blocklist.NewNeverBlock(c.NeverBlock)
	o := backtest.Options{
		NeverBlock: never.Holds, Identity: c.Identity, KnownGood: string(c.KnownGood), Partitions: f.partitions, MaxEventBytes: c.Events.MaxEventBytes, Top: f.top,
	}
	var err error
	switch {
	case len(f.rules) == 0:
		return o, usage.Errorf("-f is required: a file or directory of rules, or - for standard input")
	case f.partitions < 1 || f.partitions > 64:
		return o, usage.Errorf("--partitions: got %d; allowed: 1 to 64", f.partitions)
	case f.top < 1:
		return o, usage.Errorf("--top: got %d; allowed: 1 and more; --output csv has every episode, and no list of sources", f.top)
	}
	if !f.fromLive {
		if err := f.parseFormat(&o, c); err != nil {
			return o, err
		}
	}
	if o.Reorder, err = duration.Parse(f.reorder); err != nil {
		return o, usage.Errorf("--reorder: %w", err)
	}
	if o.Since, err = asking.Time("since", f.since, now); err != nil {
		return o, err
	}
	if o.Until, err = asking.Time("until", f.until, now); err != nil {
		return o, err
	}
	if o.Until != 0 && o.Until <= o.Since {
		return o, usage.Errorf("--until: got %s; allowed: a time after --since, %s", terminal.Time(o.Until), terminal.Time(o.Since))
	}
	o.Sweep, err = parseSweep(f.sweep)
	return o, err
}

// parseFormat takes the format from the flags, else from the configuration.
func (f *backtestFlags) parseFormat(o *backtest.Options, c *config.Config) error {
	lines := config.LineFormats()
	o.Format = f.format
	if f.format == "" {
		if !c.Origins.Has("events.format") {
			return usage.Errorf("--format is required; allowed: %s", strings.Join(lines, ", "))
		}
		o.Format, o.Fields = c.Events.Format, c.Events.Map
	}
	if !slices.Contains(lines, o.Format) {
		return usage.OneOf("format", o.Format, lines...)
	}
	if f.fieldMap != "" {
		var err error
		if o.Fields, err = format.ParseFieldMap(f.fieldMap); err != nil {
			return usage.Errorf("--%w", err)
		}
	}
	if _, err := format.NewDecoder(o.Format, o.Fields, o.MaxEventBytes); err != nil {
		return usage.Errorf("--format, --map: %w", err)
	}
	return nil
}

// maxSwept is how many values one reading may try: each has windows of its own.
const maxSwept = 100

// parseSweep reads limit=5,10,20 or window=1m,5m,1h.
func parseSweep(text string) (backtest.Sweep, error) {
	var s backtest.Sweep
	if text == "" {
		return s, nil
	}
	field, list, _ := strings.Cut(text, "=")
	if field != backtest.SweepLimit && field != backtest.SweepWindow {
		return s, usage.Errorf("--sweep: got %q; allowed: limit=5,10,20 or window=1m,5m,1h", text)
	}
	s.Field = field
	values := strings.Split(list, ",")
	if len(values) > maxSwept {
		return s, usage.Errorf("--sweep: got %d values; allowed: %d at most", len(values), maxSwept)
	}
	for _, value := range values {
		if err := addSwept(&s, strings.TrimSpace(value)); err != nil {
			return s, err
		}
	}
	return s, nil
}

// addSwept adds a limit, or a window, as a rule may have it.
func addSwept(s *backtest.Sweep, value string) error {
	twice := usage.Errorf("--sweep: got %s twice; allowed: each value once", value)
	if s.Field == backtest.SweepLimit {
		n, err := strconv.Atoi(value)
		switch {
		case err != nil || n < 0 || n > rules.MaxLimit:
			return usage.Errorf("--sweep: limit: got %q; allowed: whole numbers from 0 to %d, like limit=5,10,20", value, rules.MaxLimit)
		case slices.Contains(s.Limits, n):
			return twice
		}
		s.Limits = append(s.Limits, n)
		return nil
	}
	d, err := duration.ParseWhole(value)
	switch {
	case err != nil || d < rules.MinWindow || d > rules.MaxWindow:
		return usage.Errorf("--sweep: window: got %q; allowed: %s to %s, in units s m h d, like window=1m,5m,1h", value,
			duration.Format(rules.MinWindow), duration.Format(rules.MaxWindow))
	case slices.Contains(s.Windows, d):
		return twice
	}
	s.Windows = append(s.Windows, d)
	return nil
}

// backtestFiles are the inputs as the engine takes them.
func backtestFiles(all []stream.Input) []backtest.File {
	files := make([]backtest.File, len(all))
	for i := range all {
		files[i] = backtest.File{Name: all[i].Name, Size: all[i].Size, Open: all[i].Open}
	}
	return files
}

func namesOf(files []backtest.File) []string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = f.Name
	}
	return names
}

// writable finds out before hours of reading whether the page can be written where it shall be, and that nothing is lost by it.
func (f *backtestFlags) writable(a *app, c *config.Config, logs []string) error {
	if f.html == "" {
		return nil
	}
	if old, err := os.Stat(f.html); err == nil {
		if !old.Mode().IsRegular() {
			return usage.Errorf("--html: %s is no regular file; allowed: a file to write", f.html)
		}
		reads := slices.Concat(logs, f.rules)
		for _, origin := range c.Origins {
			reads = append(reads, origin.File) // that of no file is there
		}
		for _, read := range reads {
			if info, err := os.Stat(read); err == nil && os.SameFile(old, info) {
				return usage.Errorf("--html: %s is read; allowed: another file to write", f.html)
			}
		}
		if in, ok := a.stdin.(*os.File); ok {
			if info, err := in.Stat(); err == nil && os.SameFile(old, info) {
				return usage.Errorf("--html: %s is read; allowed: another file to write", f.html)
			}
		}
		if ext := filepath.Ext(f.html); ext == ".yaml" || ext == ".yml" { // of a folder of rules, perhaps
			return usage.Errorf("--html: %s is there, and named like rules; allowed: another file to write", f.html)
		}
	}
	probe, err := os.CreateTemp(filepath.Dir(f.html), ".weir-backtest-*")
	if err != nil {
		return usage.Errorf("--html: %w", err)
	}
	return errors.Join(probe.Close(), os.Remove(probe.Name()))
}
