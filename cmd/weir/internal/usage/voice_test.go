package usage

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
)

// tree is a program with a few commands, as weir has them.
func tree() *cobra.Command {
	leaf := func(use string, args cobra.PositionalArgs) *cobra.Command {
		c := &cobra.Command{Use: use, Short: use, Args: args, RunE: func(*cobra.Command, []string) error { return nil }}
		c.Flags().Int("limit", 0, "at most so many")
		c.Flags().Uint64("seed", 0, "what is sent")
		c.Flags().Float64("speed", 0, "how fast")
		c.Flags().Bool("fresh", false, "erase first")
		c.Flags().String("since", "", "not before")
		c.Flags().Bool("live", false, "into the stream")
		c.MarkFlagsMutuallyExclusive("fresh", "live")
		var wait time.Duration
		DurationFlag(c, &wait, "wait", 24*time.Hour, "how long")
		return c
	}
	lint := leaf("lint -f FILE|DIR", cobra.NoArgs)
	lint.Flags().StringP("file", "f", "", "what to read")
	rules := &cobra.Command{Use: "rules", Short: "rules"}
	rules.AddCommand(leaf("list", cobra.NoArgs), leaf("promote RULE", cobra.ExactArgs(1)), lint)
	history := &cobra.Command{Use: "history", Short: "history", RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	history.AddCommand(leaf("hits", cobra.NoArgs), leaf("list", cobra.NoArgs))
	root := &cobra.Command{Use: "weir", Short: "weir", SilenceErrors: true, SilenceUsage: true, RunE: history.RunE}
	root.PersistentFlags().String("config", "", "configuration file")
	root.AddCommand(rules, history)
	Voice(root)
	return root
}

// said is what a command line comes to: its error in weir's words, else its output.
func said(t *testing.T, args ...string) string {
	t.Helper()
	var out strings.Builder
	root := tree()
	root.SetArgs(args)
	root.SetOut(&out)
	root.SetErr(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		return strings.Join(Worded(err), "\n")
	}
	return out.String()
}

// Every mistake is answered with what was got and what is allowed, and with the name that was probably meant.
func TestMistakesOfTheCommandLine(t *testing.T) {
	for line, want := range map[string]string{
		"rulse":                       `unknown command "rulse" for "weir"; did you mean rules?`,
		"rulse list --since 1d":       `unknown command "rulse" for "weir"; did you mean rules?`,
		"rules lst":                   `unknown command "lst" for "weir rules"; did you mean list?`,
		"rules lst --limt 1":          `unknown command "lst" for "weir rules"; did you mean list?`,
		"rules zzzzz":                 `unknown command "zzzzz" for "weir rules"; allowed: lint, list, promote`,
		"promote r":                   `unknown command "promote" for "weir"; did you mean weir rules promote?`,
		"help rulse":                  `unknown command "rulse" for "weir"; did you mean rules?`,
		"help rules lst":              `unknown command "lst" for "weir rules"; did you mean list?`,
		"history hits --sinc 1d":      `unknown flag --sinc; did you mean --since?`,
		"history hits --zzzzz":        `unknown flag --zzzzz`,
		"history hits --confg x":      `unknown flag --confg; did you mean --config?`,
		"history hits -x":             `unknown flag -x; names of more than one letter begin with --`,
		"history hits --since":        `--since needs a value: not before`,
		"history hits --limit abc":    `--limit: got "abc"; allowed: a whole number`,
		"history hits --seed -1":      `--seed: got "-1"; allowed: a whole number, 0 or more`,
		"history hits --speed fast":   `--speed: got "fast"; allowed: a number`,
		"history hits --fresh=maybe":  `--fresh: got "maybe"; allowed: true, false`,
		"history hits --wait 5w":      `--wait: got "5w"; allowed: a duration like 90s, 15m, 24h or 7d`,
		"history hits x y":            `weir history hits takes no arguments: got "x" "y"`,
		"history hits --live --fresh": `got --fresh and --live; allowed: one of them`,
		"rules promote":               `weir rules promote: got nothing; allowed: RULE`,
		"rules promote a b":           `weir rules promote: got "a" "b"; allowed: RULE`,
		"rules lint my":               `weir rules lint takes no arguments: got "my"; did you mean -f my?`,
		"rules promote a":             "",
	} {
		if got := said(t, strings.Fields(line)...); got != want && !(strings.HasSuffix(want, "7d") && strings.HasPrefix(got, want)) {
			t.Errorf("%s\ngot  %s\nwant %s", line, got, want)
		}
	}
	// A name that two families have is meant in neither.
	if got := said(t, "list"); strings.Contains(got, "did you mean weir") {
		t.Errorf("list: got %s", got)
	}
}

// The page of a command has its own flags, and that of the program those of all; durations are told as they are given.
func TestHelpDoesNotRepeatTheFlagsOfAll(t *testing.T) {
	for _, line := range []string{"rules list --help", "help rules list"} {
		got := said(t, strings.Fields(line)...)
		if strings.Contains(got, "configuration file") || !strings.HasSuffix(got, "\n\nFlags of every command, such as --config, --server and --output: weir --help\n") ||
			!strings.Contains(got, "(default 1d)") {
			t.Errorf("%s: got %s", line, got)
		}
	}
	for _, line := range []string{"", "--help", "help"} {
		if got := said(t, strings.Fields(line)...); !strings.Contains(got, "configuration file") || strings.Contains(got, "Flags of every command") {
			t.Errorf("%q: got %s", line, got)
		}
	}
	if got := said(t, "rules"); !strings.Contains(got, "promote") || !strings.Contains(got, "Flags of every command") {
		t.Errorf("a family: got %s", got)
	}
}

// Who gives a command is told what is wrong, and not in which package.
func TestWordedLeavesOutPackages(t *testing.T) {
	err := errors.Join(fmt.Errorf("history: %w", errors.New("history: rule r: not found")), errors.New("got history: nothing"))
	if got := strings.Join(Worded(err), "|"); got != "rule r: not found|got history: nothing" {
		t.Errorf("got %s", got)
	}
}
