// Command weir finds those who use an API too much, in the stream of requests that its gateways emit, and holds them
// back where a rule has been promoted to do so.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/cmd/weir/internal/versions"
	"github.com/weirhq/weir/detectors"
)

func main() {
	blocklist.QuietClient()
	os.Exit(run(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit codes.
const (
	exitOK    = 0
	exitError = 1 // the command ran and failed; also: lint found errors, diff --exit-code a difference
	exitUsage = 2 // the command line or the configuration is wrong; nothing was done
	exitOther = 3 // the command ran and failed where exitError says something else
)

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
	command, err := root.ExecuteContextC(ctx)
	var mistake *usage.Error
	switch {
	case err == nil:
		return exitOK
	case errors.Is(err, errSaid):
		return exitError
	}
	for _, problem := range usage.Worded(err) {
		fmt.Fprintf(a.Stderr, "weir: %s\n", problem)
	}
	if !a.started || errors.As(err, &mistake) {
		if command.Name() == "help" {
			command = root
		}
		fmt.Fprintf(a.Stderr, "weir: see %s --help\n", command.CommandPath())
		return exitUsage
	}
	if uncompared := (*versions.UncomparedError)(nil); errors.As(err, &uncompared) {
		return exitOther
	}
	return exitError
}

// errSaid ends a command with exitError whose output has already said why.
var errSaid = errors.New("already reported")

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
		Example: `  weir backtest access.log.gz --format combined -f rules/
  weir migrate
  weir rules apply -f rules/
  weir run
  weir history hits --since 24h`,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	v := readBuildVersion()
	root.Version = v.Version
	root.SetVersionTemplate(v.String())
	flags := root.PersistentFlags()
	flags.StringVar(&a.configFile, "config", "", "configuration file (default ./weir.yaml, or WEIR_CONFIG)")
	flags.StringArrayVar(&a.sets, "set", nil, "set any configuration field: --set kafka.partitions.keyed=32")
	flags.StringVar(&a.Format, "output", "table", "table or json, where a command lists something")
	flags.StringVar(&a.server, "server", "", "the console's address: ask its API, with the token in WEIR_TOKEN, instead of the stores (WEIR_SERVER)")
	flags.StringVar(&a.tokenFile, "token-file", "", "the file with the token for --server, instead of WEIR_TOKEN")
	a.common = map[string]*string{}
	for _, f := range commonFlags {
		a.common[f.path] = flags.String(f.flag, "", f.usage)
	}
	a.groups(root)
	addCompletion(a, root)
	usage.Voice(root)
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
		{"stream", []*cobra.Command{devCommand(a), migrateCommand(a), runCommand(a), consoleCommand(a), gateCommand(a), readyCommand(a), ingestCommand(a), partitionsCommand(a)}},
		{"look", []*cobra.Command{backtestCommand(a), rulesCommand(a), allowCommand(a), blocksCommand(a),
			neverBlockCommand(a), countersCommand(a), whyCommand(a), historyCommand(a), deadLettersCommand(a)}},
		{"other", []*cobra.Command{doctorCommand(a), dashboardsCommand(a), loadgenCommand(a), configCommand(a), versionCommand(a)}},
	} {
		for _, c := range g.commands {
			c.GroupID = g.id
			root.AddCommand(c)
		}
	}
	root.SetHelpCommandGroupID("other")
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

// linkedVersion is the version of a build that cannot know it by itself, as in an image, where there is no git: go build
// -ldflags "-X main.linkedVersion=v1.2.3". Only the linker writes it, which takes nothing but a package's variable.
var linkedVersion string

// buildVersion describes this binary.
type buildVersion struct {
	Version      string `json:"version"`
	Revision     string `json:"revision,omitempty"`
	Go           string `json:"go"`
	RecordFormat int    `json:"record_format"`
	HitFormat    int    `json:"hit_format"`
}

var _ fmt.Stringer = buildVersion{}

// String is what weir version and weir --version say.
func (v buildVersion) String() string {
	return fmt.Sprintf("weir %s %s\nkeyed records: format %d; hits: format %d\n", v.Version, v.Go, v.RecordFormat, v.HitFormat)
}

func readBuildVersion() buildVersion {
	v := buildVersion{
		Version: cmp.Or(linkedVersion, "(devel)"), Go: runtime.Version(), RecordFormat: detectors.RecordFormat, HitFormat: detectors.HitFormat,
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if linkedVersion == "" && info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			v.Revision = s.Value
		}
	}
	return v
}

func versionCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Show the version and the formats that this build writes",
		Example: "  weir version\n  weir version --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(*cobra.Command, []string) error {
			v := readBuildVersion()
			if a.Format == "json" {
				return a.WriteJSON(v)
			}
			_, err := fmt.Fprint(a.Stdout, v)
			return err
		}),
	}
}
