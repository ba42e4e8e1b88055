// Package versions has the commands of weir rules that compare, try, take back and write out versions of rules, and
// that raise a limit for a time.
package versions

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/internal/plural"
	"github.com/weirhq/weir/rules"
)

// Host is what the commands have of the program around them.
type Host struct {
	*terminal.Output
	// Does wraps a command's work.
	Does func(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error
	// Open opens the configured installation for a command.
	Open func(cmd *cobra.Command, work func(ctx context.Context, in Installation) error) error
	// OpenStores opens its stores, and refuses where a server is to be asked.
	OpenStores func(cmd *cobra.Command, work func(ctx context.Context, in Stores) error) error
	// Audited gives a command, whose RunE is set, the flags that say who acts and why.
	Audited func(c *cobra.Command, reasonRequired bool) *Act
	// FileFlag gives a command its -f.
	FileFlag func(c *cobra.Command, from *[]string)
	// Differs ends a command that was told to answer by its exit code: there is a difference, and it was shown.
	Differs error
}

// Act is who does something, and why.
type Act struct{ By, Reason string }

// Installation is what the commands act upon: the stores, or a server.
type Installation interface {
	acts.Acts
	// Rule finds a rule with its versions.
	Rule(ctx context.Context, id string) (api.Rule, error)
	// RuleTrail is who did what to it.
	RuleTrail(ctx context.Context, id string, limit int) ([]audit.Entry, error)
	// Files reads the texts of files, directories and standard input.
	Files(paths []string) ([]acts.File, error)
	// Carry applies documents: the plan is shown, agreed to on a terminal, carried out and published.
	Carry(apply Apply, dry, yes bool) error
}

// Apply plans, where dry is set, or does, where the plan is still the one that was shown; nil: whatever it is.
type Apply func(dry bool, shown *rulestore.Plan) (acts.ApplyDone, error)

// Stores are those of an installation, for what no server does.
type Stores struct {
	Rules *rulestore.Store
	// Named finds a rule with its versions; the error about another name says which one it may have meant.
	Named func(ctx context.Context, rule string) (rulestore.Rule, error)
	// Environment is what documents are judged by.
	Environment func() (rules.Environment, error)
}

// NoRules is the error of paths in whose files no document stands.
func NoRules(files int, paths []string) error {
	return fmt.Errorf("got no rules in %s of %s, allowed at least one rule in the files, or in the *.yaml or *.yml files of directories",
		plural.Of(files, "file"), strings.Join(paths, ", "))
}

// Worded names the paths in an error of their files that says so little.
func Worded(files int, paths []string, err error) error {
	if errors.Is(err, acts.ErrNoRules) {
		return NoRules(files, paths)
	}
	return err
}

// Commands are the commands of this package.
func Commands(h *Host) []*cobra.Command {
	return []*cobra.Command{diffCommand(h), historyCommand(h), rollbackCommand(h), exportCommand(h),
		setLimitCommand(h), tryCommand(h)}
}

// versionNumber reads a version of a rule from the command line.
func versionNumber(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1
}

// find gives a version among those of r.
func find(r *rulestore.Rule, number int) *rulestore.StoredVersion {
	for i := range r.Versions {
		if r.Versions[i].Version.Number == number {
			return &r.Versions[i]
		}
	}
	return nil
}

// lines writes each line of a text, indented and safe for a terminal.
func lines(w io.Writer, indent string, list []string) error {
	for _, line := range list {
		if _, err := io.WriteString(w, indent+terminal.Cell(line)+"\n"); err != nil {
			return err
		}
	}
	return nil
}
