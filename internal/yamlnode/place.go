package yamlnode

import (
	"bytes"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Place is a character of a text. Lines and columns count from 1, columns in characters (code points, a tab is one), as editors
// show them. The zero value is none.
type Place struct{ Line, Column int }

// source is a text in the lines that YAML counts, which are split when they are asked for first.
type source struct {
	text  []byte
	lines [][]rune
}

// line is the characters of the line with this number, from 1, without its end; nil behind the last line.
func (s *source) line(number int) []rune {
	if s.lines == nil {
		for _, line := range splitLines(s.text) {
			s.lines = append(s.lines, []rune(line))
		}
	}
	if number < 1 || number > len(s.lines) {
		return nil
	}
	return s.lines[number-1]
}

// splitLines splits a text where YAML does, which knows more ends of a line than one, and without the byte order mark.
func splitLines(text []byte) []string {
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return strings.Split(ends.Replace(string(bytes.TrimPrefix(text, []byte("\ufeff")))), "\n")
}

// Within is the place in the document of the character of n's Value with this line and column. It is false where the text is not
// written as it reads: behind an escape other than \" and \\, and behind lines that YAML joins otherwise than with one space.
func (n Node) Within(at Place) (Place, bool) {
	if !n.IsScalar() || n.text == nil {
		return Place{}, false
	}
	lines := strings.Split(n.Value(), "\n")
	if at.Line < 1 || at.Line > len(lines) || at.Column < 1 || at.Column > len([]rune(lines[at.Line-1]))+1 {
		return Place{}, false
	}
	w := walk{source: n.text, at: n.Place(), style: n.yaml.Style &^ yaml.TaggedStyle}
	switch w.style {
	case yaml.DoubleQuotedStyle, yaml.SingleQuotedStyle:
		w.at.Column++
	case yaml.LiteralStyle, yaml.FoldedStyle:
		w.beginBlock(lines)
	}
	for _, line := range lines[:at.Line-1] {
		if !w.over(line) || !w.overEnd() {
			return Place{}, false
		}
	}
	return w.at, w.over(string([]rune(lines[at.Line-1])[:at.Column-1]))
}

// walk goes through the source of a scalar beside its value.
type walk struct {
	source *source
	at     Place
	style  yaml.Style
	indent int // of the lines of a literal or folded block
}

// beginBlock goes to the first line behind the | or >, whose first line with a text tells how far all are indented.
func (w *walk) beginBlock(lines []string) {
	first := max(slices.IndexFunc(lines, func(l string) bool { return strings.TrimSpace(l) != "" }), 0)
	written := w.source.line(w.at.Line + 1 + first)
	w.indent = slices.IndexFunc(written, func(r rune) bool { return r != ' ' })
	w.indent = max(w.indent-strings.IndexFunc(lines[first], func(r rune) bool { return r != ' ' }), 0)
	w.at = Place{w.at.Line + 1, w.indent + 1}
}

// over goes over characters of the value, and reports whether they are written as they read.
func (w *walk) over(text string) bool {
	for _, r := range text {
		line := w.source.line(w.at.Line)
		rest := line[min(w.at.Column-1, len(line)):]
		switch {
		case len(rest) > 1 && w.style == yaml.DoubleQuotedStyle && rest[0] == '\\':
			if r != rest[1] || r != '"' && r != '\\' {
				return false
			}
			w.at.Column += 2
		case len(rest) > 1 && w.style == yaml.SingleQuotedStyle && r == '\'' && rest[0] == '\'' && rest[1] == '\'':
			w.at.Column += 2
		case len(rest) > 0 && rest[0] == r:
			w.at.Column++
		case r == ' ' && w.style != yaml.LiteralStyle && strings.TrimSpace(string(rest)) == "": // lines that are joined
			w.nextLine()
		default:
			return false
		}
	}
	return true
}

// overEnd goes over the end of a line of the value, which only a literal block writes as it reads.
func (w *walk) overEnd() bool {
	line := w.source.line(w.at.Line)
	if w.style != yaml.LiteralStyle || w.at.Column <= len(line) {
		return false
	}
	w.nextLine()
	return true
}

func (w *walk) nextLine() {
	w.at = Place{w.at.Line + 1, w.indent + 1}
	if w.style != yaml.LiteralStyle && w.style != yaml.FoldedStyle {
		w.at.Column = max(slices.IndexFunc(w.source.line(w.at.Line), func(r rune) bool { return r != ' ' && r != '\t' }), 0) + 1
	}
}
