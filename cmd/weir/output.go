package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/weirhq/weir/traffic"
)

// maxCell is the most characters that a table shows of a text without bounds.
const maxCell = 120

// cut says on standard error, where no script reads it as data, that a list is not all that there is. most is what the query
// for total stopped at.
func (a *app) cut(order string, shown int, total, most int64) {
	if int64(shown) >= total {
		return
	}
	of := strconv.FormatInt(total, 10)
	if total >= most {
		of = "more than " + strconv.FormatInt(most-1, 10)
	}
	fmt.Fprintf(a.stderr, "weir: the %s %d of %s; --limit 0 shows all\n", order, shown, of)
}

// list writes rows as the table or, with --output json, the items themselves as one JSON array.
func list[T any](a *app, items []T, head []string, row func(T) []string) error {
	if a.output == "json" {
		if items == nil {
			items = []T{}
		}
		return a.json(items)
	}
	w := tabwriter.NewWriter(a.stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, item := range items {
		cells := row(item)
		for i := range cells {
			cells[i] = shown(cells[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

// shown makes a text safe for a terminal: what clients send must not move the cursor of the one who reads it.
func shown(s string) string {
	if s == "" {
		return "-"
	}
	return safe(s)
}

// brief cuts what may be as long as somebody likes. A subject is not cut: half of one names nobody, or somebody else.
func brief(s string) string {
	n := 0
	for i := range s {
		if n == maxCell {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// cell is a text, cut and safe.
func cell(s string) string { return shown(brief(s)) }

// clock writes a time to the second; nothing where there is none.
func clock(t traffic.Time) string {
	switch t {
	case 0, traffic.BeforeTime:
		return ""
	case traffic.EndOfTime:
		return "end"
	}
	return t.Std().Format("2006-01-02T15:04:05Z")
}
