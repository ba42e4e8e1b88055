package history

import (
	"strconv"
	"strings"
)

// where collects the conditions of a query and their arguments.
type where struct {
	conditions []string
	args       []any
}

// add takes a condition in which each ? stands for the next of args.
func (w *where) add(condition string, args ...any) {
	var b strings.Builder
	for _, part := range strings.SplitAfter(condition, "?") {
		text, found := strings.CutSuffix(part, "?")
		b.WriteString(text)
		if found {
			b.WriteString(w.arg(args[0]))
			args = args[1:]
		}
	}
	w.conditions = append(w.conditions, b.String())
}

// arg takes one more argument and returns its place: "$3".
func (w *where) arg(value any) string {
	w.args = append(w.args, value)
	return "$" + strconv.Itoa(len(w.args))
}

func (w *where) String() string {
	if len(w.conditions) == 0 {
		return ""
	}
	return " WHERE " + strings.Join(w.conditions, " AND ")
}
