package main

import (
	"fmt"
	"os"
	"os/user"
	"strings"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
)

// actFlags say who does something that is audited, and why.
type actFlags struct{ by, reason string }

func (f *actFlags) register(c *cobra.Command, environ []string) {
	c.Flags().StringVar(&f.by, "by", "", "who does it, for the audit trail (default: you)")
	c.Flags().StringVar(&f.reason, "reason", "", "why, for the audit trail")
	c.PreRun = func(*cobra.Command, []string) {
		if f.by == "" {
			f.by = whoami(environ)
		}
	}
}

// reasonRequired makes the command refuse to act without a reason, before it asks any server. The … of a command that was
// pasted from the console is none.
func (f *actFlags) reasonRequired(c *cobra.Command) {
	c.Flags().Lookup("reason").Usage = "why, for the audit trail; required"
	act := c.RunE
	c.RunE = func(cmd *cobra.Command, args []string) error {
		if !strings.ContainsFunc(f.reason, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
			return config.Usagef("--reason is required: got %q, allowed: words that say why, for the audit trail; such as: %s", f.reason, strings.TrimSpace(cmd.Example))
		}
		return act(cmd, args)
	}
}

// whoami is the user as the system knows them, else as $USER says, else by number.
func whoami(environ []string) string {
	if u, err := user.Current(); err == nil && u.Username != "" {
		return u.Username
	}
	if name, _ := config.LookupEnv(environ, "USER"); name != "" {
		return name
	}
	return nameless(os.Getuid(), os.Hostname)
}

// nameless is a user whom the system has no name for: in an image without /etc/passwd all are. The host tells which of
// several containers it was; Docker names it by the container's id. uid is -1 where users have no numbers.
func nameless(uid int, hostname func() (string, error)) string {
	if uid < 0 {
		return "unknown"
	}
	host, err := hostname()
	if err != nil || host == "" {
		return fmt.Sprintf("uid %d", uid)
	}
	return fmt.Sprintf("uid %d@%s", uid, host)
}

// fileFlag is the -f of commands that take rule documents.
func fileFlag(c *cobra.Command, from *[]string) {
	c.Flags().StringArrayVarP(from, "file", "f", nil, "file or directory of rules, - for standard input; may be repeated")
}
