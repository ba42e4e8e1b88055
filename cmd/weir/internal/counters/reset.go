package counters

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/history/rulestore"
)

func (p *Program) reset() *cobra.Command {
	c := &cobra.Command{
		Use:   "reset RULE [SOURCE…]",
		Short: "Set what a rule has counted of a source back to nothing",
		Long: `Set what a rule has counted of one source back to nothing: in the windows of its limit, of a candidate and of a pending version alike.
Its running hits close, with the reason reset. It is audited, and travels with the rules: keyed partitions apply it at their first request that
is routed after it, at the same place whenever the log is read again.

SOURCE is FIELD=VALUE for each field of the rule's key, as weir blocks release takes it; an address without its prefix gets the rule's.
A rule with key: [] has one count, and no SOURCE. A value is given whole: counts are not kept by the digests that listings show.

It releases nobody: weir blocks release does. Of a rule that blocks it is refused where a source could be blocked by it that would not be
otherwise, as with first-seen, buckets, distinct values and extend: never.`,
		Example: `  weir counters reset guest-token-flood ip=192.0.2.1 device=tv-7 --reason "a load test, ticket 4711"
  weir counters reset all-logins --reason "the outage counted twice"`,
		Args: cobra.MinimumNArgs(1),
	}
	var act func() (by, reason string)
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		by, reason := act()
		return p.WithDesk(cmd, func(ctx context.Context, d *desk.Desk) error {
			found, err := d.Rule(ctx, args[0])
			if err != nil {
				return desk.Told(err)
			}
			rule := &found.Rule
			who, err := source(rule, args[1:])
			if err != nil {
				return err
			}
			done, err := d.ResetCount(ctx, desk.Local(by), acts.ResetRequest{Rule: args[0], Subject: who,
				Reason: reason})
			if err != nil {
				return told(err)
			}
			return p.sayReset(rule, &done)
		})
	})
	act = p.Acts(c)
	return c
}

func (p *Program) sayReset(rule *rulestore.Rule, done *rulestore.CounterResetDone) error {
	if p.Format == "json" {
		return p.WriteJSON(done)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "rule %s: %s begins at nothing in routing version %d, of %s\n", done.Rule, whom(done.Subject), done.Routing, terminal.Stamp(done.At))
	b.WriteString("the partition that counts it takes that with the first request that it gets under this version: within some seconds\n" +
		"while weir run is running, else once it is; requests before that are counted as before\n")
	if rule.Mode.Blocks() {
		fmt.Fprintf(&b, "blocks that stand are not released: weir blocks list --rule %s shows them, weir blocks release releases one\n", done.Rule)
	}
	_, err := p.Stdout.Write([]byte(b.String()))
	return err
}
