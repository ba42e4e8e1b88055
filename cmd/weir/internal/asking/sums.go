package asking

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/history/streams"
	"github.com/weirhq/weir/ingest"
)

func (p *Program) late() *cobra.Command {
	var f lookFlags
	c := &cobra.Command{
		Use:   "late",
		Short: "List how many events came too late to count",
		Long: `List the sums of late events, by rule, source partition and minute. A late event lay further behind the newest one of its
source partition than its rule's lateness allows; it is recorded here and counted nowhere else.`,
		Example: "  weir history late --since 24h",
		Args:    cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				which := explore.UncountedFilter{Stream: l.stream, Rule: l.rule, Since: l.since, Until: l.until}
				all, total, err := pages(f.limit, func(page explore.Page) ([]history.LateSum, explore.Total, string, error) {
					part, err := from.Late(ctx, which, page)
					return part.Sums, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				err = terminal.List(p.Output, all, []string{"MINUTE", "RULE", "EVENTS", "LATEST", "PARTITION"}, func(s history.LateSum) []string {
					return []string{terminal.Time(s.Minute), s.Rule, strconv.FormatInt(s.Events, 10), terminal.Time(s.Latest), strconv.Itoa(s.Source)}
				})
				if err != nil {
					return err
				}
				p.cut("newest", len(all), f.limit, total)
				return nil
			})
		}),
	}
	f.register(c, false)
	return c
}

func (p *Program) decisions() *cobra.Command {
	var f lookFlags
	var action string
	c := &cobra.Command{
		Use:   "decisions",
		Short: "List what was decided about blocks: written, extended, withheld, released",
		Example: `  weir history decisions --since 1h
  weir history decisions --source ip=192.0.2.1 --action withheld`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("action") {
				if err := usage.OneOf("action", action, explore.DecisionActions()...); err != nil {
					return err
				}
			}
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				which := explore.DecisionFilter{
					Stream: l.stream, Rule: l.rule, Source: l.source, Action: blocklist.Action(action), Since: l.since, Until: l.until,
				}
				all, total, err := pages(f.limit, func(page explore.Page) ([]history.RecordedDecision, explore.Total, string, error) {
					part, err := from.Decisions(ctx, which, page)
					return part.Decisions, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				if err := terminal.List(p.Output, all, []string{"AT", "ACTION", "REASON", "RULE", "SOURCE", "UNTIL", "BY", "HIT"}, decisionRow); err != nil {
					return err
				}
				p.cut("newest", len(all), f.limit, total)
				return nil
			})
		}),
	}
	f.register(c, true)
	c.Flags().StringVar(&action, "action", "", "only written, extended, withheld or released")
	return c
}

func decisionRow(d history.RecordedDecision) []string {
	return []string{
		terminal.Time(d.At), string(d.Action), terminal.Brief(d.Reason), d.Rule, subject.Text(d.Subject), terminal.Time(d.Until), terminal.Brief(d.By), d.Hit,
	}
}

func (p *Program) replays() *cobra.Command {
	return &cobra.Command{
		Use:     "replays",
		Short:   "List the replays that were made with weir ingest",
		Example: "  weir history replays\n  weir history replays --output json",
		Args:    cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			return p.Ask(cmd, func(ctx context.Context, from Answers) error {
				all, err := from.Streams(ctx)
				if err != nil {
					return err
				}
				var replays []streams.Stream
				for _, st := range all {
					if st.Name != history.Live {
						replays = append(replays, st)
					}
				}
				return terminal.List(p.Output, replays, []string{"REPLAY", "CREATED", "FINISHED"}, func(st streams.Stream) []string {
					return []string{replayName(st.Name), terminal.Stamp(st.Created), terminal.Stamp(st.Finished)}
				})
			})
		}),
	}
}

func (p *Program) uncounted() *cobra.Command {
	var f lookFlags
	var reason string
	c := &cobra.Command{
		Use:   "uncounted",
		Short: "List how many events rules did not count, and why",
		Long: `List the sums of events that a rule watches and did not count, by rule, reason and minute of arrival. The reasons:
late (further behind the newest event of the source partition than the rule's lateness allows), out_of_order (on time, but older than
what the algorithm's memory can place), missing_field (without a field of the key, with on_missing: skip),
missing_value (without the number or the value that the rule counts) and budget (its condition was not judged:
conditions have a budget together). An event has one reason for a rule. Sums of missing fields and values are of one
router, over all partitions.`,
		Example: "  weir history uncounted --since 24h\n  weir history uncounted --rule login --reason missing_field",
		Args:    cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("reason") {
				if err := usage.OneOf("reason", reason, explore.UncountedReasons()...); err != nil {
					return err
				}
			}
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				which := explore.UncountedFilter{Stream: l.stream, Rule: l.rule, Reason: reason, Since: l.since, Until: l.until}
				all, total, err := pages(f.limit, func(page explore.Page) ([]history.UncountedSum, explore.Total, string, error) {
					part, err := from.Uncounted(ctx, which, page)
					return part.Sums, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				if err := terminal.List(p.Output, all, []string{"MINUTE", "RULE", "REASON", "EVENTS", "PARTITION"}, uncountedRow); err != nil {
					return err
				}
				p.cut("newest", len(all), f.limit, total)
				return nil
			})
		}),
	}
	f.register(c, false)
	c.Flags().StringVar(&reason, "reason", "", "only those of this reason")
	return c
}

func uncountedRow(s history.UncountedSum) []string {
	partition := "all"
	if s.Source != nil {
		partition = fmt.Sprint(*s.Source)
	}
	return []string{terminal.Time(s.Minute), s.Rule, s.Reason, strconv.FormatInt(s.Events, 10), partition}
}

func (p *Program) refused() *cobra.Command {
	var f lookFlags
	c := &cobra.Command{
		Use:   "refused",
		Short: "List how many requests gates really refused",
		Long: `List the sums of requests that gates refused, by rule, block and minute, with whom the block held, as the logs of gateways say. What a
rule in shadow would have refused is none of it: weir history top shows that. They are counted from record format 7 on, of logs that carry
weir's verdicts.`,
		Example: "  weir history refused --since 1h\n  weir history refused --rule login --output csv",
		Args:    cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				which := explore.UncountedFilter{Stream: l.stream, Rule: l.rule, Since: l.since, Until: l.until}
				all, total, err := pages(f.limit, func(page explore.Page) ([]history.RefusedSum, explore.Total, string,
					error) {
					part, err := from.Refused(ctx, which, page)
					return part.Sums, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				if err := terminal.List(p.Output, all, []string{"MINUTE", "RULE", "REQUESTS", "KNOWN GOOD", "SOURCE",
					"BLOCK"}, refusedRow); err != nil {
					return err
				}
				p.cut("newest", len(all), f.limit, total)
				return nil
			})
		}),
	}
	f.register(c, false)
	return c
}

func refusedRow(s history.RefusedSum) []string {
	source, block := "?", s.Block
	if s.Subject != "" {
		source = subject.Text(s.Subject)
	}
	if block == "" {
		block = "several"
	}
	return []string{terminal.Time(s.Minute), s.Rule, strconv.FormatInt(s.Events, 10), strconv.FormatInt(s.Known, 10),
		source, terminal.Brief(block)}
}

// replayName is the name of a replay by that of its stream.
func replayName(stream string) string {
	if name, ok := ingest.Stream(stream).Replay(); ok {
		return name
	}
	return stream
}
