package traffic

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"tab\tand \x1b stay", "tab\tand \x1b stay"},
		{"nul\x00", `nul\x00`},
		{"\xff\xfe", `\xff\xfe`},
		{"a\x80b", `a\x80b`},
		{"grüße 界", "grüße 界"},
		{"cut \xe7\x95", `cut \xe7\x95`},
		{"surrogate \xed\xa0\x80", `surrogate \xed\xa0\x80`},
		{"real \ufffd stays", "real \ufffd stays"},
		{`back\slash`, `back\slash`},
	} {
		if got := Printable(c.in); got != c.want {
			t.Errorf("Printable(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}

func TestPrintableIsStorable(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := string(rapid.SliceOf(rapid.Byte()).Draw(t, "in"))
		got := Printable(in)
		if !utf8.ValidString(got) || strings.ContainsRune(got, 0) {
			t.Fatalf("Printable(%q) = %q", in, got)
		}
		if utf8.ValidString(in) && !strings.ContainsRune(in, 0) && got != in {
			t.Fatalf("Printable changed %q to %q", in, got)
		}
	})
}

func TestQuoteIsBounded(t *testing.T) {
	for _, in := range []string{
		"", "short", strings.Repeat("a", 62), strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 65),
		strings.Repeat("\x00", 100), strings.Repeat("\"", 40), strings.Repeat("界", 30), "\xff\xff",
	} {
		got := Quote(in)
		if len(got) > quotedBytes {
			t.Errorf("quote(%.10q…) has %d bytes: %s", in, len(got), got)
		}
		for i := range len(got) {
			if got[i] < ' ' || got[i] > '~' {
				t.Errorf("quote(%.10q…) is not printable: %q", in, got)
			}
		}
	}
	if got := Quote("short"); got != `"short"` {
		t.Errorf("got %s", got)
	}
}
