package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
)

func (a *app) rulesPromote() *cobra.Command {
	var act actFlags
	var override bool
	c := &cobra.Command{
		Use:   "promote RULE",
		Short: "Let a rule block",
		Long: `Let a rule block from now on. Look at its hits first: weir history hits --rule RULE. Gates are told at once; where Redis
does not answer, weir run tells them when it does.
A rule whose document has no block is refused, and so is one whose log format carries no verdict: without it weir's own
refusals would feed the rule's windows, and keep a client blocked for ever.`,
		Example: `  weir rules promote guest-token-flood --reason "two days of shadow, no viewer among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.setMode(cmd, promotion(args[0], act.by, act.reason, override))
		}),
	}
	c.Flags().BoolVar(&override, "override", false, "promote although the log format carries no verdict")
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

// promotion asks for a rule to block from now on.
func promotion(rule, by, reason string, override bool) history.ModeChange {
	return history.ModeChange{Rule: rule, Mode: rules.ModeBlock, By: by, Reason: reason, Override: override}
}

func (a *app) rulesDemote() *cobra.Command {
	var act actFlags
	c := &cobra.Command{
		Use:   "demote RULE",
		Short: "Stop a rule from blocking; its blocks hold no longer",
		Long: `Put a rule back into shadow. Its blocks hold no longer, at every gate, within a second; it goes on to record hits. Gates are
told by this command, whether or not weir run is running; where Redis does not answer, weir run tells them when it does.`,
		Example: `  weir rules demote guest-token-flood --reason "a partner is among the hits"`,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.setMode(cmd, history.ModeChange{Rule: args[0], Mode: rules.ModeShadow, By: act.by, Reason: act.reason})
		}),
	}
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func (a *app) setMode(cmd *cobra.Command, change history.ModeChange) error {
	return a.withStore(cmd, func(ctx context.Context, s *store) error {
		set, err := s.SetMode(ctx, change)
		if err != nil {
			return s.misnamed(ctx, change.Rule, err)
		}
		p := s.publishModes(ctx) // also when nothing changed: whoever asks again may do so because gates were not told
		if a.Format == "json" {
			return a.WriteJSON(struct {
				history.ModeSet
				publication
			}{set, p})
		}
		return errors.Join(showMode(a.Stdout, &set), p.show(a.Stdout, set.Changed, "the mode is stored; weir run publishes it"))
	})
}

func showMode(w io.Writer, set *history.ModeSet) error {
	if set.Changed {
		_, err := fmt.Fprintf(w, "rule %s: mode %s, generation %d\n", set.Rule, set.Mode, set.Generation)
		return err
	}
	reason := ""
	if set.Reason != "" {
		reason = ": " + terminal.Cell(set.Reason)
	}
	does := map[rules.Mode]string{rules.ModeBlock: "blocks", rules.ModeShadow: "is in shadow", rules.ModeOff: "is off"}[set.Mode]
	_, err := fmt.Fprintf(w, "rule %s %s already since %s, by %s%s; nothing changed\n", set.Rule, does, terminal.Stamp(set.Since), terminal.Cell(set.By), reason)
	return err
}
