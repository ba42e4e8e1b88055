package terminal

import (
	"encoding/csv"
	"strings"
	"unicode"
)

// CSV writes rows for programs and spreadsheets, with --output csv. Heads are names of columns: RULE VERSION is rule_version.
func CSV[T any](o *Output, items []T, head []string, row func(T) []string) error {
	w := csv.NewWriter(o.Stdout)
	names := make([]string, len(head))
	for i, h := range head {
		names[i] = strings.ReplaceAll(strings.ToLower(h), " ", "_")
	}
	if err := w.Write(names); err != nil {
		return err
	}
	for _, item := range items {
		cells := row(item)
		for i := range cells {
			cells[i] = SafeCell(cells[i])
		}
		if err := w.Write(cells); err != nil {
			return err
		}
	}
	w.Flush()
	return w.Error()
}

// SafeCell makes a text safe for a spreadsheet: what clients send must be no formula and break no line. A cell that would begin one begins
// with an apostrophe.
func SafeCell(s string) string {
	s = Safe(s)
	begin := strings.TrimLeftFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == '·' })
	if begin != "" && strings.ContainsRune("=+-@＝＋－＠", []rune(begin)[0]) {
		return "'" + s
	}
	return s
}
