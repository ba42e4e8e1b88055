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

// maxSetProblems bounds what is reported of all files together, and how many warnings are.
const maxSetProblems = 1000

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
	return ps.cut(maxProblems)
}

// cut sums up what is beyond the first problems, as they stand, in one more.
func (ps Problems) cut(most int) Problems {
	if len(ps) <= most {
		return ps
	}
	more := Problem{
		File: ps[most].File, Line: ps[most].Line,
		Got: "at least " + strconv.Itoa(len(ps)-most) + " more problems", Allowed: "none",
	}
	return append(ps[:most:most], more)
}

// warningBound passes on the first warnings of a set, and sums up the rest.
type warningBound struct {
	warn func(Problem)
	told int
	last Problem
}

// around is warn, bounded; nil for nil.
func (w *warningBound) around(warn func(Problem)) func(Problem) {
	if w.warn = warn; warn == nil {
		return nil
	}
	return func(p Problem) {
		w.last = p
		if w.told++; w.told <= maxSetProblems {
			warn(p)
		}
	}
}

// tell warns of what was not told.
func (w *warningBound) tell() {
	if more := w.told - maxSetProblems; more > 0 {
		w.warn(Problem{File: w.last.File, Line: w.last.Line, Got: strconv.Itoa(more) + " more warnings", Allowed: "none"})
	}
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
