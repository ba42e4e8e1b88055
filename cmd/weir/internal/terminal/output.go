// Package terminal writes what commands show: tables, numbers, times and progress, safe for the terminal of whoever reads it.
package terminal

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/console/shown"
	"github.com/weirhq/weir/traffic"
)

// Output is where a command writes what it has to say, and in which form.
type Output struct {
	Stdout, Stderr io.Writer
	Format         string // table, json or csv
}

// maxCell is the most characters that a table shows of a text without bounds.
const maxCell = 120

// Cut says on standard error, where no script reads it as data, that a list is incomplete. most is the number at which the
// query for total stopped.
func (o *Output) Cut(order string, shown int, total, most int64) {
	if int64(shown) >= total {
		return
	}
	of := strconv.FormatInt(total, 10)
	if total >= most {
		of = "more than " + strconv.FormatInt(most-1, 10)
	}
	fmt.Fprintf(o.Stderr, "weir: the %s %d of %s; --limit 0 shows all\n", order, shown, of)
}

// List writes rows as the table or, with --output json, the items themselves as one JSON array, or, with --output csv, rows of CSV.
func List[T any](o *Output, items []T, head []string, row func(T) []string) error {
	if o.Format == "json" {
		if items == nil {
			items = []T{}
		}
		return o.WriteJSON(items)
	}
	if o.Format == "csv" {
		return CSV(o, items, head, row)
	}
	w := tabwriter.NewWriter(o.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(head, "\t"))
	for _, item := range items {
		cells := row(item)
		for i := range cells {
			cells[i] = Shown(cells[i])
		}
		fmt.Fprintln(w, strings.Join(cells, "\t"))
	}
	return w.Flush()
}

// WriteJSON writes v for programs, with --output json.
func (o *Output) WriteJSON(v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := o.Stdout.Write(shown.JSON(text.Bytes()))
	return err
}

// ChangeHead are the heads of ChangeCells.
func (o *Output) ChangeHead() []string {
	if o.Format == "csv" {
		return []string{"BEFORE", "AFTER", "VIA"}
	}
	return []string{"CHANGE"}
}

// ChangeCells tell what somebody changed: in one cell for people, and for programs what was before and after, and how who did it came.
func (o *Output) ChangeCells(change, before, after, via string) []string {
	if o.Format == "csv" {
		return []string{before, after, via}
	}
	return []string{Brief(change)}
}

// Shown makes a text safe for a terminal: what clients send must not move the cursor of the one who reads it.
func Shown(s string) string {
	if s == "" {
		return "-"
	}
	return Safe(s)
}

// Brief cuts what may be as long as somebody likes. A subject is not cut: half of one names nobody, or somebody else.
func Brief(s string) string {
	n := 0
	for i := range s {
		if n == maxCell {
			return s[:i] + "…"
		}
		n++
	}
	return s
}

// Cell is a text, cut and safe.
func Cell(s string) string { return Shown(Brief(s)) }

// Time writes a time to the second; nothing where there is none.
func Time(t traffic.Time) string {
	switch t {
	case 0, traffic.BeforeTime:
		return ""
	case traffic.EndOfTime:
		return "end"
	}
	return Stamp(t.Std())
}

// Safe makes a line safe for a terminal: names of replays, and what clients have sent, may be in it.
func Safe(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '·'
		}
		return r
	}, s)
}

// Stamp writes a time to the second, nothing for none.
func Stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

// Roughly writes a duration with two or three digits.
func Roughly(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return d.Round(10 * time.Microsecond).String()
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 10*time.Minute:
		return d.Round(time.Second).String()
	}
	return d.Round(time.Minute).String()
}

// FirstFew names the first few of many.
func FirstFew(names []string) string {
	const few = 5
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}

// Seconds writes a duration as people read it.
func Seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(10 * time.Millisecond).String()
}
