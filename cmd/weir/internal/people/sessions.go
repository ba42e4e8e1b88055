package people

import (
	"context"
	"fmt"
	"regexp"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/sessions"
)

func (p *Program) sessions() *cobra.Command {
	c := &cobra.Command{
		Use:   "sessions",
		Short: "See who is signed in at the console, and end sessions",
		Long: `List who is signed in at the console, on all of its processes, and the links of weir console invite that wait to be used: who, with
which role, how they came (oidc, token, invite), since when, until when at most, and when the session was used last, to the minute. The role is
what the configuration says now; nobody is who has none any more.

A token that a script brings with each request is no session: take it out of console.tokens.`,
		Example: "  weir console sessions\n  weir console sessions --output json",
		Args:    cobra.NoArgs,
		RunE: p.Does(func(cmd *cobra.Command, _ []string) error {
			return p.WithSessions(cmd, func(ctx context.Context, in *Installation) error {
				found, err := in.Sessions.List(ctx, time.Duration(in.Console.Session.Idle))
				if err != nil {
					return err
				}
				head := []string{"ID", "WHO", "ROLE", "CAME BY", "SINCE", "UNTIL", "LAST SEEN"}
				return terminal.List(p.Output, in.listed(found), head, listed.row)
			})
		}),
	}
	c.AddCommand(p.end())
	return c
}

// listed is a session, or an invitation that waits, as programs are told of it.
type listed struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	Role      string    `json:"role"`
	Owners    []string  `json:"owners,omitempty"`
	Via       string    `json:"via"`
	Invited   bool      `json:"invited"`              // a link that nobody has used yet
	InvitedBy string    `json:"invited_by,omitempty"` // who made it
	Since     time.Time `json:"since"`
	Until     time.Time `json:"until"`
	Seen      time.Time `json:"seen,omitzero"`
}

// listed has what may be done by a session by the configuration of now.
func (in *Installation) listed(found []sessions.Listed) []listed {
	how, now := in.Console.SignIn(), time.Now()
	all := make([]listed, len(found))
	for i := range found {
		l := &found[i]
		actor := how.ActorOf(&l.Session, now)
		all[i] = listed{
			ID: l.ID, Name: l.Name, Role: actor.Role.String(), Owners: actor.Owners, Via: l.Via,
			Invited: l.Invited, InvitedBy: l.By, Since: l.Created, Until: l.Expires, Seen: l.Seen,
		}
	}
	return all
}

func (l listed) row() []string {
	came := l.Via
	if l.Invited {
		came = "not yet, invited by " + terminal.Brief(l.InvitedBy)
	}
	return []string{
		l.ID, terminal.Brief(l.Name), terminal.Brief(roleText(l.Role, l.Owners)), came,
		terminal.Stamp(l.Since), terminal.Stamp(l.Until), terminal.Stamp(l.Seen),
	}
}

func (p *Program) end() *cobra.Command {
	var of string
	c := &cobra.Command{
		Use:   "end (ID | --of NAME)",
		Short: "End a session, or all of somebody, and take back links that wait",
		Long: `End a session, or take back a link that nobody has used, by its ID in weir console sessions; or with --of all sessions and links of
somebody. Browsers are signed out with their next request, open streams within half a minute. It is audited. It bars nobody: who has a role by the
identity provider, or a token, can sign in again.`,
		Example: "  weir console sessions end 3f9a1c20b7de --reason \"a lost laptop\"\n  weir console sessions end --of mara --reason \"has left\"",
		Args:    cobra.MaximumNArgs(1),
	}
	by := p.By(c)
	c.RunE = p.Does(func(cmd *cobra.Command, args []string) error {
		which, err := whichOf(args, of, cmd.Flags().Changed("of"))
		if err != nil {
			return err
		}
		actor, reason := by()
		return p.WithSessions(cmd, func(ctx context.Context, in *Installation) error {
			ended, err := in.Sessions.Remove(ctx, which, func(l sessions.Listed) audit.Entry {
				return entryOf(&l,
					actor, reason)
			})
			if err != nil {
				return err
			}
			return p.tellEnded(in, which, ended)
		})
	})
	c.Flags().StringVar(&of, "of", "", "all of this name, as weir console sessions has it")
	return c
}

var idPattern = regexp.MustCompile(`^[0-9a-f]{12}$`)

func whichOf(args []string, of string, named bool) (sessions.Which, error) {
	switch {
	case named == (len(args) == 1) || named && of == "":
		return sessions.Which{}, usage.Errorf("allowed: one of ID, as weir console sessions has it, and --of NAME")
	case named:
		return sessions.Which{Name: of}, nil
	case !idPattern.MatchString(args[0]):
		return sessions.Which{}, usage.Errorf("got %q; allowed: an ID of 12 digits, as weir console sessions has it, or --of NAME", args[0])
	}
	return sessions.Which{ID: args[0]}, nil
}

// entryOf is what the audit trail has of the end of a session or invitation.
func entryOf(l *sessions.Listed, by, reason string) audit.Entry {
	e := audit.Entry{
		Actor: by, Via: audit.Local, Action: "end-session", Object: "session", Reason: reason, Before: "signed in",
		After:  "signed out",
		Detail: fmt.Sprintf("%s, who came by %s, id %s", l.Name, l.Via, l.ID),
	}
	if l.Invited {
		e.Action, e.Before, e.After = "withdraw-invite", "invited", audit.None
		e.Detail = fmt.Sprintf("%s, invited by %s, id %s", l.Name, l.By, l.ID)
	}
	return e
}

func (p *Program) tellEnded(in *Installation, which sessions.Which, ended []sessions.Listed) error {
	if len(ended) == 0 {
		what := which.ID
		if what == "" {
			what = fmt.Sprintf("of %q", which.Name)
		}
		return fmt.Errorf("there is no session or invitation %s; weir console sessions lists those that there are",
			what)
	}
	all := in.listed(ended)
	if p.Format == "json" {
		return p.WriteJSON(all)
	}
	for _, l := range all {
		what := "session"
		if l.Invited {
			what = "invitation"
		}
		if _, err := fmt.Fprintf(p.Stdout, "%s %s of %s: ended\n", what, l.ID, terminal.Safe(l.Name)); err != nil {
			return err
		}
	}
	return nil
}
