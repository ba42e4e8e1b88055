package condition

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"cel.dev/cel-go/cel"
	"cel.dev/cel-go/common/operators"

	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/traffic"
)

// Problem is one thing that is wrong with an expression.
type Problem struct {
	Line, Column int // from 1, within the expression; 0: the whole of it
	Got          string
	Allowed      string
	Hint         string // what was probably meant; may be empty
}

// Error is everything that is wrong with an expression.
type Error struct{ Problems []Problem }

// Error writes one problem a line.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		if p.Line > 0 {
			lines[i] = fmt.Sprintf("line %d, column %d: ", p.Line, p.Column)
		}
		lines[i] += "got " + p.Got + ", allowed " + p.Allowed
		if p.Hint != "" {
			lines[i] += "; " + p.Hint
		}
	}
	return strings.Join(lines, "\n")
}

const allowedCondition = `a condition in CEL, true or false, such as event.plan == "free" && event.status >= 400`

// maxProblems bounds what is reported of one expression.
const maxProblems = 10

func problem(line, column int, got, allowed, hint string) error {
	return &Error{[]Problem{{line, column, got, allowed, hint}}}
}

func allowedFields() string { return "event. and one of " + strings.Join(Fields(), ", ") }

// short bounds a text for a message, to one line.
func short(s string) string {
	const most = 120
	s = strings.Join(strings.Fields(s), " ")
	if len(s) <= most {
		return traffic.Printable(s)
	}
	return traffic.Printable(strings.ToValidUTF8(s[:most], "")) + "…"
}

// syntaxError is what the parser did not understand.
func syntaxError(issues *cel.Issues) error {
	out := &Error{}
	for _, e := range issues.Errors()[:1] { // what follows one mistake in syntax is often no other
		text := strings.TrimPrefix(e.Message, "Syntax error: ")
		text, _, _ = strings.Cut(text, " expecting ")
		p := Problem{Line: max(e.Location.Line(), 1), Column: max(e.Location.Column()+1, 1), Got: "no CEL (" + short(text) + ")", Allowed: allowedCondition}
		switch {
		case strings.Contains(text, "recursion"):
			p.Got, p.Allowed = "an expression that nests too deep", fmt.Sprintf("at most %d levels", maxNesting)
			p.Hint = "operators in a row are levels, but for && and ||, and so are members"
		case strings.Contains(text, "token recognition error at: '= ") || strings.HasSuffix(text, "at: '='"):
			p.Hint = "== compares"
		case strings.Contains(text, "'and'"), strings.Contains(text, "'AND'"):
			p.Hint = "&& is and"
		case strings.Contains(text, "'or'"), strings.Contains(text, "'OR'"):
			p.Hint = "|| is or"
		}
		out.Problems = append(out.Problems, p)
	}
	return out
}

// checkError is what the type checker found.
func checkError(issues *cel.Issues) *Error {
	undeclared := regexp.MustCompile(`^undeclared reference to '([^']*)'`)
	overload := regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '([^']*)'`)
	expected := regexp.MustCompile(`^expected type '([^']*)' but found '([^']*)'`)
	out := &Error{}
	for _, e := range issues.Errors()[:min(len(issues.Errors()), maxProblems)] {
		p := Problem{Line: max(e.Location.Line(), 1), Column: e.Location.Column() + 1, Got: "an expression with a mistake (" + short(e.Message) + ")", Allowed: allowedCondition}
		if m := undeclared.FindStringSubmatch(e.Message); m != nil {
			p.Got, p.Allowed, p.Hint = undeclaredName(m[1])
		} else if m := overload.FindStringSubmatch(e.Message); m != nil {
			p.Got, p.Allowed, p.Hint = wrongTypes(m[1], m[2])
		} else if m := expected.FindStringSubmatch(e.Message); m != nil {
			p.Got, p.Allowed, p.Hint = typeWords(m[2]), typeWords(m[1]), "compare it with something"
		}
		out.Problems = append(out.Problems, p)
	}
	return out
}

// isLoop tells the macros of CEL that go over a list.
func isLoop(name string) bool {
	return slices.Contains([]string{"exists", "all", "exists_one", "map", "filter"}, name)
}

// functions are those of CEL's standard library that conditions use most, for hints.
func functions() []string {
	return []string{"has", "startsWith", "endsWith", "contains", "matches", "size", "int", "double", "string", "getHours", "getDayOfWeek", "timestamp", "duration"}
}

func undeclaredName(name string) (got, allowed, hint string) {
	got, allowed = traffic.Quote(short(name))+", which nothing is called", "event.FIELD, literals, operators and functions of CEL"
	if isLoop(name) {
		return traffic.Quote(name) + ", which would be a loop", "conditions without loops", "in asks whether a list has a value"
	}
	if meant := nearest.Name(name, Fields()); meant != "" {
		hint = "did you mean event." + meant + "?"
	} else if meant := nearest.Name(name, functions()); meant != "" && meant != name {
		hint = "did you mean " + meant + "?"
	} else if name != "" && name == strings.ToUpper(name) {
		hint = "a text is written in quotes: " + strconv.Quote(name)
	}
	return got, allowed, hint
}

// wrongTypes says what an operator was given.
func wrongTypes(function, list string) (got, allowed, hint string) {
	name := function
	if operator, ok := operators.FindReverse(function); ok && operator != "" {
		name = operator
	}
	list, member := strings.CutPrefix(list, "(")
	if !member {
		target, rest, _ := strings.Cut(list, ".(")
		list = target + ", " + rest
	}
	list = strings.TrimSuffix(list, ")")
	parts := strings.Split(list, ", ")
	for i, part := range parts {
		parts[i] = typeWords(part)
	}
	got = name + " with " + strings.Join(parts, " and ")
	switch function {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		allowed = "two values of one type"
		if strings.Contains(list, "string") && strings.Contains(list, "int") {
			hint = "a text is written in quotes, a number without"
		} else if strings.Contains(list, "double") && strings.Contains(list, "int") {
			hint = "write the whole number with a point: 5.0"
		}
	case operators.LogicalAnd, operators.LogicalOr, operators.LogicalNot, operators.Conditional, clauseName:
		allowed, hint = "conditions, true or false", "compare it with something"
	case operators.In:
		allowed = "a value, and a list of values of its type"
	default:
		allowed = "what the function takes"
	}
	return got, allowed, hint
}

// typeWords is a type of CEL in words.
func typeWords(t string) string {
	words := map[string]string{
		"string": "a text", "int": "a whole number", "double": "a number with decimals", "bool": "true or false", "uint": "an unsigned number",
		"timestamp": "a time", "google.protobuf.Timestamp": "a time", "duration": "a duration", "google.protobuf.Duration": "a duration",
		"bytes": "bytes", "null": "null", "null_type": "null", "dyn": "a value of any type",
	}
	if w := words[t]; w != "" {
		return w
	}
	if strings.HasPrefix(t, "list") {
		return "a list"
	}
	if strings.HasPrefix(t, "map") {
		return "a map"
	}
	return short(t)
}
