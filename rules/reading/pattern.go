package reading

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxPatternBytes bounds a pattern.
const MaxPatternBytes = 2048

// RestPrefix reports whether segment is the trailing * of its pattern, and what stands before the *.
func RestPrefix(segment string, more bool) (string, bool) {
	if more || !strings.HasSuffix(segment, "*") {
		return "", false
	}
	return segment[:len(segment)-1], true
}

// SuffixOf reports whether segment, the last of its pattern, is * and how the segment of a path ends, and what that end is.
func SuffixOf(segment string, more bool) (string, bool) {
	if more || len(segment) < 2 || segment[0] != '*' {
		return "", false
	}
	return segment[1:], true
}

// IsAny reports whether segment stands for any one that is not empty. The last of a pattern is asked RestPrefix and SuffixOf
// first.
func IsAny(segment string) bool { return IsParam(segment) || segment == "*" }

// IsParam reports whether segment is {name}.
func IsParam(segment string) bool {
	return len(segment) > 2 && segment[0] == '{' && segment[len(segment)-1] == '}'
}

// Includes reports whether the pattern wide matches every path that the pattern narrow matches; "" matches all. The
// answer is exact: a single pattern's set of paths is a product of independent segments.
func Includes(wide, narrow string) bool {
	if wide == "" {
		wide = "*"
	}
	if narrow == "" {
		narrow = "*"
	}
	for {
		w, wideRest, wideMore := strings.Cut(wide, "/")
		n, narrowRest, narrowMore := strings.Cut(narrow, "/")
		prefix, narrowEndless := RestPrefix(n, narrowMore)
		if start, ok := RestPrefix(w, wideMore); ok {
			_, narrowEnd := SuffixOf(n, narrowMore)
			switch {
			case narrowEndless:
				return strings.HasPrefix(prefix, start)
			case IsAny(n) || narrowEnd:
				return start == "" // a param may start with anything
			default:
				return strings.HasPrefix(n, start)
			}
		}
		if narrowEndless {
			return false // endless paths do not fit into a fixed number of segments
		}
		if end, ok := SuffixOf(w, wideMore); ok {
			if other, ok := SuffixOf(n, narrowMore); ok {
				n = other
			} else if IsAny(n) {
				return false
			}
			if !strings.HasSuffix(n, end) {
				return false
			}
		} else if IsAny(w) {
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

// CheckPattern says what a pattern must be, and "" when path is one.
func CheckPattern(path string) (allowed string) {
	switch {
	case path == "":
		return "a path that is not empty, or no path member at all for any path"
	case len(path) > MaxPatternBytes:
		return fmt.Sprintf("at most %d bytes", MaxPatternBytes)
	case !Printable(path):
		return "printable UTF-8 text"
	case strings.Contains(path, "?"):
		return "a path without '?': the query is not matched"
	}
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		last := i == len(segments)-1
		if stars := strings.Count(segment, "*"); stars > 1 || stars == 1 && segment != "*" && !(last && (segment[0] == '*' || strings.HasSuffix(segment, "*"))) {
			return "a * for a whole segment, at the very end, or in front of how the last segment ends, such as /a/*/b, /a/* and /a/*.php"
		}
		if !strings.ContainsAny(segment, "{}") {
			continue
		}
		if !IsParam(segment) || !IsName(segment[1:len(segment)-1]) {
			return "braces only around a whole segment's name of letters, digits and _, such as /users/{id}/posts"
		}
	}
	return ""
}

// IsName reports whether s may be the name of a {param}: letters, digits and _, and no digit in front.
func IsName(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return s != ""
}

// Printable reports whether s, a pattern or another text of a document, is valid UTF-8 of visible characters and plain spaces: no NUL, no line breaks, no
// characters that reorder a terminal's text.
func Printable(s string) bool {
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

// CutQuery is a request's target up to the first '?'.
func CutQuery(path string) string {
	if i := strings.IndexByte(path, '?'); i >= 0 {
		return path[:i]
	}
	return path
}
