package format

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
	"unsafe"

	"github.com/weirhq/weir/traffic"
)

// Masks to look at eight bytes at once.
const (
	lowBits  = 0x0101010101010101
	highBits = 0x8080808080808080
)

// alias is b as a string that shares its memory: what Request promises its reader.
func alias(b []byte) string {
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// notPlain marks, by its high bit, the first of eight bytes that cannot stand for itself in a JSON string: a quote, a backslash
// or a control character; it is 0 if there is none. Bytes after the first may be marked falsely: for each byte x of w, (x^c)-1
// borrows out of its high bit exactly for x = c as long as no lower byte has borrowed, and x-0x20 for x < 0x20.
func notPlain(w uint64) uint64 {
	quotes := w ^ '"'*lowBits
	slashes := w ^ '\\'*lowBits
	return ((quotes-lowBits)&^quotes | (slashes-lowBits)&^slashes | (w-' '*lowBits)&^w) & highBits
}

// plainEnd is the index, from i on, of the first byte that cannot stand for itself in a JSON string; len(b) if there is none.
func plainEnd(b []byte, i int) int {
	for ; i+8 <= len(b); i += 8 {
		if marks := notPlain(binary.LittleEndian.Uint64(b[i:])); marks != 0 {
			return i + bits.TrailingZeros64(marks)>>3
		}
	}
	for ; i < len(b); i++ {
		if c := b[i]; c == '"' || c == '\\' || c < ' ' {
			return i
		}
	}
	return i
}

// text reads a string; the next byte must be its opening quote. Without escapes the result aliases the input.
// \u escapes are decoded, surrogates without partner become U+FFFD, raw bytes stay raw.
func (s *scanner) text() (string, error) {
	start := s.i + 1
	end := plainEnd(s.b, start)
	if end < len(s.b) && s.b[end] == '"' {
		s.i = end + 1
		return alias(s.b[start:end]), nil
	}
	return s.escapedText(start, end)
}

// escapedText finishes text from the first special byte on.
func (s *scanner) escapedText(start, end int) (string, error) {
	out := make([]byte, 0, end-start+32)
	from := start
	for {
		out = append(out, s.b[from:end]...)
		if end < len(s.b) && s.b[end] == '"' {
			s.i = end + 1
			return alias(out), nil
		}
		r, n, err := s.escape(start, end)
		if err != nil {
			return "", err
		}
		out = utf8.AppendRune(out, r)
		from = end + n
		end = plainEnd(s.b, from)
	}
}

// skipText passes a string and checks it as text does.
func (s *scanner) skipText() error {
	start := s.i + 1
	end := plainEnd(s.b, start)
	for end >= len(s.b) || s.b[end] != '"' {
		_, n, err := s.escape(start, end)
		if err != nil {
			return err
		}
		end = plainEnd(s.b, end+n)
	}
	s.i = end + 1
	return nil
}

// escape decodes the escape at b[at] and says how many bytes it takes. start is where the string's text began.
func (s *scanner) escape(start, at int) (r rune, n int, err error) {
	switch {
	case at >= len(s.b):
		return 0, 0, failure(ReasonMalformed, start-1, "a string without its closing quote")
	case s.b[at] != '\\':
		return 0, 0, failure(ReasonMalformed, at, "control character 0x%02x in a string, allowed: its \\u escape", s.b[at])
	case at+1 == len(s.b):
		return 0, 0, failure(ReasonMalformed, start-1, "a string without its closing quote")
	}
	switch c := s.b[at+1]; c {
	case '"', '\\', '/':
		return rune(c), 2, nil
	case 'b':
		return '\b', 2, nil
	case 'f':
		return '\f', 2, nil
	case 'n':
		return '\n', 2, nil
	case 'r':
		return '\r', 2, nil
	case 't':
		return '\t', 2, nil
	case 'u':
		return s.unicodeEscape(at)
	}
	return 0, 0, failure(ReasonMalformed, at, "escape %s, allowed: \\\" \\\\ \\/ \\b \\f \\n \\r \\t \\u and four hex digits", traffic.Quote(s.b[at:at+2]))
}

func (s *scanner) unicodeEscape(at int) (rune, int, error) {
	r, ok := hex4(s.b, at+2)
	if !ok {
		return 0, 0, failure(ReasonMalformed, at, "escape %s, allowed: \\u and four hex digits", traffic.Quote(s.b[at:min(at+6, len(s.b))]))
	}
	if !utf16.IsSurrogate(r) {
		return r, 6, nil
	}
	if at+7 < len(s.b) && s.b[at+6] == '\\' && s.b[at+7] == 'u' {
		if low, ok := hex4(s.b, at+8); ok {
			if pair := utf16.DecodeRune(r, low); pair != utf8.RuneError {
				return pair, 12, nil
			}
		}
	}
	return utf8.RuneError, 6, nil
}

func hex4(b []byte, i int) (rune, bool) {
	if i+4 > len(b) {
		return 0, false
	}
	var r rune
	for _, c := range b[i : i+4] {
		d, ok := traffic.HexDigit(c)
		if !ok {
			return 0, false
		}
		r = r<<4 | rune(d)
	}
	return r, true
}
