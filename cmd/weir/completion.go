package main

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/ingest"
	"github.com/weirhq/weir/rules"
)

// completionTimeout is how long the shell may wait for names from PostgreSQL; then there are none.
const completionTimeout = time.Second

// suggest finds what may stand next on the command line.
type suggest = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective)

// addCompletion adds weir completion, and what it knows about the arguments of the commands. It comes after all commands.
func addCompletion(a *app, root *cobra.Command) {
	root.SetOut(a.Stdout) // the scripts go where it points at this moment
	root.SetCompletionCommandGroupID("other")
	root.InitDefaultCompletionCmd()
	examples := map[string]string{
		"weir completion":            "  weir completion bash > /etc/bash_completion.d/weir",
		"weir completion bash":       "  weir completion bash > /etc/bash_completion.d/weir",
		"weir completion zsh":        `  weir completion zsh > "${fpath[1]}/_weir"`,
		"weir completion fish":       "  weir completion fish > ~/.config/fish/completions/weir.fish",
		"weir completion powershell": "  weir completion powershell | Out-String | Invoke-Expression",
	}
	every := func(*rulestore.Label) bool { return true }
	stored := func(r *rulestore.Label) bool { return !r.Removed }
	counting := func(r *rulestore.Label) bool { return !r.Removed && r.Mode != rules.ModeOff }
	arguments := map[string]suggest{
		"weir rules show":      suggestRules(a, every),
		"weir rules evidence":  suggestRules(a, every),
		"weir rules history":   suggestRules(a, every),
		"weir rules diff":      suggestDiff(a),
		"weir rules rollback":  suggestRules(a, stored),
		"weir rules export":    suggestRules(a, stored),
		"weir rules set-limit": suggestRules(a, stored),
		"weir rules promote":   suggestRules(a, func(r *rulestore.Label) bool { return !r.Removed && (r.Mode != rules.ModeBlock || r.Pending) }),
		"weir rules disable": suggestRules(a, func(r *rulestore.Label) bool {
			return !r.Removed &&
				r.Mode != rules.ModeOff
		}),
		"weir rules demote":   suggestRules(a, func(r *rulestore.Label) bool { return r.Mode.Blocks() }),
		"weir blocks release": suggestRules(a, stored),
		"weir counters show":  suggestRules(a, counting),
		"weir counters reset": suggestRules(a, counting),
		"weir allow show":     suggestAllow(a),
		"weir allow add":      suggestAllow(a),
		"weir allow remove":   suggestAllow(a),
	}
	fixed := map[string]map[string][]string{
		"weir":                   {"output": {"table", "json"}, "log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}},
		"weir run":               {"stages": service.AllStages()},
		"weir console invite":    {"role": access.RoleNames()},
		"weir ingest":            {"format": config.LineFormats(), "on-exists": {"error", "replace"}},
		"weir backtest":          {"format": config.LineFormats(), "output": backtestFormats()},
		"weir rules explain":     {"format": config.LineFormats()},
		"weir history decisions": {"action": explore.DecisionActions()},
	}
	versions := map[string]map[string]suggest{
		"weir rules promote": {"version": suggestVersions(a, func(r *rulestore.Rule, v *rulestore.StoredVersion) bool {
			return v.Version.Number == r.Newest.Version.Number || r.StateOf(v) == "pending"
		})},
		"weir rules rollback": {"to": suggestVersions(a, func(r *rulestore.Rule, v *rulestore.StoredVersion) bool {
			return v.Version.Number != r.Newest.Version.Number || r.Pending != nil
		})},
	}
	visitCommands(root, func(c *cobra.Command) {
		path := c.CommandPath()
		if c.Example == "" {
			c.Example = examples[path]
		}
		if find := arguments[path]; find != nil {
			c.ValidArgsFunction = find
		} else if c.ValidArgsFunction == nil && !strings.Contains(c.Use, "FILE") && c.Runnable() {
			c.ValidArgsFunction = cobra.NoFileCompletions
		}
		for flag, values := range fixed[path] {
			suggestFor(c, flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
		}
		for flag, find := range versions[path] {
			suggestFor(c, flag, find)
		}
		suggestFor(c, "rule", anywhere(suggestRules(a, every)))
		if strings.HasPrefix(path, "weir history") {
			suggestFor(c, "replay", suggestNames(a, replayNames))
		}
	})
}

func visitCommands(c *cobra.Command, visit func(*cobra.Command)) {
	visit(c)
	for _, sub := range c.Commands() {
		visitCommands(sub, visit)
	}
}

// suggestFor says what a flag may be, where the command has it.
func suggestFor(c *cobra.Command, flag string, find suggest) {
	if c.LocalFlags().Lookup(flag) != nil {
		_ = c.RegisterFlagCompletionFunc(flag, find) // it fails only for a flag that somebody has described already
	}
}

// suggestRules suggests those rules that are wanted, as first argument. It asks for names alone: thousands of documents take longer than a
// shell waits.
func suggestRules(a *app, want func(*rulestore.Label) bool) suggest {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return suggestNames(a, func(ctx context.Context, s *history.Store) ([]string, error) {
			all, err := s.Rules.Labels(ctx, begun)
			var names []string
			for i := range all {
				if r := &all[i]; want(r) {
					names = append(names, cobra.CompletionWithDesc(r.Rule, labelText(r)))
				}
			}
			return names, err
		})(cmd, args, begun)
	}
}

// labelText says of a rule what decides which one is meant.
func labelText(r *rulestore.Label) string {
	switch {
	case r.Removed:
		return "removed"
	case r.Pending:
		return string(r.Mode) + ", a version is pending"
	}
	return string(r.Mode)
}

// anywhere has a flag suggest the same wherever it stands on the command line.
func anywhere(find suggest) suggest {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return find(cmd, nil, begun)
	}
}

// suggestVersions suggests those versions that are wanted of the rule that is the first argument, the newest first.
func suggestVersions(a *app, want func(*rulestore.Rule, *rulestore.StoredVersion) bool) suggest {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) == 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, directive := suggestNames(a, func(ctx context.Context, s *history.Store) ([]string, error) {
			r, err := s.Rules.Find(ctx, args[0])
			var names []string
			for i := range r.Versions {
				if v := &r.Versions[i]; want(&r, v) {
					names = append(names, cobra.CompletionWithDesc(strconv.Itoa(v.Version.Number), r.StateOf(v)+", "+terminal.Stamp(v.Created)+", by "+terminal.Cell(v.Author)))
				}
			}
			return names, err
		})(cmd, args, begun)
		return names, directive | cobra.ShellCompDirectiveKeepOrder
	}
}

// suggestDiff suggests a rule, and then one and another of its versions.
func suggestDiff(a *app) suggest {
	rule := suggestRules(a, func(*rulestore.Label) bool { return true })
	version := suggestVersions(a, func(*rulestore.Rule, *rulestore.StoredVersion) bool { return true })
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		switch {
		case len(args) == 0 && !cmd.Flags().Changed("file"):
			return rule(cmd, args, begun)
		case len(args) == 1 || len(args) == 2:
			return version(cmd, args, begun)
		}
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
}

// suggestAllow suggests the allow lists, as first argument.
func suggestAllow(a *app) suggest {
	find := suggestNames(a, func(ctx context.Context, s *history.Store) ([]string, error) {
		all, err := s.Rules.AllowLists(ctx)
		var names []string
		for i := range all {
			names = append(names, cobra.CompletionWithDesc(all[i].List.ID, "of "+terminal.Safe(all[i].List.Owner)))
		}
		return names, err
	})
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return find(cmd, args, begun)
	}
}

func replayNames(ctx context.Context, s *history.Store) ([]string, error) {
	all, err := s.Streams.List(ctx)
	var names []string
	for i := range all {
		if name, ok := ingest.Stream(all[i].Name).Replay(); ok {
			names = append(names, cobra.CompletionWithDesc(name, "of "+terminal.Stamp(all[i].Created)))
		}
	}
	return names, err
}

// suggestNames asks history. Whatever goes wrong, or takes too long, suggests nothing and says nothing: a shell that waits
// for a key is no place for an error.
func suggestNames(a *app, ask func(ctx context.Context, s *history.Store) ([]string, error)) suggest {
	return func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		answers := make(chan []string, 1)
		go func() { answers <- askHistory(ctx, a, cmd, ask) }()
		var fitting []string
		select {
		case names := <-answers:
			for _, name := range names {
				if strings.HasPrefix(name, begun) {
					fitting = append(fitting, name)
				}
			}
		case <-ctx.Done():
		}
		return fitting, cobra.ShellCompDirectiveNoFileComp
	}
}

func askHistory(ctx context.Context, a *app, cmd *cobra.Command, ask func(context.Context, *history.Store) ([]string, error)) []string {
	c, err := a.config(cmd)
	if err != nil {
		return nil
	}
	s, err := service.OpenHistory(ctx, c, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil
	}
	defer s.Close()
	names, err := ask(ctx, s)
	if err != nil {
		return nil
	}
	return names
}
