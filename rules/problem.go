package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirhq/weir/internal/nearest"
)

// maxProblems bounds what is reported of one file; the rest is summed up in one more problem. After ten times as many
// a file is not read on: it is no file of rules.
const maxProblems = 100

// Problem is one thing that is wrong with a rule document.
type Problem struct {
	File    string `json:"file,omitempty"`
	Line    int    `json:"line,omitempty"`  // from 1; 0 when the document did not come from a file
	Field   string `json:"field,omitempty"` // as a path: block.ttl, key[1].v4
	Got     string `json:"got"`
	Allowed string `json:"allowed"`
	Hint    string `json:"hint,omitempty"` // what was probably meant, or how to put it right
}

// Error writes p as one line: `file:line: field: got …, allowed …; hint`.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d: ", p.File, p.Line)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	b.WriteString("got " + p.Got + ", allowed " + p.Allowed)
	if p.Hint != "" {
		b.WriteString("; " + p.Hint)
	}
	return b.String()
}

// Problems is everything that is wrong with a set of rule documents, by file and line. It is the error that
// ParseFiles, LoadDir and the Validate methods return for bad rules.
type Problems []Problem

// Error writes one problem a line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.Error()
	}
	return strings.Join(lines, "\n")
}

// err is ps as an error: nil when there are none.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

// bounded sorts the problems of one file by line and cuts them to maxProblems.
func (ps Problems) bounded() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
	if len(ps) <= maxProblems {
		return ps
	}
	more := Problem{
		File: ps[maxProblems].File, Line: ps[maxProblems].Line,
		Got: "at least " + strconv.Itoa(len(ps)-maxProblems) + " more problems", Allowed: "none",
	}
	return append(ps[:maxProblems:maxProblems], more)
}

// quoteShort quotes s for a message: one line, printable, at most 60 bytes of it.
func quoteShort(s string) string {
	const most = 60
	if len(s) <= most {
		return strconv.Quote(s)
	}
	return fmt.Sprintf("%s… (%d bytes)", strconv.Quote(strings.ToValidUTF8(s[:most], "")), len(s))
}

// Nearest finds the name that was probably meant by got: nearest.Name.
func Nearest(got string, names []string) string { return nearest.Name(got, names) }
