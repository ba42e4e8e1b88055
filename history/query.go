package history

import (
	"context"
	"strconv"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// where is a WHERE clause: conditions, all of which must hold, and their arguments.
type where struct {
	conditions []string
	args       []any
}

// add adds a condition, in which each ? stands for the next of args.
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

// arg adds an argument and returns its placeholder, such as "$3".
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

// selectRows adds the conditions that all queries share. Empty and nil values select everything.
func (w *where) selectRows(stream, rule string, source *Source) {
	if stream != "" {
		w.add("stream = ?", stream)
	}
	if rule != "" {
		w.add("rule = ?", traffic.Printable(rule))
	}
	if source != nil {
		source.condition(w)
	}
}

// CountCap is where counting stops: a query may select more rows than anybody waits for.
const CountCap = 100_001

func (s *Store) count(ctx context.Context, table string, w *where) (n int64, err error) {
	err = s.QueryRow(ctx, "SELECT count(*) FROM (SELECT FROM "+table+w.String()+" LIMIT "+w.arg(CountCap)+") found", w.args...).Scan(&n)
	if err != nil {
		return 0, s.Fail("counting rows of "+table, err)
	}
	return n, nil
}
