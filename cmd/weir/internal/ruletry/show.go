package ruletry

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirhq/weir/cmd/weir/internal/subject"
	"github.com/weirhq/weir/cmd/weir/internal/terminal"
	"github.com/weirhq/weir/internal/duration"
	"github.com/weirhq/weir/rules"
)

// verdict is what came of an event, in a sentence.
func verdict(v *rules.Version, x *explained) string {
	if !x.Counts {
		return "not counted: " + notCounted(v, x)
	}
	state := "not over"
	if x.Over {
		state = "over"
	}
	if x.Count == nil {
		return fmt.Sprintf("counted, limit %d: %s", x.Limit, state)
	}
	return fmt.Sprintf("count %d of limit %d: %s", *x.Count, x.Limit, state)
}

// notCounted says why an event is not counted, in words.
func notCounted(v *rules.Version, x *explained) string {
	if x.Allowed != nil {
		return "the allow list " + x.Allowed.List + " lets it pass: " + x.Allowed.Reason
	}
	switch x.Why {
	case "missing":
		var lacks []string
		for _, part := range x.Key {
			if part.Missing != "" {
				lacks = append(lacks, part.Field)
			}
		}
		return "the key's " + strings.Join(lacks, ", ") + " is missing, and on_missing is " + string(v.Missing)
	case "late":
		return "late: older, by more than lateness " + duration.Format(v.Lateness) + ", than the newest event before it"
	case "out_of_order":
		return "out of order: the algorithm cannot count it any more"
	case "distinct_missing", "missing_value", "absent":
		return "it has no value of " + v.Count.String()
	}
	return x.Why
}

// showExplained writes the events one below the other: each with a table of what was asked, and the verdict.
func showExplained(o *terminal.Output, v *rules.Version, all []explained) error {
	if o.Format == "json" {
		return o.WriteJSON(all)
	}
	var b strings.Builder
	for i := range all {
		x := &all[i]
		fmt.Fprintf(&b, "line %d: %s\n", x.Line, headline(x))
		w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		for _, row := range rows(v, x) {
			for c := range row {
				row[c] = terminal.Cell(row[c])
			}
			fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
		}
		if err := w.Flush(); err != nil {
			return err
		}
		fmt.Fprintf(&b, "  %s\n", terminal.Cell(x.Verdict))
	}
	_, err := io.WriteString(o.Stdout, b.String())
	return err
}

func headline(x *explained) string {
	if x.Time == 0 {
		return "-"
	}
	return terminal.Cell(strings.TrimSpace(terminal.Time(x.Time) + " " + x.Method + " " + x.Path))
}

// rows are what was asked of an event: the rule's side, the event's, and whether they fit.
func rows(v *rules.Version, x *explained) [][]string {
	if x.Time == 0 {
		return nil
	}
	return append(ruleRows(v, x), goodRows(x.KnownGood)...)
}

func ruleRows(v *rules.Version, x *explained) [][]string {
	out := [][]string{{"CLAUSE", "RULE", "EVENT", "HELD"}}
	for _, c := range x.Clauses {
		if c.Judged != nil {
			out = append(out, conditionRows(c.Name, c.Got, c.Judged)...)
			continue
		}
		out = append(out, []string{c.Name, oneLine(c.Rule), c.Got, yes(c.Held)})
	}
	if len(x.Clauses) == 0 {
		out = append(out, []string{"match", "{}", "any request", "yes"})
	}
	for _, part := range x.Key {
		value := part.text()
		if part.Missing != "" {
			value = part.Missing
		}
		out = append(out, []string{"key", part.Field, value, yes(part.Missing == "")})
	}
	if len(x.Key) == 0 {
		out = append(out, []string{"key", "[]", "all together", "yes"})
	}
	if x.Watched && len(v.Allow) > 0 && (x.Counts || x.Allowed != nil) {
		on := "on none"
		if x.Allowed != nil {
			on = "on " + x.Allowed.List + ": " + x.Allowed.entry()
		}
		out = append(out, []string{"allow", strings.Join(v.Allow, ", "), on, yes(x.Allowed == nil)})
	}
	if !x.Watched || !x.Counts {
		return out
	}
	adds := strconv.FormatInt(x.Units, 10)
	if v.Count.Kind() == rules.CountDistinct {
		adds = x.Value
	}
	out = append(out, []string{"count", v.Count.String(), adds, "yes"})
	out = append(out, tierRows(x)...)
	if x.Count != nil {
		in := strconv.Itoa(x.Limit) + " in " + duration.Format(v.Window)
		out = append(out, []string{"limit", in, strconv.Itoa(*x.Count), yes(!x.Over)})
	}
	if x.Block != "" {
		out = append(out, []string{"block", "key", subject.Text(x.Block), "-"})
	}
	return out
}

// entry names the entry of the list, with its end.
func (l *letPass) entry() string {
	if l.Until == 0 {
		return l.Source
	}
	return l.Source + " until " + terminal.Time(l.Until)
}

func yes(held bool) string {
	if held {
		return "yes"
	}
	return "no"
}
