package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/config"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/history"
	"github.com/weirhq/weir/rules"
)

// unknown is the error about a name that nothing has. An empty answer to a question about it would look like "nobody". known
// are the names that there are; where tells how to list them.
func unknown(thing, got string, known []string, where string) error {
	text := fmt.Sprintf("there is no %s %q", thing, got)
	switch meant := rules.Nearest(got, known); {
	case meant != "":
		text += fmt.Sprintf("; did you mean %s?", meant)
	case len(known) == 0:
		text += ", and no other"
	default:
		text += "; known: " + terminal.FirstFew(known)
	}
	if where != "" && len(known) > 0 {
		text += "; " + where
	}
	return fmt.Errorf("%s", text)
}

// knownRule finds out whether a stream has, or had, a rule. A rule that was removed still has a history.
func (s *store) knownRule(ctx context.Context, stream, rule string) error {
	names, err := s.RuleNames(ctx, stream)
	if err != nil || slices.Contains(names, rule) {
		return err
	}
	where := "weir rules list shows the rules"
	if stream != history.Live {
		where = "weir history replays shows what replays there are"
	}
	return unknown("rule", rule, names, where)
}

// named finds a rule, also one that was removed. The error about a name that no rule has says which one it may have meant.
func (s *store) named(ctx context.Context, rule string) (history.Rule, error) {
	r, err := s.Rule(ctx, rule)
	return r, s.misnamed(ctx, rule, err)
}

// misnamed says of what failed because no rule has the name which one was probably meant; any other error stays.
func (s *store) misnamed(ctx context.Context, rule string, err error) error {
	if !errors.Is(err, history.ErrNotFound) {
		return err
	}
	if unknown := s.knownRule(ctx, history.Live, rule); unknown != nil {
		return unknown
	}
	return err
}

// knownReplay finds out whether a replay was made.
func (s *store) knownReplay(ctx context.Context, stream string) error {
	all, err := s.ListStreams(ctx)
	if err != nil {
		return err
	}
	var names []string
	for i := range all {
		if all[i].Name == stream {
			return nil
		}
		if name, ok := strings.CutPrefix(all[i].Name, history.ReplayPrefix); ok {
			names = append(names, name)
		}
	}
	return unknown("replay", strings.TrimPrefix(stream, history.ReplayPrefix), names, "weir history replays shows them")
}

// oneOf refuses a value of a flag that is not among those allowed.
func oneOf(flag, got string, allowed ...string) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	hint := ""
	if meant := rules.Nearest(got, allowed); meant != "" {
		hint = "; did you mean " + meant + "?"
	}
	return config.Usagef("--%s: got %q; allowed: %s%s", flag, got, strings.Join(allowed, ", "), hint)
}
