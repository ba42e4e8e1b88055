// Package versions has the commands of weir rules that compare, take back and write out versions of rules, and that raise a limit for
// a time.
package versions

import (
	"context"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history/audit"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
)

// Host is what the commands have of the program around them.
type Host struct {
	*terminal.Output
	// Does wraps a command's work.
	Does func(work func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error
	// Open opens the configured installation for a command.
	Open func(cmd *cobra.Command, work func(ctx context.Context, in Installation) error) error
	// Audited gives a command, whose RunE is set, the flags that say who acts and why.
	Audited func(c *cobra.Command, reasonRequired bool) *Act
	// FileFlag gives a command its -f.
	FileFlag func(c *cobra.Command, from *[]string)
	// Differs ends a command that was told to answer by its exit code: there is a difference, and it was shown.
	Differs error
}

// Act is who does something, and why.
type Act struct{ By, Reason string }

// Installation is what the commands act upon.
type Installation interface {
	// Store keeps the rules.
	Store() *rulestore.Store
	// Trail is who did what to them.
	Trail() *audit.Trail
	// Named finds a rule with its versions; the error about another name says which one it may have meant.
	Named(ctx context.Context, rule string) (rulestore.Rule, error)
	// Read reads the documents of files, directories and standard input.
	Read(ctx context.Context, paths []string) (*rules.Set, error)
	// Environment is what documents are judged by.
	Environment() (rules.Environment, error)
	// Carry applies documents: the plan is shown, agreed to on a terminal, carried out and published.
	Carry(ctx context.Context, docs []rulestore.Document, act Act, opts rulestore.ApplyOptions, yes bool) error
}

// Commands are the commands of this package.
func Commands(h *Host) []*cobra.Command {
	return []*cobra.Command{diffCommand(h), historyCommand(h), rollbackCommand(h), exportCommand(h), setLimitCommand(h)}
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
