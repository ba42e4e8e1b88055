package traffic

import (
	"fmt"
	"unicode/utf8"
)

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

// quotedBytes bounds what an error message repeats of a bad message.
const quotedBytes = 64

// Quote shows the beginning of bad input, at most quotedBytes long, in printable ASCII.
func Quote[T string | []byte](s T) string {
	cut := s
	if len(cut) > quotedBytes {
		cut = cut[:quotedBytes]
	}
	q := fmt.Sprintf("%+q", cut)
	const dots = "..."
	if len(q) <= quotedBytes && len(cut) == len(s) {
		return q
	}
	// Escapes may have made it longer; a cut through the middle of one is still printable.
	return q[:min(len(q)-1, quotedBytes-len(dots)-1)] + dots + `"`
}

// AppendEscape appends the JSON escape of a quote, a backslash or a control character.
func AppendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', lowerHex[c>>4], lowerHex[c&15])
}

// HexDigit is the value of a hexadecimal digit of either case.
func HexDigit(c byte) (byte, bool) {
	switch {
	case c >= '0' && c <= '9':
		return c - '0', true
	case c >= 'a' && c <= 'f':
		return c - 'a' + 10, true
	case c >= 'A' && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// Masks to look at eight bytes at once.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)
