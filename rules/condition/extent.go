package condition

import (
	"fmt"
	"strings"
)

// checkExtent refuses expressions of more operators, or deeper brackets, than their bounds before the parser sees them, and tells
// where the bound is passed. What it cannot make out it leaves to the parser.
func checkExtent(expr string) error {
	s := scanner{rest: expr, line: 1, column: 1}
	operators, depth := 0, 0
	for s.next() {
		switch s.token {
		case "(", "[", "{":
			if depth++; depth > maxNesting {
				return problem(s.line, s.column, "one more bracket within others", fmt.Sprintf("at most %d levels", maxNesting), "")
			}
		case ")", "]", "}":
			depth--
		case "!", "-", "+", "*", "/", "%", "<", "<=", ">", ">=", "==", "!=", "&&", "||", "?", "in":
			if operators++; operators > MaxOperators {
				return problem(s.line, s.column, "one more operator", fmt.Sprintf("at most %d in one condition", MaxOperators), "in asks for one of several values; or split the rule")
			}
		}
	}
	return nil
}

// scanner takes an expression apart as far as checkExtent asks: operators, brackets and words, without texts, comments and space.
type scanner struct {
	rest         string
	token        string // the present one
	line, column int    // of it, from 1; columns are characters
}

// next goes on to the next token. It is false at the end, and where a text or comment has none.
func (s *scanner) next() bool {
	s.pass(len(s.token))
	for s.token = ""; s.rest != ""; {
		switch c := s.rest[0]; {
		case c == ' ' || c == '\t' || c == '\n':
			s.pass(1)
		case strings.HasPrefix(s.rest, "//"):
			end := strings.IndexByte(s.rest, '\n')
			if end < 0 {
				return false
			}
			s.pass(end)
		case c == '"' || c == '\'':
			if !s.text(false) {
				return false
			}
		case wordByte(c):
			end := 1
			for end < len(s.rest) && wordByte(s.rest[end]) {
				end++
			}
			word := strings.ToLower(s.rest[:end])
			if quoted := end < len(s.rest) && (s.rest[end] == '"' || s.rest[end] == '\''); quoted && (word == "r" || word == "b" || word == "br" || word == "rb") {
				s.pass(end)
				if !s.text(strings.Contains(word, "r")) {
					return false
				}
				continue
			}
			s.token = s.rest[:end]
			return true
		default:
			s.token = s.rest[:1]
			switch two := s.rest[:min(2, len(s.rest))]; two {
			case "&&", "||", "==", "!=", "<=", ">=":
				s.token = two
			}
			return true
		}
	}
	return false
}

// text passes over the text that begins here; it is false where that has no end.
func (s *scanner) text(raw bool) bool {
	quote := s.rest[:1]
	if triple := strings.Repeat(quote, 3); strings.HasPrefix(s.rest, triple) {
		quote = triple
	}
	for i := len(quote); i < len(s.rest); i++ {
		switch {
		case s.rest[i] == '\\' && !raw:
			i++
		case strings.HasPrefix(s.rest[i:], quote):
			s.pass(i + len(quote))
			return true
		}
	}
	return false
}

// pass goes on by n bytes.
func (s *scanner) pass(n int) {
	for _, r := range s.rest[:n] {
		if s.column++; r == '\n' {
			s.line, s.column = s.line+1, 1
		}
	}
	s.rest = s.rest[n:]
}

func wordByte(c byte) bool {
	return c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
