package postgres

import (
	"strconv"
	"strings"
)

// Where is a WHERE clause: conditions, all of which must hold, and their arguments. Its zero value selects everything.
type Where struct {
	Conditions []string
	Args       []any
}

// Add adds a condition, in which each ? stands for the next of args.
func (w *Where) Add(condition string, args ...any) {
	var b strings.Builder
	for _, part := range strings.SplitAfter(condition, "?") {
		text, found := strings.CutSuffix(part, "?")
		b.WriteString(text)
		if found {
			b.WriteString(w.Arg(args[0]))
			args = args[1:]
		}
	}
	w.Conditions = append(w.Conditions, b.String())
}

// Arg adds an argument and returns its placeholder, such as "$3".
func (w *Where) Arg(value any) string {
	w.Args = append(w.Args, value)
	return "$" + strconv.Itoa(len(w.Args))
}

// String is the clause, with a space before it; empty without conditions.
func (w *Where) String() string {
	if len(w.Conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.Conditions, " AND ")
}
