package traffic

import "unicode/utf8"

const lowerHex = "0123456789abcdef"

// Printable makes text that every store takes: valid UTF-8 without NUL, which is what PostgreSQL's text and jsonb hold.
// Each byte that is not part of valid UTF-8, and NUL, is written as the four characters \xNN with lower-case hex
// digits; everything else, other control characters and backslashes included, stays as it is. It is made for reading:
// a literal `\x00` and a NUL byte look the same afterwards, so nothing may be keyed on its result (Subject is for that).
func Printable(s string) string {
	bad := firstUnprintable(s)
	if bad == len(s) {
		return s
	}
	out := make([]byte, 0, len(s)+16)
	for {
		out = append(out, s[:bad]...)
		if bad == len(s) {
			return string(out)
		}
		out = append(out, '\\', 'x', lowerHex[s[bad]>>4], lowerHex[s[bad]&15])
		s = s[bad+1:]
		bad = firstUnprintable(s)
	}
}

// firstUnprintable is the index of the first byte of s that Printable rewrites, or len(s).
func firstUnprintable(s string) int {
	for i := 0; i < len(s); {
		c := s[i]
		if c == 0 {
			return i
		}
		if c < utf8.RuneSelf {
			i++
			continue
		}
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return len(s)
}
