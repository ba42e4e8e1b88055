package yamlnode

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// SyntaxError says where a text stops being YAML.
type SyntaxError struct {
	Place         // the zero value where it cannot be told
	Reason string // the YAML library's words, without its name and the line
	Hint   string // how to put it right; may be empty
}

var _ error = (*SyntaxError)(nil)

func (e *SyntaxError) Error() string {
	if e.Line == 0 {
		return e.Reason
	}
	return fmt.Sprintf("line %d: %s", e.Line, e.Reason)
}

// maxTry bounds in bytes what is read again to find the column of an error: the text before it as often as its line is long.
const maxTry = 16 << 20

// syntaxError takes apart an error of the YAML library, which has a line in its text only: "yaml: line 3: did not find …". The
// scanner of the library counts that line from 1 and its parser from 0, what lies on the first line has none, and it is the line on
// which a block, a bracket, a text or a name begins rather than where it goes wrong. So the text is read again: behind a line of
// comment, and in parts.
func syntaxError(src []byte, err error) *SyntaxError {
	e := &SyntaxError{}
	e.Reason, _ = reasonOf(err)
	src = bytes.TrimPrefix(src, []byte("\ufeff"))
	if _, line := reasonOf(readError(slices.Concat([]byte("#\n"), src))); line > 0 {
		e.Line = line
		if !ofParser(e.Reason) {
			e.Line--
		}
	}
	ends := lineEnds(src)
	if !ofBegin(e.Reason) || e.Line > len(ends) {
		e.Line = cmp.Or(e.firstFailing(src, ends), min(e.Line, len(ends)))
	}
	if e.Line == 0 {
		return e
	}
	begin, end := 0, ends[e.Line-1]
	if e.Line > 1 {
		begin = ends[e.Line-2]
	}
	line := strings.TrimRight(string(src[begin:end]), "\r\n")
	e.Column = e.column(src[:begin], line)
	e.Hint = e.hint(line)
	return e
}

// reasonOf takes the line out of an error's text; 0 where it has none.
func reasonOf(err error) (reason string, line int) {
	if err == nil {
		return "", 0
	}
	reason = strings.TrimPrefix(err.Error(), "yaml: ")
	if m := regexp.MustCompile(`^line (\d+): (?s:(.*))$`).FindStringSubmatch(reason); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			reason, line = m[2], n
		}
	}
	return strings.ToValidUTF8(reason, ""), line
}

// ofParser tells the errors of the library's parser from those of its scanner.
func ofParser(reason string) bool {
	return ofFlow(reason) || slices.Contains([]string{
		"did not find expected key", "did not find expected '-' indicator", "did not find expected <stream-start>", "did not find expected <document start>", "did not find expected node content",
		"found undefined tag handle", "found duplicate %YAML directive", "found incompatible YAML document", "found duplicate %TAG directive",
	}, reason)
}

// ofBegin tells the errors that are mended where the library's line is: at what is not closed, or no name.
func ofBegin(reason string) bool {
	return ofFlow(reason) || reason == "found unexpected end of stream" || reason == "could not find expected ':'"
}

// ofFlow tells the errors of what stands between brackets.
func ofFlow(reason string) bool {
	return reason == "did not find expected ',' or ']'" || reason == "did not find expected ',' or '}'"
}

// lineEnds is the offset behind each line of src, its end included.
func lineEnds(src []byte) []int {
	var ends []int
	for i, r := range string(src) {
		if next := i + utf8.RuneLen(r); r == '\n' || r == '\r' && !bytes.HasPrefix(src[next:], []byte("\n")) || strings.ContainsRune("\u0085\u2028\u2029", r) {
			ends = append(ends, next)
		}
	}
	if len(ends) == 0 || ends[len(ends)-1] < len(src) {
		ends = append(ends, len(src))
	}
	return ends
}

// failsAlike reports whether a part of the text fails for the same reason.
func (e *SyntaxError) failsAlike(part []byte) bool {
	reason, _ := reasonOf(readError(part))
	return reason == e.Reason
}

// firstFailing is the first line up to which a text fails as the whole does; 0 for none.
func (e *SyntaxError) firstFailing(src []byte, ends []int) int {
	least, most := 0, len(ends) // most is behind the last line: none
	for least < most {
		if half := (least + most) / 2; e.failsAlike(src[:ends[half]]) {
			most = half
		} else {
			least = half + 1
		}
	}
	if least == len(ends) {
		return 0
	}
	return least + 1
}

// column is where in its line the text behind before fails: at the bracket or quote that is not closed, else at the first character
// that does not fit, and where neither can be told at the first character of the line.
func (e *SyntaxError) column(before []byte, line string) int {
	characters := []rune(line)
	first := max(slices.IndexFunc(characters, func(r rune) bool { return r != ' ' }), 0) + 1
	at := len(characters)
	if len(line)*(len(before)+len(line)) > maxTry || !e.failsAlike(slices.Concat(before, []byte(line))) {
		if ofFlow(e.Reason) {
			return max(openBracket(characters), first)
		}
		return first
	}
	for at > 0 && e.failsAlike(slices.Concat(before, []byte(string(characters[:at-1])))) {
		at--
	}
	if ofFlow(e.Reason) {
		return max(openBracket(characters[:at]), first)
	}
	if at > 0 && characters[at-1] == ':' && ofParser(e.Reason) { // the parser is told of a name at its colon
		return first
	}
	for at > 1 && characters[at-2] == '\t' {
		at--
	}
	return max(at, 1)
}

// openBracket is the column of the last bracket that the characters open and do not close; 0 for none.
func openBracket(characters []rune) int {
	closed := 0
	for i, r := range slices.Backward(characters) {
		switch r {
		case ']', '}':
			closed++
		case '[', '{':
			if closed == 0 {
				return i + 1
			}
			closed--
		}
	}
	return 0
}

// hint says how to put right what users get wrong most.
func (e *SyntaxError) hint(line string) string {
	rest := []rune(line)
	if e.Column > 0 {
		rest = rest[e.Column-1:]
	}
	switch {
	case regexp.MustCompile(`(^|[\s{-])when:\s*[^\s|>]`).MatchString(line) && !ofFlow(e.Reason):
		return "put the whole expression into quotes, or after |"
	case strings.HasPrefix(string(rest), "\t"):
		return "YAML is indented with spaces, not with tabs"
	case ofFlow(e.Reason) && strings.HasPrefix(string(rest), "["):
		return "close the [ with ]"
	case ofFlow(e.Reason) && strings.HasPrefix(string(rest), "{"):
		return "close the { with }"
	}
	return ""
}
