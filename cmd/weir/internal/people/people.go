// Package people has the commands about who is let into the console: weir console invite and weir console sessions.
package people

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/access"
	"github.com/weirhq/weir/history/sessions"
)

// Program is what the commands take from the program that has them.
type Program struct {
	*terminal.Output
	// Does wraps a command's work: from there on a failure is the work's.
	Does func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// WithSessions opens the sessions of the configured installation.
	WithSessions func(cmd *cobra.Command, work func(context.Context, *Installation) error) error
	// By gives a command the flags --by and --reason, and the function that reads them.
	By func(*cobra.Command) func() (by, reason string)
}

// Installation is where sessions are kept, and what the configuration says about the console.
type Installation struct {
	Sessions *sessions.Store
	Console  *config.Console
}

// Commands are the subcommands of weir console.
func Commands(p Program) []*cobra.Command {
	return []*cobra.Command{p.invite(), p.sessions()}
}

// roleText is a role for reading.
func roleText(role string, owners []string) string {
	if role == access.Owner.String() {
		return role + " of " + strings.Join(owners, ", ")
	}
	return role
}
