package asking

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/explore"
	"github.com/weirhq/weir/internal/plural"
)

func (p *Program) timeline() *cobra.Command {
	var f lookFlags
	c := &cobra.Command{
		Use:   "timeline SOURCE",
		Short: "Tell what happened to a source: episodes, decisions, acts, and whom else it was seen with",
		Long: `List what happened to a source, the newest first: its episodes over limits, what was decided about blocks, and what people did. Below stands with
which other identities it was seen in its newest episodes: the other values of its subjects, and those of their evidence.

SOURCE is an address (192.0.2.1), a prefix (192.0.2.0/24), FIELD=VALUE, a value of any field, or a canonical subject.`,
		Example: `  weir history timeline 192.0.2.1 --since 7d
  weir history timeline user=alice --output json`,
		Args: cobra.ExactArgs(1),
		RunE: p.Does(lists(), func(cmd *cobra.Command, args []string) error {
			f.source = args[0]
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				return p.tellTimeline(ctx, from, args[0], f.limit, explore.Filter{Stream: l.stream, Rule: l.rule, Since: l.since, Until: l.until})
			})
		}),
	}
	f.register(c, false)
	return c
}

func (p *Program) tellTimeline(ctx context.Context, from Answers, source string, limit int, f explore.Filter) error {
	more := ""
	entries, _, err := pages(limit, func(page explore.Page) ([]explore.Entry, explore.Total, string, error) {
		part, err := from.Timeline(ctx, source, f, page)
		more = part.Next
		return part.Entries, explore.Total{}, part.Next, err
	})
	if err != nil {
		return err
	}
	pivots, err := from.Pivots(ctx, source, f)
	if err != nil {
		return err
	}
	if p.Format == "json" {
		return p.WriteJSON(map[string]any{"entries": entries, "seen_with": pivots, "complete": more == ""})
	}
	if err := terminal.List(p.Output, entries, []string{"AT", "WHAT", "RULE", "SOURCE", "TEXT", "ID"}, entryRow); err != nil {
		return err
	}
	if more != "" {
		fmt.Fprintf(p.Stderr, "weir: the newest %d; there are more, --limit 0 shows all\n", len(entries))
	}
	if p.Format == "csv" || len(pivots.Of) == 0 {
		return nil
	}
	of := plural.Of(pivots.Read, "episode")
	if !pivots.All {
		of = "its newest " + of
	}
	fmt.Fprintf(p.Stdout, "\nseen with, in %s:\n", of)
	return terminal.List(p.Output, pivots.Of, []string{"FIELD", "VALUE", "EPISODES", "EVENTS", "FIRST", "LAST", "RULES"}, func(v explore.Pivot) []string {
		return []string{v.Field, terminal.Brief(v.Value), fmt.Sprint(v.Episodes), fmt.Sprint(v.Events), terminal.Time(v.First), terminal.Time(v.Last), terminal.FirstFew(v.Rules)}
	})
}

func entryRow(e explore.Entry) []string {
	switch {
	case e.Hit != nil:
		h := e.Hit
		return []string{terminal.Time(e.At), "over the limit", h.Rule, subject.Text(h.Subject),
			fmt.Sprintf("%s since %s, %d in one window, limit %d in %s, %s", plural.Of(h.Count, "event"), terminal.Time(h.First), h.Peak, h.Limit, length(h.WindowMS), h.Phase), h.ID}
	case e.Decision != nil:
		d := e.Decision
		return []string{terminal.Time(e.At), "block " + string(d.Action), d.Rule, subject.Text(d.Subject), decidedText(d), d.Hit}
	}
	return []string{terminal.Time(e.At), e.Act.Action, "", "", terminal.Brief(e.Act.Actor) + ": " + terminal.Brief(e.Act.Reason) + "; " + terminal.Brief(e.Act.Object), ""}
}

// decidedText says what a decision was, but for its name.
func decidedText(d *history.RecordedDecision) string {
	switch d.Action {
	case blocklist.ActionReleased:
		text := "by " + terminal.Brief(d.By)
		if d.Reason != "" {
			text += ": " + terminal.Brief(d.Reason)
		}
		return text
	case blocklist.ActionWithheld:
		if d.Reason == blocklist.ReasonCanary {
			return "canary: not within the share of its block keys that the rule may hold"
		}
		return terminal.Brief(d.Reason)
	}
	if d.By != "" {
		return "until " + terminal.Time(d.Until) + ", ordered by " + terminal.Brief(d.By)
	}
	return "until " + terminal.Time(d.Until)
}

func (p *Program) audit() *cobra.Command {
	var f lookFlags
	var actor, action string
	c := &cobra.Command{
		Use:   "audit",
		Short: "List what people did: promotions, demotions, releases, changes of rules",
		Example: `  weir history audit --since 7d
  weir history audit --rule guest-token-flood --action promote
  weir history audit --source 192.0.2.1`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			return p.ask(cmd, &f, func(ctx context.Context, from Answers, l looked) error {
				which := explore.AuditFilter{Rule: l.rule, Source: f.source, Actor: actor, Action: action, Since: l.since, Until: l.until}
				acts, total, err := pages(f.limit, func(page explore.Page) ([]audit.Numbered, explore.Total, string, error) {
					part, err := from.Audit(ctx, which, page)
					return part.Acts, part.Total, part.Next, err
				})
				if err != nil {
					return err
				}
				head := slices.Concat([]string{"AT", "WHO", "ACTION", "OBJECT"}, p.ChangeHead(), []string{"REASON", "DETAIL"})
				if err := terminal.List(p.Output, acts, head, func(e audit.Numbered) []string {
					return slices.Concat([]string{terminal.Stamp(e.At.Truncate(time.Second)), terminal.Brief(e.Actor), e.Action, terminal.Brief(e.Object)},
						p.ChangeCells(e.Change(), e.Before, e.After, e.Via), []string{terminal.Brief(e.Reason), terminal.Brief(e.Detail)})
				}); err != nil {
					return err
				}
				p.cut("newest", len(acts), f.limit, total)
				return nil
			})
		}),
	}
	f.register(c, true)
	c.Flags().StringVar(&actor, "by", "", "only what this person or program did")
	c.Flags().StringVar(&action, "action", "", "only acts of this name: promote, demote, release, …")
	return c
}
