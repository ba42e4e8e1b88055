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

// Reaches reports whether m matches a request of this method and path, however the path is spelled: whether m.Path matches it
// in any of the ways in which common servers read it (see readings). Routing (Index.Match agrees with Reaches) and the gates
// both use it, so that a block holds for the requests that were counted.
//
// Methods are compared without ASCII case. Ordinary paths, which all servers read alike, cost no memory with a pattern that is
// ordinary, too; others cost time and memory in proportion to their length.
func (m *Match) Reaches(method, path string) bool {
	if !m.matchesMethod(method) {
		return false
	}
	if m.Path == "" {
		return true
	}
	path = cutQuery(path)
	pattern, ok := m.normalPath()
	if !ok || pattern != m.Path {
		if raw := (segments{text: path}); raw.match(m.Path, m.folds()) {
			return true
		}
	}
	if !ok {
		return false
	}
	if plain := (segments{text: path, loose: true}); ordinary(path) {
		return plain.match(pattern, m.folds())
	}
	for s := spellingsOf(path, isConnect(method)); s.next(); {
		if s.match(pattern, m.folds()) {
			return true
		}
	}
	return false
}

// normalPath is the pattern with which the readings of a path are compared. There is none for a match that takes paths as
// they stand, nor for a pattern whose escapes stand for what no pattern can say. A path that is, as it stands, what m.Path
// is, reaches m in any case.
func (m *Match) normalPath() (string, bool) {
	if m.PathAs == PathRaw {
		return "", false
	}
	return normalPath(m.Path)
}

func (m *Match) folds() bool { return m.PathCase == PathCaseIgnore }

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

// checkNormal requires of a match.path the normal form in which requests' paths are compared with it, so that there is one way
// to write a path. It says what is allowed instead of path; both results are empty if path is in normal form.
func checkNormal(path string) (allowed, hint string) {
	normal, ok := normalPath(path)
	if normal == path {
		return "", ""
	}
	allowed = "a path as servers read it: no percent escapes, no empty segments, no segments . and .."
	if !ok {
		return allowed, "write {name} for the segment, or path_as: raw to compare byte by byte"
	}
	return allowed, "write " + quoteShort(normal) + ", which any spelling of it reaches; or path_as: raw to compare byte by byte"
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
