package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/detectors"
	"github.com/weirhq/weir/history"
)

// uncountedPeriod is how far back the figures of rules go.
const uncountedPeriod = 24 * time.Hour

func uncountedReasons() []detectors.Uncounted {
	return []detectors.Uncounted{
		detectors.UncountedLate, detectors.UncountedOutOfOrder, detectors.UncountedMissingField, detectors.UncountedMissingValue,
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

// uncountedText is figures in one line: those that are not 0, and those that are not known.
func uncountedText(f *history.Figures) string {
	var parts []string
	for _, reason := range uncountedReasons() {
		if n := f.Of(reason); n != 0 {
			parts = append(parts, reason.String()+" "+n.String())
		}
	}
	if len(parts) == 0 {
		return "0"
	}
	return strings.Join(parts, ", ")
}

// figuredRule is a rule with what it did not count in the live stream during uncountedPeriod.
type figuredRule struct {
	history.Rule
	Uncounted history.Figures `json:"uncounted_24h"`
}

// withFigures adds to rules what they did not count.
func withFigures(ctx context.Context, s *store, all ...history.Rule) ([]figuredRule, error) {
	missed, err := s.NotCounted(ctx, history.Live, service.Now().Add(-uncountedPeriod))
	if err != nil {
		return nil, err
	}
	out := make([]figuredRule, len(all))
	for i := range all {
		out[i] = figuredRule{all[i], missed.Figures(all[i].Newest.Version.ID)}
	}
	return out, nil
}

func (a *app) historyUncounted() *cobra.Command {
	var f lookFlags
	var reason string
	c := &cobra.Command{
		Use:   "uncounted",
		Short: "List how many events rules did not count, and why",
		Long: `List the sums of events that a rule watches and did not count, by rule, reason and minute of arrival. The reasons:
late (further behind the newest event of the source partition than the rule's lateness allows), out_of_order (on time, but older than
what the algorithm's memory can place), missing_field (without a field of the key, with on_missing: skip) and missing_value (without the
number or the value that the rule counts). An event has one reason for a rule. Sums of missing fields and values are of one router, over
all partitions.`,
		Example: "  weir history uncounted --since 24h\n  weir history uncounted --rule login --reason missing_field",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			l, err := f.parse(time.Now())
			if err != nil {
				return err
			}
			if err := checkReason(reason); err != nil {
				return err
			}
			return a.withStore(cmd, func(ctx context.Context, s *store) error {
				if err := l.check(ctx, s); err != nil {
					return err
				}
				q := history.UncountedQuery{Stream: l.stream, Rule: f.rule, Reason: reason, Since: l.since, Limit: f.limit}
				sums, err := s.Uncounted(ctx, q)
				if err != nil {
					return err
				}
				count := func() (int64, error) { return s.CountUncounted(ctx, q) }
				return listNewest(a, sums, f.limit, count, []string{"MINUTE", "RULE", "REASON", "EVENTS", "PARTITION"}, uncountedRow)
			})
		}),
	}
	f.register(c, false)
	c.Flags().StringVar(&reason, "reason", "", "only those of this reason")
	return c
}

// checkReason refuses what is no reason; empty stands for all.
func checkReason(reason string) error {
	if reason == "" {
		return nil
	}
	var allowed []string
	for _, known := range uncountedReasons() {
		allowed = append(allowed, known.String())
	}
	return oneOf("reason", reason, allowed...)
}

func uncountedRow(s history.UncountedSum) []string {
	partition := "all"
	if s.Source != nil {
		partition = fmt.Sprint(*s.Source)
	}
	return []string{terminal.Time(s.Minute), s.Rule, s.Reason, strconv.FormatInt(s.Events, 10), partition}
}
