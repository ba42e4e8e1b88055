// Package counters has the commands about what rules have counted: weir counters show and reset.
package counters

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/weirhq/weir/cmd/weir/internal/desk"
	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/cmd/weir/internal/usage"
	"github.com/weirhq/weir/console/acts"
	"github.com/weirhq/weir/console/api"
	"github.com/weirhq/weir/history/rulestore"
	"github.com/weirhq/weir/rules"
	"github.com/weirhq/weir/traffic"
)

// Program is what the commands take from the program that has them.
type Program struct {
	*terminal.Output
	// Does wraps a command's work: from there on a failure is the work's.
	Does func(work func(*cobra.Command, []string) error) func(*cobra.Command, []string) error
	// WithCounts opens who tells what rules have counted: the server that is to be asked, or the process at an address;
	// at none, the one that counts.
	WithCounts func(cmd *cobra.Command, at string, work func(context.Context, desk.Reader, api.Counts) error) error
	// WithDesk opens what resets counts: the configured installation, or the server that is to be asked.
	WithDesk func(cmd *cobra.Command, work func(context.Context, *desk.Desk) error) error
	// Acts gives a command the flags --by and --reason, which is required, and the function that reads them.
	Acts func(*cobra.Command) func() (by, reason string)
}

// Commands are the subcommands of weir counters.
func Commands(p Program) []*cobra.Command {
	return []*cobra.Command{p.show(), p.reset()}
}

// source reads the words of SOURCE as a rule counts it: by the first of its keys that has such a source.
func source(rule *rulestore.Rule, words []string) (traffic.Subject, error) {
	keys := rule.Keys()
	var unfit error
	for _, key := range keys {
		v4, v6 := prefixLengths(key)
		s, err := subject.Read(words, v4, v6)
		if err != nil {
			return "", err
		}
		if s, err = rules.KeyedSubject(s); err == nil {
			_, err = s.Named(key)
		}
		if err == nil {
			return s, nil
		}
		if unfit == nil {
			unfit = err
		}
	}
	return "", usage.Errorf("SOURCE: %w; rule %s counts by %s: FIELD=VALUE for each field of that", unfit, rule.Newest.Version.ID, rules.DescribeKey(keys[0]))
}

// prefixLengths are those of a key's address, also of one that is an alternative.
func prefixLengths(key []traffic.KeyField) (v4, v6 uint8) {
	for _, k := range key {
		for one := range k.Alternatives() {
			if one.Field == traffic.FieldIP {
				return one.V4, one.V6
			}
		}
	}
	return traffic.DefaultV4, traffic.DefaultV6
}

// whom is a source in a sentence.
func whom(s traffic.Subject) string {
	if s == "" {
		return "the one count of all requests"
	}
	return fmt.Sprintf("the count of %s", subject.Text(s.Stored()))
}

// told words an error about a count for the command line.
func told(err error) error {
	if invalid := (*acts.Invalid)(nil); errors.As(err, &invalid) && invalid.Field == "subject" {
		return usage.Errorf("SOURCE: got %q; allowed: %s", invalid.Got, invalid.Allowed)
	}
	return desk.Told(err)
}
