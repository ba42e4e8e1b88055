package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/user"
	"slices"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/devserver"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/trial"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/postgres"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// app is one invocation of weir: its streams, and what the global flags say.
type app struct {
	terminal.Output
	stdin   io.Reader
	environ []string

	configFile string
	sets       []string
	common     map[string]*string // config path → value of its own flag
	server     string             // --server
	tokenFile  string             // --token-file
	started    bool               // a command's own work has begun

	devHooks devserver.Hooks // of tests
}

// does wraps a command's work: from here on a failure is the work's, not the command line's.
func (a *app) does(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return a.doesIn([]string{"table", "json"}, work)
}

// doesIn is does for a command that has other forms of output.
func (a *app) doesIn(formats []string, work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if !slices.Contains(formats, a.Format) {
			return usage.Errorf("--output: got %q; allowed: %s", a.Format, strings.Join(formats, ", "))
		}
		a.started = true
		return work(cmd, args)
	}
}

// config loads the configuration as the command line, environment and file give it.
func (a *app) config(cmd *cobra.Command) (*config.Config, error) {
	if cmd.Flags().Changed("server") {
		return nil, usage.Errorf("--server: %s works on the servers of the installation themselves, with the configuration's credentials; leave --server out", cmd.CommandPath())
	}
	src := config.Source{File: a.configFile, Environ: a.environ}
	for _, f := range commonFlags {
		if cmd.Flags().Changed(f.flag) {
			src.Settings = append(src.Settings, config.Setting{Path: f.path, Value: *a.common[f.path], Flag: "--" + f.flag})
		}
	}
	for _, s := range a.sets {
		path, value, ok := strings.Cut(s, "=")
		if !ok {
			return nil, usage.Errorf("--set: got %q; allowed: FIELD=VALUE, like kafka.partitions.keyed=32", s)
		}
		src.Settings = append(src.Settings, config.Setting{Path: path, Value: value, Flag: "--set"})
	}
	c, err := config.Load(src)
	if err != nil {
		return nil, &usage.Error{Err: err}
	}
	return c, nil
}

// store is an installation's history with the configuration that led to it.
type store struct {
	*history.Store
	config *config.Config
	log    *slog.Logger
}

// withStore opens the history of the configured installation for a command that asks or changes something.
func (a *app) withStore(cmd *cobra.Command, work func(ctx context.Context, s *store) error) error {
	if err := a.noServer(cmd); err != nil {
		return err
	}
	c, err := a.config(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	log := a.quietLogger(c)
	s, err := service.OpenHistory(ctx, c, log)
	if err != nil {
		return err
	}
	defer s.Close()
	if err := s.WaitReady(ctx, service.AnswerTimeout); err != nil {
		return err
	}
	return work(ctx, &store{Store: s, config: c, log: log})
}

// withDesk opens where a command about rules and blocks works: the stores of the configured installation.
func (a *app) withDesk(cmd *cobra.Command, work func(ctx context.Context, d *desk.Desk) error) error {
	if at := a.asked(); at.URL != "" {
		if by := cmd.Flags().Lookup("by"); by != nil && by.Changed {
			return usage.Errorf("--by: the server knows by the token who acts; leave it out with --server")
		}
		d, err := desk.Remote(at)
		if err != nil {
			return err
		}
		return work(cmd.Context(), d)
	}
	return a.withActs(cmd, func(ctx context.Context, s *store, does acts.Acts) error {
		redis, err := service.OpenRedis(s.config) // it connects when it is asked
		if err != nil {
			return err
		}
		defer func() { _ = redis.Close() }() // nothing is under way any more
		return work(ctx, &desk.Desk{Acts: does, Reader: &api.Reader{Rules: s.Rules, History: s.Store, Trail: s.Audit,
			Blocks: redis, Clock: service.Now}})
	})
}

// withActs opens the stores of the configured installation, and what is done to it.
func (a *app) withActs(cmd *cobra.Command, work func(ctx context.Context, s *store, does acts.Acts) error) error {
	return a.withStore(cmd, func(ctx context.Context, s *store) error {
		environment := func(warn func(rules.Problem)) (rules.Environment, error) {
			return ruleEnvironment(s.config, warn)
		}
		does, done, err := service.OpenActs(service.ActsOptions{
			Config: s.config, Log: s.log, History: s.Store, Environment: environment,
			Trials: trial.New(trial.Options{Config: s.config, Log: s.log, History: s.Store, Environment: environment}),
		})
		if err != nil {
			return err
		}
		defer done()
		return work(ctx, s, does)
	})
}

// asked is the server that commands are to ask, by --server or WEIR_SERVER; without an address the stores are asked.
func (a *app) asked() desk.Server {
	s := desk.Server{URL: a.server, TokenFile: a.tokenFile, Version: readBuildVersion().Version}
	if s.URL == "" {
		s.URL, _ = config.LookupEnv(a.environ, config.ServerVariable)
	}
	if s.TokenFile == "" {
		s.Token, _ = config.LookupEnv(a.environ, config.TokenVariable)
	}
	return s
}

// noServer refuses a command that asks the stores where a server is to be asked: they may be another installation's.
func (a *app) noServer(cmd *cobra.Command) error {
	if at := a.asked(); at.URL != "" {
		return usage.Errorf("%s cannot ask a server, only the stores themselves: leave out --server, and unset %s", cmd.CommandPath(), config.ServerVariable)
	}
	return nil
}

// quietLogger is the logger of commands that answer on standard output: only what goes wrong is worth a line beside it.
func (a *app) quietLogger(c *config.Config) *slog.Logger {
	return service.NewQuietLogger(c.Log, a.Stderr)
}

// withRedis opens Redis for a command.
func (a *app) withRedis(ctx context.Context, c *config.Config, work func(r *blocklist.Store) error) error {
	r, err := service.OpenRedis(c)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	if err := service.WaitRedis(ctx, r, service.AnswerTimeout, a.quietLogger(c)); err != nil {
		return err
	}
	return work(r)
}

// ruleInRedis finds out whether gates know a rule of that name, of which there is no block.
func ruleInRedis(ctx context.Context, r *blocklist.Store, rule string) error {
	modes, err := r.Modes(ctx)
	if err != nil {
		return err
	}
	var names []string
	for _, m := range modes {
		if m.Rule == rule {
			return nil
		}
		names = append(names, m.Rule)
	}
	slices.Sort(names)
	return usage.Unknown("rule", rule, names, "weir rules list shows the rules")
}

// knownRule finds out whether a stream has, or had, a rule. A rule that was removed still has a history.
func (s *store) knownRule(ctx context.Context, stream, rule string) error {
	names, err := s.Rules.Names(ctx, stream)
	if err != nil || slices.Contains(names, rule) {
		return err
	}
	where := "weir rules list shows the rules"
	if stream != history.Live {
		where = "weir history replays shows what replays there are"
	}
	return usage.Unknown("rule", rule, names, where)
}

// named finds a rule, also one that was removed. The error about a name that no rule has says which one it may have meant.
func (s *store) named(ctx context.Context, rule string) (rulestore.Rule, error) {
	r, err := s.Rules.Find(ctx, rule)
	return r, s.misnamed(ctx, rule, err)
}

// misnamed says of what failed because no rule has the name which one was probably meant; any other error stays.
func (s *store) misnamed(ctx context.Context, rule string, err error) error {
	if !errors.Is(err, postgres.ErrNotFound) {
		return err
	}
	if unknown := s.knownRule(ctx, history.Live, rule); unknown != nil {
		return unknown
	}
	return err
}

// actFlags say who does something that is audited, and why.
type actFlags struct{ by, reason string }

func (f *actFlags) register(c *cobra.Command, environ []string) {
	c.Flags().StringVar(&f.by, "by", "", "who does it, for the audit trail (default: you)")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit trail")
	c.PreRun = func(*cobra.Command, []string) {
		if f.by == "" {
			f.by = whoami(environ)
		}
	}
}

// reasonRequired makes the command refuse to act without a reason, before it asks any server. The … of a command that was
// pasted from the console is none.
func (f *actFlags) reasonRequired(c *cobra.Command) {
	c.Flags().Lookup("reason").Usage = "why, for the audit trail; required"
	act := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !strings.ContainsFunc(f.reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			return usage.Errorf("--reason is required: got %q, allowed: words that say why, for the audit trail; such as: %s", f.reason, strings.TrimSpace(cmd.Example))
		}
		return act(cmd, args)
	}
}

// whoami is the user as the system knows them, else as $USER says, else by number.
func whoami(environ []string) string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name, _ := config.LookupEnv(environ, "USER"); name != "" {
		return name
	}
	return nameless(os.Getuid(), os.Hostname)
}

// nameless is a user whom the system has no name for: in an image without /etc/passwd all are. The host tells which of
// several containers it was; Docker names it by the container's id. uid is -1 where users have no numbers.
func nameless(uid int, hostname func() (string, error)) string {
	if uid < 0 {
		return "unknown"
	}
	host, err := hostname()
	if err != nil || host == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("uid %d@%s", uid, host)
}
