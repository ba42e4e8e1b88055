package people

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/console/signin"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
	"github.com/weirhq/weir/internal/duration"
)

// How long a link may wait to be used.
const (
	usualTTL = 10 * time.Minute
	leastTTL = time.Minute
	mostTTL  = 24 * time.Hour
)

// invitation is what the flags of weir console invite say.
type invitation struct {
	name, role string
	owners     []string
	ttl        time.Duration
	listen     string
	by, reason string
}

func (p *Program) invite() *cobra.Command {
	var i invitation
	c := &cobra.Command{
		Use:   "invite",
		Short: "Print a link that signs in at the console once",
		Long: `Print a link that signs in at the console once, within --ttl: for the first person at a console without an identity provider, and for when
that is away. Whoever has the link first presses its button and has the session; it lasts as long as every other (console.session). The link
begins with console.public_url or, without one, with the address at which the console listens, which is good on its own machine.

It needs the configuration and PostgreSQL, not the console: that may be started later. The audit trail has who made the link, and who came by
it. weir console sessions lists links that wait, and takes them back.`,
		Example: "  weir console invite\n  weir console invite --for mara --role owner --owners identity --ttl 1h --reason \"on call tonight\"",
		Args:    cobra.NoArgs,
	}
	by := p.By(c)
	c.RunE = p.Does(func(cmd *cobra.Command, _ []string) error {
		i.by, i.reason = by()
		if i.name == "" {
			i.name = i.by
		}
		if err := i.check(); err != nil {
			return err
		}
		return p.WithSessions(cmd, func(ctx context.Context, in *Installation) error { return p.invites(ctx, in, &i) })
	})
	c.Flags().StringVar(&i.role, "role", access.Admin.String(), strings.Join(access.RoleNames(), ", "))
	c.Flags().StringSliceVar(&i.owners, "owners", nil, "the owners of rules for whom somebody of role owner decides")
	c.Flags().StringVar(&i.name, "for", "", "who it is for, as the audit trail will name them (default: who makes it)")
	usage.DurationFlag(c, &i.ttl, "ttl", usualTTL, "how long the link waits to be used, 1m to 1d")
	c.Flags().StringVar(&i.listen, "console-listen", "", "where the console is served, if not at console.listen")
	return c
}

// check refuses flags that cannot be meant, before any server is asked.
func (i *invitation) check() error {
	if err := usage.OneOf("role", i.role, access.RoleNames()...); err != nil {
		return err
	}
	if owner := i.role == access.Owner.String(); owner != (len(i.owners) > 0) || slices.Contains(i.owners, "") {
		return usage.Errorf("--owners: got %q with --role %s; allowed: the owners for whom role owner decides, "+
			"and for no other role", strings.Join(i.owners, ","), i.role)
	}
	if err := signin.CheckName(i.name); err != nil {
		return usage.Errorf("--for: %w", err)
	}
	if i.ttl < leastTTL || i.ttl > mostTTL {
		return usage.Errorf("--ttl: got %s; allowed: %s to %s", duration.Format(i.ttl), duration.Format(leastTTL),
			duration.Format(mostTTL))
	}
	if _, port, err := net.SplitHostPort(i.listen); i.listen != "" && (err != nil || port == "" || port == "0") {
		return usage.Errorf("--console-listen: got %q; allowed: host:port, like 127.0.0.1:9466", i.listen)
	}
	return nil
}

// invited is an invitation as programs are told of it.
type invited struct {
	Link   string    `json:"link"`
	ID     string    `json:"id"` // for weir console sessions end
	Name   string    `json:"name"`
	Role   string    `json:"role"`
	Owners []string  `json:"owners,omitempty"`
	Until  time.Time `json:"until"`
}

func (p *Program) invites(ctx context.Context, in *Installation, i *invitation) error {
	c := *in.Console
	if c.LocalAdmin {
		return usage.Errorf("console.local_admin: nobody signs in at this console, so there is nothing to invite to; " +
			"leave it out, or open the console on its own machine")
	}
	if i.listen != "" {
		c.Listen = i.listen
	}
	key, err := in.Sessions.Key(ctx)
	if err != nil {
		return err
	}
	token, hash := signin.NewSeal(key).NewLink()
	who := roleText(i.role, i.owners)
	of := sessions.Invite{Name: i.name, Role: i.role, Owners: i.owners, By: i.by}
	until, err := in.Sessions.Invite(ctx, hash, of, i.ttl, audit.Entry{
		Actor: i.by, Via: audit.Local, Action: "invite", Object: "session", Reason: i.reason,
		Before: audit.None, After: "invited",
		Detail: fmt.Sprintf("%s for %s, role %s, id %s", i.name, duration.Format(i.ttl), who, hash.ID()),
	})
	if err != nil {
		return err
	}
	address, here := c.Address()
	done := invited{address + signin.InvitePath + token, hash.ID(), i.name, i.role, i.owners, until}
	if p.Format == "json" {
		return p.WriteJSON(done)
	}
	if _, err := fmt.Fprintln(p.Stdout, done.Link); err != nil {
		return err
	}
	fmt.Fprintf(p.Stderr, "weir: signs in %s (%s), once, until %s; weir console sessions end %s takes it back\n",
		terminal.Safe(i.name), terminal.Safe(who), terminal.Stamp(until), done.ID)
	switch {
	case here && c.PublicURL == "":
		fmt.Fprintln(p.Stderr, "weir: the address is good on the console's own machine; set console.public_url for browsers elsewhere")
	case !here && strings.HasPrefix(address, "http:"):
		fmt.Fprintln(p.Stderr, "weir: nobody is signed in by plain http: set console.public_url or console.tls, "+
			"or ask at the console's machine, as localhost")
	}
	return nil
}
