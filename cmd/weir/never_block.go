package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

func neverBlockCommand(a *app) *cobra.Command {
	return family("never-block", "Keep addresses from being blocked, at run time", `  weir never-block add 192.0.2.0/24 --until 30d --reason "the office, ticket 4711"
  weir never-block list`,
		neverBlockAdd(a), neverBlockRemove(a), neverBlockList(a))
}

func neverBlockAdd(a *app) *cobra.Command {
	var act actFlags
	var until string
	c := &cobra.Command{
		Use:   "add ENTRY…",
		Short: "Keep addresses from being blocked; blocks that hold them are lifted",
		Long: `Keep addresses, or all addresses of prefixes, from being blocked, beside never_block of the configuration: by rules and by hand. ENTRY is an
address or a prefix, of /8 or longer, of IPv6 /16 or longer. Gates pass their requests within a second, and blocks that hold one of them are released.
An entry that is there gets the new end and reason.`,
		Example: `  weir never-block add 192.0.2.0/24 --until 30d --reason "the office, ticket 4711"
  weir never-block add 2001:db8:7::/48 --until 2027-01-01T00:00:00Z --reason "a partner moves"`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			end, err := readEnd(until, time.Now())
			if err != nil {
				return err
			}
			return a.changeNeverBlock(cmd, act.by, acts.NeverRequest{Entries: args, Until: end, Reason: act.reason})
		}),
	}
	c.Flags().StringVar(&until, "until", "", "when the entry ends: a duration from now or an RFC 3339 time (default: no end)")
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func neverBlockRemove(a *app) *cobra.Command {
	var act actFlags
	c := &cobra.Command{
		Use:   "remove ENTRY…",
		Short: "Take entries off the never-block list",
		Long: `Take entries off the never-block list, as weir never-block list shows them. Their addresses may be blocked from now on, by evidence from after
that. What the configuration says stays: it is changed there.`,
		Example: `  weir never-block remove 192.0.2.0/24 --reason "the office has moved"`,
		Args:    cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			return a.changeNeverBlock(cmd, act.by, acts.NeverRequest{Remove: true, Entries: args, Reason: act.reason})
		}),
	}
	act.register(c, a.environ)
	act.reasonRequired(c)
	return c
}

func (a *app) changeNeverBlock(cmd *cobra.Command, by string, r acts.NeverRequest) error {
	return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
		done, err := d.ChangeNeverBlock(ctx, desk.Local(by), r)
		var absent *orders.AbsentError
		switch {
		case errors.As(err, &absent):
			return fmt.Errorf("%w (weir never-block list shows the entries)", err)
		case err != nil:
			return named(err, "entries", "ENTRY")
		case a.Format == "json":
			return a.WriteJSON(done)
		}
		return showNeverBlock(&a.Output, &done)
	})
}

func showNeverBlock(o *terminal.Output, done *acts.NeverDone) error {
	var b strings.Builder
	does := "never blocked"
	if done.Removed {
		does = "removed"
	}
	for _, entry := range done.Entries {
		fmt.Fprintf(&b, "%s: %s\n", entry, does)
	}
	switch {
	case done.Unknown != "":
		fmt.Fprintf(&b, "blocks that hold it are not released, and hold nobody at gates that know the entry: %s\n", terminal.Cell(done.Unknown))
	case len(done.Released) > 0:
		fmt.Fprintf(&b, "released %s:\n", plural.Of(len(done.Released), "block"))
	}
	for _, r := range done.Released {
		fmt.Fprintf(&b, "  %s from rule %s\n", subject.Text(r.Subject), r.Rule)
	}
	if done.ReleasedCut {
		b.WriteString("  there are more, which hold nobody either; add the entry again to release them\n")
	}
	_, err := o.Stdout.Write([]byte(b.String()))
	return err
}

func neverBlockList(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List who is never blocked: by the configuration, and by entries",
		Long: `List who is never blocked: the prefixes of never_block in the configuration (of the server, with --server), and the entries that people have
made. Addresses that are nobody's in particular (loopback, private, link-local, carrier NAT) are never blocked by themselves either.`,
		Example: "  weir never-block list\n  weir never-block list --output json",
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				all, err := d.NeverBlockList(ctx, desk.Local(""))
				if err != nil {
					return desk.Told(err)
				}
				return terminal.List(&a.Output, all, []string{"ENTRY", "FROM", "UNTIL", "BY", "ADDED", "REASON"}, func(n acts.NeverListed) []string {
					return []string{n.Prefix.String(), n.From, terminal.Time(n.Until), n.By, terminal.Time(n.Added), n.Reason}
				})
			})
		}),
	}
}

// readEnd reads the end of an entry: a duration from now, or a time; 0 for none.
func readEnd(text string, now time.Time) (traffic.Time, error) {
	if text == "" {
		return 0, nil
	}
	t, err := time.Parse(time.RFC3339Nano, text)
	if d, derr := duration.Parse(text); derr == nil {
		t, err = now.Add(d), nil
	}
	if err != nil || !t.After(now) {
		return 0, usage.Errorf("--until: got %q; allowed: a duration like 90m, 24h or 30d, or a time after now like 2027-01-31T12:00:00Z", text)
	}
	return traffic.At(t), nil
}
