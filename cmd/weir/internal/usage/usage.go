// Package usage has the mistakes of those who give weir its command line and configuration: what was got, what is allowed.
package usage

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/rules"
)

// Error is a mistake in the command line or the configuration, found after the command has begun.
type Error struct{ Err error }

func (e *Error) Error() string { return e.Err.Error() }

func (e *Error) Unwrap() error { return e.Err }

// Errorf words an Error.
func Errorf(format string, args ...any) error {
	return &Error{fmt.Errorf(format, args...)}
}

// Unknown is the error for a name that nothing has: an empty answer would look like "nobody". known are the existing names;
// where is the command that lists them.
func Unknown(thing, got string, known []string, where string) error {
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

// OneOf refuses a value of a flag that is not among those allowed.
func OneOf(flag, got string, allowed ...string) error {
	if slices.Contains(allowed, got) {
		return nil
	}
	hint := ""
	if meant := rules.Nearest(got, allowed); meant != "" {
		hint = "; did you mean " + meant + "?"
	}
	return Errorf("--%s: got %q; allowed: %s%s", flag, got, strings.Join(allowed, ", "), hint)
}
