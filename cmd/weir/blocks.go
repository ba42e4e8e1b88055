package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/blocklist"
	"github.com/weirhq/weir/cmd/weir/internal/allow"
	"github.com/weirhq/weir/cmd/weir/internal/counters"
	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/service"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

func blocksCommand(a *app) *cobra.Command {
	return family("blocks", "See who is blocked, block, and release", `  weir blocks list
  weir blocks add ip=203.0.113.7 --everything --for 1h --reason "ticket 4711"
  weir blocks release guest-token-flood ip=192.0.2.1 --reason "ticket 4711"`,
		blocksList(a), blocksAdd(a), blocksRelease(a))
}

func allowCommand(a *app) *cobra.Command {
	return family("allow", "Say whom rules do not count: allow lists", `  weir allow list
  weir allow add office-egress cidr=192.0.2.0/24 --until 30d --reason "the new office, ticket 4711"`,
		allow.Commands(allow.Program{
			Output: &a.Output, Does: a.does,
			WithStore: func(cmd *cobra.Command, work func(context.Context, *allow.Installation) error) error {
				return a.withActs(cmd, func(ctx context.Context, s *store, does acts.Acts) error {
					return work(ctx, &allow.Installation{Store: s.Store, Acts: does})
				})
			},
			Acts: a.acts,
		})...)
}

func countersCommand(a *app) *cobra.Command {
	return family("counters", "See and reset what rules have counted", `  weir counters show guest-token-flood ip=192.0.2.1 device=tv-7
  weir counters reset guest-token-flood ip=192.0.2.1 device=tv-7 --reason "a load test, ticket 4711"`,
		counters.Commands(counters.Program{
			Output: &a.Output, Does: a.does,
			WithStore: func(cmd *cobra.Command, work func(context.Context, *counters.Installation) error) error {
				return a.withActs(cmd, func(ctx context.Context, s *store, does acts.Acts) error {
					return work(ctx, &counters.Installation{Store: s.Store, Acts: does, Named: s.named})
				})
			},
			Acts: a.acts,
		})...)
}

// acts gives a command the flags that say who does something and why, and the function that reads them.
func (a *app) acts(c *cobra.Command) func() (by, reason string) {
	var act actFlags
	act.register(c, a.environ)
	act.reasonRequired(c)
	return func() (by, reason string) { return act.by, act.reason }
}

func blocksList(a *app) *cobra.Command {
	var filter blocklist.Filter
	var limit int
	c := &cobra.Command{
		Use:   "list",
		Short: "List the blocks in Redis",
		Long: `List the blocks in Redis, by source and rule. IN FORCE says whether gates refuse for one: a block whose rule was demoted or
promoted anew since, or whose address is on the never_block list, holds nobody, and expires by itself. BY and REASON are of blocks by hand
(weir blocks add), whose rules are by-hand and by-hand-…. --released lists the releases, too.

SOURCE can be pasted into weir blocks release: where a value holds more than letters, digits and -._:/@ it is the canonical
subject in single quotes, in which a shell finds nothing.`,
		Example: "  weir blocks list\n  weir blocks list --rule guest-token-flood --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if limit < 0 {
				return usage.Errorf("--limit: got %d; allowed: 0 and more", limit)
			}
			if a.asked().URL != "" {
				return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
					found, err := d.Blocklist(ctx, filter)
					if err == nil && filter.Rule != "" && len(found.Items) == 0 && !rules.IsByHand(filter.Rule) {
						_, err = d.Rule(ctx, filter.Rule)
					}
					if err != nil {
						return desk.Told(err)
					}
					return showBlocks(&a.Output, found, limit)
				})
			}
			c, err := a.config(cmd)
			if err != nil {
				return err
			}
			return a.withRedis(cmd.Context(), c, func(r *blocklist.Store) error {
				found, err := r.List(cmd.Context(), service.Now(), filter)
				if err != nil {
					return err
				}
				if filter.Rule != "" && len(found.Items) == 0 && !rules.IsByHand(filter.Rule) {
					if err := ruleInRedis(cmd.Context(), r, filter.Rule); err != nil {
						return err
					}
				}
				return showBlocks(&a.Output, found, limit)
			})
		}),
	}
	c.Flags().StringVar(&filter.Rule, "rule", "", "only this rule")
	c.Flags().BoolVar(&filter.Tombstones, "released", false, "releases, too")
	c.Flags().IntVar(&limit, "limit", 1000, "at most so many; 0 for all")
	return c
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

func showBlocks(o *terminal.Output, found blocklist.Listing, limit int) error {
	items := found.Items
	if limit > 0 && len(items) > limit {
		items = items[:limit]
	}
	shown := make([]shownBlock, len(items))
	for i, l := range items {
		shown[i] = shownBlock{l, duration.Format(l.Remaining.Round(time.Second))}
	}
	err := terminal.List(o, shown, []string{"SOURCE", "RULE", "STATE", "SINCE", "UNTIL", "LEFT", "IN FORCE", "HIT", "BY", "REASON"}, blockRow)
	o.Cut("first", len(items), int64(len(found.Items)), math.MaxInt64)
	if found.Unreadable > 0 {
		fmt.Fprintf(o.Stderr, "weir: %s in Redis cannot be read by this build\n", plural.Of(found.Unreadable, "key"))
	}
	return err
}

// shownBlock is a block or a release with what is left of it as durations are written everywhere: 14m59s.
type shownBlock struct {
	blocklist.Listed
	Remaining string `json:"remaining"`
}

func blockRow(l shownBlock) []string {
	if l.Tombstone != nil {
		return []string{subject.Text(l.Subject), l.Rule, "released", terminal.Time(l.Tombstone.Released), terminal.Time(l.Tombstone.Until), l.Remaining, "", "", l.Tombstone.By, ""}
	}
	return []string{
		subject.Text(l.Subject), l.Rule, "blocked", terminal.Time(l.Block.Since), terminal.Time(l.Block.Until), l.Remaining, strconv.FormatBool(l.InForce), l.Block.Hit,
		l.Block.By, l.Block.Reason,
	}
}
