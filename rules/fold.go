package rules

import "strings"

// The letters that have another case in ASCII: the Kelvin sign and the long s. Programs that ignore case fold one of them
// or both. Other letters beyond ASCII are compared exactly: they are several bytes in a path, and programs differ on which of
// them are one letter.
const (
	kelvinSign = "\u212a"
	longS      = "\u017f"
)

func sameText(a, b string, fold bool) bool {
	rest, ok := cutPrefix(a, b, fold)
	return ok && rest == ""
}

// cutPrefix is what follows prefix in s, if s begins with it.
func cutPrefix(s, prefix string, fold bool) (rest string, ok bool) {
	if !fold || strings.HasPrefix(s, prefix) {
		return strings.CutPrefix(s, prefix)
	}
	for prefix != "" {
		if s == "" {
			return "", false
		}
		want, wantSize := firstLower(prefix)
		got, gotSize := firstLower(s)
		if got != want {
			return "", false
		}
		s, prefix = s[gotSize:], prefix[wantSize:]
	}
	return s, true
}

// firstLower is the first byte of a text, which is not empty, in lower case, and the size of what it stands for.
func firstLower(s string) (c byte, size int) {
	switch c = s[0]; {
	case c == kelvinSign[0] && strings.HasPrefix(s, kelvinSign):
		return 'k', len(kelvinSign)
	case c == longS[0] && strings.HasPrefix(s, longS):
		return 's', len(longS)
	}
	return lowerByte(c), 1
}

func lowerByte(c byte) byte {
	if c >= 'A' && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// appendLower appends s in lower case.
func appendLower(dst []byte, s string) []byte {
	for s != "" {
		c, size := firstLower(s)
		dst, s = append(dst, c), s[size:]
	}
	return dst
}

// lowerSize is how many bytes at the beginning of s are n in lower case, and more than there are if there are not so many.
func lowerSize(s string, n int) int {
	at := 0
	for ; n > 0; n-- {
		if at >= len(s) {
			return len(s) + 1
		}
		_, size := firstLower(s[at:])
		at += size
	}
	return at
}

// hasUpper reports whether appendLower may change s.
func hasUpper(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c >= 'A' && c <= 'Z' || c == kelvinSign[0] || c == longS[0] {
			return true
		}
	}
	return false
}
