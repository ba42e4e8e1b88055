package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
)

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the command ran and failed; also: lint found errors
	exitUsage = 2 // the command line or the configuration is wrong; nothing was done
)

// app is one invocation of weir: its streams, and what the global flags say.
type app struct {
	terminal.Output
	stdin   io.Reader
	environ []string

	configFile string
	sets       []string
	common     map[string]*string // config path → value of its own flag
	started    bool               // a command's own work has begun

	devHooks devHooks // of tests
}

// run is the whole program but for the exit: it runs the command that args name and gives the exit code. ctx ends it as
// a signal would; signals are handled by the commands that run for long.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return (&app{Output: terminal.Output{Stdout: stdout, Stderr: stderr}, stdin: stdin, environ: os.Environ()}).run(ctx, args)
}

func (a *app) run(ctx context.Context, args []string) int {
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.Stdout)
	root.SetErr(a.Stderr)
	err := root.ExecuteContext(ctx)
	var usage *config.UsageError
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSaid):
		return exitError
	}
	fmt.Fprintf(a.Stderr, "weir: %s\n", oneProblem(err))
	if !a.started || errors.As(err, &usage) {
		fmt.Fprintln(a.Stderr, "weir: see weir --help, or weir COMMAND --help")
		return exitUsage
	}
	return exitError
}

// errSaid ends a command with exitError whose output has already said why.
var errSaid = errors.New("already reported")

// oneProblem writes several joined errors one to a line.
func oneProblem(err error) string {
	return strings.ReplaceAll(err.Error(), "\n", "\nweir: ")
}

// commonFlags have a flag of their own; every other field is set with --set.
var commonFlags = []struct{ flag, path, usage string }{
	{"namespace", "namespace", "prefix of topics, groups, schema and keys"},
	{"kafka-brokers", "kafka.brokers", "Kafka addresses, host:port,host:port"},
	{"redis-url", "redis.url", "one Redis server, redis://host:port/db"},
	{"redis-addresses", "redis.addresses", "a Redis Cluster, host:port,host:port"},
	{"postgres-url", "postgres.url", "PostgreSQL, postgres://user@host:port/database"},
	{"http-listen", "http.listen", "where /metrics, /livez and /readyz are served"},
	{"log-level", "log.level", "debug, info, warn or error"},
	{"log-format", "log.format", "text or json"},
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "weir",
		Short: "Find and hold back abusers in the stream of requests that API gateways emit",
		Long: `weir measures the stream of requests that API gateways emit, in windows, against rules.
New rules are in shadow: they record who is over, and refuse nobody until they are promoted.

Exit codes: 0 done, 1 failed, 2 the command line or the configuration is wrong.`,
		Example: `  weir migrate
  weir rules apply -f rules/
  weir run
  weir history hits --since 24h`,
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "configuration file (default ./weir.yaml, or WEIR_CONFIG)")
	flags.StringArrayVar(&a.sets, "set", nil, "set any configuration field: --set kafka.partitions.keyed=32")
	flags.StringVar(&a.Format, "output", "table", "table or json, where a command lists something")
	a.common = map[string]*string{}
	for _, f := range commonFlags {
		a.common[f.path] = flags.String(f.flag, "", f.usage)
	}
	a.groups(root)
	a.addCompletion(root)
	return root
}

// groups adds the commands under their headings.
func (a *app) groups(root *cobra.Command) {
	root.AddGroup(
		&cobra.Group{ID: "stream", Title: "Run the stream:"},
		&cobra.Group{ID: "look", Title: "Rules, blocks and history:"},
		&cobra.Group{ID: "other", Title: "Other:"},
	)
	for _, g := range []struct {
		id       string
		commands []*cobra.Command
	}{
		{"stream", []*cobra.Command{a.devCommand(), a.migrateCommand(), a.runCommand(), a.gateCommand(), a.readyCommand(), a.ingestCommand(), a.partitionsCommand()}},
		{"look", []*cobra.Command{a.rulesCommand(), a.blocksCommand(), a.whyCommand(), a.historyCommand()}},
		{"other", []*cobra.Command{a.doctorCommand(), a.loadgenCommand(), a.configCommand(), a.versionCommand()}},
	} {
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
}

// does wraps a command's work: from here on a failure is the work's, not the command line's.
func (a *app) does(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.Format != "table" && a.Format != "json" {
			return config.Usagef("--output: got %q; allowed: table, json", a.Format)
		}
		a.started = true
		return work(cmd, args)
	}
}

// family is a command that only has subcommands.
func family(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{
		Use: use, Short: short, Example: example, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	c.AddCommand(commands...)
	return c
}

// config loads the configuration as the command line, environment and file give it.
func (a *app) config(cmd *cobra.Command) (*config.Config, error) {
	src := config.Source{File: a.configFile, Environ: a.environ}
	for _, f := range commonFlags {
		if cmd.Flags().Changed(f.flag) {
			src.Settings = append(src.Settings, config.Setting{Path: f.path, Value: *a.common[f.path], Flag: "--" + f.flag})
		}
	}
	for _, s := range a.sets {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, config.Usagef("--set: got %q; allowed: FIELD=VALUE, like kafka.partitions.keyed=32", s)
		}
		src.Settings = append(src.Settings, config.Setting{Path: path, Value: value, Flag: "--set"})
	}
	c, err := config.Load(src)
	if err != nil {
		return nil, &config.UsageError{Err: err}
	}
	return c, nil
}
