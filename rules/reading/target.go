package reading

import (
	"net/netip"
	"strings"
	"unicode/utf8"
)

// pathOf is the path that a request's target names (RFC 9112, section 3.2), rooted, and "" if it names none. Every server
// takes scheme and host off an absolute form. Where programs differ on the end of the host it is left, in the form
// //host/path, and hosted is set.
//
// A target that has no slash in front is read as if it had one: programs that look for a file or normalize a path do so.
// So a scheme without a host may be followed by a path, or, as in URLs that lack slashes, by a host, which some readings
// take off.
func pathOf(target string, connect bool) (path string, hosted bool) {
	if target == "" || target == "*" {
		return "", false
	}
	if rooted(target) {
		return target, false
	}
	rest, hasScheme := cutScheme(target)
	switch {
	case hasScheme && len(rest) > 1 && isSlash(rest[0]) && isSlash(rest[1]):
		return cutHost(rest)
	case connect: // host:port, after which Go finds a path if there is one
		_, path, found := strings.Cut(target, "/")
		if !found {
			return "", false
		}
		return "/" + path, false
	case hasScheme && rooted(rest):
		return "/" + rest, false
	case hasScheme:
		return "//" + rest, false
	}
	return "/" + target, false
}

func rooted(path string) bool { return path != "" && isSlash(path[0]) }

func isSlash(c byte) bool { return c == '/' || c == '\\' }

// cutScheme takes off a scheme and its colon.
func cutScheme(target string) (rest string, found bool) {
	for i := range len(target) {
		switch c := lowerByte(target[i]); {
		case c >= 'a' && c <= 'z':
		case i > 0 && c == ':':
			return target[i+1:], true
		case i > 0 && (c >= '0' && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return target, false
		}
	}
	return target, false
}

// cutHost takes a host off that follows two slashes. Where nothing follows it, the root is left.
func cutHost(target string) (path string, hosted bool) {
	rest := target[2:]
	end := strings.IndexAny(rest, `/\#%`)
	switch {
	case end < 0 || rest[end] == '#':
		return "/", false
	case rest[end] != '/':
		return target, true
	case end == 0:
		return target[1:], false // without a host, one slash more is left, which some skip
	}
	return rest[end:], false
}

// withoutBlanks removes the bytes that are no part of a target for programs that split a request line at white space or read a
// URL: blanks around it, tabs and line breaks within. A byte within a character of UTF-8 stays, even if it is a blank in ISO
// 8859-1: half a character is nobody's path.
func withoutBlanks(target string) string {
	for target != "" && blank(target[0]) {
		target = target[1:]
	}
	for target != "" && blank(target[len(target)-1]) {
		if _, size := utf8.DecodeLastRuneInString(target); size > 1 {
			break
		}
		target = target[:len(target)-1]
	}
	for _, c := range [...]string{"\t", "\n", "\r"} {
		target = strings.ReplaceAll(target, c, "")
	}
	return target
}

// blank reports whether a byte is white space or a control in ISO 8859-1, as which such programs read it.
func blank(c byte) bool { return c <= ' ' || c == 0x85 || c == 0xa0 }

// MaxHostBytes bounds the name of a host: that of a name in DNS. A longer one has no host for a rule.
const MaxHostBytes = 253

// HostRoom is memory for a host in the form in which it is compared.
type HostRoom [MaxHostBytes]byte

// Host writes a host into room as hosts are compared: in lower case, without port and without the dot of the root. An
// address of IPv6 is in brackets, in its canonical form. The result is empty for a host that no rule can name.
func Host(room *HostRoom, host string) []byte {
	if strings.HasPrefix(host, "[") {
		text, _, _ := strings.Cut(host[1:], "]")
		addr, err := netip.ParseAddr(text)
		if err != nil || addr.Zone() != "" {
			return nil
		}
		return append(addr.AppendTo(append(room[:0], '[')), ']')
	}
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.Trim(host[colon+1:], "0123456789") == "" {
		host = host[:colon]
	}
	host = strings.TrimSuffix(host, ".")
	if len(host) > len(room) {
		return nil
	}
	for i := 0; i < len(host); i++ {
		room[i] = lowerByte(host[i])
	}
	return room[:len(host)]
}

// HostOf is the host that a request's target names, in its absolute form or in that of CONNECT; "" for a target that names none,
// as nearly all do.
func HostOf(target string, connect bool) string {
	for target != "" && blank(target[0]) {
		target = target[1:]
	}
	if target == "" || rooted(target) {
		return ""
	}
	rest, hasScheme := cutScheme(target)
	switch {
	case hasScheme && len(rest) > 1 && isSlash(rest[0]) && isSlash(rest[1]):
		target = rest[2:]
	case !connect:
		return ""
	}
	if end := strings.IndexAny(target, `/\?#%`); end >= 0 {
		target = target[:end]
	}
	return target[strings.LastIndexByte(target, '@')+1:]
}

// PlainHost is a host as all spell it: without port, final dot and case of ASCII.
func PlainHost(host string) string {
	host = strings.Trim(host, " \t")
	if colon := strings.LastIndexByte(host, ':'); colon >= 0 && strings.IndexByte(host[colon:], ']') < 0 &&
		(host[0] == '[' || strings.IndexByte(host, ':') == colon) {
		host = host[:colon]
	}
	host = strings.TrimSuffix(host, ".")
	if HasUpper(host) {
		return string(AppendLower(nil, host))
	}
	return host
}
