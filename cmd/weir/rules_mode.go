package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
)

func (a *app) rulesPromote() *cobra.Command {
	var act actFlags
	var override bool
	c := &cobra.Command{
		Use:   "promote RULE",
		Short: "Let a rule block",
		Long: `Let a rule block from now on. Look at its hits first: weir history hits --rule RULE.
A rule whose document has no block is refused, and so is one whose log format carries no verdict: without it weir's own
refusals would feed the rule's windows, and keep a client blocked for ever.`,
		Example: `  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.setMode(cmd, promotion(args[0], act.by, act.reason, override))
		}),
	}
	c.Flags().BoolVar(&override, "override", false, "promote although the log format carries no verdict; needs --reason")
	act.register(c, a.environ)
	return c
}

// promotion asks for a rule to block from now on.
func promotion(rule, by, reason string, override bool) history.ModeChange {
	return history.ModeChange{Rule: rule, Mode: rules.ModeBlock, By: by, Reason: reason, Override: override}
}

func (a *app) rulesDemote() *cobra.Command {
	var act actFlags
	c := &cobra.Command{
		Use:     "demote RULE",
		Short:   "Stop a rule from blocking; its blocks hold no longer",
		Long:    `Put a rule back into shadow. Its blocks hold no longer, at every gate, within a second or two; it goes on to record hits.`,
		Example: `  weir rules demote guest-token-flood --reason "a partner is among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.setMode(cmd, history.ModeChange{Rule: args[0], Mode: rules.ModeShadow, By: act.by, Reason: act.reason})
		}),
	}
	act.register(c, a.environ)
	return c
}

func (a *app) setMode(cmd *cobra.Command, change history.ModeChange) error {
	return a.withStore(cmd, func(ctx context.Context, s *store) error {
		state, err := s.SetMode(ctx, change)
		if err != nil {
			return err
		}
		if a.output == "json" {
			return a.json(state)
		}
		_, err = fmt.Fprintf(a.stdout, "rule %s: mode %s, generation %d\n", state.Rule, state.Mode, state.Generation)
		return err
	})
}
