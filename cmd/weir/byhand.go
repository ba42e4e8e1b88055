package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/cmd/weir/internal/versions"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/orders"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/traffic"
)

func blocksAdd(a *app) *cobra.Command {
	var act actFlags
	var request acts.BlockRequest
	yes := false
	c := &cobra.Command{
		Use:   "add SOURCE…",
		Short: "Block a source by hand, for a time",
		Long: `Block a source now, for a time, whatever rules say: an address, a prefix, a user, a device, or several of them together. What history
knows of who is behind it is shown; on a terminal you are asked for a yes, a script gives --yes.

SOURCE is FIELD=VALUE for each of ip, device, user, api_key and session that a request is to have. An address without a prefix length is one
address, of IPv6 its /64; a prefix is /16 or longer, of IPv6 /32 or longer. --everything holds all requests of the source, --match those that it
describes, as block.match of a rule does. --for is 31d at most.

The block is an order in PostgreSQL that ENFORCE carries out, and is audited. It ends by itself, and weir blocks release lifts it before. Whoever is
on a list of addresses that are never blocked is not blocked by hand either.`,
		Example: `  weir blocks add ip=203.0.113.7 --everything --for 1h --reason "ticket 4711, a scraper"
  weir blocks add user=alice --match "{method: POST, path: /v1/transfers}" --for 2d --reason "the account was taken over" --yes
  weir blocks add ip=203.0.113.0/24 --everything --for 1h --dry-run`,
		Args: cobra.MinimumNArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			source, err := subject.Read(args, traffic.DefaultV4, traffic.DefaultV6)
			if err != nil {
				return err
			}
			if request.Everything == (request.Match != "") {
				return usage.Errorf("got neither --match nor --everything, or both; allowed: one of the two, which says what requests of the source are held")
			}
			if !request.DryRun && !yes && !versions.Asks(a.stdin) {
				return usage.Errorf("blocks add shows who is behind the source and asks before it acts, and there is no terminal to ask at: give --yes to block without a question, --dry-run to look")
			}
			if request.Reason = act.reason; request.Reason == "" && !request.DryRun {
				return usage.Errorf("--reason: got none; allowed: words that say why, for the audit trail")
			}
			request.Subject = source
			return a.withDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
				return a.block(ctx, d, desk.Local(act.by), request, yes)
			})
		}),
	}
	c.Flags().StringVar(&request.Match, "match", "", "hold these requests, as block.match of a rule describes them")
	c.Flags().BoolVar(&request.Everything, "everything", false, "hold every request of the source")
	c.Flags().StringVar(&request.For, "for", "", "how long, 1s to 31d")
	c.Flags().BoolVar(&request.DryRun, "dry-run", false, "only say what would be blocked, and who is behind it")
	c.Flags().BoolVar(&yes, "yes", false, "block without a question")
	usage.DurationFlag(c, &request.Wait, "wait", 10*time.Second,
		"how long to wait until ENFORCE has acted; 0: do not wait")
	_ = c.MarkFlagRequired("for") // it is there
	act.register(c, a.environ)
	return c
}

// block shows who is behind a source, asks where that is wanted, and blocks it.
func (a *app) block(ctx context.Context, d *desk.Desk, by access.Actor, request acts.BlockRequest, yes bool) error {
	look := request
	look.DryRun = true
	shown, err := d.Block(ctx, by, look)
	if err != nil {
		return named(err, "subject", "SOURCE")
	}
	if request.DryRun {
		if a.Format == "json" {
			return a.WriteJSON(shown)
		}
		return showBehind(a.Stdout, &shown)
	}
	if a.Format != "json" {
		if err := showBehind(a.Stderr, &shown); err != nil {
			return err
		}
	}
	if !yes {
		question := fmt.Sprintf("block %s for %s? [y/N] ", subject.Text(shown.Subject), shown.For)
		if ok, err := versions.Confirmed(a.stdin, a.Stderr, question); err != nil || !ok {
			return errors.Join(err, errors.New("not blocked"))
		}
	}
	done, err := d.Block(ctx, by, request)
	return sayBlock(&a.Output, &done, err)
}

// named words an error of an act for the command line, on which a field is an argument and no flag.
func named(err error, field, argument string) error {
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) && strings.HasPrefix(invalid.Field, field) {
		return usage.Errorf("%s: got %q; allowed: %s", argument, invalid.Got, invalid.Allowed)
	}
	return desk.Told(err)
}

// showBehind writes what somebody looks at before he says yes.
func showBehind(w io.Writer, shown *acts.BlockDone) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, for %s: %s\n", subject.Text(shown.Subject), shown.For, terminal.Cell(shown.Back))
	lines := []string{"who is behind it is not known: " + shown.Unknown}
	if shown.Behind != nil {
		lines = shown.Behind.Lines(func(_, value string) string { return value })
	}
	for _, line := range lines {
		fmt.Fprintf(&b, "  %s\n", terminal.Cell(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// sayBlock reports what became of an order.
func sayBlock(o *terminal.Output, done *acts.BlockDone, err error) error {
	if err != nil && done.ID == "" {
		return named(err, "subject", "SOURCE")
	}
	if o.Format == "json" {
		return errors.Join(o.WriteJSON(done), err)
	}
	if done.Outcome == "unchanged" {
		_, werr := fmt.Fprintf(o.Stdout,
			"%s: another order blocks it for as long, or longer: nothing has changed; weir blocks list shows that block\n", subject.Text(done.Subject))
		return errors.Join(werr, err)
	}
	state := "blocked"
	if !done.Done {
		state = "to be blocked"
	}
	_, werr := fmt.Fprintf(o.Stdout, "%s: %s until %s, by rule %s; block id %s\nto release it: %s\n",
		subject.Text(done.Subject), state, terminal.Time(done.Until), done.Rule,
		done.BlockID, releaseCommand(done.Rule, done.Subject, ""))
	return errors.Join(werr, err)
}

func neverBlockCommand(a *app) *cobra.Command {
	return family("never-block", "Keep addresses from being blocked, at run time",
		`  weir never-block add 192.0.2.0/24 --until 30d --reason "the office, ticket 4711"
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
			length, end, err := usage.End("until", until)
			if err != nil {
				return err
			}
			return a.changeNeverBlock(cmd, act.by, acts.NeverRequest{Entries: args, For: length,
				Until: acts.End(end), Reason: act.reason})
		}),
	}
	c.Flags().StringVar(&until, "until", "",
		"when the entry ends: a duration from now or an RFC 3339 time (default: no end)")
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
		fmt.Fprintf(&b, "blocks that hold it are not released, and hold nobody at gates that know the entry: %s\n",
			terminal.Cell(done.Unknown))
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
				return terminal.List(&a.Output, all, []string{"ENTRY", "FROM", "UNTIL", "BY", "ADDED", "REASON"},
					func(n acts.NeverListed) []string {
						return []string{n.Prefix.String(), n.From, terminal.Time(n.Until), n.By, terminal.Time(n.Added),
							n.Reason}
					})
			})
		}),
	}
}
