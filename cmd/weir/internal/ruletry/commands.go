// Package ruletry tries rule documents without a server: their tests, what they make of single events, and their schema.
package ruletry

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/rules"
)

// Host is the program that the commands belong to.
type Host struct {
	Output *terminal.Output
	Stdin  func() io.Reader
	Config func(*cobra.Command) (*config.Config, error)
	// Does wraps a command's work.
	Does func(func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// Documents reads the rule documents of -f.
	Documents func(paths []string, env rules.Environment) (*rules.Set, error)
	// Failed ends a command whose output has said already what failed.
	Failed error
}

// Commands are test, explain and schema.
func (h *Host) Commands() []*cobra.Command {
	return []*cobra.Command{h.test(), h.explain(), h.schema()}
}

func (h *Host) test() *cobra.Command {
	var t tester
	c := &cobra.Command{
		Use:   "test FILE|DIR…",
		Short: "Run the tests of rule documents, and stories; needs no server",
		Long: `Run the tests that rule documents have under tests, and story files, through the reading, the windows and the blocks that run in production. A test says
which events come and which hits, uncounted events and blocks must come of them; where something else does, both are shown. No server is needed,
and nothing is changed.

The exit code is 1 if a test fails, or a document or test cannot be read, or there is no test to run.`,
		Example: `  weir rules test examples/rules
  weir rules test rules/ -v --run 'guest-token.*/.*third'
  weir rules test rule.yaml --output json`,
		Args: cobra.MinimumNArgs(1),
		RunE: h.Does(func(cmd *cobra.Command, args []string) error {
			conf, err := h.Config(cmd)
			if err != nil {
				return err
			}
			return t.run(h, conf, args)
		}),
	}
	c.Flags().StringVar(&t.pattern, "run", "", "only tests whose RULE/NAME, or story, this regular expression finds")
	c.Flags().BoolVarP(&t.verbose, "verbose", "v", false, "name the tests that pass, too")
	return c
}

func (h *Host) explain() *cobra.Command {
	var x explainer
	c := &cobra.Command{
		Use:   "explain RULE -f FILE|DIR --event FILE|-",
		Short: "Show why a rule fires for events, or does not; needs no server",
		Long: `Show what a rule makes of one event, or of each of several lines in their order: every clause of its match, and each comparison of its conditions,
with the event's value and whether it held, whose request it was, the key, what is missing, what is counted, and the count against the limit. The events are all that the rule has ever seen:
its windows are empty before the first one. Where known_good is set, what it says of each event is shown, too. Formats are those of weir backtest; the default is the configuration's, else weir.`,
		Example: `  weir rules explain guest-token-flood -f examples/rules --event event.json
  tail -n 20 access.log | weir rules explain login-burst -f examples/rules --event - --format combined`,
		Args: cobra.ExactArgs(1),
		RunE: h.Does(func(cmd *cobra.Command, args []string) error {
			conf, err := h.Config(cmd)
			if err != nil {
				return err
			}
			return x.run(h, conf, args[0])
		}),
	}
	flags := c.Flags()
	flags.StringArrayVarP(&x.from, "file", "f", nil, "file or directory of rules, - for standard input; may be repeated")
	flags.StringVar(&x.events, "event", "", "file of events, one a line, or - for standard input")
	flags.StringVar(&x.format, "format", "", "how events are written; default events.format, else weir")
	flags.StringVar(&x.good, "known-good", "", "show what this condition says of the events; default known_good of the configuration")
	flags.StringVar(&x.fieldMap, "map", "", "event field=member, joined by commas; not for weir and combined")
	return c
}

func (h *Host) schema() *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "Print the JSON Schema of rule documents, for editors",
		Long: `Print the JSON Schema (draft 2020-12) of rule documents and their tests. Editors complete and check by it; a language server for YAML is told so by a first line

  # yaml-language-server: $schema=rule.schema.json

What a schema cannot say, such as that a block's key has a field that the gateway vouches for, weir rules lint says.`,
		Example: "  weir rules schema > rule.schema.json",
		Args:    cobra.NoArgs,
		RunE: h.Does(func(*cobra.Command, []string) error {
			return h.Output.WriteJSON(Schema())
		}),
	}
}

// onlyOneStdin refuses to read standard input twice.
func onlyOneStdin(events string, from []string) error {
	n := 0
	for _, path := range append([]string{events}, from...) {
		if path == "-" {
			n++
		}
	}
	if n > 1 {
		return usage.Errorf("- is given twice; standard input can be read once")
	}
	return nil
}
