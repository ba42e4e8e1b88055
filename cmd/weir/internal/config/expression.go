package config

import (
	"encoding"
	"fmt"
	"strings"

	"github.com/weirhq/weir/internal/yamlnode"
	"github.com/weirhq/weir/rules/condition"
)

// Expression is a condition on events in CEL, as rules have in match.when. It is checked when it is read.
type Expression string

var _ encoding.TextUnmarshaler = (*Expression)(nil)

// UnmarshalText takes an expression, or nothing. The error is a *condition.Error.
func (e *Expression) UnmarshalText(b []byte) error {
	text := strings.TrimSpace(string(b))
	if text == "" {
		*e = ""
		return nil
	}
	language, err := condition.New()
	if err != nil {
		return err
	}
	if _, err := language.CompileStrict(text); err != nil {
		return err
	}
	*e = Expression(text)
	return nil
}

// failExpression reports what is wrong with an expression, each at its own place where the text is written as it reads.
func (r *yamlReader) failExpression(n yamlnode.Node, path string, bad *condition.Error) {
	for _, p := range bad.Problems {
		text := fmt.Sprintf("got %s; allowed: %s", p.Got, p.Allowed)
		if p.Hint != "" {
			text += "; " + p.Hint
		}
		at := n.Place()
		if within, ok := n.Within(yamlnode.Place{Line: p.Line, Column: p.Column}); ok {
			at = within
		} else if p.Line > 0 {
			text += fmt.Sprintf(" (line %d, column %d of the expression)", p.Line, p.Column)
		}
		r.errs = append(r.errs, fmt.Errorf("%s: %s: %s", Origin{File: r.file, Place: at}, path, text))
	}
}
