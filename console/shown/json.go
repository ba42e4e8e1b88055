package shown

import (
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON escapes, in a JSON text, what is invisible or moves others about: terminals take U+009B for the beginning of a
// command, and U+202E turns the text behind it around. What the text says stays the same. Such characters stand within
// strings alone, but for the blanks of RFC 8259.
func JSON(text []byte) []byte {
	var out []byte
	done := 0 // what is in out
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRune(text[i:])
		if r >= utf8.RuneSelf && n > 1 && !unicode.IsPrint(r) || r == 0x7f {
			out = append(out, text[done:i]...)
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
			done = i + n
		}
		i += n
	}
	if done == 0 {
		return text
	}
	return append(out, text[done:]...)
}
