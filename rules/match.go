package rules

import (
	"fmt"
	"strings"

	"github.com/weirhq/weir/rules/reading"
)

// Target is what rules are asked about: a request as it was sent, and how it was answered. What is not known is empty, and then
// no rule that names it matches.
type Target struct {
	Method string
	Path   string // the request's target as on the request line; what follows the first '?' is not looked at
	Host   string // of the Host header, or as the gateway has it
	Route  string // the gateway's own name of the route
	Status int    // of the answer; 0 before there is one
}

// MaxPathBytes bounds match.path.
const MaxPathBytes = reading.MaxPatternBytes

// maxMethodBytes bounds one name in match.method. A request whose method is longer has no method for a rule.
const maxMethodBytes = 64

// maxAlternatives bounds each list of a match.
const maxAlternatives = 64

// Reaches reports whether the request part of m matches a request: its method, host, path and route, however the path is
// spelled. What is known only of the answer, or needs an event, is not asked: m.Statuses and m.When. Routing (Index.Match agrees
// with Reaches) and the gates both use it, so that a block holds for the requests that were counted.
//
// A path reaches m if it does in any of the ways in which common servers read it (see package reading): one of m's paths matches it as it
// is read in this way, and none of m.Except does. So nobody gets past a rule by a spelling that only some servers read as one
// that is left out, and who spells what is left out in a way that all read alike is left out.
//
// Methods are compared without ASCII case. Ordinary paths, which all servers read alike, cost no memory with a pattern that is
// ordinary, too; others cost time and memory in proportion to their length.
func (m *Match) Reaches(t *Target) bool {
	return m.matchesMethod(t.Method) && (len(m.Hosts) == 0 || m.matchesHost(t)) && namesRoute(m.Routes, t.Route) &&
		m.reachesPath(t)
}

func (m *Match) reachesPath(t *Target) bool {
	path := reading.CutQuery(t.Path)
	switch {
	case len(m.Paths) > 0 || len(m.Except) > 0:
		return m.readsAs(path, t.Method)
	case m.Path == "":
		return true
	}
	pattern, ok := m.normalPath()
	if !ok || pattern != m.Path {
		if raw := reading.Raw(path); raw.Match(m.Path, m.folds()) {
			return true
		}
	}
	if !ok {
		return false
	}
	if plain := reading.Plain(path); reading.Ordinary(path) {
		return plain.Match(pattern, m.folds())
	}
	for s := reading.SpellingsOf(path, reading.IsConnect(t.Method)); s.Next(); {
		if s.Match(pattern, m.folds()) {
			return true
		}
	}
	return false
}

// readsAs is reachesPath for a match with several paths, or with paths that are left out: all of them in the form in which they
// are compared.
func (m *Match) readsAs(path, method string) bool {
	as := reading.Raw(path)
	as.Loose = m.PathAs != PathRaw
	if !as.Loose || reading.Ordinary(path) {
		return m.admits(&as)
	}
	n := 0
	for s := reading.SpellingsOf(path, reading.IsConnect(method)); s.Next(); n++ {
		if (n > 0 || len(m.Except) == 0) && m.admits(&s.Segments) {
			return true
		}
	}
	// No server takes a path as it stands that can be read, but what cannot be has no other reading.
	return n == 1 && m.admits(&as)
}

// admits reports whether a path in one reading is one of m's and none that is left out. Where programs differ on the end of the
// path, each end is a reading of its own.
func (m *Match) admits(s *reading.Segments) bool {
	if len(m.Except) == 0 || !s.Tailed(m.folds()) {
		return m.watches(s) && !m.leavesOut(s)
	}
	whole := *s
	whole.Whole = true
	cut := whole.CutTail(m.folds())
	return m.watches(&whole) && !m.leavesOut(&whole) || m.watches(&cut) && !m.leavesOut(&cut)
}

func (m *Match) watches(s *reading.Segments) bool {
	if len(m.Paths) == 0 {
		return m.Path == "" || s.Match(m.Path, m.folds())
	}
	for _, p := range m.Paths {
		if s.Match(p, m.folds()) {
			return true
		}
	}
	return false
}

func (m *Match) leavesOut(s *reading.Segments) bool {
	for _, p := range m.Except {
		if s.Match(p, m.folds()) {
			return true
		}
	}
	return false
}

// paths are the patterns of m, none for one that matches every path.
func (m *Match) paths() []string {
	if len(m.Paths) == 0 && m.Path != "" {
		return []string{m.Path}
	}
	return m.Paths
}

// normalPath is the pattern with which the readings of a path are compared. There is none for a match that takes paths as
// they stand, nor for a pattern whose escapes stand for what no pattern can say. A path that is, as it stands, what m.Path
// is, reaches m in any case.
func (m *Match) normalPath() (string, bool) {
	if m.PathAs == PathRaw {
		return "", false
	}
	return reading.Normal(m.Path)
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

// checkNormal requires of a match.path the normal form in which requests' paths are compared with it, so that there is one way
// to write a path. It says what is allowed instead of path; both results are empty if path is in normal form.
func checkNormal(path string) (allowed, hint string) {
	normal, ok := reading.Normal(path)
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

// MaxRouteBytes bounds a name in match.route.
const MaxRouteBytes = 256

// matchesHost reports whether one of m's hosts is that of the request. A target in absolute form names a host beside the Host
// header's. Servers ought to go by the target's (RFC 9112, section 3.2.2), and not all do: either of them matches.
func (m *Match) matchesHost(t *Target) bool {
	var room reading.HostRoom
	if namesHost(m.Hosts, reading.Host(&room, t.Host)) {
		return true
	}
	other := reading.HostOf(t.Path, reading.IsConnect(t.Method))
	return other != "" && namesHost(m.Hosts, reading.Host(&room, other))
}

func namesHost(names []string, host []byte) bool {
	for _, name := range names {
		if suffix, ok := belowHost(name); ok {
			if len(host) > len(suffix) && string(host[len(host)-len(suffix):]) == suffix {
				return true
			}
		} else if len(host) > 0 && string(host) == name {
			return true
		}
	}
	return false
}

// belowHost reports whether a name is that of all hosts below one, and gives how they end: ".example.com".
func belowHost(name string) (suffix string, ok bool) { return strings.CutPrefix(name, "*") }

func namesRoute(names []string, route string) bool {
	if len(names) == 0 {
		return true
	}
	for _, name := range names {
		if route != "" && name == route {
			return true
		}
	}
	return false
}

func namesStatus(names []string, status int) bool {
	if len(names) == 0 {
		return true
	}
	code, class := statusNames(status)
	for _, name := range names {
		if name == string(code[:]) || name == string(class[:]) {
			return true
		}
	}
	return false
}

// statusNames are the names by which a rule may name a status: 401 and 4xx. Those of what is no status are no names.
func statusNames(status int) (code, class [3]byte) {
	if status < 100 || status > 599 {
		return code, class
	}
	code = [3]byte{byte('0' + status/100), byte('0' + status/10%10), byte('0' + status%10)}
	return code, [3]byte{code[0], 'x', 'x'}
}

// checkHost says what a name in match.host must be, and "" when host is.
func checkHost(host string) (allowed, hint string) {
	const name = "a host such as api.example.com, or *.example.com for all hosts below it"
	rest, _ := strings.CutPrefix(host, "*.")
	switch {
	case host == "*":
		return name, "leave the field out to match every host"
	case strings.Contains(host, "/"):
		return name, "leave scheme and path out"
	case strings.HasPrefix(host, "["):
		var room reading.HostRoom
		if text := reading.Host(&room, host); string(text) == host {
			return "", ""
		} else if len(text) > 0 {
			return "an address in its canonical form, without port", "write " + quoteShort(string(text))
		}
		return name, ""
	case strings.Contains(rest, ":"):
		return name, "leave the port out: every port matches"
	case strings.HasSuffix(rest, "."):
		return name, "leave the dot at the end out: it makes no difference"
	case len(host) > reading.MaxHostBytes:
		return fmt.Sprintf("at most %d bytes", reading.MaxHostBytes), ""
	}
	for label := range strings.SplitSeq(rest, ".") {
		if label == "" {
			return name, ""
		}
		for i := 0; i < len(label); i++ {
			switch c := label[i]; {
			case c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-' || c == '_':
			case c >= 'A' && c <= 'Z':
				return "a host in lower case", "write " + quoteShort(strings.ToLower(host))
			case c >= 0x80:
				return "a host in ASCII, as requests have it", "write such a name in its form xn--…"
			default:
				return name, ""
			}
		}
	}
	return "", ""
}

// checkStatus says what a name in match.status must be, and "" when status is.
func checkStatus(status string) (allowed string) {
	if len(status) == 3 && status[0] >= '1' && status[0] <= '5' {
		if status[1:] == "xx" || status[1] >= '0' && status[1] <= '9' && status[2] >= '0' && status[2] <= '9' {
			return ""
		}
	}
	return allowedStatus
}
