package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
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
	arguments := map[string]suggest{
		"weir rules show":     suggestRules(a, func(rules.Mode) bool { return true }),
		"weir rules promote":  suggestRules(a, func(m rules.Mode) bool { return m != rules.ModeBlock }),
		"weir rules demote":   suggestRules(a, func(m rules.Mode) bool { return m == rules.ModeBlock }),
		"weir blocks release": suggestRules(a, func(rules.Mode) bool { return true }),
		"weir counters show":  suggestRules(a, func(m rules.Mode) bool { return m != rules.ModeOff }),
		"weir counters reset": suggestRules(a, func(m rules.Mode) bool { return m != rules.ModeOff }),
		"weir allow show":     suggestAllow(a),
		"weir allow add":      suggestAllow(a),
		"weir allow remove":   suggestAllow(a),
	}
	fixed := map[string]map[string][]string{
		"weir":                   {"output": {"table", "json"}, "log-level": {"debug", "info", "warn", "error"}, "log-format": {"text", "json"}},
		"weir run":               {"stages": service.AllStages()},
		"weir ingest":            {"format": config.LineFormats(), "on-exists": {"error", "replace"}},
		"weir backtest":          {"format": config.LineFormats(), "output": backtestFormats()},
		"weir rules explain":     {"format": config.LineFormats()},
		"weir history decisions": {"action": decisionActions()},
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
		suggestFor(c, "rule", suggestRules(a, func(rules.Mode) bool { return true }))
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

// suggestRules suggests the rules whose mode is one of those wanted, as first argument.
func suggestRules(a *app, want func(rules.Mode) bool) suggest {
	find := suggestNames(a, func(ctx context.Context, s *history.Store) ([]string, error) {
		all, err := s.Rules.List(ctx)
		var names []string
		for i := range all {
			if want(all[i].Mode) {
				names = append(names, cobra.CompletionWithDesc(all[i].Newest.Version.ID, string(all[i].Mode)+", of "+terminal.Safe(all[i].Newest.Version.Owner)))
			}
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
