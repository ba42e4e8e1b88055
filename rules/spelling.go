package rules

import (
	"path"
	"strings"

	"github.com/weirhq/weir/traffic"
)

// Reaches reports whether a request of this method and path may be one that m watches, however its path is spelled.
// It is for refusing the requests of a client that is blocked already, where the path is the client's own text: what
// stands behind the gate may decode escapes, take %2F for a slash, drop empty and dot segments or a trailing slash, and
// then serve what m watches. Whatever Matches matches, Reaches does too; ordinary paths cost the same and no memory.
func (m *Match) Reaches(method, raw string) bool {
	if !m.matchesMethod(method) {
		return false
	}
	if m.Path == "" {
		return true
	}
	raw = cutQuery(raw)
	if matchPath(m.Path, raw) {
		return true
	}
	if !strings.Contains(raw, "%") && !strings.Contains(raw, "//") && !strings.Contains(raw, "/.") && !strings.HasSuffix(raw, "/") {
		return false
	}
	pattern := unescape(m.Path, true)
	for _, slashes := range []bool{true, false} {
		reading := unescape(raw, slashes)
		cleaned := path.Clean(reading)
		if matchPath(pattern, reading) || matchPath(pattern, cleaned) || matchPath(pattern, cleaned+"/") {
			return true
		}
	}
	return false
}

// unescape decodes percent escapes once, those of slashes only if asked to; what is none stays as it is.
func unescape(s string, slashes bool) string {
	if !strings.Contains(s, "%") {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			hi, ok1 := traffic.HexDigit(s[i+1])
			lo, ok2 := traffic.HexDigit(s[i+2])
			if c := hi<<4 | lo; ok1 && ok2 && (slashes || c != '/') {
				out = append(out, c)
				i += 2
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}
