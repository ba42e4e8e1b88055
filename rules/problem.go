package rules

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirhq/weir/internal/nearest"
	"github.com/weirhq/weir/internal/yamlnode"
)

// maxProblems bounds what is reported of one file; the rest is summed up in one more problem. After ten times as many
// a file is not read on: it is no file of rules.
const maxProblems = 100

// maxSetProblems bounds what is reported of all files together, and how many warnings are.
const maxSetProblems = 1000

// Problem is one thing that is wrong with a rule document.
type Problem struct {
	File    string `json:"file,omitempty" mask:"-"`
	Line    int    `json:"line,omitempty"`           // from 1; 0 when the document did not come from a file
	Column  int    `json:"column,omitempty"`         // from 1, in characters; 0 where only the line is known
	Field   string `json:"field,omitempty" mask:"-"` // as a path: block.ttl, key[1].v4
	Got     string `json:"got" mask:"-"`
	Allowed string `json:"allowed" mask:"-"`
	Hint    string `json:"hint,omitempty" mask:"-"` // what was probably meant, or how to put it right

	within yamlnode.Place // of what the field says, where that is an expression: see decoder.locate
	needs  string         // a field without which nothing can be said of this one
}

// At is p at a place of a file.
func (p Problem) At(file string, place yamlnode.Place) Problem {
	p.File, p.Line, p.Column = file, place.Line, place.Column
	return p
}

// inWords is p with the place in the expression in words: for documents of no file, and texts written otherwise than they read.
func (p Problem) inWords() Problem {
	if p.within.Line > 0 {
		p.Got += fmt.Sprintf(" (line %d, column %d of the expression)", p.within.Line, p.within.Column)
	}
	p.within = yamlnode.Place{}
	return p
}

// Error writes p as one line: `file:line:column: field: got …, allowed …; hint`.
func (p Problem) Error() string {
	var b strings.Builder
	if p.File != "" {
		fmt.Fprintf(&b, "%s:%d:", p.File, p.Line)
		if p.Column > 0 {
			fmt.Fprintf(&b, "%d:", p.Column)
		}
		b.WriteByte(' ')
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

// Problems is everything that is wrong with a set of rule documents, by file and place. It is the error that
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

// bounded sorts the problems of one file by place and cuts them to maxProblems.
func (ps Problems) bounded() Problems {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return ps.cut(maxProblems)
}

// cut sums up what is beyond the first problems, as they stand, in one more.
func (ps Problems) cut(most int) Problems {
	if len(ps) <= most {
		return ps
	}
	more := Problem{
		File: ps[most].File, Line: ps[most].Line, Column: ps[most].Column,
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
		w.warn(Problem{File: w.last.File, Line: w.last.Line, Column: w.last.Column, Got: strconv.Itoa(more) + " more warnings", Allowed: "none"})
	}
}

// locate is p at the place of its field or, of an expression, at the very spot in the file where that can be said.
func (d *decoder) locate(p Problem) Problem {
	if n, ok := d.nodes[p.Field]; ok && p.within.Line > 0 {
		if at, ok := n.Within(behindSpace(n.Value(), p.within)); ok {
			p.within = yamlnode.Place{}
			return p.At(d.file, at)
		}
	}
	return p.inWords().At(d.file, d.place(p.Field))
}

// behindSpace is a place of a text without the space around it as a place of the text.
func behindSpace(text string, at yamlnode.Place) yamlnode.Place {
	before := text[:len(text)-len(strings.TrimLeftFunc(text, unicode.IsSpace))]
	if at.Line == 1 {
		at.Column += utf8.RuneCountInString(before[strings.LastIndexByte(before, '\n')+1:])
	}
	at.Line += strings.Count(before, "\n")
	return at
}

// references reports what lets a document mean something else than it shows. A condition that begins with ! is a tag to YAML.
func references(d *decoder, n yamlnode.Node) {
	for _, found := range n.References(quoteShort) {
		hint := ""
		if strings.HasPrefix(found.Got, "the YAML tag \"!event.") || strings.HasPrefix(found.Got, "the YAML tag \"!has(") {
			hint = "put the whole expression into quotes, or after |"
		}
		d.add(found.Place, "", found.Got, found.Allowed, hint)
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
