package rules

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPathBytes bounds match.path.
const MaxPathBytes = 2048

// maxMethodBytes bounds one name in match.method. A request whose method is longer has no method for a rule.
const maxMethodBytes = 64

// Matches reports whether m watches a request of this method and path. It does not allocate, and it agrees with Index.
//
// Methods are compared without ASCII case. The path is taken raw, up to its first '?': it is not decoded, cleaned or
// case-folded. Pattern and path are compared segment by segment, cut at '/': a literal segment matches itself, {param}
// any one segment that is not empty, and a pattern's trailing * whatever follows, nothing and further segments included.
func (m *Match) Matches(method, path string) bool {
	return m.matchesMethod(method) && (m.Path == "" || matchPath(m.Path, cutQuery(path)))
}

func (m *Match) matchesMethod(method string) bool {
	if len(m.Methods) == 0 {
		return true
	}
	var buf [maxMethodBytes]byte
	upper := upperMethod(&buf, method)
	for _, name := range m.Methods {
		if len(upper) > 0 && name == string(upper) {
			return true
		}
	}
	return false
}

// upperMethod writes method into buf in ASCII upper case. The result is empty for a method that no rule can name.
func upperMethod(buf *[maxMethodBytes]byte, method string) []byte {
	if len(method) > maxMethodBytes {
		return nil
	}
	for i := 0; i < len(method); i++ {
		c := method[i]
		if c >= 'a' && c <= 'z' {
			c -= 'a' - 'A'
		}
		buf[i] = c
	}
	return buf[:len(method)]
}

func cutQuery(path string) string {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		return path[:i]
	}
	return path
}

func matchPath(pattern, path string) bool {
	for {
		want, patternRest, patternMore := strings.Cut(pattern, "/")
		if prefix, ok := restPrefix(want, patternMore); ok {
			return strings.HasPrefix(path, prefix)
		}
		got, pathRest, pathMore := strings.Cut(path, "/")
		if isParam(want) {
			if got == "" {
				return false
			}
		} else if got != want {
			return false
		}
		if !patternMore || !pathMore {
			return patternMore == pathMore
		}
		pattern, path = patternRest, pathRest
	}
}

// restPrefix reports whether segment is the trailing * of its pattern, and what stands before the *.
func restPrefix(segment string, more bool) (string, bool) {
	if more || !strings.HasSuffix(segment, "*") {
		return "", false
	}
	return segment[:len(segment)-1], true
}

// isParam reports whether segment is {name}.
func isParam(segment string) bool {
	return len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}'
}

// includes reports whether the pattern wide matches every path that the pattern narrow matches; "" matches all. The
// answer is exact: a single pattern's set of paths is a product of independent segments.
func includes(wide, narrow string) bool {
	if wide == "" {
		wide = "*"
	}
	if narrow == "" {
		narrow = "*"
	}
	for {
		w, wideRest, wideMore := strings.Cut(wide, "/")
		n, narrowRest, narrowMore := strings.Cut(narrow, "/")
		prefix, narrowEndless := restPrefix(n, narrowMore)
		if start, ok := restPrefix(w, wideMore); ok {
			switch {
			case narrowEndless:
				return strings.HasPrefix(prefix, start)
			case isParam(n):
				return start == "" // a param may start with anything
			default:
				return strings.HasPrefix(n, start)
			}
		}
		if narrowEndless {
			return false // endless paths do not fit into a fixed number of segments
		}
		if isParam(w) {
			if n == "" {
				return false
			}
		} else if n != w {
			return false
		}
		if !wideMore || !narrowMore {
			return wideMore == narrowMore
		}
		wide, narrow = wideRest, narrowRest
	}
}

// checkPath says what a match.path must be, and "" when path is.
func checkPath(path string) (allowed string) {
	switch {
	case path == "":
		return "a path that is not empty, or no path member at all for any path"
	case len(path) > MaxPathBytes:
		return fmt.Sprintf("at most %d bytes", MaxPathBytes)
	case !printable(path):
		return "printable UTF-8 text"
	case strings.Contains(path, "?"):
		return "a path without '?': the query is not matched"
	case strings.Contains(path[:len(path)-1], "*"):
		return "a single *, as the last character"
	}
	for segment := range strings.SplitSeq(path, "/") {
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		if !isParam(segment) || !isName(segment[1:len(segment)-1]) {
			return "braces only around a whole segment's name of letters, digits and _, such as /users/{id}/posts"
		}
	}
	return ""
}

// checkMethod says what a name in match.method must be, and "" when method is.
func checkMethod(method string) (allowed string) {
	const tokens = "!#$%&'*+-.^_`|~" // RFC 9110, section 5.6.2, beside letters and digits
	if method == "" || len(method) > maxMethodBytes {
		return fmt.Sprintf("a method name of 1 to %d characters, such as POST", maxMethodBytes)
	}
	for i := 0; i < len(method); i++ {
		c := method[i]
		if !(c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(tokens, c) >= 0) {
			return "a method name of letters, digits and " + tokens
		}
	}
	return ""
}

func isName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// printable reports whether s is valid UTF-8 of visible characters and plain spaces: no NUL, no line breaks, no
// characters that reorder a terminal's text.
func printable(s string) bool {
	if !utf8.ValidString(s) {
		return false
	}
	for _, r := range s {
		if !unicode.IsPrint(r) {
			return false
		}
	}
	return true
}
