package asking

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/explore"
)

func (p *Program) sources() *cobra.Command {
	var f filterFlags
	var order string
	c := &cobra.Command{
		Use:   "sources",
		Short: "List sources, the worst first: how often and how far each was over",
		Long: `Sum up episodes by rule and source, those with most events first. Each episode counts once, whatever the number of blocks that it may
lead to. WOULD REFUSE is what the rule's block alone would have refused, in shadow and otherwise; REFUSED what gates really refused in the
time asked about, by the block of an episode whenever that was; ? where their log does not tell.`,
		Example: `  weir history sources --since 7d --rule guest-token-flood
  weir history sources --since yesterday --order peak --limit 20`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			return p.groups(cmd, &f, explore.BySource, order)
		}),
	}
	f.register(c)
	registerOrder(c, &order)
	return c
}

func (p *Program) top() *cobra.Command {
	var f filterFlags
	var by, order string
	c := &cobra.Command{
		Use:   "top",
		Short: "Sum up hits by rule, source, hour or day",
		Long: `Sum up episodes by rule, by source, or by the hour or day (UTC) in which they began. Rules and sources come in --order, the greatest first; hours
and days the newest first. An episode that began before --since counts in the first hour or day. WOULD REFUSE is what the rules' blocks alone
would have refused, by episodes that began in the hour or day; REFUSED what gates really refused in it; ? where their log does not tell.`,
		Example: `  weir history top --by rule --since 24h
  weir history top --by hour --since yesterday --rule guest-token-flood
  weir history top --by day --since 30d --output csv`,
		Args: cobra.NoArgs,
		RunE: p.Does(lists(), func(cmd *cobra.Command, _ []string) error {
			if err := usage.OneOf("by", by, string(explore.ByRule), string(explore.BySource), string(explore.ByHour), string(explore.ByDay)); err != nil {
				return err
			}
			return p.groups(cmd, &f, explore.Group(by), order)
		}),
	}
	f.register(c)
	c.Flags().StringVar(&by, "by", string(explore.ByRule), "what is summed up: rule, source, hour, day")
	registerOrder(c, &order)
	return c
}

func registerOrder(c *cobra.Command, order *string) {
	c.Flags().StringVar(order, "order", string(explore.ByEvents), "the greatest first of: events, episodes, sources, peak, last")
}

func (p *Program) groups(cmd *cobra.Command, f *filterFlags, by explore.Group, order string) error {
	if err := f.check(); err != nil {
		return err
	}
	if err := usage.OneOf("order", order, string(explore.ByEvents), string(explore.ByEpisodes), string(explore.BySources), string(explore.ByPeak), string(explore.ByLast)); err != nil {
		return err
	}
	return p.ask(cmd, &f.lookFlags, func(ctx context.Context, from Answers, l looked) error {
		which := f.filter(&l)
		var left explore.LeftOut
		found, total, err := pages(f.limit, func(page explore.Page) ([]explore.GroupRow, explore.Total, string, error) {
			part, err := from.Groups(ctx, which, by, explore.Order(order), page)
			left = part.LeftOut
			return part.Rows, part.Total, part.Next, err
		})
		if err != nil {
			return err
		}
		head, row := groupTable(by)
		if err := terminal.List(p.Output, found, head, row); err != nil {
			return err
		}
		first := "first"
		if by == explore.ByHour || by == explore.ByDay {
			first = "newest"
		}
		p.cut(first, len(found), f.limit, total)
		p.leftOut(&which, left)
		if slices.ContainsFunc(found, func(r explore.GroupRow) bool { return r.SourcesAbout }) {
			fmt.Fprintln(p.Stderr, "weir: numbers of sources are estimates, within a few percent, where a rule had more than 256 in an hour")
		}
		return nil
	})
}

// groupTable are the columns of sums, and the cells of one.
func groupTable(by explore.Group) (head []string, row func(explore.GroupRow) []string) {
	sums := []string{"EPISODES", "SOURCES", "EVENTS", "PEAK", "WOULD REFUSE", "REFUSED", "FIRST", "LAST"}
	cells := func(r *explore.GroupRow) []string {
		return []string{
			strconv.FormatInt(r.Episodes, 10), strconv.FormatInt(r.Sources, 10), strconv.FormatInt(r.Events, 10), strconv.FormatInt(r.Peak, 10),
			strconv.FormatInt(r.WouldRefuse, 10), r.Refused.String(), terminal.Time(r.First), terminal.Time(r.Last),
		}
	}
	switch by {
	case explore.BySource:
		return append([]string{"RULE", "SOURCE", "EPISODES"}, sums[2:]...), func(r explore.GroupRow) []string {
			own := cells(&r)
			return append([]string{r.Rule, subject.Text(r.Source), own[0]}, own[2:]...)
		}
	case explore.ByHour, explore.ByDay:
		return append([]string{map[explore.Group]string{explore.ByHour: "HOUR", explore.ByDay: "DAY"}[by]}, sums...), func(r explore.GroupRow) []string {
			return append([]string{terminal.Time(r.At)}, cells(&r)...)
		}
	}
	return append([]string{"RULE"}, sums...), func(r explore.GroupRow) []string { return append([]string{r.Rule}, cells(&r)...) }
}
