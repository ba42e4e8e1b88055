package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/traffic"
)

// maxCell is the most characters that one cell of a table shows.
const maxCell = 120

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
			cells[i] = cell(cells[i])
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

// cell makes a text safe for a terminal: what clients send must not move the cursor of the one who reads it.
func cell(s string) string {
	if s == "" {
		return "-"
	}
	var b strings.Builder
	n := 0
	for _, r := range s {
		if n++; n > maxCell {
			b.WriteString("…")
			break
		}
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			r = '·'
		}
		b.WriteRune(r)
	}
	return b.String()
}

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

// subject writes a subject as people read it: ip=192.0.2.1/32 device=tv-7.
func subject(s traffic.Subject) string {
	values, err := s.Values()
	if err != nil {
		return string(s)
	}
	if len(values) == 0 {
		return "(all)"
	}
	parts := make([]string, len(values))
	for i, v := range values {
		parts[i] = v.Field + "=" + v.Value
		if v.Missing {
			parts[i] = v.Field + " missing"
		}
	}
	return strings.Join(parts, " ")
}
