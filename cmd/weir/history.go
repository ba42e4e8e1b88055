package main

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/asking"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/erasure"
	"github.com/weirhq/weir/traffic"
)

func historyCommand(a *app) *cobra.Command {
	return family("history", "Ask what happened: hits, sources, sums, one source or hit, decisions, acts, replays", `  weir history hits --since 24h --rule guest-token-flood
  weir history top --by hour --since yesterday
  weir history timeline 192.0.2.1`, asking.History(a.asks())...)
}

func deadLettersCommand(a *app) *cobra.Command {
	return family("deadletters", "See what stages could not use, and why", "  weir deadletters list --since 24h\n  weir deadletters show weir.requests 3 18944",
		asking.DeadLetters(a.asks())...)
}

func whyCommand(a *app) *cobra.Command { return asking.Why(a.asks()) }

// asks is what the commands that ask history have of the program.
func (a *app) asks() *asking.Program {
	withStore := func(cmd *cobra.Command, work func(context.Context, *asking.Installation) error) error {
		return a.withStore(cmd, func(ctx context.Context, s *store) error {
			return work(ctx, &asking.Installation{Store: s.Store, Config: s.config, Log: s.log})
		})
	}
	p := &asking.Program{
		Output: &a.Output, Does: a.doesIn,
		Ask: func(cmd *cobra.Command, work func(context.Context, asking.Answers) error) error {
			if at := a.asked(); at.URL != "" {
				server, err := desk.Open(at)
				if err != nil {
					return err
				}
				return work(cmd.Context(), server)
			}
			return withStore(cmd, func(ctx context.Context, in *asking.Installation) error { return work(ctx, asking.Local(in)) })
		},
		Release: func(rule string, source traffic.Subject) string { return releaseCommand(rule, source, "") },
		Acts:    a.acts,
		Erase: func(cmd *cobra.Command, e asking.Erasure) (done erasure.Done, err error) {
			err = a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				state, err := d.Erase(ctx, desk.Local(e.By), acts.EraseRequest{Subject: e.Subject, Reason: e.Reason, DryRun: e.DryRun, Progress: e.Progress})
				if state.Done != nil {
					done = *state.Done
				}
				return desk.Told(err)
			})
			return done, err
		},
	}
	p.AskLetters = func(cmd *cobra.Command, work func(context.Context, asking.Letters) error) error {
		if at := a.asked(); at.URL != "" {
			server, err := desk.Open(at)
			if err != nil {
				return err
			}
			return work(cmd.Context(), server)
		}
		c, err := a.config(cmd)
		if err != nil {
			return err
		}
		return p.ReadLetters(cmd.Context(), c, work)
	}
	return p
}

func uncountedReasons() []detectors.Uncounted {
	return []detectors.Uncounted{
		detectors.UncountedLate, detectors.UncountedOutOfOrder, detectors.UncountedMissingField, detectors.UncountedMissingValue,
		detectors.UncountedBudget,
	}
}

// uncountedHead are columns for what a rule did not count, by reason.
func uncountedHead() []string {
	var head []string
	for _, reason := range uncountedReasons() {
		head = append(head, strings.ToUpper(strings.ReplaceAll(reason.String(), "_", " ")))
	}
	return head
}

func uncountedCells(f *history.Figures) []string {
	var cells []string
	for _, reason := range uncountedReasons() {
		cells = append(cells, f.Of(reason).String())
	}
	return cells
}
