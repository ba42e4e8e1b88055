package rules

import (
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
